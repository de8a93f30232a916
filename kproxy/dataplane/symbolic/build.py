"""What two rule sets have in play, and an evaluator made for just that.

Theory: docs/symbolic.md, "The function".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from kproxy.dataplane.model.pipeline import pattern_of
from kproxy.dataplane.symbolic.chains import Evaluator
from kproxy.dataplane.symbolic.conditions import Conditions
from kproxy.dataplane.symbolic.effects import Effects
from kproxy.dataplane.symbolic.hooks import NATIVE, Features, PathFunctions
from kproxy.dataplane.symbolic.host_rules import HostSide, SideRules
from kproxy.dataplane.symbolic.ipvs import destinations_of as destinations_of_servers
from kproxy.dataplane.symbolic.leaves import Outcomes
from kproxy.dataplane.symbolic.lists import LISTS, name_state, parts_of_lists, parts_of_sets
from kproxy.dataplane.symbolic.nat import Translation
from kproxy.dataplane.symbolic.nftables.comparisons import Comparisons
from kproxy.dataplane.symbolic.nftables.structure import NftSide, interfaces_of, nats_of, parts_of, sets_asked
from kproxy.dataplane.symbolic.normalize import Call, Structure, reduce_both
from kproxy.dataplane.symbolic.translated import UNCHANGED, Destination, destinations_of
from kproxy.dataplane.symbolic.variables import Interfaces, Variables
from kproxy.netfilter.condition import ALWAYS, TRACKED, fields_of
from kproxy.netfilter.effect import Nat, SetBits, SetField, Socket, Untrack
from kproxy.netfilter.family import Family
from kproxy.netfilter.iptables.codec import UINT32
from kproxy.netfilter.iptables.matches import ConnmarkMatch, ConntrackMatch, Match, RecentMatch, StateMatch
from kproxy.netfilter.iptables.rule import Rule
from kproxy.netfilter.iptables.ruleset import Ruleset
from kproxy.netfilter.nftables import statement as nft
from kproxy.netfilter.nftables.expression import Ct, MapLookup, Meta
from kproxy.netfilter.nftables.lowering import fields_in
from kproxy.netfilter.nftables.references import expressions_of


@dataclass(frozen=True)
class Setup:
    """Everything to compare two rule sets with."""

    family: Family
    structure: Structure
    sides: tuple[HostSide, HostSide]
    variables: Variables
    outcomes: Outcomes
    translation: Translation
    effects: Effects
    pipeline: PathFunctions


def fields_asked(step: object) -> Iterator[tuple[str, int]]:
    """The fields that a step asks, each with the bits of it that matter. What a mark is set to is no question."""
    if isinstance(step, Match):
        yield from fields_of(step.condition() or ALWAYS)
    elif isinstance(step, nft.Mangle) and getattr(step.target, "key", "") == "mark":
        found = fields_in(step.value)
        if isinstance(step.value, MapLookup):
            yield from found
        elif isinstance(step.target, Meta):
            yield from (each for each in found if each[0] == "connmark")
    elif isinstance(step, nft.Statement):
        for part in expressions_of(step):
            yield from fields_in(part)


@dataclass
class Marks:
    """Mark bits in play: which are tested, and which are changed."""

    tested: int = 0
    changed: int = 0
    connection_read: int = 0
    connection_changed: int = 0
    shifts: Counter[int] = field(default_factory=Counter)

    def read(self, name: str, bits: int) -> None:
        """Bits of a field that something asks."""
        if name == "mark":
            self.tested |= bits
        elif name == "connmark":
            self.connection_read |= bits

    def take(self, step: object) -> None:
        """The marks that a step changes."""
        if isinstance(step, Socket) and step.mark is not None:
            self.take(step.mark)
        elif isinstance(step, SetBits):
            self.shifts.update(
                term.shift if step.name == "connmark" else -term.shift for term in step.terms if term.name != step.name
            )
            if step.name == "mark":
                self.changed |= step.changed()
                self.connection_read |= step.read("connmark")
            else:
                self.connection_changed |= step.changed()
        elif isinstance(step, nft.Mangle) and getattr(step.target, "key", "") == "mark":
            if isinstance(step.target, Meta):
                self.changed |= UINT32
            else:
                self.connection_changed |= UINT32

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


def _stateful(rulesets: Iterable[Ruleset], structure: Structure) -> frozenset[str]:
    """The tables with rules that ask for the connection."""
    native = any(
        isinstance(part, Ct) or part == TRACKED or (isinstance(part, SetBits) and part.asks_connection)
        for chain, step in structure.steps()
        if chain.table is not None
        for part in parts_of(step)
    )
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

    iptables and nftables round a chance of one in three differently, by less than 2^-31, and IPVS has it exactly. Where
    rules of two of them are compared, chances are taken as the simple fractions that they stand for, unless the
    comparison is to be `exact`.

    Raises:
        DataplaneError: a jump to a chain that is not there, or a loop.
    """
    rules = (SideRules.of(one).with_members(), SideRules.of(other).with_members())
    found = next((item.family for item in rules if item.family is not None), Family.IPV4) if family is None else family
    state = name_state(*(parts_of_lists(item.rulesets) | parts_of_sets(item.tables(found), found) for item in rules))
    lists = [{name: alias for (table, name), alias in each.items() if table == LISTS} for each in state]
    structure, *iptables = reduce_both(rules[0].rulesets, rules[1].rulesets, lists)
    one_side, other_side = (
        HostSide(item, found, iptables[at], NftSide(structure, item.tables(found), state[at]), lists[at])
        for at, item in enumerate(rules)
    )
    sides = one_side, other_side
    marks, names, read_lists, destinations = Marks(), set[str](), set[str](), set[Destination]()
    ttl = tproxy = untracking = False
    for chain, step in structure.steps():
        if isinstance(step, Call):
            continue
        if isinstance(step, Rule):
            names.update(name.value for name in (step.in_interface, step.out_interface) if name is not None)
            continue
        marks.take(step)
        tproxy |= isinstance(step, Socket)
        untracking |= isinstance(step, Untrack)
        ttl |= isinstance(step, SetField) and step.name == "ttl"
        for name, bits in fields_asked(step):
            marks.read(name, bits)
            ttl |= name == "ttl"
        if isinstance(step, RecentMatch) and step.action.value != "set":
            read_lists.add(step.name)
        elif isinstance(step, Nat):
            destinations |= set(destinations_of(step, found))
        elif chain.table is not None:
            names |= set(interfaces_of(step, chain.table))
            if isinstance(step, nft.Nat):
                destinations |= {
                    each for nat in nats_of(step, chain.table, found) for each in destinations_of(nat, found)
                }
    for chain in structure.chains:
        read_lists |= {chain.lists[name] for name in sets_asked(chain) if name in chain.lists}
    names |= {pattern_of(name) for side in sides for base in side.pipeline.base_chains() for name in base.devices}
    for item in rules:
        destinations |= destinations_of_servers(item.ipvs) if item.ipvs is not None else set()
    destinations.discard(UNCHANGED)
    variables = Variables(found, Interfaces(names), len(destinations) + 1, marks.shift, rules[0].own | rules[1].own)
    outcomes = Outcomes(variables, marks.watched(variables))
    translation = Translation(variables, outcomes, (UNCHANGED, *sorted(destinations)))
    effects = Effects(variables, outcomes, translation, frozenset(read_lists))
    conditions = Conditions(variables)
    both = any(item.iptables for item in rules) and any(item.nftables.tables for item in rules)
    mixed = not exact and (both or len({item.ipvs is None for item in rules}) > 1)
    evaluator = Evaluator(
        structure, variables, outcomes, Comparisons(conditions, simple_chances=mixed), effects,
        {alias: time for side in sides for alias, time in side.state_sets.values() if time is not None},
        simple_chances=mixed,
    )  # fmt: skip
    stateful = _stateful([ruleset for item in rules for ruleset in item.rulesets], structure)
    features = Features(ttl, tproxy, untracking, stateful)
    pipeline = PathFunctions(variables, outcomes, effects, evaluator, features)
    return Setup(found, structure, sides, variables, outcomes, translation, effects, pipeline)
