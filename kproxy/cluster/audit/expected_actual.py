"""The rules that a node should have beside those that it has: where they differ, and rules to send packets through.

Nodes of a cluster have nearly the same rules. So what kube-proxy should write is rendered once for nodes that it
renders alike, and is compared chain by chain (element by element in nftables mode). What differs is a ServicePort's,
whose packets are then asked, or `others`: rules of other programs, and those of kube-proxy that all Services share.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec

from kproxy.api.kubeproxyconfig.types import MODE_IPVS, MODE_NFTABLES
from kproxy.cluster.audit.ipvs import observe_ipvs
from kproxy.cluster.audit.node import AuditedNode, Dump
from kproxy.cluster.evidence.unseen import suspected
from kproxy.cluster.node import NodeFacts
from kproxy.cluster.rendered import host_in_mode, is_of_ipvs, is_ours, nftables_text, rules_of
from kproxy.dataplane import Host, Index
from kproxy.dataplane.compare.observe import index_rules
from kproxy.dataplane.model.pipeline import IptablesRules
from kproxy.dataplane.symbolic.host_rules import SideRules
from kproxy.netfilter import Chain, Family, Rule, Ruleset, canonical_ruleset
from kproxy.netfilter import Table as IptablesTable
from kproxy.netfilter.hooks import Variant
from kproxy.netfilter.iptables.reader import RuleReader
from kproxy.netfilter.nftables.elements import print_element
from kproxy.netfilter.nftables.rule import RulePrinter
from kproxy.netfilter.nftables.ruleset import NftRuleset
from kproxy.netfilter.nftables.ruleset import Table as NftTable
from kproxy.netfilter.nftables.style import Style
from kproxy.netfilter.nftables.text import print_nft
from kproxy.netfilter.text import destination_of, key_of
from kproxy.render import Renderer, render_state
from kproxy.render.iptables.chains import (
    EXTERNAL_SERVICES,
    NODEPORTS,
    PROXY_FIREWALL,
    SERVICE_PORT_CHAIN_PREFIXES,
    SERVICES,
    endpoint_chain_name,
    service_port_hash,
)
from kproxy.render.iptables.save import jump_text
from kproxy.render.nftables.save import nft_ruleset
from kproxy.services.claims import ServiceAddress
from kproxy.services.names import ServicePortName

ChainKey = tuple[str, str]
"""Table and chain."""

_DISPATCH: Final = frozenset((SERVICES, EXTERNAL_SERVICES, NODEPORTS, PROXY_FIREWALL))
_STATELESS: Final = Style(stateless=True)


class Rendered:
    """What kube-proxy should write, kept for nodes that it renders alike."""

    def __init__(self) -> None:
        self._rulesets: dict[object, Ruleset] = {}
        self._tables: dict[str, tuple[NftRuleset, Mapping[str, str]]] = {}
        self._chains: dict[tuple[Family, str], tuple[Rule, ...]] = {}
        self._readers = {family: RuleReader(family) for family in Family}

    def ruleset(self, facts: NodeFacts) -> Ruleset:
        """Iptables mode's rules on a fresh host."""
        key = _render_key(facts)
        if key not in self._rulesets:
            renderer = Renderer(facts.iptables)
            renderer.plan_full(facts.state)
            fresh = canonical_ruleset(jump_text(), facts.family)
            tables = {table.name: {chain.name: chain for chain in table.chains} for table in fresh.tables}
            for (table, name), lines in renderer.chains().items():
                tables.setdefault(table, {})[name] = Chain(name, rules=self._read(facts.family, name, lines))
            found = (IptablesTable(name, tuple(chains.values())) for name, chains in tables.items())
            self._rulesets[key] = Ruleset(facts.family, tuple(found))
        return self._rulesets[key]

    def _read(self, family: Family, chain: str, lines: str) -> tuple[Rule, ...]:
        """The rules of a chain; those of a Service's are the same on nearly all nodes."""
        found = self._chains.get((family, lines))
        if found is None:
            reader, cut = self._readers[family], len(f"-A {chain} ")
            found = self._chains[family, lines] = tuple(reader.read(line[cut:]) for line in lines.splitlines())
        return found

    def table(self, facts: NodeFacts) -> tuple[NftRuleset, Mapping[str, str]]:
        """Nftables mode's table on a fresh host, and its pieces."""
        text = nftables_text(facts.state, facts.nftables)
        if text not in self._tables:
            ruleset = nft_ruleset(text)
            self._tables[text] = ruleset, dict(_pieces(ruleset.tables[0]))
        return self._tables[text]


