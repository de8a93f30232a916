"""A snapshot as a network: what is between hosts follows from links and addresses, and from objects where those are
not known.

Who takes a packet from a wire is told by the address it is sent to: the host that has it. Where that is a router that
the snapshot does not hold, the packet comes to the node whose address it is for; or, where no node has routes of its
own to other nodes' pods, to the node whose podCIDR it is for: then it is "the cloud's network" that knows them.
Pods need not be in a snapshot: one is made of its object. It has its addresses, no rules, and sends all to its node.
What is neither node nor pod is outside, answers, and knows the ways to nodes only.
External and load-balancer IPs of Services are nobody's: what is sent there comes to any of the nodes, as the route or
the load balancer leads it.

An address that only EndpointSlices or podCIDRs tell of is behind its node, also if it is asked from there.

`notes` says what was taken for granted on the way, `suspected` what the rules point to and objects do not show.
"""

from __future__ import annotations

import copy
import dataclasses
import ipaddress
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import Any, Final

from kproxy.api import Node
from kproxy.api.types.core import Service
from kproxy.cluster.evidence.unseen import SERVICES, Unseen, suspect
from kproxy.cluster.facts.links import Link
from kproxy.cluster.hosts import node_addresses
from kproxy.cluster.journey.network import POD, Arrival, NetworkHost
from kproxy.cluster.journey.path import ANSWERED, OPEN, Journey, journeys, one_of
from kproxy.cluster.pods import ENDED, Pod
from kproxy.cluster.snapshot.cluster import Cluster
from kproxy.cluster.snapshot.host import HostFacts, no_rules
from kproxy.dataplane import Host, Packet
from kproxy.dataplane.model.host import Interface, InterfaceAddress, Route
from kproxy.dataplane.model.packet import parse_ip
from kproxy.errors import InputError
from kproxy.netfilter import Family
from kproxy.netfilter.address import Network as Prefix
from kproxy.netfilter.address import format_address
from kproxy.services.names import LABEL_SERVICE_NAME
from kproxy.words import listed

