"""The rules of other programs on the node, from its dump: what they have to do with kube-proxy's, and what packets meet
with both.

kube-proxy's own chains and its table are taken out of the dump; what the manifests give stands in their place, in
either mode. kube-proxy's jumps stay where they are in the dump; one that is missing comes first, as kube-proxy puts it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from kproxy.cluster.equivalence.rule_constants import RuleConstants
from kproxy.cluster.evidence.opened import open_rules
from kproxy.cluster.evidence.unseen import Unseen, suspected
from kproxy.cluster.node import NodeFacts
from kproxy.cluster.rendered import is_of_ipvs, is_ours
from kproxy.cluster.rules import HostRules
from kproxy.dataplane import TraceResult
from kproxy.dataplane.model.ipvs import Ipvs
from kproxy.dataplane.model.pipeline import TABLE_FAMILIES, IptablesRules
from kproxy.dataplane.symbolic.build import Marks, fields_asked
from kproxy.dataplane.symbolic.host_rules import SideRules
from kproxy.dataplane.symbolic.nftables.structure import interfaces_of
from kproxy.netfilter import BUILTIN_CHAINS, Chain, Family, Jump, Rule, Ruleset, Table
from kproxy.netfilter.hooks import Variant
from kproxy.netfilter.iptables.matches import CommentMatch
from kproxy.netfilter.iptables.rule import Head
from kproxy.netfilter.iptables.save import print_save
from kproxy.netfilter.nftables.effects import lower
from kproxy.netfilter.nftables.rule import RulePrinter
from kproxy.netfilter.nftables.ruleset import NftRuleset
from kproxy.netfilter.nftables.ruleset import Rule as NftRule
from kproxy.netfilter.nftables.style import BOOKWORM
from kproxy.netfilter.nftables.text import print_nft
from kproxy.render.iptables.base import JUMP_RULES
from kproxy.render.iptables.chains import FIREWALL, SERVICE_PORT_CHAIN_PREFIXES
from kproxy.render.nftables.names import TABLE

_KUBELET: Final = "KUBE-KUBELET-CANARY"
_OWN_JUMPS: Final = frozenset((jump.table, jump.source, jump.target) for jump in JUMP_RULES)
_IS_NEW: Final = "-m conntrack --ctstate NEW"
_MOST_INTERFACES: Final = 8


@dataclass(frozen=True, slots=True)
class NamedRule:
    """A rule of another program. `text` tells it to people, `key` in a trace: table and chain, and its number in native
    nftables, its text in iptables, where its number is another one once kube-proxy's rules stand before it."""

    key: tuple[str, str, int | str]
    text: str

    @classmethod
    def of_iptables(cls, table: Table, chain: Chain, place: int, rule: Rule) -> NamedRule:
        """A rule of iptables."""
        text = rule.to_save(chain.name)
        return cls((table.name, chain.name, text), f"{table.name} {chain.name} {place}: {text}")


def are_met(rules: Collection[NamedRule], *traces: TraceResult) -> bool:
    """Whether a packet matched one of these rules on its way."""
    keys = {rule.key for rule in rules}
    steps = (step for trace in traces for outcome in trace.outcomes for step in outcome.path)
    return any((step.table, step.chain, named) in keys for step in steps for named in (step.text, step.rule))


