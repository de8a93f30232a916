"""The matches that more than a condition decides, with one evaluator each: those that are state, or need the bytes of
the packet."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from kproxy.dataplane.concrete.answer import answer
from kproxy.dataplane.concrete.matches.opaque import opaque
from kproxy.dataplane.concrete.matches.state import ip_set, recent
from kproxy.dataplane.concrete.state import Answer, View
from kproxy.netfilter.condition import Condition
from kproxy.netfilter.iptables.matches import (
    HashlimitMatch,
    LimitMatch,
    Match,
    OpaqueMatch,
    RecentMatch,
    SetMatch,
    StatisticMatch,
)

EVALUATORS: Final[dict[type[Match], Callable[[Any, View], Answer]]] = {
    OpaqueMatch: opaque,
    RecentMatch: recent,
    SetMatch: ip_set,
}

EFFECTS: Final[frozenset[type[Match]]] = frozenset({RecentMatch, StatisticMatch, SetMatch, LimitMatch, HashlimitMatch})
"""Matches that change something when they are asked, so that the order within a rule counts."""


def evaluate(match: Match, condition: Condition | None, view: View) -> Answer:
    """Whether a match applies, whose condition is this; None if it is more than a condition."""
    return EVALUATORS[type(match)](match, view) if condition is None else answer(condition, view)
