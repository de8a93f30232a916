"""Every match that is read is a condition, or has its evaluator."""

from __future__ import annotations

from kproxy.dataplane.concrete.matches.registry import EVALUATORS
from kproxy.netfilter.iptables.matches import MATCH_CLASSES, Match


def test_every_match_is_evaluated() -> None:
    for each in MATCH_CLASSES:
        lowered = all(row.asks is not None for row in each.lowering()) or each.condition is not Match.condition
        assert (each in EVALUATORS) != lowered, each.NAME
