"""Which matches the comparison decides."""

from __future__ import annotations

from kproxy.dataplane.symbolic import conditions
from kproxy.netfilter.iptables.matches import MATCH_CLASSES, MacMatch, Match, PkttypeMatch, RpfilterMatch

OPEN = {MacMatch, PkttypeMatch, RpfilterMatch}
"""Those that it takes for open, each under its own text."""


def test_no_other_match_is_taken_for_open() -> None:
    """A forgotten one gives no wrong answer, only a weaker one, so random rules for both engines do not tell."""
    assert {cls for cls in MATCH_CLASSES if not _is_condition(cls) and not hasattr(conditions, cls.__name__)} == OPEN


def _is_condition(cls: type[Match]) -> bool:
    return all(asks is not None for _, asks in cls.lowering())
