"""Journeys over a snapshot in which nodes have no Node object, though others have: what depends on them is open."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from kproxy.cluster.journey.known import KnownNetwork, no_object
from kproxy.cluster.journey.path import ANSWERED, OPEN, Journey, journeys, one_of


def known_journeys(
    network: KnownNetwork, client: str, destination: str, protocol: str, **more: Any
) -> Sequence[Journey]:
    """All that can become of a connection, as `path.journeys` tells it. Open is what fails on a node without a Node
    object, and where load balancers lead if it matters whether they lead to such a node.

    Args:
        more: see `path.journeys`.

    Raises:
        InputError, DataplaneError: see `path.journeys`.
    """
    lost = network.cluster.lost_nodes

    def walked(some: KnownNetwork) -> Sequence[Journey]:
        ways = journeys(some, client, destination, protocol, **more)
        return [_open(way) if way.at in lost and way.end not in (ANSWERED, OPEN) else way for way in ways]

    def _open(way: Journey) -> Journey:
        network.suspected.setdefault(lost[way.at])
        why = f"{no_object([way.at])}; possible: {way.end} at {way.at}: {way.reason}"
        return dataclasses.replace(way, end=OPEN, reason=why)

    found = walked(network)
    if not lost:
        return found
    why = f"{no_object(lost)}: whether {destination} leads there is not known"
    either = one_of([found, walked(network.without_lost_nodes)], why)
    if either is not found:
        network.suspected.update(dict.fromkeys(lost.values()))
    return either
