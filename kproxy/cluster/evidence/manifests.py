"""What manifests lack that only a cluster has: cluster IPs, which an API server allocates, and EndpointSlices, which a
controller makes of running Pods. Without them kube-proxy's rules are those of another cluster."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Final

from msgspec import structs

from kproxy.api import EndpointSlice, Manifests, Service
from kproxy.api.kubeproxyconfig.types import MODE_NFTABLES, KubeProxyConfiguration
from kproxy.api.types.discovery import Endpoint, EndpointConditions, EndpointPort
from kproxy.api.types.meta import ObjectMeta
from kproxy.cluster.allocate import is_unallocated, lacks_node_port, places
from kproxy.cluster.evidence import unseen
from kproxy.cluster.evidence.opened import with_rules, with_table
from kproxy.cluster.evidence.unseen import Assumed, Unseen, not_looked_at, suspect
from kproxy.dataplane.model.pipeline import IptablesRules
from kproxy.dataplane.model.unseen import unseen_target
from kproxy.netfilter import Family, Ruleset, parse_save
from kproxy.netfilter.hooks import Variant
from kproxy.netfilter.iptables.ruleset import Table
from kproxy.render import Target
from kproxy.services.names import family_of
from kproxy.services.node import PRIMARY, host_ips, node_port_addresses
from kproxy.words import counted, listed

_SERVICE: Final = "kubernetes.io/service-name"
_SHOWN: Final = 10
_CHAINS: Final = {"nat": ("PREROUTING", "OUTPUT"), "filter": ("FORWARD", "OUTPUT")}
_RANGES: Final = {
    Family.IPV4: ipaddress.ip_network("198.18.0.0/15"),
    Family.IPV6: ipaddress.ip_network("2001:db8::/64"),
}
"""Where invented endpoints are: addresses that no network has (RFC 2544, RFC 3849)."""
_NONE: Final = {Family.IPV4: "255.255.255.255/32", Family.IPV6: "::/128"}
"""Networks in which no node has an address."""
EVERYWHERE: Final = ("0.0.0.0/0", "::/0")
"""The nodePortAddresses by which node ports answer at every address of a node."""
_Line = tuple[str, Unseen | None]
"""Options of iptables, and what is open of the packets that they match; None for nothing."""


@dataclass(frozen=True)
class Lacking:
    """The Services that lack something that was not seen.

    Attributes:
        endpoints: those without EndpointSlices, by family: of one family, or None for all families that they have.
        configuration: nothing says how kube-proxy is configured.
        node_addresses: those whose node ports answer at the node's own addresses, which are not known, by family; and
            `why` they are not.
    """

    cluster_ips: tuple[Service, ...] = ()
    endpoints: Mapping[Family | None, tuple[Service, ...]] = field(default_factory=dict)
    node_ports: tuple[Service, ...] = ()
    configuration: bool = False
    node_addresses: Mapping[Family | None, tuple[Service, ...]] = field(default_factory=dict)
    why: str = ""

    @classmethod
    def of(cls, cluster: Manifests, *, complete: bool, assumed: Assumed) -> Lacking:
        """Those of some objects.

        A cluster has an EndpointSlice of each family of a Service with a selector, if only an empty one, and of a
        Service without one those that somebody wrote: `default/kubernetes` always has one. So manifests without them
        are a part, and not of a Service that refuses.

        Args:
            complete: the objects are all that a cluster has; then what is not there does not exist.
        """
        if complete:
            return cls()
        endpoints: dict[Family | None, tuple[Service, ...]] = {}
        for family, service in _without_slices(cluster):
            endpoints[family] = (*endpoints.get(family, ()), service)
        return cls(
            () if assumed.decides(unseen.CLUSTER_IPS) else tuple(filter(is_unallocated, cluster.services)),
            {} if assumed.decides(unseen.ENDPOINTS) else endpoints,
            () if assumed.decides(unseen.NODE_PORTS) else tuple(filter(lacks_node_port, cluster.services)),
        )

    def on_node(
        self, cluster: Manifests, target: Target, config: KubeProxyConfiguration, assumed: Assumed
    ) -> tuple[Lacking, KubeProxyConfiguration]:
        """The same with the node's addresses, if they decide where node ports answer and are not known; and the
        configuration to render with: one in which node ports answer nowhere then, for `open_services` opens them."""
        why = why_no_addresses(target)
        services = tuple(each for each in cluster.services if any(port.node_port for port in each.spec.ports))
        # By other networks iptables mode asks the packet's address, and nftables mode looks for addresses in them.
        decide = config.node_ports_on_primary_only or config.mode == MODE_NFTABLES
        families = [
            family
            for family, some in _NONE.items()
            if not node_port_addresses(config.node_ports_on, family, some.partition("/")[0]).match_all
        ]
        if not (why and services and decide and families) or assumed.decides(unseen.NODE_ADDRESSES):
            return self, config
        found = {family if len(families) == 1 else None: services for family in families}
        nowhere = [*(cidr for cidr in config.node_ports_on if cidr != PRIMARY), *_NONE.values()]
        return replace(self, node_addresses=found, why=why), structs.replace(config, node_port_addresses=nowhere)

    def known(self, cluster: Manifests, family: Family) -> Manifests:
        """The cluster without the Services of which nobody knows whether they refuse connections of a family."""
        gone = {each.metadata.key for only in (None, family) for each in self.endpoints.get(only, ())}
        services = tuple(each for each in cluster.services if each.metadata.key not in gone)
        return replace(cluster, services=services) if gone else cluster

    def of_services(self, names: Collection[str]) -> Lacking:
        """What some Services lack, `namespace/name` each."""

        def some(services: Iterable[Service]) -> tuple[Service, ...]:
            return tuple(each for each in services if each.metadata.key in names)

        endpoints = {family: found for family, services in self.endpoints.items() if (found := some(services))}
        return replace(self, cluster_ips=some(self.cluster_ips), endpoints=endpoints, node_ports=some(self.node_ports))

    def unseen(self, host: str) -> tuple[Unseen, ...]:
        """The same as things that were not seen."""
        return tuple(self.things(host))

    def things(self, host: str) -> dict[Unseen, tuple[Service, ...]]:
        """The same, each with the Services that lack it."""
        rows: list[tuple[str, Family | None, tuple[Service, ...], str, str]]
        rows = [(unseen.CLUSTER_IPS, None, self.cluster_ips, "no cluster IP", "--allocate CIDR")]
        for of, services in self.endpoints.items():
            chosen = [bool(each.spec.selector) for each in services]
            lack = f"{'a selector and ' * all(chosen)}no EndpointSlice{f' of {of.value}' if of is not None else ''}"
            rows.append((unseen.ENDPOINTS, of, services, lack, "--assume-endpoints N" * any(chosen)))
        rows.append(
            (unseen.NODE_PORTS, None, self.node_ports, "a node port that is not allocated yet", "--allocate CIDR")
        )
        found: dict[Unseen, tuple[Service, ...]] = {}
        for what, family, services, lack, mend in rows:
            if services:
                names = listed([each.metadata.key for each in services], _SHOWN)
                has = "Service has" if len(services) == 1 else "Services have"
                why = f"{has} {lack}: {names}{f' ({mend})' if mend else ''}"
                found[suspect(host, family, what, why)] = services
        for family, services in self.node_addresses.items():
            found[suspect(host, family, unseen.NODE_ADDRESSES, f"{self.why}, and node ports answer there")] = services
        if self.configuration:
            why = "its defaults count: which traffic is of Pods is unknown, and so what is masqueraded (--config FILE)"
            found[not_looked_at(host, None, unseen.CONFIGURATION, why)] = ()
        return found


def why_no_addresses(target: Target) -> str:
    """Why a node's own addresses are not known, as a sentence's part; "" if its Node tells them."""
    node = target.node
    if node is None:
        return f"no Node {target.node_name}: its addresses are not known"
    return "" if host_ips(node) else f"Node {node.metadata.name} has no addresses"


def _without_slices(cluster: Manifests) -> Iterator[tuple[Family | None, Service]]:
    """The Services of which kube-proxy makes rules and EndpointSlices are missing: of all their families, or of one."""
    there: dict[tuple[str, str | None], set[str]] = {}
    for piece in cluster.endpoint_slices:
        key = piece.metadata.namespace, piece.metadata.labels.get(_SERVICE)
        there.setdefault(key, set()).add(piece.address_type)
    sliced = {namespace for namespace, _ in there}
    for service in cluster.services:
        meta, spec = service.metadata, service.spec
        # What an API server has a uid of came with its slices, if any slice of its namespace came.
        if spec.type == "ExternalName" or spec.cluster_ip == "None" or (meta.uid and meta.namespace in sliced):
            continue
        seen = there.get((meta.namespace, meta.name), set())
        if not seen:
            yield None, service
        else:
            yield from ((family, service) for family in families_of(service) if family.value not in seen)


def families_of(service: Service) -> tuple[Family, ...]:
    """The families of which a Service says that it has them."""
    spec = service.spec
    names = spec.ip_families or tuple(family_of(ip).value for ip in spec.cluster_ips if ip != "None")
    return tuple(family for family in Family if family.value in names)


def open_services(
    rules: Sequence[IptablesRules],
    family: Family,
    cluster: Manifests,
    lacking: Lacking,
    *,
    on_any_host: bool = False,
) -> tuple[IptablesRules, ...]:
    """The rules of a node, in which what becomes of packets to Services that lack something is open.

    Args:
        on_any_host: the question is about every host: also about one on which an address that rules name as the node's
            is not local.
    """
    things = {each: found for each, found in lacking.things("").items() if each.is_met_by(family)}
    lines: list[_Line] = []
    last: list[_Line] = []
    for each, services in things.items():
        if each.what == unseen.NODE_PORTS:
            known = [port for service in cluster.services for port in service.spec.ports if port.node_port]
            lines += [(_node_port(port.protocol, str(port.node_port)), None) for port in known]
            protocols = {port.protocol for service in services for port in service.spec.ports if not port.node_port}
            lines += [(_node_port(protocol, "30000:32767"), each) for protocol in sorted(protocols)]
        elif each.what == unseen.NODE_ADDRESSES:
            ports = [port for service in services for port in service.spec.ports if port.node_port]
            lines += [(_node_port(port.protocol, str(port.node_port), local=not on_any_host), each) for port in ports]
        else:
            lines += [(line, each) for service in services for line in _doors(service, family)]
        if each.what == unseen.CLUSTER_IPS:
            last = [(f"-d {address} -j RETURN", None) for address in sorted(_known(cluster, family))]
            last.append(("-j RETURN", each))
    lines += last
    found = _opened(rules, family, "nat", lines)
    # A Service without endpoints refuses; that of an unknown address would, too.
    refusing = [(line, each) for line, each in lines if each is None or each.what != unseen.ENDPOINTS]
    return _opened(found, family, "filter", refusing)


def _opened(
    rules: Sequence[IptablesRules],
    family: Family,
    name: str,
    lines: Sequence[_Line],
) -> tuple[IptablesRules, ...]:
    """The rules with lines behind those of a table's built-in chains."""
    if not lines:
        return tuple(rules)
    head = "".join(f":{chain} ACCEPT [0:0]\n" for chain in _CHAINS[name])
    body = "".join(f"-A {chain} {line}\n" for chain in _CHAINS[name] for line, _ in lines)
    made = parse_save(f"*{name}\n{head}{body}COMMIT\n", "Services that lack something", family=family).table(name)
    assert made is not None
    held = rules[0] if rules else IptablesRules(Ruleset(family), Variant.NFT)
    table = held.ruleset.table(name) or Table(name)
    for chain in made.chains:
        parts = zip(chain.rules, (each for _, each in lines), strict=True)
        more = [replace(rule, target=unseen_target(each.what, each.why)) if each else rule for rule, each in parts]
        table = with_rules(table, chain.name, more, first=False)
    return (replace(held, ruleset=with_table(held.ruleset, table)), *rules[1:])


