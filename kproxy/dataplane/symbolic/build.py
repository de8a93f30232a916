"""What two rule sets have in play, and an evaluator made for just that.

Theory: docs/symbolic.md, "The function".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from kproxy.dataplane.model.pipeline import pattern_of
from kproxy.dataplane.symbolic.chains import Evaluator
from kproxy.dataplane.symbolic.conditions import Conditions
from kproxy.dataplane.symbolic.hooks import NATIVE, Features, PathFunctions
from kproxy.dataplane.symbolic.host_rules import HostSide, SideRules
from kproxy.dataplane.symbolic.leaves import Outcomes
from kproxy.dataplane.symbolic.lists import name_sets, parts_of_lists, parts_of_sets
from kproxy.dataplane.symbolic.nat import Translation
from kproxy.dataplane.symbolic.nftables.comparisons import Comparisons
from kproxy.dataplane.symbolic.nftables.evaluator import NftEvaluator
from kproxy.dataplane.symbolic.nftables.structure import (
    NftSide,
    NftStructure,
    asks_ttl,
    interfaces_of,
    parts_of,
    sets_asked,
)
from kproxy.dataplane.symbolic.nftables.translation import destinations as native_destinations
from kproxy.dataplane.symbolic.normalize import NormalizedRule, Side, Structure, reduce_both
from kproxy.dataplane.symbolic.targets import Targets
from kproxy.dataplane.symbolic.translated import UNCHANGED, Destination, destinations_of
from kproxy.dataplane.symbolic.variables import Interfaces, Variables
from kproxy.netfilter.condition import ALWAYS, fields_of
from kproxy.netfilter.family import Family
from kproxy.netfilter.iptables.codec import UINT32
from kproxy.netfilter.iptables.matches import (
    ConnmarkMatch,
    ConntrackMatch,
    RecentMatch,
    StateMatch,
)
from kproxy.netfilter.iptables.matches.header import TtlMatch
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
from kproxy.netfilter.nftables.expression import Ct, MapLookup, Meta
from kproxy.netfilter.nftables.lowering import fields_in, key_of, written_bits
from kproxy.netfilter.nftables.references import expressions_of
from kproxy.netfilter.nftables.statement import Mangle, Notrack, Statement, Tproxy


@dataclass(frozen=True)
class Setup:
    """Everything to compare two rule sets with."""

    family: Family
    structure: Structure
    sides: tuple[HostSide, HostSide]
    variables: Variables
    outcomes: Outcomes
    translation: Translation
    targets: Targets
    pipeline: PathFunctions


@dataclass
class _Marks:
    """Mark bits in play: which are tested, and which are changed."""

    tested: int = 0
    changed: int = 0
    connection_read: int = 0
    connection_changed: int = 0
    shifts: Counter[int] = field(default_factory=Counter)

    def take(self, normalized: NormalizedRule) -> None:
        self.read(found for match in normalized.matches for found in fields_of(match.condition() or ALWAYS))
        target = normalized.target
        if isinstance(target, MarkTarget):
            self.changed |= target.xmark.mask | target.xmark.value
        elif isinstance(target, TproxyTarget):
            self.changed |= target.tproxy_mark.mask | target.tproxy_mark.value
        elif isinstance(target, ConnmarkTarget):
            if target.copy is not None:
                left = (target.left_shift or 0) - (target.right_shift or 0)
                self.shifts[left if target.copy == "save" else -left] += 1
            if target.copy == "restore":
                self.changed |= UINT32
                self.connection_read |= UINT32 if target.ctmask is None else target.ctmask
            else:
                self.connection_changed |= UINT32

    def read(self, fields: Iterable[tuple[str, int]]) -> None:
        """Bits that something reads."""
        for name, bits in fields:
            if name == "mark":
                self.tested |= bits
            elif name == "connmark":
                self.connection_read |= bits

    def take_native(self, statement: Statement) -> None:
        """The marks of a native rule. What a mark is set to is no test of it."""
        if not isinstance(statement, Mangle) or getattr(statement.target, "key", "") != "mark":
            self.read(found for part in expressions_of(statement) for found in fields_in(part))
            return
        value, of_packet = statement.value, isinstance(statement.target, Meta)
        if of_packet:
            self.changed |= written_bits(value)
        else:
            self.connection_changed |= UINT32
        if isinstance(value, MapLookup):
            self.read(fields_in(value))
        elif of_packet:
            self.read(found for found in fields_in(value) if found[0] == "connmark")
        key = key_of(value)
        if key is not None and key.field == ("connmark" if of_packet else "mark"):
            self.shifts[key.shift if of_packet else -key.shift] += 1

    @property
    def shift(self) -> int:
        """By how many bits most copies move a mark to the left on its way to the connection's."""
        return max(self.shifts, key=lambda shift: (self.shifts[shift], -abs(shift)), default=0)

    def watched(self, variables: Variables) -> list[int]:
        mark, connection = self.changed & ~self.tested, self.connection_changed & self.connection_read
        return [
            level
            for name, changed in (("mark", mark), ("connmark", connection))
            for bit, level in enumerate(reversed(variables.levels[name]))
            if changed >> bit & 1
        ]