@dataclass(frozen=True)
class ForeignRules:
    """Other programs' rules for packets of one family. `dump`: of iptables, by variant, all that was there; `main`: the
    place of the one that kube-proxy's rules go into; `nftables`: without kube-proxy's tables; `kube`: rules that name
    kube-proxy's chains; `kubelet`: whether a kubelet keeps the guard of 127.0.0.0/8; `unseen`: what the dump points
    to; `ipvs`: all virtual servers, kube-proxy's and others."""

    family: Family
    dump: tuple[IptablesRules, ...]
    main: int
    nftables: NftRuleset
    kube: tuple[NamedRule, ...]
    kubelet: bool
    unseen: tuple[Unseen, ...] = ()
    ipvs: Ipvs | None = None

    @classmethod
    def of(cls, rules: HostRules, family: Family) -> ForeignRules:
        """What of a node's dump is not kube-proxy's."""
        dumped = rules.iptables(family) or (IptablesRules(Ruleset(family), Variant.NFT),)
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
        kubelet = any(_has_kubelet(item.ruleset) for item in dumped)
        return cls(family, dumped, next(with_kube, 0), NftRuleset(others), kube, kubelet, unseen, rules.ipvs(family))

    @property
    def opened(self) -> ForeignRules:
        """The same with rules that leave open what was not seen."""
        return replace(self, dump=open_rules(self.dump, self.family, self.unseen, forked=False))

    @cached_property
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
    def is_empty_beside_ipvs(self) -> bool:
        """Whether there are no rules but those of kube-proxy's IPVS mode."""
        others = (_without(item.ruleset, is_of_ipvs) for item in self.dump)
        return not self.nftables.has_effect and not any(each.has_effect for each in others)

    def servers_beside(self, facts: NodeFacts, own: Ipvs | None) -> tuple[str, ...]:
        """The virtual servers that kube-proxy does not make, as ipvsadm names them. At which addresses it has node
        ports is not known for certain."""
        known = {} if own is None else own.services
        listed = {} if self.ipvs is None else self.ipvs.services
        ports = {(port.protocol, port.node_port) for port in facts.node_ports}
        servers = (each.server for key, each in listed.items() if key not in known)
        return tuple(each.name for each in servers if (each.protocol, each.port) not in ports)

    @property
    def text(self) -> str:
        """All of it, with kube-proxy's jumps, as iptables-save and nft write it: equal for rules that do the same."""
        parts = [
            f"{each.variant}\n{print_save(_without_ours(each.ruleset, each.ruleset), counters=False)}"
            for each in self.dump
        ]
        return "\n".join([*parts, print_nft(self.nftables), f"main {self.main}"])

    @property
    def named(self) -> RuleConstants | None:
        """What the rules name, by which they could tell Services apart; None: by more than that."""
        rules = (
            rule
            for item in self.dump
            for table, chain, _, rule in item.ruleset.rules()
            if not is_ours(table.name, chain.name)
        )
        return RuleConstants.of(rules, self.nftables, self.family, SERVICE_PORT_CHAIN_PREFIXES)

    @property
    def interfaces(self) -> tuple[str, ...]:
        """Interfaces by which rules of others may ask that a packet arrives, one for each pattern."""
        rules = (rule for item in self.iptables for _, _, _, rule in item.ruleset.rules())
        names = {rule.in_interface.value for rule in rules if rule.in_interface is not None}
        for table, _, _, rule in self.nftables.rules():
            names.update(name for each in rule.statements for name in interfaces_of(each, table))
        shown = {f"{name[:-1]}0" if name.endswith("+") else name for name in names} - {"lo"}
        return tuple(sorted(shown))[:_MOST_INTERFACES]

    @cached_property
    def markers(self) -> tuple[NamedRule, ...]:
        """Rules of others that mark packets or connections."""
        return tuple(self._rules(lambda marks: bool(marks.changed | marks.connection_changed)))

    def users_of(self, bits: int) -> Iterator[NamedRule]:
        """Rules of others that match on bits of the packet mark, or set them."""
        return self._rules(lambda marks: bool((marks.tested | marks.changed) & bits))

    def _rules(self, wanted: Callable[[Marks], bool]) -> Iterator[NamedRule]:
        for item in self.dump:
            theirs = {(table.name, chain.name) for table, chain, _, _ in _without_ours(item.ruleset).rules()}
            for table, called, place, rule in item.ruleset.rules():
                if (table.name, called.name) in theirs and wanted(_marks_of(rule)):
                    yield NamedRule.of_iptables(table, called, place, rule)
        for held, chain, place, each in self.nftables.rules():
            if wanted(_marks_of(each)):
                printer = RulePrinter(held.family, BOOKWORM, {item.name: item for item in held.sets})
                name = f"{held.family.value} {held.name}"
                yield NamedRule((name, chain.name, place), f"{name} {chain.name} {place}: {printer.rule(each)}")

    def with_iptables(self, own: SideRules) -> SideRules:
        """All rules of the node in iptables mode; rules of others still lead to kube-proxy's chains."""
        (ruleset,) = own.rulesets
        items = list(self.iptables)
        items[self.main] = replace(items[self.main], ruleset=_joined(ruleset, self.dump[self.main].ruleset))
        return SideRules(tuple(items), self.nftables)

    def with_nftables(self, own: SideRules) -> SideRules:
        """All rules of the node in nftables mode; a chain that is added later is called first."""
        return SideRules(self.iptables, NftRuleset((*self.nftables.tables, *own.nftables.tables)))


