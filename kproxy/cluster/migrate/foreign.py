"""The rules of other programs on the node, from its dump: what they have to do with kube-proxy's, and what packets meet
with both.

kube-proxy's own chains and its table are taken out of the dump; what the manifests give stands in their place, in
either mode. kube-proxy puts its jumps before the rules of others.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from kproxy.cluster.rules import HostRules
from kproxy.dataplane.model.pipeline import TABLE_FAMILIES, IptablesRules
from kproxy.dataplane.symbolic.side import SideRules
from kproxy.netfilter import BUILTIN_CHAINS, Chain, Family, Jump, Rule, Ruleset, Table
from kproxy.netfilter.hooks import Variant
from kproxy.netfilter.iptables.matches import CommentMatch, MarkMatch
from kproxy.netfilter.iptables.rule import Head
from kproxy.netfilter.iptables.targets import ConnmarkTarget, MarkTarget
from kproxy.netfilter.nftables.expression import Binary, Ct, Expression, Meta
from kproxy.netfilter.nftables.printer.statements import RulePrinter
from kproxy.netfilter.nftables.printer.style import BOOKWORM
from kproxy.netfilter.nftables.references import expressions_of, walk
from kproxy.netfilter.nftables.ruleset import NftRuleset
from kproxy.netfilter.nftables.ruleset import Rule as NftRule
from kproxy.netfilter.nftables.statement import Mangle
from kproxy.render.iptables.base import BASE_CHAINS, JUMP_RULES
from kproxy.render.iptables.chains import CANARY, FIREWALL, SERVICE_PORT_CHAIN_PREFIXES
from kproxy.render.nftables.names import TABLE

_KUBELET: Final = "KUBE-KUBELET-CANARY"
_OWN_JUMPS: Final = frozenset((jump.table, jump.source, jump.target) for jump in JUMP_RULES)
_IS_NEW: Final = "-m conntrack --ctstate NEW"
_ALL_BITS: Final = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class ForeignRules:
    """Other programs' rules for packets of one family.

    Attributes:
        iptables: by variant, without kube-proxy's. main: the place of the one that kube-proxy's rules go into.
        nftables: without kube-proxy's tables.
        kube: rules of others that name kube-proxy's chains, in words.
        kubelet: whether a kubelet keeps the guard of 127.0.0.0/8 (KUBE-FIREWALL).
    """

    family: Family
    iptables: tuple[IptablesRules, ...]
    main: int
    nftables: NftRuleset
    kube: tuple[str, ...]
    kubelet: bool

    @classmethod
    def of(cls, rules: HostRules, family: Family) -> ForeignRules:
        """What of a node's dump is not kube-proxy's."""
        dumped = rules.iptables(family) or (IptablesRules(Ruleset(family), Variant.NFT),)
        kubelet = any(item.ruleset.chain("mangle", _KUBELET) is not None for item in dumped)
        with_kube = [place for place, item in enumerate(dumped) if _holds_ours(item.ruleset)]
        kube = tuple(text for item in dumped for text in _namers(item.ruleset))
        native = rules.nftables or NftRuleset()
        others = tuple(
            table
            for table in native.tables
            if table.family in TABLE_FAMILIES[family] and table.name != TABLE and not table.managed_by
        )
        return cls(
            family,
            tuple(replace(item, ruleset=_without_ours(item.ruleset)) for item in dumped),
            with_kube[0] if with_kube else 0,
            NftRuleset(others),
            kube,
            kubelet,
        )

    @property
    def is_empty(self) -> bool:
        """Whether there are no rules of others."""
        return not self.nftables.has_effect and not any(item.ruleset.has_effect for item in self.iptables)

    def users_of(self, bits: int) -> Iterator[str]:
        """Rules of others that match on bits of the packet mark, or set them, in words."""
        for item in self.iptables:
            for table, called, place, jump in item.ruleset.rules():
                if _iptables_bits(jump) & bits:
                    yield f"{table.name} {called.name} {place}: {jump.to_save(called.name)}"
        for native in self.nftables.tables:
            printer = RulePrinter(native.family, BOOKWORM, {item.name: item for item in native.sets})
            for chain in native.chains:
                for place, rule in enumerate(chain.rules, 1):
                    if _native_bits(rule) & bits:
                        yield f"{native.family.value} {native.name} {chain.name} {place}: {printer.rule(rule)}"

    def with_iptables(self, own: SideRules) -> SideRules:
        """All rules of the node in iptables mode."""
        (ruleset,) = own.rulesets
        items = list(self.iptables)
        items[self.main] = replace(items[self.main], ruleset=_joined(ruleset, items[self.main].ruleset))
        return SideRules(tuple(items), self.nftables)

    def with_nftables(self, own: SideRules) -> SideRules:
        """All rules of the node in nftables mode; a chain that is added later is called first."""
        return SideRules(self.iptables, NftRuleset((*self.nftables.tables, *own.nftables.tables)))


def is_ours(table: str, chain: str) -> bool:
    """Whether a chain of iptables is kube-proxy's, by its name."""
    if table == "nat" and chain.startswith(SERVICE_PORT_CHAIN_PREFIXES):
        return True
    return chain == CANARY or chain in BASE_CHAINS.get(table, ())