def _render_key(facts: NodeFacts) -> object:
    """What the rules of iptables mode depend on that is not the same on all nodes."""
    options = msgspec.structs.replace(facts.iptables, node_name="", zone="", node_ips=())
    if options.node_port_addresses.match_all:
        options = msgspec.structs.replace(options, interface_addresses=())
    if not any(port.load_balancer_source_ranges for port in facts.service_ports):
        options = msgspec.structs.replace(options, node_ip="")
    used = []
    for port in facts.service_ports:
        chosen = facts.selected[port.name]
        if port.uses_local_endpoints or chosen.topology:
            cluster, local = (tuple(each.address for each in part) for part in (chosen.cluster, chosen.local))
            used.append((port.name, cluster, local, chosen.has_any))
    return msgspec.json.encode(options, enc_hook=str, order="deterministic"), tuple(used)


class Sides:
    """What is expected of a node, and what is there. `changed`: the ServicePorts whose rules are not as they should be,
    and how: `- LINE` and `+ LINE`; `others`: the rest that is not kube-proxy's as it should be, as text."""

    def __init__(self, node: AuditedNode, family: Family, rendered: Rendered) -> None:
        """Raises InputError: the node's rules cannot be read."""
        self._node, self._family = node, family
        self.changed: dict[ServicePortName, list[str]] = {}
        facts = node.facts[family]
        if node.mode == MODE_NFTABLES:
            ruleset, pieces = rendered.table(facts)
            self._expected = SideRules((), ruleset)
            rest = [*self._nftables(pieces), *self._others(None)]
        elif node.mode == MODE_IPVS:
            self._expected = rules_of(render_state(facts.state, facts.iptables, MODE_IPVS))
            wrong = {each.service: each.detail for each in observe_ipvs(node, family)}
            for port in facts.service_ports:
                if str(port.name) in wrong:
                    self._change(port.name, [wrong[str(port.name)]])
            rest = [*filter(None, [wrong.get("")]), *self._others(None)]
        else:
            expected = rendered.ruleset(facts)
            self._expected = SideRules((IptablesRules(expected, Variant.NFT),))
            main = next(dump for dump in node.dumps(family) if dump.dispatches)
            rest = [*self._iptables(_chains(expected), _chains(main.rules.ruleset)), *self._others(main)]
        # A node's rules are others than those of a node that shows the same, if something else was not seen there.
        rest += (f"unseen {each.family} {each.what} {each.why}" for each in suspected(node.unseen))
        self.others = "\n".join(rest)

    def hosts(self) -> tuple[tuple[Index, Host], ...]:
        """The rules that packets meet, and the host, as they should be and as they are. Raises InputError: they cannot
        be read."""
        host = self._node.model
        expected = index_rules(self._expected, self._family), host_in_mode(self._expected, host)
        return expected, (self._node.index(self._family), host)

    def _change(self, name: ServicePortName, lines: Iterable[str]) -> None:
        self.changed.setdefault(name, []).extend(lines)

    def _iptables(
        self, expected: Mapping[ChainKey, tuple[Rule, ...]], found: Mapping[ChainKey, tuple[Rule, ...]]
    ) -> Iterator[str]:
        """Finds the ServicePorts that differ; yields what differs and is none's."""
        odd = [key for key, rules in found.items() if expected.get(key) != rules]
        odd += [key for key in expected if key not in found]
        owners = self._owners() if any(map(_is_service_chain, odd)) else {}
        for key in odd:
            first, second = (_lines(key[1], chains.get(key, ())) for chains in (expected, found))
            before, after = {*first}, {*second}
            gone, new = [x for x in first if x not in after], [x for x in second if x not in before]
            if _is_service_chain(key):
                if key[1] in owners:
                    lines = [*(f"- {line}" for line in gone), *(f"+ {line}" for line in new)]
                    self._change(owners[key[1]], lines or [f"~ {line}" for line in second])
            elif is_ours(*key):
                for sign, lines in (("-", gone), ("+", new)):
                    yield from self._shared_lines(key, sign, lines)
                if [x for x in first if x in after] != [x for x in second if x in before]:
                    yield from second

    def _owners(self) -> Mapping[str, ServicePortName]:
        """ServicePorts by the names of their chains of iptables mode: whether they are there or not."""
        found: dict[str, ServicePortName] = {}
        facts = self._node.facts[self._family]
        for port in facts.service_ports:
            end = service_port_hash(port.name)
            endpoints = facts.state.endpoints.get(port.name, ())
            names = [f"KUBE-{kind}-{end}" for kind in ("SVC", "SVL", "EXT", "FW")]
            names += (endpoint_chain_name(port.name, each.address) for each in endpoints)
            found |= dict.fromkeys(names, port.name)
        return found

    def _shared_lines(self, key: ChainKey, sign: str, lines: Iterable[str]) -> Iterator[str]:
        for line in lines:
            rule = line.split(" ", 2)[-1]
            door = destination_of(rule) if rule.startswith(("-d ", "-p ")) and key[0] != "mangle" else None
            owner = None if door is None or key[1] not in _DISPATCH else self._node.doors.get(ServiceAddress(*door))
            if owner is not None:
                self._change(owner, [f"{sign} {line}"])
            else:
                yield f"- {line}" if sign == "-" else line

    def _nftables(self, expected: Mapping[str, str]) -> Iterator[str]:
        own = self._node.own_table(self._family)
        found = {} if own is None else dict(_pieces(own))
        for name in {**expected, **found}:
            first, second = expected.get(name), found.get(name)
            if first == second:
                continue
            key = key_of(name.split(" ", 2)[-1])
            owner = None if key is None else self._node.doors.get(ServiceAddress(*key))
            lines = ([] if first is None else [f"- {first}"]) + ([] if second is None else [f"+ {second}"])
            if owner is not None:
                self._change(owner, lines)
            else:
                yield from lines

    def _others(self, main: Dump | None) -> Iterator[str]:
        """Rules of other programs, and of kube-proxy's other mode or variant. `main`: the dump with its rules."""
        native = self._node.native_of_others(self._family, with_ours=main is not None)
        if native.tables:
            yield print_nft(native, _STATELESS)
        for dump in self._node.dumps(self._family):
            for table in dump.rules.ruleset.tables:
                for chain in table.chains:
                    if chain.policy not in (None, "ACCEPT"):
                        yield f"{dump.name} {table.name} {chain.name} {chain.policy}"
                    is_main = main is not None and dump.label == main.label
                    own = (
                        is_of_ipvs(table.name, chain.name)
                        if self._node.mode == MODE_IPVS
                        else is_main and is_ours(table.name, chain.name)
                    )
                    if chain.rules and not own:
                        yield "\n".join((f"{dump.name} {table.name}", *_lines(chain.name, chain.rules)))


def _chains(ruleset: Ruleset) -> dict[ChainKey, tuple[Rule, ...]]:
    """The chains that have rules."""
    return {(table.name, each.name): each.rules for table in ruleset.tables for each in table.chains if each.rules}


def _is_service_chain(key: ChainKey) -> bool:
    """Whether it is one of a ServicePort's, or of an endpoint's."""
    return key[0] == "nat" and key[1].startswith(SERVICE_PORT_CHAIN_PREFIXES)


def _lines(chain: str, rules: Iterable[Rule]) -> list[str]:
    """Rules as iptables-save prints them."""
    return [rule.to_save(chain) for rule in rules]


def _pieces(table: NftTable) -> Iterator[tuple[str, str]]:
    """The chains and elements of a table by name, as text without counts."""
    printer = RulePrinter(table.family, _STATELESS, {item.name: item for item in table.sets})
    for chain in table.chains:
        yield f"chain {chain.name}", "\n".join([str(chain.base), *(printer.rule(rule) for rule in chain.rules)])
    for item in table.sets:
        for element in item.elements:
            text = print_element(element, item.types, item.data_types, printer)
            yield f"element {item.name} {text.partition(' : ')[0]}", text
