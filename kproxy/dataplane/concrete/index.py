"""A rule set made ready for many traces.

kube-proxy's dispatch chains hold a rule per service port. A chain of more than a few rules is therefore indexed: each
rule is filed under the one exact thing it wants, its destination, else its protocol and destination port, else its
source. A packet then meets, in order, only the rules filed under what it has and those filed under nothing. Skipped
are only rules that certainly do not match; a packet whose address or port is open meets all of them. Chains are indexed
when a packet first comes to them, so making an `Index` costs next to nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import Final

from kproxy.dataplane.concrete.effects import ACTS, Way
from kproxy.dataplane.concrete.matches.registry import EFFECTS, evaluate
from kproxy.dataplane.concrete.state import Answer, Note, RuleRef, View
from kproxy.dataplane.concrete.steps import IndexedRule, RuleStep, RuleTable, acting
from kproxy.dataplane.model.errors import DataplaneError
from kproxy.dataplane.model.ipvs import Ipvs
from kproxy.dataplane.model.packet import Packet
from kproxy.dataplane.model.pipeline import (
    IptablesRules,
    Source,
    bridge_chains,
    evaluated_tables,
    family_of,
    make_pipeline,
    native_chains,
)
from kproxy.dataplane.model.tracking import tracks
from kproxy.dataplane.model.unseen import stands_for_unseen
from kproxy.netfilter.condition import ALWAYS
from kproxy.netfilter.family import Family
from kproxy.netfilter.iptables.matches import OpaqueMatch, SctpMatch, TcpMatch, UdpMatch
from kproxy.netfilter.iptables.rule import Rule
from kproxy.netfilter.iptables.ruleset import Chain, Ruleset, Table
from kproxy.netfilter.iptables.targets import OpaqueTarget
from kproxy.netfilter.nftables.ruleset import NftRuleset

_SMALL: Final = 8


class IndexedChain:
    """A chain whose rules are found by what a packet has."""

    __slots__ = (
        "_by_destination", "_by_port", "_by_source", "_filed", "_found", "_last", "_note", "_rest", "_rules",
        "_source", "_unseen", "chain", "policy", "table",
    )  # fmt: skip

    def __init__(self, source: Source | None, table: str, chain: Chain, note: Note | None = None) -> None:
        self._source = "" if source is None else source.value
        self._note = note
        self.table = table
        self.chain = chain
        self.policy = chain.policy or "ACCEPT"
        self._rules: dict[int, IndexedRule] = {}
        # Jumps that were not seen stand first, and are not counted.
        self._unseen = len(list(takewhile(stands_for_unseen, chain.rules)))
        self._by_destination: dict[int, list[int]] = {}
        self._by_port: dict[tuple[int, int], list[int]] = {}
        self._by_source: dict[int, list[int]] = {}
        self._rest: Sequence[int] = range(len(chain.rules))
        self._filed = len(chain.rules) > _SMALL
        self._last: tuple[int | None, ...] = ()
        self._found: Sequence[int] = ()
        if self._filed:
            self._file()

    def _file(self) -> None:
        rest: list[int] = []
        for number, rule in enumerate(self.chain.rules):
            destination, source = rule.destination, rule.source
            if destination is not None and not destination.negated and _whole(destination.value.mask):
                self._by_destination.setdefault(destination.value.address, []).append(number)
                continue
            port = _exact_port(rule)
            if port is not None:
                self._by_port.setdefault(port, []).append(number)
            elif source is not None and not source.negated and _whole(source.value.mask):
                self._by_source.setdefault(source.value.address, []).append(number)
            else:
                rest.append(number)
        self._rest = rest

    def candidates(self, packet: Packet) -> Sequence[int]:
        """The indexes, from 0 and in order, of the rules that may match the packet."""
        if packet.dst is None or packet.src is None or (packet.dport is None and packet.has_ports):
            return range(len(self.chain.rules))
        if not self._filed:
            return self._rest
        key = (packet.dst, packet.protocol, packet.dport, packet.src)
        if key != self._last:
            self._found = self._look_up(packet)
            self._last = key
        return self._found

    def _look_up(self, packet: Packet) -> Sequence[int]:
        filed = (
            None if packet.dst is None else self._by_destination.get(packet.dst),
            None if packet.dport is None else self._by_port.get((packet.protocol, packet.dport)),
            None if packet.src is None else self._by_source.get(packet.src),
        )
        found = [indexes for indexes in filed if indexes]
        if not found:
            return self._rest
        if len(found) == 1 and not self._rest:
            return found[0]
        return sorted([*self._rest, *(index for indexes in found for index in indexes)])

    def rule(self, index: int) -> IndexedRule:
        """The rule at an index, counted from 0."""
        found = self._rules.get(index)
        if found is None:
            rule, number = self.chain.rules[index], max(index + 1 - self._unseen, 0)
            ref = RuleRef(self.table, self.chain.name, number, self._source)
            found = self._rules[index] = IndexedRule(ref, _steps(rule), lambda: self._describe(rule, number))
        return found

    def _describe(self, rule: Rule, number: int) -> tuple[str, str]:
        note = None if self._note is None else self._note(self.table, self.chain.name, number)
        return rule.to_save(self.chain.name), note or ""


def _steps(rule: Rule) -> Iterator[RuleStep]:
    head = rule.asks()
    if head != ALWAYS:
        yield RuleStep(head, None, acts=False, pure=True)
    for match in rule.matches:
        condition = match.condition()
        if condition != ALWAYS:
            yield RuleStep(condition, match, acts=False, pure=type(match) not in EFFECTS)
    if rule.target is not None:
        yield acting(rule.target.effect(), rule.target)


class IptablesTable(RuleTable):
    """A table of iptables; `source` tells it from that of another variant."""

    def __init__(self, table: Table, source: Source | None, note: Note | None) -> None:
        super().__init__(table.name)
        self._table = table
        self._source = source
        self._note = note

    def indexed(self, name: str) -> IndexedChain | None:
        """A chain made ready for packets; None if the table has no such chain."""
        chain = self._table.chain(name)
        return None if chain is None else IndexedChain(self._source, self.name, chain, self._note)

    def has_chain(self, name: str) -> bool:
        """Whether the table has it."""
        return self._table.chain(name) is not None

    def ask(self, step: RuleStep, view: View) -> Answer:
        """Whether a match applies, or the fixed part of a rule."""
        return evaluate(step.source, step.what, view)

    def act(self, step: RuleStep, view: View) -> list[Way]:
        """What a target may do."""
        return ACTS[type(step.what)](step.what, view)

    def texts(self, step: RuleStep) -> tuple[str, ...]:
        """A match as iptables-save prints it, and its name; a target's name first."""
        part = step.source
        if part is None:
            return ()
        name = part.name if isinstance(part, (OpaqueMatch, OpaqueTarget)) else part.to_save().split()[1]
        return (name, part.to_save()) if step.acts else (part.to_save(), name)


