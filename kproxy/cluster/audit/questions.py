"""What is asked of a node's rules: for each port of a Service, at each of its addresses, packets of the clients that
come to this node with it.

A pod here and the node itself ask at all addresses, a client outside at those that the node answers for others:
external and load-balancer IPs and node ports. A pod elsewhere comes with a node port only: its own node has translated
the other addresses. What it sent there arrives here for an endpoint of this node: so it is asked that way.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Final

from kproxy.api.kubeproxyconfig.types import MODE_NFTABLES
from kproxy.cluster.audit.node import AuditedNode
from kproxy.cluster.node import NodeFacts
from kproxy.cluster.probe import OUTSIDE, probe, spare_address
from kproxy.dataplane import Packet
from kproxy.dataplane.model.packet import ARRIVING, LOCAL, parse_ip
from kproxy.family import join_host_port
from kproxy.netfilter import Family
from kproxy.services.claims import ServiceAddress
from kproxy.services.serviceport import ServicePort

POD_HERE: Final = "a pod here"
POD_ELSEWHERE: Final = "a pod elsewhere"
NODE: Final = "the node itself"
FROM_OUTSIDE: Final = "outside"
ITSELF: Final = "the endpoint itself"

CLUSTER_IP: Final = "cluster IP"
EXTERNAL_IP: Final = "external IP"
LOAD_BALANCER_IP: Final = "load-balancer IP"
NODE_PORT: Final = "node port"
ENDPOINT: Final = "endpoint"


@dataclass(frozen=True, slots=True)
class Client:
    """Who asks: `name` for people, `reference` as questions name it: `pod/NS/NAME`, `node/NAME`, `outside/ADDRESS`, or
    the address that nobody is known to have. `device` is where its packets come in; None: not known."""

    kind: str
    name: str
    address: str
    device: str | None = ""
    reference: str = ""


@dataclass(frozen=True, slots=True)
class AuditQuestion:
    """A packet to a Service, by one of its addresses; `what` says which kind of address it is."""

    port: ServicePort
    what: str
    address: str
    number: int
    client: Client
    packet: Packet

    @property
    def where(self) -> str:
        return f"{self.what} {join_host_port(self.address, self.number)}"


class Questions:
    """The questions for one node and family."""

    def __init__(self, node: AuditedNode, family: Family) -> None:
        self._node = node
        self._family = family
        self.facts: NodeFacts = node.facts[family]
        pods = node.shared.pods[family]
        self._pods_here = [(address, pod.name) for address, pod in pods.get(node.name, ())]
        elsewhere = next((found for name, found in pods.items() if name not in ("", node.name)), ())
        self._pods_elsewhere = [(address, pod.name) for address, pod in elsewhere]
        own = node.node.pod_cidrs if node.node is not None else ()
        others = [
            cidr
            for other in node.cluster.manifests.nodes
            if other.metadata.name != node.name
            for cidr in other.pod_cidrs
        ]
        for known, cidrs in ((self._pods_here, own), (self._pods_elsewhere, others[:1])):
            found = ((spare_address(cidr, family), f"of {cidr}") for cidr in cidrs)
            known += [each for each in found if each[0]][:1]
        self._device = cache(node.device_to)

    def _pod_here(self, endpoints: Collection[str]) -> Client | None:
        found = next(((ip, name) for ip, name in self._pods_here if ip not in endpoints), None)
        return None if found is None else self._local_pod(POD_HERE, *found)

    def _local_pod(self, kind: str, address: str, name: str) -> Client:
        client, local = self._pod(kind, address, name), self.facts.iptables.local_traffic
        if client.device is None and local.interface:
            return replace(client, device=local.interface + ("0" if local.is_prefix else ""))
        return client

    def _pod_elsewhere(self, endpoints: Collection[str]) -> Client | None:
        found = next(((ip, name) for ip, name in self._pods_elsewhere if ip not in endpoints), None)
        return None if found is None else self._pod(POD_ELSEWHERE, *found)

    def _pod(self, kind: str, address: str, name: str) -> Client:
        reference = f"pod/{name}" if name in self._node.cluster.pods else address
        return Client(kind, f"pod {name}", address, self._device(address), reference)

    def _outside(self, port: ServicePort) -> Client:
        ranges = port.load_balancer_source_ranges
        address = str(ipaddress.ip_network(ranges[0])[0]) if ranges else OUTSIDE[self._family][0]
        if ipaddress.ip_address(address).is_unspecified:
            address = OUTSIDE[self._family][0]
        return Client(FROM_OUTSIDE, "a client outside", address, self._device(address), f"outside/{address}")

    def _itself(self, port: ServicePort) -> Client | None:
        """An endpoint of this node, a Pod, to which its own Service may send it."""
        chosen = self.facts.selected[port.name]
        inside = chosen.local if port.internal_policy_local else chosen.cluster
        for endpoint in inside:
            name = next((name for ip, name in self._pods_here if ip == endpoint.ip), None)
            if endpoint.is_local and name is not None:
                return self._local_pod(ITSELF, endpoint.ip, name)
        return None

    def clients(self, port: ServicePort) -> list[str]:
        """The addresses of pods that ask a Service."""
        endpoints = {endpoint.ip for endpoint in self.facts.state.endpoints.get(port.name, ())}
        found = (self._pod_here(endpoints), self._pod_elsewhere(endpoints))
        return [each.address for each in found if each is not None]

    def of(self, port: ServicePort) -> Iterator[AuditQuestion]:
        """What clients of this node ask, at every address of a Service; and what pods elsewhere have sent to it, as it
        arrives here for an endpoint of this node."""
        endpoints = {endpoint.ip for endpoint in self.facts.state.endpoints.get(port.name, ())}
        inner = [each for each in (self._pod_here(endpoints), self._node_client) if each is not None]
        elsewhere, outside, itself = self._pod_elsewhere(endpoints), self._outside(port), self._itself(port)
        for what, address, number in self._addresses(port):
            clients = inner if what == CLUSTER_IP else [*inner, outside]
            more = {NODE_PORT: elsewhere, CLUSTER_IP: itself}.get(what)
            for client in clients if more is None else [*clients, more]:
                yield self._question(port, what, address, number, client)
        for endpoint in self.facts.selected[port.name].reachable:
            sender = self._pod_elsewhere((endpoint.ip,)) if endpoint.is_local else None
            if sender is not None and self._node.model.is_local(*parse_ip(endpoint.ip)) is False:
                number = int(endpoint.address.rpartition(":")[2])
                yield self._question(port, ENDPOINT, endpoint.ip, number, sender)

    @cached_property
    def _node_client(self) -> Client | None:
        own = self._own_addresses
        name = self._node.name
        return Client(NODE, f"node {name}", own[0], reference=f"node/{name}") if own else None

    @cached_property
    def _own_addresses(self) -> list[str]:
        """The Node's addresses that its interfaces have."""
        return [ip for ip in self.facts.own_addresses if self._node.model.is_local(*parse_ip(ip))]

    def where(self, port: ServicePort, what: str) -> str:
        """The first address of a kind, as questions name it; "" if it has none."""
        if what == ENDPOINT:
            local = (each for each in self.facts.selected[port.name].reachable if each.is_local)
            return next((f"{what} {each.address}" for each in local), "")
        found = (each for each in self._addresses(port) if each[0] == what)
        return next((f"{what} {join_host_port(address, number)}" for _, address, number in found), "")

    def _addresses(self, port: ServicePort) -> Iterator[tuple[str, str, int]]:
        """Where the Service alone answers: which of several does is up to the order in which kube-proxy writes them."""
        shared = self.facts.shared_doors
        for what, address, number in self._claimed(port):
            claimed = "" if what == NODE_PORT else address
            if ServiceAddress(claimed, port.protocol, number) not in shared:
                yield what, address, number

    def _claimed(self, port: ServicePort) -> Iterator[tuple[str, str, int]]:
        yield CLUSTER_IP, port.cluster_ip, port.port
        if port.external_policy_local and not self._node.config_known:
            return  # pods are sent to all endpoints, others to those here: who is a pod, the configuration says
        for ip in port.external_ips:
            yield EXTERNAL_IP, ip, port.port
        for ip in port.load_balancer_vips:
            yield LOAD_BALANCER_IP, ip, port.port
        if port.node_port and self._node.config_known:
            facts = self.facts
            options = facts.nftables if self._node.mode == MODE_NFTABLES else facts.iptables
            chosen = facts.node_port_addresses(options)
            for ip in (self._own_addresses if chosen is None else list(chosen))[:1]:
                yield NODE_PORT, ip, port.node_port

    def _question(self, port: ServicePort, what: str, address: str, number: int, client: Client) -> AuditQuestion:
        local = client.kind == NODE
        packet = probe(
            self._family,
            client.address,
            ServiceAddress(address, port.protocol, number),
            origin=LOCAL if local else ARRIVING,
            device="" if local else client.device,
        )
        return AuditQuestion(port, what, address, number, client, packet)