OUTSIDE: Final = "outside/"
"""Before the address of a host that is not in the cluster."""
_PROXY: Final = "Proxy"
_SHOWN: Final = 8
_NOT_BALANCED: Final = "node.kubernetes.io/exclude-from-external-load-balancers"
_Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class KnownNetwork:
    """The hosts of a snapshot, its Pods, and what is outside."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.notes: dict[str, None] = {}
        self.suspected: dict[Unseen, None] = {}
        self._hosts: dict[str, NetworkHost] = {}
        self._named: dict[str, str] = {}
        self._deliver_to = ""
        self._lost = cluster.lost_nodes
        self._nodes: Mapping[str, Node] = {node.metadata.name: node for node in cluster.manifests.nodes}
        self._no_rules = {family: no_rules(family) for family in Family}
        self._pods = {
            address: pod
            for pod in cluster.pods.values()
            if pod.phase not in ENDED and not pod.host_network
            for address in pod.addresses
        }

    @property
    def without_lost_nodes(self) -> KnownNetwork:
        """The same network, whose load balancers lead to no node without a Node object."""
        found = copy.copy(self)
        found._lost, found.notes = {}, {}
        return found

    def _if_lost(self, address: str) -> Arrival | None:
        """Open, if an address that nobody is known to have may be that of a node without a Node object, or of its
        pods: one in kube-proxy's cluster CIDR, beside a known pod of that node, in a network of its devices, or,
        where these are not known, beside another node's address."""
        value = ipaddress.ip_address(address)
        if not any(value in network for network in self._lost_networks):
            return None
        self.suspected.update(dict.fromkeys(self.cluster.lost_nodes.values()))
        return _unknown(f"{no_object(self.cluster.lost_nodes)}: whether {address} is its own or a pod's is not known")

    @cached_property
    def _lost_networks(self) -> Sequence[_Network]:
        hosts, lost = self.cluster.hosts, self.cluster.lost_nodes
        if not lost:
            return ()
        config = self.cluster.config_of(next(iter(hosts.values())))
        found = [] if config is None else [each for each in config.cluster_cidr.split(",") if each]
        nodes = [ipaddress.ip_address(address) for name in self._nodes for address in self._addresses(name)]
        told = {**self._homes, **self._pods}.keys() - self._owners.keys()
        near = [address for address in sorted(told) if self._node_of(address) in lost]
        for name in lost:
            facts = hosts.get(name)
            if facts is None or facts.interfaces is None:
                near += map(str, nodes)
                continue
            own = [str(each) for item in facts.interfaces if not item.is_loopback for each in item.addresses]
            found += [each for each in own if not any(node in _network(each) for node in nodes)]
        found += [f"{each}/{64 if ':' in each else 24}" for each in near]
        return tuple(dict.fromkeys(map(_network, found)))

    # --- hosts ---

    def host(self, name: str) -> NetworkHost:
        """A node, another host of the snapshot, `pod/NAMESPACE/NAME` or `outside/ADDRESS`.

        Raises:
            InputError: there is none of that name, or it cannot be read.
        """
        if name not in self._hosts:
            self._hosts[name] = self._read(name)
        return self._hosts[name]

    def _read(self, name: str) -> NetworkHost:
        if name.startswith(POD):
            pod = self.cluster.pods.get(name.removeprefix(POD))
            if pod is None:
                raise InputError(f"{self.cluster.label}: there is no {name}")
            return NetworkHost(name, _host_with(pod.addresses), self._no_rules)
        if name.startswith(OUTSIDE):
            link = Link("eth0", 2, "", True, 1500)  # its only one: it has no tunnels
            links = {"eth0": link} if self._knows_nodes else None  # it may be a node
            return NetworkHost(name, _host_with([name.removeprefix(OUTSIDE)]), self._no_rules, links)
        facts = self.cluster.hosts.get(name)
        if facts is None:
            raise InputError(f"{self.cluster.label}: there is no host {name}")
        return self._known(facts)

    def host_with(self, address: str) -> str:
        """The host that an address is of; one outside if nobody is known to have it."""
        pod = self._pods.get(address)
        if pod is not None:
            return f"{POD}{pod.name}"
        return self._owners.get(address, (f"{OUTSIDE}{address}", None))[0]

    def _known(self, facts: HostFacts) -> NetworkHost:
        host = facts.model
        if host.local_addresses is None:
            own = [parse_ip(address) for address in self._addresses(facts.name)]
            served = facts.served_addresses
            if served and own:
                self._note(f"{facts.name}: the addresses of its virtual servers are taken to be its own")
            host = dataclasses.replace(host, local_addresses=frozenset(own) if own else None).serving(served)
        if facts.sysctls is None:
            self._note(f"{facts.name}: taken to forward, without reverse-path filter: no sysctl")
            config = facts.proxy_config or self.cluster.proxy_config
            on = facts.has_node and (config is None or config.iptables.localhost_node_ports is not False)
            flags = {**host.sysctls, "net.ipv4.conf.all.route_localnet": int(on)}
            host = dataclasses.replace(host, sysctls=MappingProxyType(flags))
        indexes, unknown = {}, {}
        for family in Family:
            index = facts.rules(family)
            indexes[family] = self._no_rules[family] if index is None else index
            if index is None:
                unknown[family] = f"the {family.value} rules of {facts.name} (not in the snapshot)"
        return NetworkHost(facts.name, host, indexes, facts.links, facts.neighbours, facts.fdb, unknown)

    def _note(self, text: str) -> None:
        self.notes.setdefault(text)

    def _addresses(self, name: str) -> tuple[str, ...]:
        node = self._nodes.get(name)
        return () if node is None else node_addresses(node)

    @cached_property
    def _owners(self) -> Mapping[str, tuple[str, str | None]]:
        """Host and device by address; the device is None where only the Node tells."""
        found: dict[str, tuple[str, str | None]] = {}
        for name, facts in self.cluster.hosts.items():
            for item in facts.interfaces or ():
                for own in item.addresses:
                    if not item.is_loopback:
                        found.setdefault(format_address(own.value, own.family), (name, item.name))
            for address in self._addresses(name):
                found.setdefault(address, (name, None))
        return found

    @cached_property
    def _pod_cidrs(self) -> list[tuple[_Network, str]]:
        return [
            (ipaddress.ip_network(cidr, strict=False), name)
            for name, node in self._nodes.items()
            for cidr in node.pod_cidrs
        ]

    def _node_of(self, address: str) -> str:
        """The node whose Pod, endpoint or podCIDR has an address; "" if none has."""
        pod = self._pods.get(address)
        told = pod.node if pod is not None and pod.node else self._homes.get(address)
        if told:
            return told
        value = ipaddress.ip_address(address)
        return next((name for cidr, name in self._pod_cidrs if value in cidr), "")

    @cached_property
    def _homes(self) -> Mapping[str, str]:
        """The nodes of endpoints, as EndpointSlices tell them."""
        return {
            address: endpoint.node_name
            for piece in self.cluster.manifests.endpoint_slices
            for endpoint in piece.endpoints
            if endpoint.node_name
            for address in endpoint.addresses
        }

    @cached_property
    def _knows_nodes(self) -> bool:
        """Whether all nodes of endpoints and Pods are known."""
        told = {*self._homes.values(), *(pod.node for pod in self._pods.values() if pod.node)}
        return told <= self.cluster.hosts.keys()

    def _named_by(self, address: str) -> str:
        """The host whose rules name an address as a Service's; "" if none does."""
        if address not in self._named:
            named = (
                name
                for name, facts in self.cluster.hosts.items()
                if any(address in text for text in facts.rule_texts().values()) and address in facts.service_addresses
            )
            self._named[address] = next(named, "")
        return self._named[address]

    @cached_property
    def _nodes_route(self) -> str:
        """A node that has a route of its own to another node's pods; "" if none has, as far as routes are known."""
        for name, facts in self.cluster.hosts.items():
            for route in facts.routes or () if facts.has_node else ():
                if route.network.mask and _is_within(route, (cidr for cidr, owner in self._pod_cidrs if owner != name)):
                    return name
        return ""

    @cached_property
    def _service_addresses(self) -> frozenset[str]:
        return frozenset(ip for service in self.cluster.manifests.services for ip in service.spec.cluster_ips)

    @cached_property
    def _balanced(self) -> Mapping[str, Sequence[Service]]:
        """The Services of each external and load-balancer IP."""
        found: dict[str, list[Service]] = {}
        for service in self.cluster.manifests.services:
            for address in {*service.spec.external_ips, *(each.ip for each in service.ingress if each.ip)}:
                found.setdefault(address, []).append(service)
        return found

    def delivering_to(self, node: str) -> KnownNetwork:
        """The same network, whose load balancers and routes to Services' addresses lead to one node."""
        found = copy.copy(self)
        found._deliver_to = node
        return found

    # --- between hosts ---

    def out_of_pod(self, host: NetworkHost) -> Arrival:
        """To its node: by the bridge that its node's address for it is on, or by its own link, as the routes tell."""
        pod = self.cluster.pods[host.name.removeprefix(POD)]
        if not pod.node:
            return Arrival("", reason=f"on which node pod {pod.name} runs is not known", unknown=True)
        if pod.node not in self.cluster.hosts:
            return self._no_host(pod.node)
        return Arrival(pod.node, self._device_to(pod))

    def _device_to(self, pod: Pod) -> str | None:
        """The device of its node that leads to a pod: of a bridge the port, if the FDB tells it."""
        facts = self.cluster.hosts[pod.node]
        links, addresses = facts.links or {}, {text: parse_ip(text) for text in pod.addresses}
        for route in sorted(facts.routes or (), key=lambda each: -each.network.mask):
            for text, (family, value) in addresses.items():
                if route.family is family and route.network.mask and route.network.contains(value):
                    mac = (facts.neighbours or {}).get((route.device or "", text))
                    ports = [name for name, link in links.items() if link.bridge == route.device and link.bridge]
                    behind = facts.learned or {}
                    learned = [port for port in ports if mac is not None and mac in behind.get(port, ())]
                    return learned[0] if learned else ports[0] if len(ports) == 1 else route.device
        return None

    def _pod_behind(self, host: NetworkHost, device: str, address: str) -> str:
        """A pod of this node, unless the device is the node's way to other nodes."""
        pod = self._pods.get(address)
        if pod is None or (pod.node and pod.node != host.name):
            return ""
        link = (host.links or {}).get(device)
        uplink = any(host.owns(device, own) for own in self._addresses(host.name))
        return "" if uplink and not (link is not None and link.is_bridge) else f"{POD}{pod.name}"

    def station(self, host: NetworkHost, device: str, gateway: str, target: str) -> Arrival:
        """The host that has the gateway's address; behind a router that is not known, whom objects tell."""
        if host.is_pod:
            return self.out_of_pod(host)
        if pod := self._pod_behind(host, device, target):
            return Arrival(pod, "eth0")
        own = host.name.removeprefix(OUTSIDE) if host.name.startswith(OUTSIDE) else ""
        if own and (home := self._node_of(own)):
            return Arrival(home, None) if home in self.cluster.hosts else self._no_host(home, own)
        if own and (doubt := self._if_lost(own)) is not None:
            return doubt
        link = (host.links or {}).get(device)
        if link is not None and not link.carrier:
            return self._unanswered(host, device, gateway, f"{device} has no carrier")
        owner, arrives = self._owners.get(gateway, ("", None))
        if owner and owner != host.name:
            return self._arrival(owner, arrives)
        if gateway != target:
            return self._beyond_router(host, device, gateway, target)
        if link is not None and link.kind not in ("", "vlan", "bond", "ipvlan", "macvlan", "veth", "bridge", "team"):
            return Arrival("", reason=f"where {device} leads, a link of kind {link.kind}, is not known", unknown=True)
        return self._to_own_pod(host, target, device) or self._by_objects(host, target)

    def _to_own_pod(self, host: NetworkHost, target: str, device: str | None) -> Arrival | None:
        """Where an address goes that objects say is a pod's of this node, and no Pod is known to have; None for another
        one. `device` leads there, if that is known."""
        if self._node_of(target) != host.name or target in self._owners:
            return None
        if target in self._homes and not self._knows_pods:
            return Arrival(f"{OUTSIDE}{target}", "eth0")
        why = f"no pod of {host.name} has {target}"
        if not self._knows_pods:
            return _unknown(why)
        return Arrival("", reason=why) if device is None else self._unanswered(host, device, target, why)

    def _arrival(self, name: str, device: str | None) -> Arrival:
        links = self.cluster.hosts[name].links
        link = None if links is None or device is None else links.get(device)
        if link is not None and not (link.up and link.carrier):
            return Arrival("", reason=f"{device} of {name} is down")
        return Arrival(name, device)

    def _beyond_router(self, host: NetworkHost, device: str, router: str, target: str) -> Arrival:
        if target in self._service_addresses:
            leaves = f": the packet leaves by {device} for the router {router}, and nobody answers"
            return self._no_way_to_service(host, target, leaves)
        node = self._node_of(target)
        if node and target not in self._owners and self._nodes_route:
            return _unknown(
                f"no route of {host.name} leads to {target}, a pod's address of {node}: it goes to {router}, and "
                f"whether that knows pods is not known (as {self._nodes_route} does not need it)"
            )
        return self._by_objects(host, target)

    def _by_objects(self, host: NetworkHost, target: str) -> Arrival:
        """The node that has an address, or the pod behind it; else somebody outside."""
        owner, device = self._owners.get(target, ("", None))
        if owner and owner != host.name:
            return self._arrival(owner, device)
        if target in self._service_addresses:
            return self._no_way_to_service(host, target)
        if target in self._balanced:
            return self._delivered(target)
        named = "" if self.cluster.assumed.decides(SERVICES) else self._named_by(target)
        if named:
            why = f"rules name {target}, which no Service object has"
            self.suspected.setdefault(suspect(named, None, SERVICES, why))
            return _unknown(f"{named}'s {why}")
        node = self._node_of(target)
        if node and node not in self.cluster.hosts:
            return self._no_host(node, target)
        if node and host.name.startswith(OUTSIDE):
            return _unknown(f"whether the way to pods is known outside of the cluster, that to {target}")
        if node and node != host.name:
            self._note(f"from {host.name} to {target} by the cluster's network: it is of {node}'s pods")
            return Arrival(node, None)
        return self._if_lost(target) or Arrival(f"{OUTSIDE}{target}", "eth0")

    def _no_host(self, node: str, address: str = "") -> Arrival:
        if node in self.cluster.lost_nodes:
            self.suspected.setdefault(self.cluster.lost_nodes[node])
        return _unknown(f"nothing is known of node {node}{address and f', which has {address}'}")

    def _delivered(self, target: str) -> Arrival:
        """An external or load-balancer IP of Services: any of the nodes may get it."""
        services = self._balanced[target]
        for each in services:
            if any(item.ip == target and item.ip_mode == _PROXY for item in each.ingress):
                return _unknown(
                    f"{target} is of a load balancer that connects to nodes itself (ipMode: Proxy of "
                    f"{each.metadata.key}): from which address, and to which, is not known"
                )
        nodes = [self._deliver_to] if self._deliver_to else self._delivering(target, services)
        if not nodes:
            return _unknown(f"to which node {target}, an address of {services[0].metadata.key}, leads is not known")
        if self._lost.keys().isdisjoint(nodes) and not self._deliver_to:
            self._note(f"{target}: taken to lead to each of {len(nodes)} nodes alike: {listed(nodes, _SHOWN)}")
        hosts = self.cluster.hosts
        choices = (Arrival(name, self.uplink(name)) if name in hosts else self._no_host(name) for name in nodes)
        return Arrival("", choices=tuple(choices))

    def _delivering(self, target: str, services: Sequence[Service]) -> list[str]:
        """The nodes that may get what is sent to a Service's address: for a load balancer not those that are excluded,
        and with the external policy Local those whose health check holds, if any does: that have a ready endpoint."""
        lost = self.cluster.lost_nodes
        nodes = [name for name, host in self.cluster.hosts.items() if host.has_node and name not in lost]
        nodes += self._lost
        balancers = [each for each in services if any(item.ip == target for item in each.ingress)]
        if not balancers or len(services) > 1:
            return nodes
        service = balancers[0]
        labels = {name: node.metadata.labels for name, node in self._nodes.items()}
        nodes = [each for each in nodes if _NOT_BALANCED not in labels.get(each, {})] or nodes
        if service.spec.external_traffic_policy != "Local":
            return nodes
        family = Family.IPV6 if ":" in target else Family.IPV4
        mine = (service.metadata.namespace, service.metadata.name, family.value)
        homes = {
            endpoint.node_name
            for piece in self.cluster.manifests.endpoint_slices
            if (piece.metadata.namespace, piece.metadata.labels.get(LABEL_SERVICE_NAME), piece.address_type) == mine
            for endpoint in piece.endpoints
            if endpoint.conditions.ready is not False
        }
        return [each for each in nodes if each in homes] or nodes

    @staticmethod
    def _no_way_to_service(host: NetworkHost, target: str, where: str = "") -> Arrival:
        outside = host.name.startswith(OUTSIDE)
        why = "no host outside of the cluster has" if outside else f"no rule of {host.name} translates"
        return Arrival("", reason=f"{target} is a Service's address, which {why}{where}")

    def uplink(self, name: str) -> str | None:
        """The device that has a node's own address; None if that is not known."""
        devices = [self._owners[address][1] for address in self._addresses(name) if address in self._owners]
        return next((device for device in devices if device is not None), None)

    def unrouted(self, host: NetworkHost, packet: Packet) -> Arrival:
        """Where the routes are not known, or not enough: where the objects say."""
        if packet.dst is None:
            return _unknown("its destination is not known")
        target = format_address(packet.dst, packet.family)
        pod = self._pods.get(target)
        if pod is not None and pod.node == host.name:
            return Arrival(f"{POD}{pod.name}", "eth0")
        if self.cluster.hosts.get(host.name) is not None:
            self._note(f"{host.name}: its packets are taken to go where the objects say: no ip-route.json")
        return self._to_own_pod(host, target, None) or self._by_objects(host, target)

    @cached_property
    def _knows_pods(self) -> bool:
        return any(pod.phase for pod in self.cluster.pods.values())

    @staticmethod
    def _unanswered(host: NetworkHost, device: str, address: str, why: str) -> Arrival:
        """What no host will take: sent and lost, or kept until the kernel has asked for its neighbour in vain."""
        if host.neighbours is not None and (device, address) not in host.neighbours:
            asked = f"nobody answers when {host.name} asks who has it"
            return Arrival("", reason=f"{why}, and {asked}", held=True, refused=True)
        return Arrival("", reason=why)

    def refuses_sctp(self) -> bool:
        """Kernels of real nodes have SCTP."""
        return True

    def listens(self, host: str, protocol: str, port: int) -> bool:
        """A pod that runs, and whatever is outside, is taken to answer; on a node not a port that is a node port."""
        if host.startswith(POD):
            pod = self.cluster.pods[host.removeprefix(POD)]
            return pod.phase in ("", "Running")
        if host.startswith(OUTSIDE):
            return True
        ports = (each for item in self.cluster.manifests.services for each in item.spec.ports)
        return not any(each.node_port == port and each.protocol == protocol for each in ports)