def _holds_ours(ruleset: Ruleset) -> bool:
    return any(is_ours(table.name, chain.name) for table in ruleset.tables for chain in table.chains)


def _without_ours(ruleset: Ruleset) -> Ruleset:
    """The rule set without kube-proxy's chains and the jumps to them. KUBE-FIREWALL stays if a kubelet keeps it."""
    kubelet = ruleset.chain("mangle", _KUBELET) is not None

    def gone(table: str, chain: str) -> bool:
        return is_ours(table, chain) or (not kubelet and (table, chain) == ("filter", FIREWALL))

    tables = []
    for table in ruleset.tables:
        chains = [
            replace(
                chain,
                rules=tuple(
                    rule
                    for rule in chain.rules
                    if not (isinstance(rule.target, Jump) and gone(table.name, rule.target.chain))
                ),
            )
            for chain in table.chains
            if not gone(table.name, chain.name)
        ]
        tables.append(Table(table.name, tuple(chains)))
    return Ruleset(ruleset.family, tuple(tables), ruleset.comments)


def _namers(ruleset: Ruleset) -> Iterator[str]:
    """Rules of others that jump to kube-proxy's chains."""
    for table, chain, place, rule in ruleset.rules():
        if not isinstance(rule.target, Jump) or is_ours(table.name, chain.name):
            continue
        target = rule.target.chain
        if is_ours(table.name, target) and not (
            (table.name, chain.name, target) in _OWN_JUMPS and _is_unconditional(rule)
        ):
            yield f"{table.name} {chain.name} {place}: {rule.to_save(chain.name)}"


def _is_unconditional(rule: Rule) -> bool:
    """Whether it applies to whatever comes, or begins a connection, as kube-proxy's own jumps of all versions do."""
    counting = [match for match in rule.matches if not isinstance(match, CommentMatch)]
    return rule.head == Head() and all(match.to_save() == _IS_NEW for match in counting)


def _joined(own: Ruleset, others: Ruleset) -> Ruleset:
    """Both in one rule set: in built-in chains kube-proxy's rules come first."""
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
                chains.append(replace(second, rules=first.rules + second.rules))
            else:
                chains.append(first)
        tables.append(Table(name, tuple(chains)))
    return Ruleset(own.family, tuple(tables), others.comments).in_save_order()


def _iptables_bits(rule: Rule) -> int:
    """The bits of the packet mark that a rule asks for or sets."""
    bits = 0
    for match in rule.matches:
        if isinstance(match, MarkMatch):
            bits |= match.mark.value.mask
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
            bits |= _changed_bits(statement.value)
        else:
            for expression in expressions_of(statement):
                bits |= _asked_bits(expression)
    return bits


def _asked_bits(expression: Expression) -> int:
    """The bits of a mark that a value depends on."""
    match expression:
        case Binary("&", left, int(mask)) | Binary("&", int(mask), left):
            return _asked_bits(left) & mask
        case Binary(_, left, right):
            return _asked_bits(left) | _asked_bits(right)
    return _ALL_BITS if any(map(_is_mark, walk(expression))) else 0


def _changed_bits(expression: Expression) -> int:
    """The bits of a mark that are others once it is set to this value."""
    match expression:
        case Meta("mark"):
            return 0
        case Binary("|" | "^", left, int(bits)):
            return _changed_bits(left) | bits
        case Binary("&", left, int(mask)):
            return _changed_bits(left) | _ALL_BITS & ~mask
    return _ALL_BITS


def _is_mark(expression: Expression) -> bool:
    return isinstance(expression, (Meta, Ct)) and expression.key == "mark"
