"""Candidates for witnesses: packets as they are met on a node, for each reason a few that should show it."""

from __future__ import annotations

import dataclasses
import ipaddress
from collections.abc import Callable, Hashable, Iterable, Iterator
from itertools import islice
from operator import itemgetter
from types import MappingProxyType
from typing import Any, Final

from kproxy.cluster.migrate.witness import Candidate
from kproxy.cluster.node import NodeFacts
from kproxy.cluster.probe import CLIENT_PORT, OUTSIDE, probe, spare_address
from kproxy.dataplane import Connection, Host, Packet
from kproxy.dataplane.compare.witness import Situation
from kproxy.dataplane.concrete.routing import Query, RouteResult, lookup
from kproxy.dataplane.model.conntrack import ESTABLISHED, INVALID, RELATED, FlowTuple
from kproxy.dataplane.model.host import SHORT_SYSCTLS, Interface, InterfaceAddress, Route
from kproxy.dataplane.model.packet import ACK, ARRIVING, LOCAL, SYN, make_packet
from kproxy.netfilter import Family
from kproxy.netfilter.address import Network, format_address, parse_address
from kproxy.render.iptables.chains import endpoint_chain_name
from kproxy.render.nftables.names import TABLE, endpoint_base, nft_family
from kproxy.services.claims import ServiceAddress, doors_of
from kproxy.services.endpoints import Endpoint
from kproxy.services.names import ServicePortName
from kproxy.services.node import LOOPBACK
from kproxy.services.serviceport import ServicePort

ELSEWHERE: Final = {Family.IPV4: "192.0.2.99", Family.IPV6: "2001:db8:99::9"}
"""An address of nobody in the cluster, or one more of the node's."""
UNKNOWN_NODE: Final = {Family.IPV4: "192.0.2.98", Family.IPV6: "2001:db8:99::8"}
"""The node's, where its Node object has none of the family."""
_POD: Final = {Family.IPV4: "10.244.255.250", Family.IPV6: "fd00:10:244::fffa"}
_MOST: Final = 60


