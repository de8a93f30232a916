"""The Services that a host's rules know: kube-proxy's comments, chains and maps name them.

What rules do not tell (Pods, nodes, selectors, endpoints that are not used) is not known here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from kproxy.api import Manifests, Service, ServicePort
from kproxy.api.types.core import LoadBalancerIngress, ServiceSpec
from kproxy.api.types.meta import ObjectMeta
from kproxy.cluster.rendered import is_ours
from kproxy.cluster.rules import HostRules
from kproxy.netfilter import Family
from kproxy.netfilter.address import format_address
from kproxy.netfilter.family import protocol_name
from kproxy.netfilter.nftables.effects import FAMILIES
from kproxy.netfilter.nftables.ruleset import Table
from kproxy.netfilter.nftables.value import Verdict
from kproxy.netfilter.text import destination_of, endpoint_of, owner_of, service_of, split_save, target_of
from kproxy.render.explain import EndpointExplanation, Explanation, RuleExplanation, ServicePortExplanation
from kproxy.render.iptables.chains import SERVICE_PORT_CHAIN_PREFIXES
from kproxy.render.nftables.names import TABLE

_CLUSTER_IP, _EXTERNAL_IP, _BALANCER_IP = "ClusterIP", "external IP", "load-balancer IP"
_BY_COMMENT: Final = {
    " cluster IP": _CLUSTER_IP,
    " external IP": _EXTERNAL_IP,
    " loadbalancer IP": _BALANCER_IP,
}
_EXTERNAL_CHAIN: Final = "KUBE-EXTERNAL-SERVICES"
_CHOICE: Final = re.compile(r"\d+ : ([0-9a-f.:]+) \. (\d+)")
"""An endpoint in the map by which a rule chooses one."""


@dataclass
class _Port:
    """One port of a Service in one family: where it answers (what kind of address, which, which port), by which rules,
    and where these translate to."""

    name: str
    protocol: str
    answers: dict[tuple[str, str, int], None] = field(default_factory=dict)
    rules: list[RuleExplanation] = field(default_factory=list)
    endpoints: dict[str, None] = field(default_factory=dict)


_Ports = dict[tuple[Family, str, str], _Port]


class RecordedServices:
    """What rules say of Services.

    Raises:
        InputError: they cannot be read.
    """

    def __init__(self, rules: HostRules) -> None:
        self._ports: _Ports = {}
        for file in rules.files:
            if file.iptables is not None:
                self._read_save(file.text.replace("\r\n", "\n"), file.iptables.ruleset.family or Family.IPV4)
            else:
                lines = file.text.splitlines()
                for table in () if rules.nftables is None else rules.nftables.tables:
                    if table.name == TABLE and table.family.value in FAMILIES:
                        self._read_table(table, lines, FAMILIES[table.family.value])

    @property
    def keys(self) -> list[str]:
        """All Services, as `namespace/name`, in order."""
        return sorted({_service(port.name) for port in self._ports.values()})

    @property
    def manifests(self) -> Manifests:
        """The Services as objects, as far as rules tell them: names, ports and addresses."""
        return Manifests(services=tuple(map(self._object, self.keys)))

    def families(self, key: str) -> list[Family]:
        """The families in which rules know a Service."""
        return sorted({family for (family, _, _), port in self._ports.items() if _service(port.name) == key}, key=str)

    def explain(self, key: str, family: Family, where: str) -> Explanation:
        """What rules do for a Service. `where` is what the host is called."""
        mine = (port for (of, _, _), port in self._ports.items() if of is family and _service(port.name) == key)
        ports = [_explained(port) for port in sorted(mine, key=lambda port: (port.name, port.protocol))]
        notes = ("from rules alone: endpoints that get no traffic, and where endpoints are, is not known",)
        return Explanation(key, where, family.value, "", notes, tuple(ports))

    def _object(self, key: str) -> Service:
        namespace, _, name = key.partition("/")
        found: dict[str, dict[str, None]] = {_CLUSTER_IP: {}, _EXTERNAL_IP: {}, _BALANCER_IP: {}}
        ports: dict[tuple[str, str], ServicePort] = {}
        for port in self._ports.values():
            if _service(port.name) != key:
                continue
            numbers = {number for _, address, number in port.answers if address}
            node_port = next((number for _, address, number in port.answers if not address), 0)
            for kind, address, _ in port.answers:
                if address:
                    found[kind][address] = None
            _, _, label = port.name.partition(":")
            before = ports.get((label, port.protocol))
            number = next(iter(sorted(numbers)), 0) or (before.port if before is not None else 0)
            node_port = node_port or (before.node_port if before is not None else 0)
            ports[label, port.protocol] = ServicePort(number, label, port.protocol.upper(), node_port=node_port)
        own = tuple(found[_CLUSTER_IP])
        spec = ServiceSpec(
            cluster_ip=own[0] if own else "", cluster_ips=own, ports=tuple(ports.values()),
            external_ips=tuple(found[_EXTERNAL_IP]),
        )  # fmt: skip
        ingress = tuple(LoadBalancerIngress(ip) for ip in found[_BALANCER_IP])
        return Service(ObjectMeta(name, namespace), spec, ingress)

    def _port(self, family: Family, name: str, protocol: str) -> _Port:
        return self._ports.setdefault((family, name, protocol), _Port(name, protocol))

    # --- iptables ---

    def _read_save(self, text: str, family: Family) -> None:
        tables = split_save(text).tables
        owners: dict[tuple[str, str], tuple[str, str]] = {}
        for table, chains in tables.items():
            for chain, held in chains.items():
                if not is_ours(table, chain) or chain.startswith(SERVICE_PORT_CHAIN_PREFIXES):
                    continue
                for number, rule in enumerate(held.rules, 1):
                    name, to = service_of(rule), destination_of(rule)
                    if not name or to is None:
                        continue
                    kind = next((kind for word, kind in _BY_COMMENT.items() if word in rule), "")
                    if not kind:
                        kind = _EXTERNAL_IP if chain == _EXTERNAL_CHAIN else _CLUSTER_IP
                    port = self._port(family, name, to.protocol)
                    port.answers.setdefault((kind if to.address else "node port", to.address, to.port))
                    port.rules.append(
                        RuleExplanation(table, chain, number, f"-A {chain} {rule}", _reason(to.address, kind))
                    )
                    owners.setdefault((table, target_of(rule)), (name, to.protocol))
            self._read_own_chains(table, {name: held.rules for name, held in chains.items()}, owners, family)

    def _read_own_chains(
        self,
        table: str,
        chains: Mapping[str, list[str]],
        owners: Mapping[tuple[str, str], tuple[str, str]],
        family: Family,
    ) -> None:
        waiting = [(chain, owner) for (of, chain), owner in owners.items() if of == table]
        seen: set[str] = set()
        while waiting:
            chain, owner = waiting.pop(0)
            if chain in seen or chain not in chains or not chain.startswith(SERVICE_PORT_CHAIN_PREFIXES):
                continue
            seen.add(chain)
            port = self._port(family, *owner)
            for number, rule in enumerate(chains[chain], 1):
                endpoint, target = endpoint_of(rule), target_of(rule)
                reason = f"endpoint {endpoint}" if endpoint else f"to {target}" if target else ""
                port.rules.append(RuleExplanation(table, chain, number, f"-A {chain} {rule}", reason))
                if endpoint:
                    port.endpoints.setdefault(endpoint)
                waiting.append((target, owner))

    # --- nftables ---

    def _read_table(self, table: Table, lines: list[str], family: Family) -> None:
        own = {key for held in table.sets if held.name == "cluster-ips" for key in _values(held.elements)}
        for held in table.sets:
            if held.name not in ("service-ips", "service-nodeports", "no-endpoint-services", "no-endpoint-nodeports"):
                continue
            for each in held.elements:
                if not isinstance(each.key, tuple) or not isinstance(each.data, Verdict):
                    continue
                *address, protocol, number = each.key
                owner = owner_of(each.data.chain or "")
                name = each.comment if owner is None else owner.service_port
                if not name or not isinstance(protocol, int) or not isinstance(number, int):
                    continue
                text = format_address(address[0], family) if address and isinstance(address[0], int) else ""
                kind = _CLUSTER_IP if address and address[0] in own else _EXTERNAL_IP
                port = self._port(family, name, str(protocol_name(protocol)))
                port.answers.setdefault((kind if text else "node port", text, number))
                shown = " . ".join(filter(None, (text, port.protocol, str(number))))
                verdict = f"{each.data.kind} {each.data.chain or ''}".strip()
                reason = _reason(text, kind)
                port.rules.append(RuleExplanation(table.name, held.name, 0, f"{shown} : {verdict}", reason))
        for chain in table.chains:
            owner = owner_of(chain.name)
            if owner is None:
                continue
            port = self._port(family, owner.service_port, owner.protocol)
            _, underscores, endpoint = chain.name.partition("__")
            if owner.kind == "endpoint" and underscores:
                host, _, to = endpoint.rpartition("/")
                port.endpoints.setdefault(f"[{host}]:{to}" if ":" in host else f"{host}:{to}")
            for number, rule in enumerate(chain.rules, 1):
                text = lines[rule.line - 1].strip() if 0 < rule.line <= len(lines) else ""
                for host, to in _CHOICE.findall(text) if " dnat " in text else ():
                    port.endpoints.setdefault(f"[{host}]:{to}" if ":" in host else f"{host}:{to}")
                port.rules.append(RuleExplanation(table.name, chain.name, number, text, owner.kind))


def _values(elements: object) -> Iterator[object]:
    for each in elements if isinstance(elements, tuple) else ():
        yield each.key


def _service(name: str) -> str:
    """The Service of a ServicePort's name."""
    return name.partition(":")[0]


def _reason(address: str, kind: str) -> str:
    return kind if address else "node port"


def _explained(port: _Port) -> ServicePortExplanation:
    facts = []
    for kind, address, number in port.answers:
        facts.append(f"{kind} {address} port {number}" if address else f"node port {number}")
    if not port.endpoints:
        facts.append("no rule translates to an endpoint")
    endpoints = tuple(EndpointExplanation(each, "", False, "in the rules", ("rules",), "") for each in port.endpoints)
    return ServicePortExplanation(port.name, port.protocol.upper(), tuple(facts), endpoints, tuple(port.rules))
