"""What kube-proxy's IPVS mode makes of ServicePorts: virtual servers, set members, addresses on `kube-ipvs0`, rules.

kube-proxy v1.36, as recorded in 78 clusters. Each sync makes all of it from scratch; so does this.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from typing import Final, NamedTuple

import msgspec

from kproxy.family import host_of
from kproxy.netfilter.ipvs.server import RealServer, VirtualServer
from kproxy.render.decisions import is_node_allowed
from kproxy.render.ipvs import sets
from kproxy.render.ipvs.sets import IpSet
from kproxy.render.options import RenderOptions
from kproxy.render.origin import Origin
from kproxy.services.endpoints import Endpoint
from kproxy.services.names import ServicePortName
from kproxy.services.serviceport import ServicePort
from kproxy.services.topology import SelectedEndpoints, select_endpoints
from kproxy.services.tracker import ServiceState

DEVICE: Final = "kube-ipvs0"
DEFAULT_SCHEDULER: Final = "rr"

_HASH: Final = "mh"  # the scheduler for which kube-proxy asks that the port is hashed, too


class Served(NamedTuple):
    """A virtual server with its real servers, in the order of the endpoints, and where each comes from."""

    server: VirtualServer
    origin: Origin
    real: tuple[tuple[RealServer, Origin], ...]


class IpvsState(msgspec.Struct):
    """What is there besides rules.

    Attributes:
        servers: by name, as ipvsadm has it.
        members: of each set, by the member's text.
        addresses: on `kube-ipvs0`.
        refused_sources: load-balancer IPs, each with its ServicePort, whose source ranges leave this node out: nothing
            that this node sends from such an address to its virtual server gets through.
    """

    servers: dict[str, Served]
    members: dict[IpSet, dict[str, Origin]]
    addresses: dict[str, Origin]
    refused_sources: dict[tuple[str, ServicePort], Origin]


class _Maker:
    """Makes the state, one ServicePort after the other."""

    def __init__(self, state: ServiceState, options: RenderOptions) -> None:
        self._state, self._options = state, options
        self._scheduler = options.ipvs.scheduler or DEFAULT_SCHEDULER
        self._node_ips = [*_node_port_ips(options)]
        self.made = IpvsState({}, {each: {} for each in sets.SETS}, {}, {})

    def add(self, name: ServicePortName, port: ServicePort) -> None:
        endpoints = self._state.endpoints.get(name, ())
        selected = select_endpoints(port, endpoints, self._options.node_name, self._options.zone)
        for endpoint in endpoints:
            if endpoint.is_local:
                number = endpoint.address.rpartition(":")[2]
                self._member(sets.LOOP_BACK, f"{endpoint.ip},{port.protocol}:{number},{endpoint.ip}", name, "hairpin")
        self._serve(port, port.cluster_ip, selected, "cluster IP", local=port.internal_policy_local)
        self._member(sets.CLUSTER_IP, f"{port.cluster_ip},{port.protocol}:{port.port}", name, "cluster IP")
        for ip in port.external_ips:
            found = sets.EXTERNAL_IP_LOCAL if port.external_policy_local else sets.EXTERNAL_IP
            self._member(found, f"{ip},{port.protocol}:{port.port}", name, "external IP")
            self._serve(port, ip, selected, "external IP", local=port.external_policy_local)
        for ip in port.load_balancer_vips:
            self._load_balancer(port, ip)
            self._serve(port, ip, selected, "load-balancer IP", local=port.external_policy_local)
        if port.node_port and self._node_ips:
            self._node_port(port, selected)
        if port.health_check_node_port:
            self._member(sets.HEALTH_CHECK, str(port.health_check_node_port), name, "health check node port")

    def _load_balancer(self, port: ServicePort, ip: str) -> None:
        member, why = f"{ip},{port.protocol}:{port.port}", "load-balancer IP"
        self._member(sets.LOAD_BALANCER, member, port.name, why)
        if port.external_policy_local:
            self._member(sets.LOAD_BALANCER_LOCAL, member, port.name, why)
        if not port.load_balancer_source_ranges:
            return
        self._member(sets.LOAD_BALANCER_FW, member, port.name, why)
        for cidr in port.load_balancer_source_ranges:
            self._member(sets.SOURCE_CIDR, f"{member},{cidr}", port.name, "source range")
        if is_node_allowed(port, self._options):
            self._member(sets.SOURCE_IP, f"{member},{ip}", port.name, "the node's own source")
        else:
            self.made.refused_sources[ip, port] = Origin("source ranges without this node", port.name)

    def _node_port(self, port: ServicePort, selected: SelectedEndpoints) -> None:
        number = port.node_port
        hashed = port.protocol == "sctp"
        members = [f"{ip},{port.protocol}:{number}" for ip in self._node_ips] if hashed else [str(number)]
        for local in {False, port.external_policy_local}:
            for member in members:
                self._member(sets.NODE_PORTS[port.protocol, local], member, port.name, "node port")
        for ip in self._node_ips:
            self._serve(port, ip, selected, "node port", local=port.external_policy_local, number=number)

    def _member(self, found: IpSet, text: str, name: ServicePortName, why: str) -> None:
        self.made.members[found][text] = Origin(why, name)

    def _serve(
        self, port: ServicePort, ip: str, selected: SelectedEndpoints, why: str, *, local: bool, number: int = 0
    ) -> None:
        """Adds a virtual server; without `number`, at the Service's port, with its address on `kube-ipvs0`."""
        flags = ("mh-port",) if self._scheduler == _HASH else ()
        server = VirtualServer(
            port.protocol, ip, number or port.port, self._scheduler, port.session_affinity_seconds, flags
        )
        origin = Origin(why, port.name)
        real = tuple((_real(each), Origin("endpoint", port.name, each)) for each in _used(port, selected, local))
        self.made.servers[server.name] = Served(server, origin, real)
        if not number:
            self.made.addresses[ip] = origin
            self.made.members[sets.ACTIVE][ip] = origin


def _real(endpoint: Endpoint) -> RealServer:
    return RealServer(host_of(endpoint.address), int(endpoint.address.rpartition(":")[2]))


def _used(port: ServicePort, selected: SelectedEndpoints, local: bool) -> tuple[Endpoint, ...]:
    """The endpoints of a virtual server. Of policy Local without local endpoints it has those of the cluster, so that
    pods of the node reach them; what comes from outside gets there, too, and its answers are lost."""
    return (selected.local or selected.cluster) if local else selected.cluster


def _node_port_ips(options: RenderOptions) -> Iterator[str]:
    """The addresses at which node ports have virtual servers: no loopback."""
    addresses = options.node_port_addresses
    for ip in options.node_ips if addresses.match_all else addresses.matching(options.interface_addresses):
        if not ipaddress.ip_address(ip).is_loopback:
            yield ip


def render_state(state: ServiceState, options: RenderOptions) -> IpvsState:
    """Makes all of it from scratch.

    What several Services claim goes to the last one in the order of names, or to `favoured`; kube-proxy leaves that to
    chance.
    """
    maker = _Maker(state, options)
    for name in sorted(state.service_ports, key=lambda each: (each.service == options.favoured, each)):
        maker.add(name, state.service_ports[name])
    return maker.made
