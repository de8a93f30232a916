"""What manifests lack that only a cluster has: cluster IPs, which an API server allocates, and EndpointSlices, which a
controller makes of running Pods. Without them kube-proxy's rules are those of another cluster."""

from __future__ import annotations

import hashlib
import ipaddress
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from kproxy.api import EndpointSlice, Manifests, Service
from kproxy.api.types.discovery import Endpoint, EndpointConditions, EndpointPort
from kproxy.api.types.meta import ObjectMeta
from kproxy.cluster.allocate import is_unallocated, lacks_node_port
from kproxy.cluster.evidence.unseen import CLUSTER_IPS, ENDPOINTS, NODE_PORTS, Assumed, Unseen, suspect
from kproxy.dataplane.model.pipeline import IptablesRules
from kproxy.dataplane.model.unseen import unseen_target
from kproxy.netfilter import Family, Ruleset, parse_save
from kproxy.netfilter.hooks import Variant
from kproxy.netfilter.iptables.ruleset import Table
from kproxy.netfilter.iptables.targets import Target
from kproxy.services.names import family_of
from kproxy.services.node import host_ips

_SERVICE: Final = "kubernetes.io/service-name"
_SHOWN: Final = 10
_CHAINS: Final = {"nat": ("PREROUTING", "OUTPUT"), "filter": ("FORWARD", "OUTPUT")}
_RANGES: Final = {4: ipaddress.ip_network("198.18.0.0/15"), 6: ipaddress.ip_network("2001:db8::/64")}
"""Where invented endpoints are: addresses that no network has (RFC 2544, RFC 3849)."""


@dataclass(frozen=True)
class Lacking:
    """The Services that lack something that was not seen."""

    cluster_ips: tuple[Service, ...] = ()
    endpoints: tuple[Service, ...] = ()
    node_ports: tuple[Service, ...] = ()

    @classmethod
    def of(cls, cluster: Manifests, *, complete: bool, assumed: Assumed) -> Lacking:
        """Those of some objects.

        Args:
            complete: the objects are all that a cluster has; then what is not there does not exist.
        """
        if complete:
            return cls()
        there = {(each.metadata.namespace, each.metadata.labels.get(_SERVICE)) for each in cluster.endpoint_slices}
        none = not cluster.endpoint_slices
        without_ips = tuple(filter(is_unallocated, cluster.services))
        without = tuple(
            each
            for each in cluster.services
            if each.spec.selector
            and each.spec.type != "ExternalName"
            # What an API server has a uid of came with its slices, if any slice came.
            and (none or not each.metadata.uid)
            and (each.metadata.namespace, each.metadata.name) not in there
        )
        return cls(
            () if assumed.complete or CLUSTER_IPS in assumed.empty else without_ips,
            () if assumed.complete or ENDPOINTS in assumed.empty else without,
            () if assumed.complete or NODE_PORTS in assumed.empty else tuple(filter(lacks_node_port, cluster.services)),
        )

    def unseen(self, host: str) -> tuple[Unseen, ...]:
        """The same as things that were not seen."""
        found = []
        for what, services, lack, mend in (
            (CLUSTER_IPS, self.cluster_ips, "no cluster IP", "--allocate CIDR"),
            (ENDPOINTS, self.endpoints, "a selector and no EndpointSlice", "--assume-endpoints N"),
            (NODE_PORTS, self.node_ports, "a node port that is not allocated yet", "--allocate CIDR"),
        ):
            if services:
                names = ", ".join(each.metadata.key for each in services[:_SHOWN])
                more = f" and {len(services) - _SHOWN} more" if len(services) > _SHOWN else ""
                has = "Service has" if len(services) == 1 else "Services have"
                found.append(suspect(host, None, what, f"{has} {lack}: {names}{more} ({mend})"))
        return tuple(found)


def open_services(
    rules: Sequence[IptablesRules], family: Family, cluster: Manifests, lacking: Lacking
) -> tuple[IptablesRules, ...]:
    """The rules of a node, in which what becomes of packets to Services that lack something is open."""
    unseen = {each.what: each for each in lacking.unseen("")}
    lines: list[tuple[str, str]] = []
    if lacking.endpoints:
        lines += [(line, ENDPOINTS) for each in lacking.endpoints for line in _doors(each, family)]
    lines += [(line, CLUSTER_IPS) for each in lacking.cluster_ips for line in _doors(each, family)]
    if lacking.node_ports:
        known = [port for each in cluster.services for port in each.spec.ports if port.node_port]
        lines += [(_node_port(port.protocol, str(port.node_port)), "") for port in known]
        protocols = {port.protocol for each in lacking.node_ports for port in each.spec.ports if not port.node_port}
        lines += [(_node_port(protocol, "30000:32767"), NODE_PORTS) for protocol in sorted(protocols)]
    if lacking.cluster_ips:
        lines += [(f"-d {address} -j RETURN", "") for address in sorted(_known(cluster, family))]
        lines.append(("-j RETURN", CLUSTER_IPS))
    # A Service without endpoints refuses; that of an unknown address would, too.
    found = _opened(rules, family, "nat", lines, unseen)
    return _opened(found, family, "filter", [each for each in lines if each[1] != ENDPOINTS], unseen)