def _stateful(rulesets: Iterable[Ruleset], structure: NftStructure) -> frozenset[str]:
    """The tables with rules that ask for the connection."""
    native = any(isinstance(part, Ct) for chain in structure.chains for rule in chain.rules for part in parts_of(rule))
    return frozenset({NATIVE} if native else ()) | frozenset(
        table.name
        for ruleset in rulesets
        for table in ruleset.tables
        for chain in table.chains
        for rule in chain.rules
        for match in rule.matches
        if isinstance(match, (ConntrackMatch, StateMatch, ConnmarkMatch))
    )


def set_up(
    one: Ruleset | SideRules, other: Ruleset | SideRules, family: Family | None = None, *, exact: bool = False
) -> Setup:
    """Prepare to compare two sides, for packets of one family: the one that rules tell, or IPv4.

    iptables and nftables round a chance of one in three differently, by less than 2^-31. Where rules of both are
    compared, chances are taken as the simple fractions that they stand for, unless the comparison is to be `exact`.

    Raises:
        DataplaneError: a jump to a chain that is not there, or a loop.
    """
    rules = (SideRules.of(one), SideRules.of(other))
    found = next((item.family for item in rules if item.family is not None), Family.IPV4) if family is None else family
    structure, *iptables = reduce_both(rules[0].rulesets, rules[1].rulesets)
    native = NftStructure()
    sides = _sides(rules, found, iptables, native)
    marks, names, read_lists, destinations = _Marks(), set[str](), set[str](), set[Destination]()
    parts, statements = list[object](), list[Statement]()
    for normalized in structure.rules:
        rule = normalized.rule
        parts += (*normalized.matches, normalized.target)
        names |= {name.value for name in (rule.in_interface, rule.out_interface) if name is not None}
        marks.take(normalized)
        read_lists |= {
            match.name for match in normalized.matches if isinstance(match, RecentMatch) and match.action.value != "set"
        }
        destinations |= set(destinations_of(normalized.target, found))
    for chain in native.chains:
        read_lists |= {chain.lists[name] for name in sets_asked(chain) if name in chain.lists}
        for statement in (statement for rule in chain.rules for statement in rule):
            statements.append(statement)
            marks.take_native(statement)
            names |= set(interfaces_of(statement, chain.table))
    names |= {pattern_of(name) for side in sides for base in side.pipeline.base_chains() for name in base.devices}
    destinations |= native_destinations((table for side in sides for table in side.native.tables), found)
    destinations.discard(UNCHANGED)
    variables = Variables(found, Interfaces(names), len(destinations) + 1, marks.shift)
    outcomes = Outcomes(variables, marks.watched(variables))
    translation = Translation(variables, outcomes, (UNCHANGED, *sorted(destinations)))
    targets = Targets(variables, outcomes, translation, frozenset(read_lists))
    conditions = Conditions(variables)
    mixed = not exact and any(item.iptables for item in rules) and any(item.nftables.tables for item in rules)
    evaluator = Evaluator(structure, variables, outcomes, conditions, targets, simple_chances=mixed)
    evaluators = (
        evaluator,
        NftEvaluator(
            native, variables, outcomes, Comparisons(conditions, simple_chances=mixed), targets,
            {alias: time for side in sides for alias, time in side.state_sets.values() if time is not None},
        ),
    )  # fmt: skip
    features = Features(
        ttl=any(isinstance(part, (TtlMatch, TtlTarget, HlTarget)) for part in parts) or any(map(asks_ttl, statements)),
        tproxy=any(isinstance(part, (TproxyTarget, Tproxy)) for part in (*parts, *statements)),
        untracking=any(
            isinstance(part, (NotrackTarget, Notrack)) or (isinstance(part, CtTarget) and part.notrack)
            for part in (*parts, *statements)
        ),
        stateful=_stateful([ruleset for item in rules for ruleset in item.rulesets], native),
    )
    pipeline = PathFunctions(variables, outcomes, targets, *evaluators, features)
    return Setup(found, structure, sides, variables, outcomes, translation, targets, pipeline)


def _sides(
    rules: tuple[SideRules, SideRules], family: Family, iptables: Sequence[list[Side]], native: NftStructure
) -> tuple[HostSide, HostSide]:
    tables = [item.tables(family) for item in rules]
    renamed = [{name: alias for side in sides for name, alias in side.lists.items()} for sides in iptables]
    lists = [parts_of_lists(item.rulesets, names) for item, names in zip(rules, renamed, strict=True)]
    sets = name_sets(lists, [parts_of_sets(held, family) for held in tables])
    one, other = (
        HostSide(item, family, iptables[number], NftSide(native, tables[number], sets[number]), renamed[number])
        for number, item in enumerate(rules)
    )
    return one, other
