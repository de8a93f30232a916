"""The Services that a host's rules know: kube-proxy's comments, chains and maps name them.

What rules do not tell (Pods, nodes, selectors, endpoints that are not used) is not known here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from kproxy.api import Manifests, Service, ServicePort
from kproxy.api.types.core import LoadBalancerIngress, ServiceSpec
from kproxy.api.types.meta import ObjectMeta
from kproxy.cluster.rendered import is_ours
from kproxy.cluster.rules import HostRules
from kproxy.cluster.services_in_rules import CLUSTER_IP, EXTERNAL_IP, LOAD_BALANCER_IP, NODE_PORT, doors_told
from kproxy.netfilter import Family
from kproxy.netfilter.nftables.effects import FAMILIES
from kproxy.netfilter.nftables.ruleset import Table
from kproxy.netfilter.text import destination_of, endpoint_of, owner_of, service_of, split_save, target_of
from kproxy.render.explain import EndpointExplanation, Explanation, RuleExplanation, ServicePortExplanation
from kproxy.render.iptables.chains import SERVICE_PORT_CHAIN_PREFIXES
from kproxy.render.nftables.names import TABLE

_CHOICE: Final = re.compile(r"\d+ : ([0-9a-f.:]+) \. (\d+)")
"""An endpoint in the map by which a rule chooses one."""


_WORDS: Final = {
    CLUSTER_IP: "ClusterIP",
    EXTERNAL_IP: "external IP",
    LOAD_BALANCER_IP: "load-balancer IP",
    NODE_PORT: "node port",
}


@dataclass
class _Port:
    """By which rules one port of a Service is served in one family, and where these translate to."""

    rules: list[RuleExplanation] = field(default_factory=list)
    endpoints: dict[str, None] = field(default_factory=dict)


class RecordedServices:
    """What rules say of Services.

    Raises:
        InputError: they cannot be read.
    """

    def __init__(self, rules: HostRules) -> None:
        self._doors = doors_told(rules)
        self._ports: dict[tuple[Family, str, str], _Port] = {}
        for file in rules.files:
            if file.iptables is not None:
                self._read_save(file.text.replace("\r\n", "\n"), file.iptables.ruleset.family or Family.IPV4)
                continue
            lines = file.text.splitlines()
            for table in () if rules.nftables is None else rules.nftables.tables:
                if table.name == TABLE and table.family.value in FAMILIES:
                    self._read_table(table, lines, FAMILIES[table.family.value])

    @property
    def keys(self) -> list[str]:
        """All Services, as `namespace/name`, in order."""
        return sorted({door.service for door in self._doors})

    @property
    def manifests(self) -> Manifests:
        """The Services as objects, as far as rules tell them: names, ports and addresses."""
        return Manifests(services=tuple(map(self._object, self.keys)))

    def families(self, key: str) -> list[Family]:
        """The families in which rules know a Service."""
        return sorted({door.family for door in self._doors if door.service == key}, key=lambda each: each.version)

    def explain(self, key: str, family: Family, where: str) -> Explanation:
        """What rules do for a Service. `where` is what the host is called."""
        ports: dict[tuple[str, str], list[str]] = {}
        for door in sorted(self._doors, key=lambda each: list(_WORDS).index(each.kind)):
            if (door.service, door.family) == (key, family):
                name = f"{key}{door.port and f':{door.port}'}"
                at = f" {door.address} port" if door.address else ""
                ports.setdefault((name, door.protocol), []).append(f"{_WORDS[door.kind]}{at} {door.number}")
        notes = ("from rules alone: endpoints that get no traffic, and where endpoints are, is not known",)
        explained = tuple(self._explained(family, *port, facts) for port, facts in ports.items())
        return Explanation(key, where, family.value, "", notes, explained)

    def _explained(self, family: Family, name: str, protocol: str, facts: list[str]) -> ServicePortExplanation:
        port = self._port(family, name, protocol)
        more = [] if port.endpoints else ["no rule translates to an endpoint"]
        ends = tuple(EndpointExplanation(each, "", False, "in the rules", ("rules",), "") for each in port.endpoints)
        return ServicePortExplanation(name, protocol, (*facts, *more), ends, tuple(port.rules))

    def _object(self, key: str) -> Service:
        found: dict[str, dict[str, None]] = {}
        ports: dict[tuple[str, str], dict[bool, int]] = {}
        for door in (each for each in self._doors if each.service == key):
            found.setdefault(door.kind, {})[door.address] = None
            ports.setdefault((door.port, door.protocol), {})[door.kind == NODE_PORT] = door.number
        own = tuple(found.get(CLUSTER_IP, ()))
        spec = ServiceSpec(
            cluster_ip=own[0] if own else "", cluster_ips=own, external_ips=tuple(found.get(EXTERNAL_IP, ())),
            ports=tuple(
                ServicePort(numbers.get(False, 0), name, protocol, node_port=numbers.get(True, 0))
                for (name, protocol), numbers in ports.items()
            ),
        )  # fmt: skip
        ingress = tuple(LoadBalancerIngress(ip) for ip in found.get(LOAD_BALANCER_IP, ()))
        namespace, _, name = key.partition("/")
        return Service(ObjectMeta(name, namespace), spec, ingress)

    def _port(self, family: Family, name: str, protocol: str) -> _Port:
        return self._ports.setdefault((family, name, protocol.upper()), _Port())

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
                    reason = f"to {target_of(rule)}"
                    port = self._port(family, name, to.protocol)
                    port.rules.append(RuleExplanation(table, chain, number, f"-A {chain} {rule}", reason))
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
