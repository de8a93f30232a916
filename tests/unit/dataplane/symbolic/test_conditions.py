"""Which matches the comparison decides."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from kproxy.dataplane.symbolic.ask import OpaqueError, ask
from kproxy.dataplane.symbolic.free_variables import AFTER, Stage
from kproxy.dataplane.symbolic.variables import Interfaces, Variables
from kproxy.netfilter import Family, parse_rule
from kproxy.netfilter.condition import Chance
from kproxy.netfilter.iptables.matches import (
    MATCH_CLASSES,
    Match,
    PhysdevMatch,
    RecentMatch,
    SetMatch,
)
from kproxy.netfilter.iptables.matches.link import MacMatch, PkttypeMatch, RpfilterMatch
from tests.support.netfilter.recorded_rules import groups

OPEN = {MacMatch, PhysdevMatch, PkttypeMatch, RpfilterMatch}
"""Those that it takes for open, each under its own text."""
STATE = {RecentMatch, SetMatch}
"""Those that are more than a condition."""


def examples(cls: type[Match]) -> Iterable[Match]:
    """Some matches of a class, of recorded rules: of IPv4, if it has it."""
    rules = (parse_rule(line, family=group.family) for group in groups() for each in group.typed for line in each.saved)
    return islice((match for rule in rules for match in rule.matches if type(match) is cls), 3)


def test_no_other_match_is_taken_for_open() -> None:
    """A forgotten one gives no wrong answer, only a weaker one, so random rules for both engines do not tell."""
    variables = Variables(Family.IPV4, Interfaces(["eth0"]), 1)
    stage = Stage("FORWARD", "filter", "ESTABLISHED", True, False, AFTER, True, True)
    opened = set()
    for cls in set(MATCH_CLASSES) - STATE:
        for match in examples(cls):
            condition = match.condition()
            assert condition is not None, match
            if isinstance(condition, Chance):
                continue
            limited = getattr(match, "limit_iface_in", False) or getattr(match, "limit_iface_out", False)
            try:
                ask(condition, variables, stage)
            except OpaqueError:
                if not limited:
                    opened.add(cls)
    assert opened == OPEN
