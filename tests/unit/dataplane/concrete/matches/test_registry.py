"""Every match that is read has its evaluator."""

from __future__ import annotations

from kproxy.dataplane.concrete.matches.registry import EVALUATORS, IGNORED
from kproxy.netfilter.iptables.matches import MATCH_CLASSES


def test_every_match_is_evaluated() -> None:
    assert {*MATCH_CLASSES} <= {*EVALUATORS, *IGNORED}
