"""The rules of other programs on the node, from its dump: what they have to do with kube-proxy's, and what packets meet
with both.

kube-proxy's own chains and its table are taken out of the dump; what the manifests give stands in their place, in
either mode. kube-proxy puts its jumps before the rules of others, and leaves those that are there where they are.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import zip_longest
from typing import Final

from kproxy.cluster.equivalence.rule_constants import RuleConstants
from kproxy.cluster.evidence.opened import open_rules
from kproxy.cluster.evidence.unseen import Unseen, suspected
from kproxy.cluster.rendered import is_ours
from kproxy.cluster.rules import HostRules
from kproxy.dataplane import TraceResult
from kproxy.dataplane.model.pipeline import TABLE_FAMILIES, IptablesRules
from kproxy.dataplane.symbolic.host_rules import SideRules
from kproxy.dataplane.symbolic.nftables.structure import interfaces_of
from kproxy.netfilter import BUILTIN_CHAINS, Chain, Family, Jump, Rule, Ruleset, Table
from kproxy.netfilter.condition import ALWAYS, fields_of
from kproxy.netfilter.hooks import Variant
from kproxy.netfilter.iptables.matches import CommentMatch
from kproxy.netfilter.iptables.rule import Head
from kproxy.netfilter.iptables.save import print_save
from kproxy.netfilter.iptables.targets import ConnmarkTarget, MarkTarget
from kproxy.netfilter.nftables.expression import Ct, Expression, Meta
from kproxy.netfilter.nftables.lowering import fields_in, written_bits
from kproxy.netfilter.nftables.references import expressions_of
from kproxy.netfilter.nftables.rule import RulePrinter
from kproxy.netfilter.nftables.ruleset import NftRuleset
from kproxy.netfilter.nftables.ruleset import Rule as NftRule
from kproxy.netfilter.nftables.statement import Mangle
from kproxy.netfilter.nftables.style import BOOKWORM
from kproxy.netfilter.nftables.text import print_nft
from kproxy.render.iptables.base import JUMP_RULES
from kproxy.render.iptables.chains import FIREWALL, SERVICE_PORT_CHAIN_PREFIXES
from kproxy.render.nftables.names import TABLE

_KUBELET: Final = "KUBE-KUBELET-CANARY"
_OWN_JUMPS: Final = frozenset((jump.table, jump.source, jump.target) for jump in JUMP_RULES)
_IS_NEW: Final = "-m conntrack --ctstate NEW"
_ALL_BITS: Final = 0xFFFFFFFF
_MOST_INTERFACES: Final = 8


Key = tuple[str, str, int | str]
"""What tells a rule in a trace: table and chain, and its text in iptables, whose numbers are others once kube-proxy's
rules stand before them, or its number in native nftables."""


@dataclass(frozen=True, slots=True)
class NamedRule:
    """A rule of another program: `key` tells it in a trace, `text` to people."""

    key: Key
    text: str

    @classmethod
    def of_iptables(cls, table: str, chain: str, place: int, rule: Rule) -> NamedRule:
        """A rule of iptables."""
        text = rule.to_save(chain)
        return cls((table, chain, text), f"{table} {chain} {place}: {text}")


def are_met(rules: Collection[NamedRule], *traces: TraceResult) -> bool:
    """Whether a packet matched one of these rules on its way."""
    keys = {rule.key for rule in rules}
    steps = (step for trace in traces for outcome in trace.outcomes for step in outcome.path)
    return any((step.table, step.chain, named) in keys for step in steps for named in (step.text, step.rule))


@dataclass(frozen=True)
class ForeignRules:
    """Other programs' rules for packets of one family.

    Attributes:
        dump: of iptables, by variant, all that was there. main: the place of the one that kube-proxy's rules go into.
        nftables: without kube-proxy's tables.
        kube: rules of others that name kube-proxy's chains.
        kubelet: whether a kubelet keeps the guard of 127.0.0.0/8 (KUBE-FIREWALL).
        unseen: what the dump points to and does not show.
    """

    family: Family
    dump: tuple[IptablesRules, ...]
    main: int
    nftables: NftRuleset
    kube: tuple[NamedRule, ...]
    kubelet: bool
    unseen: tuple[Unseen, ...] = ()

    @classmethod
    def of(cls, rules: HostRules, family: Family) -> ForeignRules:
        """What of a node's dump is not kube-proxy's."""
        dumped = rules.iptables(family) or (IptablesRules(Ruleset(family), Variant.NFT),)
        kubelet = any(item.ruleset.chain("mangle", _KUBELET) is not None for item in dumped)
        with_kube = (
            place
            for place, item in enumerate(dumped)
            if any(is_ours(table.name, chain.name) for table in item.ruleset.tables for chain in table.chains)
        )
        native = rules.nftables or NftRuleset()
        others = tuple(
            table
            for table in native.tables
            if table.family in TABLE_FAMILIES[family] and table.name != TABLE and not table.managed_by
        )
        kube = tuple(rule for item in dumped for rule in _namers(item.ruleset))
        unseen = tuple(each for each in suspected(rules.unseen) if each.is_met_by(family))
        return cls(family, dumped, next(with_kube, 0), NftRuleset(others), kube, kubelet, unseen)

    @property
    def opened(self) -> ForeignRules:
        """The same with rules that leave open what was not seen."""
        return replace(self, dump=open_rules(self.dump, self.family, self.unseen, forked=False))

    @property
    def iptables(self) -> tuple[IptablesRules, ...]:
        """Without kube-proxy's chains and whatever jumps to them: what takes effect once they are gone."""
        return tuple(replace(item, ruleset=_without_ours(item.ruleset)) for item in self.dump)

    @property
    def is_empty(self) -> bool:
        """Whether there are no rules of others."""
        return not self.kube and not (
            self.nftables.has_effect or any(item.ruleset.has_effect for item in self.iptables)
        )

    @property
    def text(self) -> str:
        """All of it, as iptables-save and nft write it: equal for rules that do the same."""
        parts = [f"{each.variant}\n{print_save(each.ruleset, counters=False)}" for each in self.iptables]
        parts += [print_nft(self.nftables), *(each.text for each in self.kube), f"main {self.main}"]
        dump = self.dump[self.main].ruleset
        others = _without_ours(dump)
        for table in dump.tables:
            for chain in table.chains:
                if chain.name in BUILTIN_CHAINS.get(table.name, ()):
                    places = _jump_places(table.name, chain, others.chain(table.name, chain.name))
                    parts += [f"{table.name} {chain.name} {places}"] if any(places.values()) else []
        return "\n".join(parts)

    @property
    def named(self) -> RuleConstants | None:
        """What the rules name, by which they could tell Services apart; None: by more than that."""
        rules = (
            rule
            for item in self.dump
            for table in item.ruleset.tables
            for chain in table.chains
            if not is_ours(table.name, chain.name)
            for rule in chain.rules
        )
        return RuleConstants.of(rules, self.nftables, SERVICE_PORT_CHAIN_PREFIXES)

    @property
    def interfaces(self) -> tuple[str, ...]:
        """Interfaces by which rules of others may ask that a packet arrives, one for each pattern."""
        rules = (rule for item in self.iptables for _, _, _, rule in item.ruleset.rules())
        names = {rule.in_interface.value for rule in rules if rule.in_interface is not None}
        for table in self.nftables.tables:
            for chain in table.chains:
                for statement in (each for rule in chain.rules for each in rule.statements):
                    names |= set(interfaces_of(statement, table))
        return tuple(sorted({f"{name[:-1]}0" if name.endswith("+") else name for name in names} - {"lo"}))[
            :_MOST_INTERFACES
        ]

    @cached_property
    def markers(self) -> tuple[NamedRule, ...]:
        """Rules of others that mark packets or connections."""
        return tuple(
            self._rules(
                lambda rule: isinstance(rule.target, (MarkTarget, ConnmarkTarget)),
                lambda rule: any(isinstance(each, Mangle) and _is_mark(each.target) for each in rule.statements),
            )
        )

    def users_of(self, bits: int) -> Iterator[NamedRule]:
        """Rules of others that match on bits of the packet mark, or set them."""
        return self._rules(lambda rule: bool(_iptables_bits(rule) & bits), lambda rule: bool(_native_bits(rule) & bits))

    def _rules(self, wanted: Callable[[Rule], bool], native: Callable[[NftRule], bool]) -> Iterator[NamedRule]:
        for item in self.dump:
            theirs = {(table.name, chain.name) for table, chain, _, _ in _without_ours(item.ruleset).rules()}
            for table, called, place, rule in item.ruleset.rules():
                if (table.name, called.name) in theirs and wanted(rule):
                    yield NamedRule.of_iptables(table.name, called.name, place, rule)
        for held in self.nftables.tables:
            printer = RulePrinter(held.family, BOOKWORM, {item.name: item for item in held.sets})
            name = f"{held.family.value} {held.name}"
            for chain in held.chains:
                for place, each in enumerate(chain.rules, 1):
                    if native(each):
                        yield NamedRule((name, chain.name, place), f"{name} {chain.name} {place}: {printer.rule(each)}")

    def without(self, rules: Collection[NamedRule]) -> ForeignRules:
        """The same without some of its rules of iptables."""
        keys = {rule.key for rule in rules}

        def kept(table: str, chain: str, rule: Rule) -> bool:
            return (table, chain, rule.to_save(chain)) not in keys

        dump = tuple(replace(item, ruleset=_only(item.ruleset, kept)) for item in self.dump)
        return replace(self, dump=dump, kube=tuple(rule for rule in self.kube if rule.key not in keys))

    def with_iptables(self, own: SideRules) -> SideRules:
        """All rules of the node in iptables mode; rules of others still lead to kube-proxy's chains, and kube-proxy's
        jumps stand where they are."""
        (ruleset,) = own.rulesets
        items = list(self.iptables)
        dump = self.dump[self.main].ruleset
        others = _without_ours(dump, own=ruleset)
        items[self.main] = replace(items[self.main], ruleset=_joined(ruleset, others, dump))
        return SideRules(tuple(items), self.nftables)

    def with_nftables(self, own: SideRules) -> SideRules:
        """All rules of the node in nftables mode; a chain that is added later is called first."""
        return SideRules(self.iptables, NftRuleset((*self.nftables.tables, *own.nftables.tables)))


