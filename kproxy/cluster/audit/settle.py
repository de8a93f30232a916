"""What a live audit finds, read again: kube-proxy lags behind a change by a moment, which is no fault."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final

from kproxy.cluster.audit.finding_kinds import KINDS, Severity
from kproxy.cluster.audit.observation import Observation
from kproxy.cluster.motion import TIMES

_ENDPOINT: Final = re.compile(r"\S+:\d+")


def settle(
    found: Sequence[Observation], observe: Callable[[Collection[str]], Sequence[Observation]]
) -> tuple[list[Observation], list[Observation]]:
    """What stays of some observations, and what was in motion.

    Args:
        observe: what is observed on some nodes when they and the objects are read again, a while later.
    """
    stays, moving = list(found), []
    for _ in range(TIMES):
        wrong = [each for each in stays if KINDS[each.kind].severity is not Severity.INFO]
        if not wrong:
            break
        later: dict[tuple[str, str, str], list[Observation]] = {}
        for each in observe(sorted({each.node for each in wrong})):
            later.setdefault((each.kind, each.node, each.service), []).append(each)
        gone = [each for each in wrong if not _is_among(each, later.get((each.kind, each.node, each.service), ()))]
        moving += gone
        stays = [each for each in stays if each not in gone]
    return stays, moving


def _is_among(one: Observation, others: Iterable[Observation]) -> bool:
    """Whether the same is wrong: by the same cause, or with one of the same endpoints."""
    endpoints = set(_ENDPOINT.findall(one.detail))
    return any(each.cause == one.cause or endpoints & set(_ENDPOINT.findall(each.detail)) for each in others)