class Packets:
    """Candidates for one node and family.

    `to_nftables` is the direction of the switch. `routed` is for rules that ask by which interface a packet leaves: to
    pods by theirs, else by eth0, or by the routes of the node's host file.
    """

    def __init__(self, facts: NodeFacts, *, to_nftables: bool, routed: bool = False) -> None:
        self._to_nftables = to_nftables
        self._facts = facts
        self._family = facts.family
        self.own = facts.own_addresses or (UNKNOWN_NODE[facts.family],)
        self.client = OUTSIDE[facts.family][0]
        local = facts.iptables.local_traffic
        pods = local.source or (
            facts.target.node.pod_cidrs[0] if facts.target.node and facts.target.node.pod_cidrs else ""
        )
        self._pods = ipaddress.ip_network(pods) if pods else None
        self.pod = spare_address(pods, facts.family) or _POD[facts.family]
        self.uplink = self._towards(self.client) or "eth0"
        named = local.interface + ("0" if local.is_prefix else "")
        self.pod_interface = named or self._towards(self.pod) or "cni0"
        self._routes: tuple[Route, ...] | None = None
        if routed:
            self._routes = (Route(Network(self._family, 0, 0), "eth0"),)
            if self._pods is not None and self._pods.version == self._family.version:
                self._routes += (Route(Network.parse(pods, self._family), self.pod_interface),)

    def _towards(self, address: str) -> str:
        """The interface by which the host file's routes lead to an address; "" if that is not known."""
        if self._facts.host is None:
            return ""
        found = lookup(self._facts.host, Query(self._family, parse_address(address, self._family)))
        return found.device or "" if isinstance(found, RouteResult) else ""

    def _is_of_pods(self, address: str) -> bool:
        return self._pods is not None and ipaddress.ip_address(address) in self._pods

    # the parts of a situation

    def host(self, *more: str) -> Host:
        """The node: it has the addresses of its Node object and `more`, and it forwards. kube-proxy in iptables mode
        switches `route_localnet` on, and nothing switches it off."""
        host = dataclasses.replace(Host.simple([*self.own, *more]), routes=self._routes)
        given = self._facts.host
        if given is not None:
            own = (given.local_addresses or frozenset()) | (host.local_addresses or frozenset())
            sysctls = MappingProxyType({**host.sysctls, **given.sysctls})
            routes = self._routes if given.routes is None else given.routes
            host = dataclasses.replace(given, local_addresses=own, sysctls=sysctls, routes=routes)
        if not self._facts.iptables.localhost_node_ports:
            return host
        return dataclasses.replace(host, sysctls=MappingProxyType({**host.sysctls, SHORT_SYSCTLS["route_localnet"]: 1}))

    def packet(
        self,
        source: str,
        door: ServiceAddress,
        *,
        origin: str = ARRIVING,
        interface: str = "",
        mark: int = 0,
        flags: int = SYN,
    ) -> Packet:
        """A packet to an address and port."""
        device = (interface or self.uplink) if origin == ARRIVING else ""
        return probe(self._family, source, door, origin=origin, device=device, flags=flags).replace(mark=mark)

    def outside(self, door: ServiceAddress, *own: str, mark: int = 0) -> Candidate:
        """From a client outside of the cluster."""
        return self._candidate(self.packet(self.client, door, mark=mark), *own)

    def from_pod(self, door: ServiceAddress, source: str = "", *own: str) -> Candidate:
        """From a pod."""
        return self._candidate(self.packet(source or self.pod, door, interface=self.pod_interface), *own)

    def from_node(self, door: ServiceAddress, source: str = "") -> Candidate:
        """From the node itself."""
        return self._candidate(self.packet(source or self.own[0], door, origin=LOCAL))

    def _candidate(self, packet: Packet, *own: str, connection: Connection | None = None) -> Candidate:
        situation = Situation(packet, self.host(*own), connection or Connection())
        return situation, situation

    def arriving_by(self, found: Candidate, interfaces: Iterable[str]) -> Iterator[Candidate]:
        """The same packet, and where it comes from outside of the node the same by other interfaces."""
        yield found
        if found[0].packet.origin == ARRIVING:
            for name in interfaces:
                packet = found[0].packet.replace(in_interface=name)
                first, second = (dataclasses.replace(each, packet=packet) for each in found)
                yield first, second

    def usual(self) -> Iterator[Candidate]:
        """Beginnings and answers of connections to each Service, and between pods and the world."""
        for port in self._facts.service_ports:
            door = ServiceAddress.of(port.cluster_ip, port)
            yield self.from_pod(door)
            yield self.from_node(door)
            yield self.outside(door)
            yield from self._from_outside(port)
            for endpoint in self._facts.selected[port.name].cluster[:1]:
                yield self._answer(port, endpoint.ip)
        yield self.from_pod(ServiceAddress(self.client, "tcp", 443))
        yield self.outside(ServiceAddress(ELSEWHERE[self._family], "tcp", 443))
        for number in (22, 6443, 10250):
            yield self.outside(ServiceAddress(self.own[0], "tcp", number))

    # reasons

    def node_port_addresses(self) -> Iterator[Candidate]:
        """To node ports at addresses that one mode answers at and the other does not."""
        facts = self._facts
        chosen = [facts.node_port_addresses(options) for options in (facts.iptables, facts.nftables)]
        named = [ip for ips in chosen if ips is not None for ip in ips]
        # A network's own address looks like none that somebody asks; a tunnel's device may have it.
        network = self._pods and str(self._pods.network_address)
        known = sorted(facts.known_addresses, key=lambda address: address == network)
        addresses = [*facts.own_addresses, *known, ELSEWHERE[self._family], *named]
        ports = [*facts.node_ports[:10], *facts.refused_node_ports[:10]]
        for port in ports:
            for address in dict.fromkeys(addresses):
                door = ServiceAddress(address, port.protocol, port.node_port)
                # An address of the pods' network, a bridge's for instance, is met by pods.
                yield self.from_pod(door, "", address) if self._is_of_pods(address) else self.outside(door, address)
        for port in facts.refused_node_ports[:10]:
            yield self._to_all(port)

    def _to_all(self, port: ServicePort) -> Candidate:
        """To an address that hosts share: IPv4's broadcast address, an IPv6 network's anycast address of routers."""
        if self._family is Family.IPV4:
            return self.outside(ServiceAddress("255.255.255.255", port.protocol, port.node_port))
        address = InterfaceAddress(self._family, parse_address(self.own[0], self._family), 64)
        anycast = format_address(address.network.address, self._family)
        interfaces = {self.uplink: Interface(self.uplink, (address,))}
        return _on(self.outside(ServiceAddress(anycast, port.protocol, port.node_port)), interfaces=interfaces)

    def localhost_node_ports(self) -> Iterator[Candidate]:
        """From the node to its loopback address."""
        loopback = LOOPBACK[self._family]
        for port in (*self._facts.node_ports[:10], *self._facts.refused_node_ports[:10]):
            yield self.from_node(ServiceAddress(loopback, port.protocol, port.node_port), loopback)

    def localnet(self) -> Iterator[Candidate]:
        """From a neighbour to a port that the host means for itself: no router passes such packets on."""
        if self._family is Family.IPV4:
            neighbour = format_address(parse_address(self.own[0], self._family) ^ 1, self._family)
            yield self._candidate(self.packet(neighbour, ServiceAddress("127.0.0.1", "tcp", 10249)))

    def cluster_ip_ports(self) -> Iterator[Candidate]:
        """To ports of ClusterIPs that no Service has."""
        for address in self._facts.cluster_ips[:_MOST]:
            used = {door.port for door in self._facts.cluster_ip_doors if door.address == address}
            free = next(port for port in (9999, *range(10000, 11000)) if port not in used)
            yield self.from_pod(ServiceAddress(address, "tcp", free))

    def pings(self) -> Iterator[Candidate]:
        """From a pod to addresses of Services."""
        for address in (*self._facts.cluster_ips[:_MOST], *self._facts.service_addresses[:_MOST]):
            yield self._candidate(make_packet(self.pod, address, "icmp", in_interface=self.pod_interface))

    def unallocated(self) -> Iterator[Candidate]:
        """To addresses of ServiceCIDRs that no Service has."""
        taken = {ip for port in self._facts.service_ports for ip in (port.cluster_ip, *port.external_ips)}
        for cidr in self._facts.nftables.service_cidrs:
            network = ipaddress.ip_network(cidr)
            free = (str(network[-2 - place]) for place in range(min(1000, max(0, network.num_addresses - 2))))
            for address in islice((ip for ip in free if ip not in taken), 3):
                yield self.from_pod(ServiceAddress(address, "tcp", 443))

    def invalid(self) -> Iterator[Candidate]:
        """What a pod of the node sends to a client and conntrack cannot place."""
        endpoints = (
            endpoint
            for port in self._facts.service_ports
            for endpoint in self._facts.selected[port.name].reachable
            if endpoint.ip not in self.own
        )
        first = min(endpoints, key=lambda endpoint: not endpoint.is_local, default=None)
        source = self.pod if first is None else first.ip
        packet = self.packet(source, ServiceAddress(self.client, "tcp", CLIENT_PORT), flags=ACK)
        packet = packet.replace(sport=8080, in_interface=self.pod_interface)
        yield self._candidate(packet, connection=Connection(INVALID))

    def marked(self) -> Iterator[Candidate]:
        """Packets that somebody else has marked."""
        facts = self._facts
        marks = dict.fromkeys((facts.iptables.masquerade_mark, facts.nftables.masquerade_mark))
        for mark in marks:
            yield self.outside(ServiceAddress(ELSEWHERE[self._family], "tcp", 443), mark=mark)
        for port in facts.service_ports:
            if not facts.decided[port.name].has_internal:
                yield self.outside(ServiceAddress.of(port.cluster_ip, port), mark=facts.iptables.masquerade_mark)
            elif not facts.decided[port.name].has_external:
                for door in _external(port):
                    yield self.outside(door, mark=facts.iptables.masquerade_mark)

    def masqueraded(self) -> Iterator[Candidate]:
        """To Services with endpoints: from pods, and from outside, whose source may be rewritten."""
        for port in self._answering():
            door = ServiceAddress.of(port.cluster_ip, port)
            yield self.from_pod(door)
            yield self.outside(door)
            yield from map(self.outside, _external(port))
        # What goes to the node itself is not masqueraded. Its endpoints are elsewhere once it has other addresses.
        for port in self._answering():
            yield _on(self.from_pod(ServiceAddress.of(port.cluster_ip, port)), local_addresses=frozenset())

    def _answering(self) -> list[ServicePort]:
        facts = self._facts
        return [port for port in facts.service_ports if facts.decided[port.name].has_any][:_MOST]

    def remote_hairpin(self) -> Iterator[Candidate]:
        """From an endpoint of another node to its own Service's node port or external address, through this node."""
        return self._remote_hairpin(lambda port, door: door.address != port.cluster_ip)

    def remote_hairpin_by_cluster_ip(self) -> Iterator[Candidate]:
        """The same to a ClusterIP, whose packets meet the rules of the sender's own node first, as a rule."""
        return self._remote_hairpin(lambda port, door: door.address == port.cluster_ip)

    def _remote_hairpin(self, chosen: Callable[[ServicePort, ServiceAddress], bool]) -> Iterator[Candidate]:
        # One endpoint of each ServicePort; where it has few, less else becomes of the packet.
        firsts: dict[ServicePortName, tuple[ServicePort, Endpoint]] = {}
        for port, endpoint in self._facts.remote_endpoints:
            firsts.setdefault(port.name, (port, endpoint))
        ways = [
            (bool(door.address), len(self._facts.selected[port.name].reachable), port, endpoint, door)
            for port, endpoint in firsts.values()
            for door in doors_of(port)
            if chosen(port, door)
        ]
        for _, _, port, endpoint, door in sorted(ways, key=itemgetter(0, 1))[:_MOST]:
            place = door if door.address else door._replace(address=self.own[0])
            for interface in (self.uplink, self.pod_interface):
                found = self._candidate(self.packet(endpoint.ip, place, interface=interface))
                yield self._with_memory(port, found)

    def shared(self) -> Iterator[Candidate]:
        """To addresses and ports that several Services want."""
        for door in self._facts.shared_doors:
            place = door if door.address else door._replace(address=self.own[0])
            yield self.outside(place)
            yield self.from_pod(place)
            yield self.from_node(place)

    def source_ranges(self) -> Iterator[Candidate]:
        """To load-balancer IPs that accept only some sources."""
        for door, sources, _ in self._facts.restricted:
            for source in (*OUTSIDE[self._family], self.pod):
                yield self._candidate(self.packet(source, door))
            yield self.from_node(door)
            networks = map(ipaddress.ip_network, sources)
            yield from (self._candidate(self.packet(str(network[0]), door)) for network in networks)
            for source in (*OUTSIDE[self._family], self.pod):
                packet = self.packet(source, door, interface=self.pod_interface if source == self.pod else "")
                yield self._candidate(packet, connection=Connection(RELATED))

    def refused(self) -> Iterator[Candidate]:
        """To addresses without endpoints: from the node, and where an address is the node's own."""
        facts = self._facts
        for port in facts.service_ports:
            for door in () if facts.decided[port.name].has_external else _external(port):
                yield self.from_node(door)
                yield self.from_node(door, ELSEWHERE[self._family])
        for port in facts.service_ports:
            if not facts.decided[port.name].has_internal:
                door = ServiceAddress.of(port.cluster_ip, port)
                yield self.from_pod(door, self.pod, port.cluster_ip)

    def remembered(self) -> Iterator[Candidate]:
        """From a client that has an endpoint already, as the mode that is left remembers it."""
        for port in self._facts.service_ports:
            if not port.session_affinity_seconds:
                continue
            selected = self._facts.selected[port.name]
            inside = selected.local if port.internal_policy_local else selected.cluster
            if len(inside) > 1:
                door = ServiceAddress.of(port.cluster_ip, port)
                yield self._with_memory(port, self.from_pod(door), inside[-1])
            outside = selected.local if port.external_policy_local else selected.cluster
            if len(outside) > 1:
                for found in self._from_outside(port):
                    yield self._with_memory(port, found, outside[-1])

    def _with_memory(self, port: ServicePort, found: Candidate, endpoint: Endpoint | None = None) -> Candidate:
        """The same packet where the mode that is left remembers its client with an endpoint, and nobody else."""
        if not port.session_affinity_seconds:
            return found
        recent: dict[str, dict[int, tuple[int, ...]]] = {}
        elements: dict[tuple[str, str], dict[Hashable, Hashable]] = {}
        first, second = found
        for each in self._facts.selected[port.name].reachable:
            clients = [first.packet.src or 0] if endpoint is not None and each.address == endpoint.address else []
            where = (f"{nft_family(self._family)} {TABLE}", f"affinity-{endpoint_base(port.name, each)}")
            lists, sets = (clients, []) if self._to_nftables else ([], clients)
            recent[endpoint_chain_name(port.name, each.address)] = dict.fromkeys(lists, (0,))
            elements[where] = dict.fromkeys(sets, True)
        return (
            dataclasses.replace(first, host=dataclasses.replace(first.host, recent=MappingProxyType(recent))),
            dataclasses.replace(second, host=dataclasses.replace(second.host, elements=MappingProxyType(elements))),
        )

    def _from_outside(self, port: ServicePort) -> Iterator[Candidate]:
        """From a client outside to all doors but the ClusterIP, at an address where both modes have node ports."""
        facts = self._facts
        node = next(iter(facts.node_port_addresses(facts.nftables) or self.own))
        for door in doors_of(port):
            if door.address != port.cluster_ip:
                yield self.outside(door._replace(address=door.address or node), node)

    def behind_firewall(self) -> Iterator[Candidate]:
        """To node ports, external and load-balancer IPs, on a host whose own rules accept nothing."""
        facts = self._facts
        for port in facts.service_ports:
            if port.health_check_node_port:
                yield self.outside(ServiceAddress(self.own[0], "tcp", port.health_check_node_port))
        for port in facts.service_ports:
            if facts.decided[port.name].has_any:
                yield from self._from_outside(port)
        for port in facts.service_ports:
            for endpoint in facts.selected[port.name].cluster[:1]:
                if port.externally_accessible:
                    yield self._answer(port, endpoint.ip)

    def _answer(self, port: ServicePort, endpoint: str) -> Candidate:
        """What an endpoint answers."""
        packet = self.packet(endpoint, ServiceAddress(self.client, port.protocol, CLIENT_PORT), flags=ACK)
        packet = packet.replace(sport=port.port, in_interface=self.pod_interface)
        tuple_ = FlowTuple(packet.dst, packet.dport, packet.src, packet.sport)
        connection = Connection.established(tuple_, tuple_.reversed(), direction="REPLY", state=ESTABLISHED)
        return self._candidate(packet, connection=connection)


def _external(port: ServicePort) -> Iterator[ServiceAddress]:
    """Where a ServicePort answers clients outside, node ports aside."""
    return (ServiceAddress.of(ip, port) for ip in (*port.external_ips, *port.load_balancer_vips))


def _on(found: Candidate, **changes: Any) -> Candidate:
    """The same packet on another host."""
    situation = dataclasses.replace(found[0], host=dataclasses.replace(found[0].host, **changes))
    return situation, situation