def _only(ruleset: Ruleset, kept: Callable[[str, str, Rule], bool]) -> Ruleset:
    """The rule set with only the rules of which `kept`, asked with table and chain, is true."""
    tables = [
        Table(
            table.name,
            tuple(
                replace(chain, rules=tuple(rule for rule in chain.rules if kept(table.name, chain.name, rule)))
                for chain in table.chains
            ),
        )
        for table in ruleset.tables
    ]
    return Ruleset(ruleset.family, tuple(tables), ruleset.comments)


def _without_ours(ruleset: Ruleset, own: Ruleset | None = None) -> Ruleset:
    """The rule set without kube-proxy's chains and the jumps to them. KUBE-FIREWALL stays if a kubelet keeps it.

    Args:
        own: kube-proxy's rules that it will be joined with: rules of others go on to lead to chains that these have.
    """
    kubelet = ruleset.chain("mangle", _KUBELET) is not None

    def gone(table: str, chain: str) -> bool:
        return is_ours(table, chain) or (not kubelet and (table, chain) == ("filter", FIREWALL))

    def kept(table: str, chain: str, rule: Rule) -> bool:
        if not isinstance(rule.target, Jump) or not gone(table, rule.target.chain):
            return True
        there = own is not None and own.chain(table, rule.target.chain) is not None
        return there and not _is_own_jump(table, chain, rule)

    tables = [
        Table(table.name, tuple(chain for chain in table.chains if not gone(table.name, chain.name)))
        for table in ruleset.tables
    ]
    return _only(Ruleset(ruleset.family, tuple(tables), ruleset.comments), kept)


