"""What two rule sets have in play, and an evaluator made for just that.

Theory: docs/symbolic.md, "The function".
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kproxy.dataplane.symbolic.chains import Evaluator
from kproxy.dataplane.symbolic.conditions import Conditions
from kproxy.dataplane.symbolic.hooks import Features, HookPipeline
from kproxy.dataplane.symbolic.leaves import Outcomes
from kproxy.dataplane.symbolic.nat import Translation
from kproxy.dataplane.symbolic.normalize import NormalizedRule, Side, Structure, reduce_both
from kproxy.dataplane.symbolic.targets import Targets
from kproxy.dataplane.symbolic.translated import UNCHANGED, destinations_of
from kproxy.dataplane.symbolic.variables import Interfaces, Variables
from kproxy.netfilter.family import Family
from kproxy.netfilter.iptables.codec import UINT32
from kproxy.netfilter.iptables.matches import (
    ConnmarkMatch,
    ConntrackMatch,
    HlMatch,
    MarkMatch,
    RecentMatch,
    StateMatch,
    TtlMatch,
)
from kproxy.netfilter.iptables.ruleset import Ruleset
from kproxy.netfilter.iptables.targets import (
    ConnmarkTarget,
    CtTarget,
    HlTarget,
    MarkTarget,
    NotrackTarget,
    TproxyTarget,
    TtlTarget,
)


@dataclass(frozen=True)
class Setup:
    """Everything to compare two rule sets with."""

    family: Family
    structure: Structure
    sides: tuple[Side, Side]
    variables: Variables
    outcomes: Outcomes
    translation: Translation
    targets: Targets
    pipeline: HookPipeline


@dataclass
class _Marks:
    """Mark bits in play: which are tested, and which are changed."""

    tested: int = 0
    changed: int = 0
    connection_read: int = 0
    connection_changed: int = 0

    def take(self, normalized: NormalizedRule) -> None:
        for match in normalized.matches:
            if isinstance(match, MarkMatch):
                self.tested |= match.mark.value.mask
            elif isinstance(match, ConnmarkMatch):
                self.connection_read |= match.mark.value.mask
        target = normalized.target
        if isinstance(target, MarkTarget):
            self.changed |= target.xmark.mask | target.xmark.value
        elif isinstance(target, TproxyTarget):
            self.changed |= target.tproxy_mark.mask | target.tproxy_mark.value
        elif isinstance(target, ConnmarkTarget):
            if target.copy == "restore":
                self.changed |= UINT32
                self.connection_read |= UINT32 if target.ctmask is None else target.ctmask
            else:
                self.connection_changed |= UINT32

    def watched(self, variables: Variables) -> list[int]:
        mark, connection = self.changed & ~self.tested, self.connection_changed & self.connection_read
        levels = [variables.mark + 31 - bit for bit in range(32) if mark >> bit & 1]
        return levels + [variables.connmark + 31 - bit for bit in range(32) if connection >> bit & 1]


def _stateful(*rulesets: Ruleset) -> frozenset[str]:
    """The tables with rules that ask for the connection."""
    return frozenset(
        table.name
        for ruleset in rulesets
        for table in ruleset.tables
        for chain in table.chains
        for rule in chain.rules
        for match in rule.matches
        if isinstance(match, (ConntrackMatch, StateMatch, ConnmarkMatch))
    )


def family_of(rulesets: Iterable[Ruleset]) -> Family:
    """The family of rule sets of which at least one says; IPv4 if none does."""
    return next((ruleset.family for ruleset in rulesets if ruleset.family is not None), Family.IPV4)


def set_up(one: Ruleset, other: Ruleset) -> Setup:
    """Prepare to compare two rule sets of one family.

    Raises:
        DataplaneError: a jump to a chain that is not there, or a loop.
    """
    family = family_of((one, other))
    structure, ours, theirs = reduce_both(one, other)
    marks = _Marks()
    names: set[str] = set()
    destinations = set()
    read_lists: set[str] = set()
    ttl = tproxy = untracking = False
    for normalized in structure.rules:
        rule, target = normalized.rule, normalized.target
        names |= {name.value for name in (rule.in_interface, rule.out_interface) if name is not None}
        marks.take(normalized)
        for match in normalized.matches:
            ttl = ttl or isinstance(match, (TtlMatch, HlMatch))
            if isinstance(match, RecentMatch) and match.action.value != "set":
                read_lists.add(match.name)
        ttl = ttl or isinstance(target, (TtlTarget, HlTarget))
        tproxy = tproxy or isinstance(target, TproxyTarget)
        untracking = (
            untracking or isinstance(target, NotrackTarget) or (isinstance(target, CtTarget) and target.notrack)
        )
        destinations |= set(destinations_of(target, family))
    destinations.discard(UNCHANGED)
    variables = Variables(family, Interfaces(names), len(destinations) + 1)
    outcomes = Outcomes(variables, marks.watched(variables))
    translation = Translation(variables, outcomes, (UNCHANGED, *sorted(destinations)))
    targets = Targets(variables, outcomes, translation, frozenset(read_lists))
    evaluator = Evaluator(structure, variables, outcomes, Conditions(variables), targets)
    pipeline = HookPipeline(
        variables, outcomes, targets, evaluator, Features(ttl, tproxy, untracking, _stateful(one, other))
    )
    return Setup(family, structure, (ours, theirs), variables, outcomes, translation, targets, pipeline)
