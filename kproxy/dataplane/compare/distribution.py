"""Reading outcome functions: the whole distribution at a point, and where two functions differ."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from fractions import Fraction
from typing import NamedTuple, TypeVar

from kproxy.dataplane.compare.witness import Values
from kproxy.dataplane.symbolic.build import Setup
from kproxy.dataplane.symbolic.leaves import Outcome
from kproxy.dataplane.symbolic.nodes import ZERO, Node
from kproxy.dataplane.symbolic.translated import KEEP, Destination


class Fate(NamedTuple):
    """One thing that can become of a packet: where it goes, and the rest. Without a destination it goes nowhere."""

    destination: Destination | None
    outcome: Outcome


Distribution = dict[Fate, Fraction]


_Key = TypeVar("_Key", bound=Hashable)


def summed(parts: Iterable[tuple[_Key, Fraction]]) -> dict[_Key, Fraction]:
    """Chances by key, those of equal keys added up."""
    result: dict[_Key, Fraction] = {}
    for key, weight in parts:
        result[key] = result.get(key, Fraction(0)) + weight
    return result


def distribution_at(setup: Setup, node: Node, values: Mapping[int, int]) -> Distribution:
    """Everything that can become of the packet with these values, with its chances."""
    return summed(_fates(setup, node, values))


def _fates(setup: Setup, node: Node, values: Mapping[int, int]) -> Iterator[tuple[Fate, Fraction]]:
    variables, diagrams = setup.variables, setup.variables.diagrams
    while diagrams.level[node] < variables.destination:
        node = diagrams.at_level(node, values)
    pending = []
    start = 0
    for end, child in zip(*diagrams.parts(node, variables.destination), strict=True):
        if child != ZERO:
            pending += [(destination, child) for destination in range(start, end)]
        start = end
    here = Values(variables, values).destination
    for destination, child in pending:
        leaf = diagrams.at(child, values)
        for symbolic, weight in setup.outcomes.entries(leaf):
            outcome = setup.outcomes.settled(symbolic, values)
            fate = Fate(None, outcome._replace(source=""))
            if outcome.goes_on:
                fate = Fate(exact(setup.translation.destinations[destination], here), outcome)
            yield fate, weight


def exact(destination: Destination, here: tuple[int, int]) -> Destination:
    """A translated destination in full, for a packet that was sent here."""
    if destination.text:
        return destination
    return Destination(
        here[0] if destination.address == KEEP else destination.address,
        here[1] if destination.port == KEEP else destination.port,
    )