_FULL_MASKS: Final = frozenset(family.full_mask for family in Family)


def _whole(mask: int) -> bool:
    return mask in _FULL_MASKS


def _exact_port(rule: Rule) -> tuple[int, int] | None:
    protocol = rule.protocol
    if protocol is None or protocol.negated:
        return None
    for match in rule.matches:
        if isinstance(match, (TcpMatch, UdpMatch, SctpMatch)):
            port = match.dport
            if port is not None and not port.negated and port.value.first == port.value.last:
                return protocol.value, port.value.first
    return None


class Index:
    """A host's rules made ready. `note` gives each rule's provenance, for whoever shows a trace.

    Attributes:
        ruleset: the rules of iptables; of two variants, the first.
        variant: of these; None if not known.
        nftables: native nftables.
        ipvs: the virtual servers, None if there are none.
        family: of the rules, None if they do not tell.
        pipeline: all base chains in order.
        bridge_chains: those of the family bridge, which are not evaluated.
    """

    def __init__(
        self,
        rules: Ruleset | Sequence[IptablesRules],
        note: Note | None = None,
        variant: str | None = None,
        nftables: NftRuleset | None = None,
        family: Family | None = None,
        ipvs: Ipvs | None = None,
    ) -> None:
        self.ipvs = ipvs
        self.iptables = (IptablesRules.of(rules, variant),) if isinstance(rules, Ruleset) else tuple(rules)
        first = self.iptables[0] if self.iptables else IptablesRules(Ruleset())
        self.ruleset = first.ruleset
        self.variant = first.variant
        self.note = note
        several = self.several = len(self.iptables) > 1
        self._tables: dict[tuple[Source, str], RuleTable] = {
            (each.source, table.name): IptablesTable(table, each.source if several else None, note)
            for each in self.iptables
            for table in each.ruleset.tables
        }
        self.nftables = nftables
        if nftables is not None:
            # half as much code again as rules of iptables need
            from kproxy.dataplane.concrete.nft.index import NftTable

            for table in nftables.tables:
                indexed = NftTable(table, note)
                self._tables[Source.NFTABLES, indexed.name] = indexed
        self.family = family or family_of(self.iptables)
        self.bridge_chains = bridge_chains(nftables)
        tables = () if nftables is None else nftables.tables
        tracked = tracks((each.ruleset for each in self.iptables), tables, self.family)
        native = native_chains(evaluated_tables(nftables, self.family))
        self.pipeline = make_pipeline(self.iptables, native, tracked=tracked, ipvs=ipvs is not None)

    def table(self, source: Source, name: str) -> RuleTable:
        """A table. Raises DataplaneError if it is not there."""
        found = self._tables.get((source, name))
        if found is None:
            raise DataplaneError(f"there is no table {name}")
        return found


def index_ruleset(
    rules: Ruleset | Sequence[IptablesRules],
    note: Note | None = None,
    variant: str | None = None,
    *,
    nftables: NftRuleset | None = None,
    family: Family | None = None,
    ipvs: Ipvs | None = None,
) -> Index:
    """Make rules ready for traces.

    Args:
        rules: of iptables: one rule set, or one of each variant.
        note: gives provenance: see `Note`.
        variant: of a single rule set, `nft` or `legacy`; without it the rule set's comments tell, if they do.
        nftables: native nftables, as `nft list ruleset` shows it; tables that iptables-nft wrote are left out.
        family: of the packets, needed if iptables' rules do not tell it.
        ipvs: the host's virtual servers of that family.
    """
    return Index(rules, note, variant, nftables, family, ipvs)