def _namers(ruleset: Ruleset) -> Iterator[NamedRule]:
    """Rules of others that jump to kube-proxy's chains."""
    for table, chain, place, rule in ruleset.rules():
        if not isinstance(rule.target, Jump) or is_ours(table.name, chain.name):
            continue
        if is_ours(table.name, rule.target.chain) and not _is_own_jump(table.name, chain.name, rule):
            yield NamedRule.of_iptables(table.name, chain.name, place, rule)


def _is_own_jump(table: str, chain: str, rule: Rule) -> bool:
    """Whether a rule of a built-in chain is one that kube-proxy puts there."""
    target = rule.target.chain if isinstance(rule.target, Jump) else ""
    return (table, chain, target) in _OWN_JUMPS and _is_unconditional(rule)


def _is_unconditional(rule: Rule) -> bool:
    """Whether it applies to whatever comes, or begins a connection, as kube-proxy's own jumps of all versions do."""
    counting = [match for match in rule.matches if not isinstance(match, CommentMatch)]
    return rule.head == Head() and all(match.to_save() == _IS_NEW for match in counting)


def _joined(own: Ruleset, others: Ruleset, dump: Ruleset) -> Ruleset:
    """Both in one rule set: in built-in chains kube-proxy's jumps stand among the rules of others as in the dump."""
    tables = []
    names = dict.fromkeys([*(table.name for table in own.tables), *(table.name for table in others.tables)])
    for name in names:
        pair = [ruleset.table(name) or Table(name) for ruleset in (own, others)]
        chains: list[Chain] = []
        for chain in dict.fromkeys(chain.name for table in pair for chain in table.chains):
            first, second = (table.chain(chain) for table in pair)
            if first is None or second is None:
                chains.append(first or second or Chain(chain))
            elif chain in BUILTIN_CHAINS.get(name, ()):
                places = _jump_places(name, dump.chain(name, chain), second)
                chains.append(replace(second, rules=_merged(first.rules, second.rules, places)))
            else:
                chains.append(first)
        tables.append(Table(name, tuple(chains)))
    return Ruleset(own.family, tuple(tables), others.comments).in_save_order()