def _opened(
    rules: Sequence[IptablesRules],
    family: Family,
    name: str,
    lines: Sequence[tuple[str, str]],
    unseen: Mapping[str, Unseen],
) -> tuple[IptablesRules, ...]:
    """The rules with lines behind those of a table's built-in chains, each with what it leaves open, "" for nothing."""
    if not lines:
        return tuple(rules)
    head = "".join(f":{chain} ACCEPT [0:0]\n" for chain in _CHAINS[name])
    body = "".join(f"-A {chain} {line}\n" for chain in _CHAINS[name] for line, _ in lines)
    made = parse_save(f"*{name}\n{head}{body}COMMIT\n", "Services that lack something", family=family).table(name)
    assert made is not None
    held = rules[0] if rules else IptablesRules(Ruleset(family), Variant.NFT)
    table = held.ruleset.table(name) or Table(name)
    chains = {chain.name: chain for chain in table.chains}
    for chain in made.chains:
        parts = zip(chain.rules, (what for _, what in lines), strict=True)
        more = [replace(rule, target=_target(unseen[what])) if what else rule for rule, what in parts]
        before = chains.get(chain.name, replace(chain, rules=()))
        chains[chain.name] = replace(before, rules=(*before.rules, *more))
    others = tuple(each for each in held.ruleset.tables if each.name != name)
    opened = replace(held.ruleset, tables=(*others, Table(name, tuple(chains.values()), table.comments)))
    return (replace(held, ruleset=opened), *rules[1:])


def _target(each: Unseen) -> Target:
    return unseen_target(each.what, each.why)


def _doors(service: Service, family: Family) -> Iterator[str]:
    """What matches the packets to a Service's addresses, as options of iptables."""
    spec = service.spec
    ingress = tuple(each.ip for each in service.ingress if each.ip)
    addresses = [ip for ip in (*spec.cluster_ips, *spec.external_ips, *ingress) if ip != "None"]
    for port in spec.ports:
        protocol = port.protocol.lower()
        for address in addresses:
            if _is_of(address, family):
                yield f"-d {address} -p {protocol} -m {protocol} --dport {port.port} -j RETURN"
        if port.node_port:
            yield _node_port(protocol, str(port.node_port))


def _node_port(protocol: str, ports: str) -> str:
    name = protocol.lower()
    return f"-p {name} -m {name} --dport {ports} -m addrtype --dst-type LOCAL -j RETURN"


def _known(cluster: Manifests, family: Family) -> set[str]:
    """The addresses of which it is known whose they are: nodes', endpoints' and Services'."""
    found = {ip for node in cluster.nodes for ip in host_ips(node)}
    found |= {address for each in cluster.endpoint_slices for item in each.endpoints for address in item.addresses}
    for service in cluster.services:
        spec = service.spec
        found |= {*spec.cluster_ips, *spec.external_ips, *(each.ip for each in service.ingress)} - {"", "None"}
    return {address for address in found if _is_of(address, family)}


def _is_of(address: str, family: Family) -> bool:
    try:
        return ipaddress.ip_address(address).version == (4 if family is Family.IPV4 else 6)
    except ValueError:
        return False


def with_endpoints(cluster: Manifests, count: int, node: str) -> tuple[Manifests, tuple[str, ...]]:
    """The cluster in which each Service with a selector and without EndpointSlices has some endpoints, spread over the
    nodes, or over `node` and another one where there are no Nodes. They follow from the Service's name alone, so that
    two sides of a comparison have the same.

    Returns:
        The cluster, and the names of the Services that got some.
    """
    lacking = Lacking.of(cluster, complete=False, assumed=Assumed()).endpoints
    nodes = sorted(each.metadata.name for each in cluster.nodes) or [node, f"not-{node}" if node else "another-node"]
    slices = tuple(piece for service in lacking for piece in _slices(service, count, nodes))
    return (
        replace(cluster, endpoint_slices=(*cluster.endpoint_slices, *slices)),
        tuple(each.metadata.key for each in lacking),
    )


def _slices(service: Service, count: int, nodes: Sequence[str]) -> Iterator[EndpointSlice]:
    ips = [ip for ip in service.spec.cluster_ips if ip != "None"]
    families: Iterable[str] = service.spec.ip_families or tuple(family_of(ip).value for ip in ips) or ("IPv4",)
    for family in families:
        network = _RANGES[4 if family == "IPv4" else 6]
        start = int.from_bytes(hashlib.sha256(f"{service.metadata.key} {family}".encode()).digest()[:8])
        room = min(network.num_addresses, 1 << 63) - 2
        endpoints = tuple(
            Endpoint(
                (str(network[1 + (start + number) % room]),),
                EndpointConditions(ready=True, serving=True, terminating=False),
                node_name=nodes[number % len(nodes)],
            )
            for number in range(count)
        )
        ports = tuple(
            EndpointPort(port.target_port if isinstance(port.target_port, int) and port.target_port else port.port,
                         port.name, port.protocol)
            for port in service.spec.ports
        )  # fmt: skip
        meta = ObjectMeta(
            f"{service.metadata.name}-assumed-{family.lower()}",
            service.metadata.namespace,
            {_SERVICE: service.metadata.name},
        )
        yield EndpointSlice(meta, family, endpoints, ports)
