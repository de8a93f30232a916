"""The Services that one host's rules tell of, where there are no objects: kube-proxy writes their names into comments
of iptables' rules, and into the names of chains in nftables.

In large clusters it leaves the comments out: such Services are not found.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from kproxy.api import Manifests, Service, ServicePort
from kproxy.api.types.core import LoadBalancerIngress, ServiceSpec
from kproxy.api.types.meta import ObjectMeta
from kproxy.cluster.evidence.unseen import CHAIN, Unseen, suspected
from kproxy.cluster.rendered import is_ours
from kproxy.cluster.rules import HostRules
from kproxy.family import join_host_port
from kproxy.netfilter import Family
from kproxy.netfilter.nftables.effects import FAMILIES
from kproxy.netfilter.nftables.elements import print_element
from kproxy.netfilter.nftables.ruleset import Table
from kproxy.netfilter.nftables.style import Scope, Style
from kproxy.netfilter.text import destination_of, endpoint_of, key_of, owner_of, service_of, split_save, target_of
from kproxy.render.explain import EndpointExplanation, Explanation, RuleExplanation, ServicePortExplanation
from kproxy.render.iptables.chains import EXTERNAL_SERVICES, NODEPORTS, SERVICE_PORT_CHAIN_PREFIXES, SERVICES
from kproxy.render.nftables.names import TABLE, nft_family
from kproxy.services.names import family_of

CLUSTER_IP: Final = "clusterIP"
EXTERNAL_IP: Final = "externalIP"
LOAD_BALANCER_IP: Final = "loadBalancerIP"
NODE_PORT: Final = "nodePort"

_CHAINS: Final = (SERVICES, EXTERNAL_SERVICES, NODEPORTS)
_LEADS_TO: Final = re.compile(r"(?:--to-destination|dnat(?: ip6?)? to) ((?:\[[0-9a-f:.]+\]|[0-9.]+):\d+)")
_COMMENT: Final = re.compile(r' comment "([^":]+/[^":]+)(?::([^"]+))?"')
_CHOICE: Final = re.compile(r"\d+ : ([0-9a-f.:]+) \. (\d+)")
"""An endpoint in the map by which a rule chooses one."""
_WORDS: Final = {
    CLUSTER_IP: "ClusterIP",
    EXTERNAL_IP: "external IP",
    LOAD_BALANCER_IP: "load-balancer IP",
    NODE_PORT: "node port",
}
_KINDS: Final = {"cluster IP": CLUSTER_IP, "external IP": EXTERNAL_IP, "loadbalancer IP": LOAD_BALANCER_IP}


@dataclass(frozen=True, slots=True)
class Door:
    """An address and port at which a Service answers; `address` is "" of a node port."""

    service: str
    port: str
    protocol: str
    family: Family
    kind: str
    address: str
    number: int


def doors_told(rules: HostRules) -> tuple[Door, ...]:
    """Where Services answer, by name, as far as the rules tell; each once."""
    found: dict[tuple[object, ...], Door] = {}
    for door in (*_of_iptables(rules), *_of_nftables(rules)):
        key = (door.service, door.port, door.protocol, door.family, door.address, door.number)
        if key not in found or door.kind == CLUSTER_IP:  # a rule that refuses does not say which kind of address it is
            found[key] = door
    return tuple(sorted(found.values(), key=lambda each: (each.service, each.port, each.protocol)))


def services_told(doors: Iterable[Door]) -> tuple[Service, ...]:
    """The Services as objects, in order, as far as rules tell them: names, ports and addresses."""
    found: dict[str, list[Door]] = {}
    for door in doors:
        found.setdefault(door.service, []).append(door)
    return tuple(_service_told(*each) for each in sorted(found.items()))


def _service_told(key: str, doors: Iterable[Door]) -> Service:
    found: dict[str, dict[str, None]] = {}
    ports: dict[tuple[str, str], dict[bool, int]] = {}
    for door in doors:
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


def endpoints_told(rules: HostRules, family: Family) -> Iterator[str]:
    """Where rules of iptables and elements of nftables' maps lead, `ADDRESS:PORT`, of a family; not each once."""
    bracket = family is Family.IPV6
    for text, of, _ in rules.texts:
        if of in (None, family):
            yield from (each[1] for each in _LEADS_TO.finditer(text) if each[1].startswith("[") == bracket)