def _doors(service: Service, family: Family) -> Iterator[str]:
    """What matches the packets to a Service's addresses, as options of iptables."""
    addresses = [ip for ip in _addresses(service) if family_of(ip) is family]
    for port in service.spec.ports:
        protocol = port.protocol.lower()
        yield from (f"-d {ip} -p {protocol} -m {protocol} --dport {port.port} -j RETURN" for ip in addresses)
        if port.node_port:
            yield _node_port(protocol, str(port.node_port))


def _node_port(protocol: str, ports: str, *, local: bool = True) -> str:
    name = protocol.lower()
    return f"-p {name} -m {name} --dport {ports} {'-m addrtype --dst-type LOCAL ' if local else ''}-j RETURN"


def _known(cluster: Manifests, family: Family) -> set[str]:
    """The addresses of which it is known whose they are: nodes', endpoints' and Services'."""
    found = {ip for node in cluster.nodes for ip in host_ips(node)}
    slices = (each for each in cluster.endpoint_slices if each.address_type == family.value)
    found |= {address for each in slices for item in each.endpoints for address in item.addresses}
    return {ip for ip in found.union(*map(_addresses, cluster.services)) if family_of(ip) is family}


def _addresses(service: Service) -> list[str]:
    spec = service.spec
    found = (*spec.cluster_ips, *spec.external_ips, *(each.ip for each in service.ingress))
    return [ip for ip in found if ip not in ("", "None")]