def _jump_places(table: str, dumped: Chain | None, others: Chain | None) -> dict[str, int]:
    """Before which of the others' rules, from 0, kube-proxy's jumps stand in a dump, by the chains that they lead to;
    of two to the same chain the first one."""
    left = () if others is None else others.rules
    places: dict[str, int] = {}
    passed = 0
    for rule in () if dumped is None else dumped.rules:
        if passed < len(left) and rule is left[passed]:
            passed += 1
        elif isinstance(rule.target, Jump) and dumped is not None and _is_own_jump(table, dumped.name, rule):
            places.setdefault(rule.target.chain, passed)
    return places


def _merged(own: Sequence[Rule], others: Sequence[Rule], places: Mapping[str, int]) -> tuple[Rule, ...]:
    """kube-proxy's jumps in their own order at the places that are known of them. One that is not there stands right
    before the next that is, else right behind the one before it, else first: kube-proxy prepends what is missing."""
    found = [places.get(rule.target.chain) if isinstance(rule.target, Jump) else None for rule in own]
    known = iter(sorted(place for place in found if place is not None))
    found = [None if place is None else next(known) for place in found]
    before: list[list[Rule]] = [[] for _ in range(len(others) + 1)]
    last = 0
    for number, rule in enumerate(own):
        last = next((place for place in found[number:] if place is not None), last)
        before[last].append(rule)
    rules: list[Rule] = []
    for jumps, other in zip_longest(before, others):
        rules += jumps
        rules += [] if other is None else [other]
    return tuple(rules)


def _iptables_bits(rule: Rule) -> int:
    """The bits of the packet mark that a rule asks for or sets."""
    bits = 0
    for field, asked in (found for match in rule.matches for found in fields_of(match.condition() or ALWAYS)):
        bits |= asked if field == "mark" else 0
    if isinstance(rule.target, MarkTarget):
        bits |= rule.target.xmark.mask | rule.target.xmark.value
    if isinstance(rule.target, ConnmarkTarget) and rule.target.copy == "restore":
        bits |= rule.target.nfmask if rule.target.nfmask is not None else _ALL_BITS
    return bits


def _native_bits(rule: NftRule) -> int:
    """The bits of marks that a native rule asks for or sets; those of the connection's, too, which are copied."""
    bits = 0
    for statement in rule.statements:
        if isinstance(statement, Mangle) and _is_mark(statement.target):
            bits |= written_bits(statement.value)
        else:
            for field, asked in (found for part in expressions_of(statement) for found in fields_in(part)):
                bits |= asked if field in ("mark", "connmark") else 0
    return bits


def _is_mark(expression: Expression) -> bool:
    return isinstance(expression, (Meta, Ct)) and expression.key == "mark"
