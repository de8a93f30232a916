"""The matches that more than a condition decides, with one evaluator each. A match that is in neither place makes its
rule undecidable."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from kproxy.dataplane.concrete.answer import answer
from kproxy.dataplane.concrete.matches import header, link, opaque, state
from kproxy.dataplane.concrete.state import Answer, View, unknown
from kproxy.netfilter.condition import Condition
from kproxy.netfilter.iptables.matches import (
    AddrtypeMatch,
    HashlimitMatch,
    LimitMatch,
    MacMatch,
    Match,
    OpaqueMatch,
    OwnerMatch,
    PhysdevMatch,
    PkttypeMatch,
    RecentMatch,
    RpfilterMatch,
    SetMatch,
    StatisticMatch,
)

EVALUATORS: Final[dict[type[Match], Callable[[Any, View], Answer]]] = {
    AddrtypeMatch: state.addrtype,
    HashlimitMatch: state.limit,
    LimitMatch: state.limit,
    MacMatch: link.mac,
    OpaqueMatch: opaque.opaque,
    OwnerMatch: header.owner,
    PhysdevMatch: header.physdev,
    PkttypeMatch: link.pkttype,
    RecentMatch: state.recent,
    RpfilterMatch: link.rpfilter,
    SetMatch: state.ip_set,
    StatisticMatch: state.statistic,
}

EFFECTS: Final[frozenset[type[Match]]] = frozenset({RecentMatch, StatisticMatch, SetMatch, LimitMatch, HashlimitMatch})
"""Matches that change something when they are asked, so that the order within a rule counts."""


def evaluate(match: Match, condition: Condition | None, view: View) -> Answer:
    """Whether a match applies, whose condition is this; None if it is more than a condition."""
    if condition is not None:
        return answer(condition, view)
    evaluator = EVALUATORS.get(type(match))
    return unknown(view, f"{match.to_save()} is not interpreted") if evaluator is None else evaluator(match, view)