def with_endpoints(cluster: Manifests, count: int, node: str, tell: Callable[[str], None]) -> Manifests:
    """The cluster in which each Service with a selector has some endpoints of each family of which it has no
    EndpointSlice, spread over the nodes, or over `node` and another one where there are no Nodes. They follow from the
    Service's name alone, so that two sides of a comparison have the same. `tell` hears of which Services they are.
    """
    lacking = [each for each in _without_slices(cluster) if each[1].spec.selector]
    nodes = sorted(each.metadata.name for each in cluster.nodes) or [node, f"not-{node}" if node else "another-node"]
    slices = tuple(piece for family, service in lacking for piece in _slices(service, family, count, nodes))
    names = dict.fromkeys(service.metadata.key for _, service in lacking)
    if names:
        shown = f"{', '.join(list(names)[:_SHOWN])}{', ...' if len(names) > _SHOWN else ''}"
        of = f"{counted(len(names), 'Service')} without EndpointSlices ({shown})"
        tell(f"assumed: {counted(count, 'endpoint')} each, spread over the nodes, of {of}")
    return replace(cluster, endpoint_slices=(*cluster.endpoint_slices, *slices))


def _slices(service: Service, only: Family | None, count: int, nodes: Sequence[str]) -> Iterator[EndpointSlice]:
    for family in (only,) if only is not None else families_of(service) or (Family.IPV4,):
        network = _RANGES[family]
        room = min(network.num_addresses, 1 << 63) - 2
        free = islice(places(f"{service.metadata.key} {family.value}", room), count)
        conditions = EndpointConditions(ready=True, serving=True, terminating=False)
        endpoints = tuple(
            Endpoint((str(network[1 + place]),), conditions, node_name=nodes[number % len(nodes)])
            for number, place in enumerate(free)
        )
        ports = tuple(
            EndpointPort(port.target_port if isinstance(port.target_port, int) and port.target_port else port.port,
                         port.name, port.protocol)
            for port in service.spec.ports
        )  # fmt: skip
        name = f"{service.metadata.name}-assumed-{family.value.lower()}"
        meta = ObjectMeta(name, service.metadata.namespace, {_SERVICE: service.metadata.name})
        yield EndpointSlice(meta, family.value, endpoints, ports)
