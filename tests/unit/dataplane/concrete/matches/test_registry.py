"""Every match that is read is a condition, or has its evaluator."""

from __future__ import annotations

from kproxy.dataplane.concrete.matches.registry import EVALUATORS
from kproxy.netfilter.iptables.matches import MATCH_CLASSES


def test_every_match_is_evaluated() -> None:
    for each in MATCH_CLASSES:
        lowered = {field for field, asks in each.lowering() if asks is not None}
        assert (each in EVALUATORS) != (len(lowered) == len(each.lowering())), each.NAME