def _of_iptables(rules: HostRules) -> Iterator[Door]:
    for ruleset in rules.rulesets:
        for table in ruleset.tables:
            for chain in table.chains:
                for rule in chain.rules if chain.name in _CHAINS else ():
                    text = rule.spec()
                    to, (service, _, port) = destination_of(text), service_of(text).partition(":")
                    if to is not None and service:
                        said = next((kind for words, kind in _KINDS.items() if f" {words}" in text), "")
                        inside = CLUSTER_IP if chain.name == SERVICES else EXTERNAL_IP
                        kind = said or (inside if to.address else NODE_PORT)
                        family = ruleset.family or family_of(to.address)
                        yield Door(service, port, to.protocol.upper(), family, kind, to.address, to.port)


def _of_nftables(rules: HostRules) -> Iterator[Door]:
    for table in () if rules.nftables is None else rules.nftables.tables:
        family = next((each for each in Family if table.family.value == nft_family(each)), None)
        if table.name == TABLE and family is not None:
            yield from _of_table(table, family)


def _of_table(table: Table, family: Family) -> Iterator[Door]:
    scope = Scope(Style(stateless=True))
    for each in table.sets:
        for element in each.elements if each.is_verdict_map else ():
            text = print_element(element, each.types, each.data_types, scope)
            key, owner, comment = key_of(text), owner_of(text.rpartition(" ")[2]), _COMMENT.search(text)
            if key is None or (owner is None and comment is None):
                continue
            inside = owner is None or owner.kind == "service"
            kind = NODE_PORT if not key.address else CLUSTER_IP if inside else EXTERNAL_IP
            if owner is not None:
                service, port = f"{owner.namespace}/{owner.name}", owner.port
            elif comment is not None:
                service, port = comment[1], comment[2] or ""
            yield Door(service, port, key.protocol.upper(), family, kind, key.address, key.port)


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
        self.rules = rules
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
        return Manifests(services=services_told(self._doors))

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

    def hiding(self, family: Family | None) -> tuple[Unseen, ...]:
        """What was not seen of the rules that lead to all Services of a family, or of both: there may be others."""
        return suspected(self._unseen(family, _CHAINS))

    def unseen(self, explanation: Explanation, family: Family) -> tuple[Unseen, ...]:
        """What was not seen of the rules that a Service's packets may meet; of chains, those that lead to all Services,
        and those that its rules name."""
        rules = [rule for port in explanation.ports for rule in port.rules]
        return self._unseen(family, {*_CHAINS, *(word for rule in rules for word in (rule.chain, *rule.text.split()))})

    def _unseen(self, family: Family | None, chains: Collection[str]) -> tuple[Unseen, ...]:
        found = (each for each in self.rules.unseen if family is None or each.is_met_by(family))
        names = {f"{CHAIN} {chain}" for chain in chains}
        return tuple(each for each in found if not each.what.startswith(f"{CHAIN} ") or each.what in names)

    def _explained(self, family: Family, name: str, protocol: str, facts: list[str]) -> ServicePortExplanation:
        port = self._port(family, name, protocol)
        more = [] if port.endpoints else ["no rule translates to an endpoint"]
        ends = tuple(EndpointExplanation(each, "", False, "in the rules", ("rules",), "") for each in port.endpoints)
        return ServicePortExplanation(name, protocol, (*facts, *more), ends, tuple(port.rules))

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
        self, table: str, chains: Mapping[str, list[str]], owners: Mapping[tuple[str, str], tuple[str, str]],
        family: Family,
    ) -> None:  # fmt: skip
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
                port.endpoints.setdefault(join_host_port(host, to))
            for number, rule in enumerate(chain.rules, 1):
                text = lines[rule.line - 1].strip() if 0 < rule.line <= len(lines) else ""
                for host, to in _CHOICE.findall(text) if " dnat " in text else ():
                    port.endpoints.setdefault(join_host_port(host, to))
                port.rules.append(RuleExplanation(table.name, chain.name, number, text, owner.kind))