def _has_kubelet(ruleset: Ruleset) -> bool:
    return ruleset.chain("mangle", _KUBELET) is not None


def _without_ours(ruleset: Ruleset, own: Ruleset | None = None) -> Ruleset:
    """The rule set without kube-proxy's chains and the jumps to them, but for jumps to chains that `own` has.
    KUBE-FIREWALL stays if a kubelet keeps it."""
    kubelet = _has_kubelet(ruleset)

    def gone(table: str, chain: str) -> bool:
        return is_ours(table, chain) or (not kubelet and (table, chain) == ("filter", FIREWALL))

    return _without(ruleset, gone, own)


def _without(ruleset: Ruleset, gone: Callable[[str, str], bool], own: Ruleset | None = None) -> Ruleset:
    """The rule set without some chains and the jumps to them, but for jumps to chains that `own` has."""

    def kept(table: str, rule: Rule) -> bool:
        if not isinstance(rule.target, Jump) or not gone(table, rule.target.chain):
            return True
        return own is not None and own.chain(table, rule.target.chain) is not None

    tables = (
        Table(
            table.name,
            tuple(
                replace(chain, rules=tuple(rule for rule in chain.rules if kept(table.name, rule)))
                for chain in table.chains
                if not gone(table.name, chain.name)
            ),
        )
        for table in ruleset.tables
    )
    return Ruleset(ruleset.family, tuple(tables), ruleset.comments)


def _namers(ruleset: Ruleset) -> Iterator[NamedRule]:
    """Rules of others that jump to kube-proxy's chains."""
    for table, chain, place, rule in ruleset.rules():
        if not isinstance(rule.target, Jump) or is_ours(table.name, chain.name):
            continue
        if is_ours(table.name, rule.target.chain) and not _is_own_jump(table.name, chain.name, rule):
            yield NamedRule.of_iptables(table, chain, place, rule)


def _is_own_jump(table: str, chain: str, rule: Rule) -> bool:
    """Whether a rule of a built-in chain is one that kube-proxy puts there: it applies to whatever comes, or begins a
    connection, as kube-proxy's own jumps of all versions do."""
    if not isinstance(rule.target, Jump) or (table, chain, rule.target.chain) not in _OWN_JUMPS:
        return False
    asked = [match.to_save() for match in rule.matches if not isinstance(match, CommentMatch)]
    return rule.head == Head() and set(asked) <= {_IS_NEW}


def _joined(own: Ruleset, dump: Ruleset) -> Ruleset:
    """kube-proxy's rules and those of others; its jumps stand in built-in chains as in the dump, or first."""
    others = _without_ours(dump, own)
    tables = []
    for name in dict.fromkeys(table.name for ruleset in (own, others) for table in ruleset.tables):
        pair = [ruleset.table(name) or Table(name) for ruleset in (own, others)]
        chains: list[Chain] = []
        for chain in dict.fromkeys(chain.name for table in pair for chain in table.chains):
            first, second = (table.chain(chain) for table in pair)
            if first is not None and second is not None and chain in BUILTIN_CHAINS.get(name, ()):
                there = {rule.target for rule in second.rules if _is_own_jump(name, chain, rule)}
                missing = tuple(rule for rule in first.rules if rule.target not in there)
                chains.append(replace(second, rules=missing + second.rules))
            else:
                chains.append(first or second or Chain(chain))
        tables.append(Table(name, tuple(chains)))
    return Ruleset(own.family, tuple(tables), others.comments).in_save_order()


def _marks_of(rule: Rule | NftRule) -> Marks:
    """The bits of marks that a rule asks for or sets."""
    steps: list[object]
    if isinstance(rule, Rule):
        steps = [*rule.matches, *([] if rule.target is None else [rule.target.effect()])]
    else:
        steps = [step for each in rule.statements for step in lower(each, "", str)]
    marks = Marks()
    for step in steps:
        marks.take(step)
        for field, bits in fields_asked(step):
            marks.read(field, bits)
    return marks