def _network(cidr: str) -> _Network:
    return ipaddress.ip_network(cidr, strict=False)


def no_object(nodes: Collection[str]) -> str:
    """Says of nodes that they have no Node object."""
    return f"{listed(list(nodes), _SHOWN)} {'has' if len(nodes) == 1 else 'have'} no Node object in the snapshot"


def _unknown(reason: str) -> Arrival:
    return Arrival("", reason=reason, unknown=True)


def _host_with(addresses: Sequence[str]) -> Host:
    """A host of one interface, with these addresses, that sends all over it."""
    own = tuple(InterfaceAddress(family, value, family.bits) for family, value in map(parse_ip, addresses))
    interfaces = {"eth0": Interface("eth0", own), "lo": Interface("lo")}
    routes = tuple(Route(Prefix(family, 0, 0), "eth0") for family in Family)
    return dataclasses.replace(Host.simple(addresses), interfaces=MappingProxyType(interfaces), routes=routes)


def _is_within(route: Route, cidrs: Iterator[_Network]) -> bool:
    """Whether a route is for one of the networks, or a part of it."""
    first = ipaddress.ip_address(format_address(route.network.address, route.family))
    return route.kind == "unicast" and any(first in cidr for cidr in cidrs)


def known_journeys(
    network: KnownNetwork, client: str, destination: str, protocol: str, **more: Any
) -> Sequence[Journey]:
    """All that can become of a connection, as `path.journeys` tells it. Open is what fails on a node without a Node
    object, and where load balancers lead if it matters whether they lead to such a node.

    Args:
        more: see `path.journeys`.

    Raises:
        InputError, DataplaneError: see `path.journeys`.
    """
    lost = network.cluster.lost_nodes

    def walked(some: KnownNetwork) -> Sequence[Journey]:
        ways = journeys(some, client, destination, protocol, **more)
        return [_open(way) if way.at in lost and way.end not in (ANSWERED, OPEN) else way for way in ways]

    def _open(way: Journey) -> Journey:
        network.suspected.setdefault(lost[way.at])
        why = f"{no_object([way.at])}; possible: {way.end} at {way.at}: {way.reason}"
        return dataclasses.replace(way, end=OPEN, reason=why)

    found = walked(network)
    if not lost:
        return found
    why = f"{no_object(lost)}: whether {destination} leads there is not known"
    either = one_of([found, walked(network.without_lost_nodes)], why)
    if either is not found:
        network.suspected.update(dict.fromkeys(lost.values()))
    return either
