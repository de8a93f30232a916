"""What of a cluster decides how the two modes differ on one node, for one family."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Literal

import msgspec

from kproxy.api import Manifests
from kproxy.api.kubeproxyconfig.types import MODE_IPTABLES, MODE_NFTABLES, KubeProxyConfiguration
from kproxy.cluster.evidence.manifests import why_no_addresses
from kproxy.cluster.evidence.unseen import NODE_ADDRESSES, NOTHING, Assumed, Unseen, suspect, suspected
from kproxy.cluster.hosts import node_addresses
from kproxy.dataplane import Host
from kproxy.netfilter import Family
from kproxy.netfilter.address import format_address
from kproxy.render import Features, RenderOptions, Target, render_options
from kproxy.render.decisions import Decisions, decide, is_node_allowed
from kproxy.services.claims import ServiceAddress, claimed_twice
from kproxy.services.endpoints import Endpoint
from kproxy.services.names import ServicePortName, family_of
from kproxy.services.serviceport import ServicePort
from kproxy.services.topology import SelectedEndpoints, select_endpoints
from kproxy.services.tracker import ServiceState

AddressKind = Literal["ClusterIP", "external IP", "load-balancer IP", "node port", "health-check node port", ""]
"""Which of a Service's addresses a packet is sent to; "" if it is none's."""


@dataclass(frozen=True)
class NodeFacts:
    """One node and family: the ServicePorts as that node sees them, and what each mode is told.

    Attributes:
        iptables, nftables: the options of each mode's renderer, from one configuration.
        interfaces_known: whether all addresses of the node were read from it, not from its Node object.
        host: the node's addresses, routes, policy rules and sysctls, where they are given.
        lacking: what the objects do not show.
    """

    target: Target
    family: Family
    state: ServiceState
    iptables: RenderOptions
    nftables: RenderOptions
    interfaces_known: bool = False
    host: Host | None = None
    lacking: tuple[Unseen, ...] = ()

    @classmethod
    def of(
        cls,
        cluster: Manifests,
        config: KubeProxyConfiguration,
        target: Target,
        family: Family,
        features: Features,
        addresses: Sequence[str] | None = None,
        host: Host | None = None,
        lacking: Sequence[Unseen] = (),
        assumed: Assumed = NOTHING,
        state: ServiceState | None = None,
    ) -> NodeFacts:
        """Reads the cluster as kube-proxy on the node would, in either mode. `addresses`: see `render_options`; by
        default the host's, if it tells them. `assumed`: what `--assume` says of what is lacking. `state`: of the
        cluster's Services there, if it is made already."""
        if addresses is None and host is not None and host.local_addresses is not None:
            addresses = [format_address(value, kind) for kind, value in sorted(host.local_addresses) if kind is family]
        state = state or ServiceState.of(family, target.node_name, cluster.services, cluster.endpoint_slices)
        node = target.node
        configs = [msgspec.structs.replace(config, mode=mode) for mode in (MODE_IPTABLES, MODE_NFTABLES)]
        first, second = (
            render_options(each, family, target.node_name, node, features, addresses, service_cidrs=cidrs)
            for each, cidrs in zip(configs, ((), cluster.service_cidrs), strict=True)
        )
        known, moves = addresses is not None, configs[0].node_ports_on != configs[1].node_ports_on
        if moves and not known and (why := why_no_addresses(target)):
            lacking = (*lacking, suspect(target.node_name, None, NODE_ADDRESSES, why))
        return cls(target, family, state, first, second, known, host, assumed.left(lacking))

    @cached_property
    def unseen(self) -> tuple[Unseen, ...]:
        """What was not seen of the cluster and may hide how the modes differ here."""
        found = (each for each in suspected(self.lacking) if each.is_met_by(self.family))
        return tuple(each for each in found if each.what != NODE_ADDRESSES or self.node_ports)

    @cached_property
    def service_ports(self) -> tuple[ServicePort, ...]:
        """All ServicePorts, sorted by name."""
        return tuple(self.state.service_ports[name] for name in sorted(self.state.service_ports))

    @cached_property
    def selected(self) -> Mapping[ServicePortName, SelectedEndpoints]:
        """The endpoints that each ServicePort has on this node."""
        zone = self.iptables.zone
        return {
            port.name: select_endpoints(port, self.state.endpoints.get(port.name, ()), self.target.node_name, zone)
            for port in self.service_ports
        }

    @cached_property
    def decided(self) -> Mapping[ServicePortName, Decisions]:
        """What becomes of each ServicePort's traffic."""
        return {port.name: decide(port, self.selected[port.name]) for port in self.service_ports}

    @cached_property
    def node_ports(self) -> tuple[ServicePort, ...]:
        """The ServicePorts with a node port, first those that have endpoints for clients outside."""
        found = [port for port in self.service_ports if port.node_port]
        decided = self.decided
        return tuple(
            sorted(found, key=lambda port: (not decided[port.name].has_external, not decided[port.name].has_any))
        )

    @cached_property
    def refused_node_ports(self) -> tuple[ServicePort, ...]:
        """Those whose node port is refused for want of endpoints."""
        return tuple(port for port in self.node_ports if not self.decided[port.name].has_external)

    @cached_property
    def cluster_ips(self) -> tuple[str, ...]:
        """All ClusterIPs, each once."""
        return tuple(dict.fromkeys(port.cluster_ip for port in self.service_ports))

    @cached_property
    def service_addresses(self) -> tuple[str, ...]:
        """All external and load-balancer IPs, then all ClusterIPs, each once."""
        external = (ip for port in self.service_ports for ip in (*port.external_ips, *port.load_balancer_vips))
        return tuple(dict.fromkeys(chain(external, self.cluster_ips)))

    @cached_property
    def cluster_ip_doors(self) -> frozenset[ServiceAddress]:
        """Every port of a ClusterIP that a Service has."""
        return frozenset(ServiceAddress.of(port.cluster_ip, port) for port in self.service_ports)

    def addressed(self, address: str, number: int | None, protocol: str) -> tuple[str, AddressKind]:
        """The Service, `namespace/name`, that an address and port are of; of an address, if none has the port, any."""
        exact = (port for port in self.service_ports if (port.port, port.protocol) == (number, protocol))
        for port in chain(exact, self.service_ports):
            if address == port.cluster_ip:
                return port.name.service, "ClusterIP"
            if address in port.external_ips:
                return port.name.service, "external IP"
            if address in port.load_balancer_vips:
                return port.name.service, "load-balancer IP"
        for port in self.service_ports:
            if number and number == port.node_port and protocol == port.protocol:
                return port.name.service, "node port"
            if number and number == port.health_check_node_port and protocol == "tcp":
                return port.name.service, "health-check node port"
        return "", ""

    @cached_property
    def shared_doors(self) -> Mapping[ServiceAddress, tuple[ServicePort, ...]]:
        """Where more than one ServicePort answers, and which do."""
        return claimed_twice(self.service_ports)

    @cached_property
    def restricted(self) -> tuple[tuple[ServiceAddress, tuple[str, ...], ServicePort], ...]:
        """Load-balancer IPs that accept only some sources, with these sources as nftables mode has them."""
        found = []
        for port in self.service_ports:
            if self.decided[port.name].restricts_sources:
                sources = port.load_balancer_source_ranges
                if is_node_allowed(port, self.nftables):
                    sources += port.load_balancer_vips
                found += [(ServiceAddress.of(ip, port), sources, port) for ip in port.load_balancer_vips]
        return tuple(found)

    def _reachable(self, *, local: bool) -> Iterator[tuple[ServicePort, Endpoint]]:
        for port in self.service_ports:
            yield from ((port, each) for each in self.selected[port.name].reachable if each.is_local is local)

    @cached_property
    def remote_endpoints(self) -> tuple[tuple[ServicePort, Endpoint], ...]:
        """Endpoints of other nodes to which this one sends traffic."""
        return tuple(self._reachable(local=False))

    @cached_property
    def hairpin(self) -> frozenset[str]:
        """Endpoints of this node, `ip:port/protocol`: those whose traffic to themselves nftables mode masquerades."""
        return frozenset(f"{each.address}/{port.protocol}" for port, each in self._reachable(local=True))

    @cached_property
    def own_addresses(self) -> tuple[str, ...]:
        """The node's addresses of this family, as far as its Node object tells."""
        node = self.target.node
        found = () if node is None else node_addresses(node)
        own = [text for text in found if is_address(text) and family_of(text) is self.family]
        if not own and self.host is not None:
            own = _without_loopback(self.iptables.interface_addresses)
        return tuple(dict.fromkeys(own))

    @cached_property
    def known_addresses(self) -> tuple[str, ...]:
        """Its addresses, and those of its interfaces as far as they are known, loopback's left out."""
        found = (*self.own_addresses, *self.iptables.interface_addresses)
        return tuple(_without_loopback(dict.fromkeys(found)))

    def node_port_addresses(self, options: RenderOptions) -> tuple[str, ...] | None:
        """The addresses at which node ports answer, loopback left out; None: at every one of the node."""
        if options.node_port_addresses.match_all:
            return None
        return tuple(_without_loopback(options.node_port_addresses.matching(options.interface_addresses)))


def _without_loopback(addresses: Iterable[str]) -> list[str]:
    return [ip for ip in addresses if not ipaddress.ip_address(ip).is_loopback]


def is_address(text: str) -> bool:
    """Whether it is an IP address; a Node may have names among its addresses."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
