"""Whose an address is: a pod's, a node's, an endpoint's, or somebody's outside; and which Services answer at it."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

from kproxy.api.types.core import Service
from kproxy.cluster.hosts import node_addresses
from kproxy.cluster.journey.known import OUTSIDE
from kproxy.cluster.pods import ENDED
from kproxy.cluster.snapshot.cluster import Cluster
from kproxy.errors import KproxyError
from kproxy.netfilter import Family


class Owners:
    """Whose an address is.

    Attributes:
        nodes: nodes by their addresses; those of Nodes come first.
    """

    def __init__(self, cluster: Cluster) -> None:
        manifests = cluster.manifests
        self._pods_known = bool(cluster.pods)
        self._pod_networks = [
            (ipaddress.ip_network(cidr, strict=False), node.metadata.name)
            for node in manifests.nodes
            for cidr in node.pod_cidrs
            if node.metadata.name in cluster.hosts
        ]
        self._pods = {
            address: pod
            for pod in cluster.pods.values()
            if not pod.host_network and pod.phase not in ENDED
            for address in pod.addresses
        }
        self.nodes: dict[str, str] = {}
        for node in manifests.nodes:
            for address in node_addresses(node):
                self.nodes.setdefault(address, node.metadata.name)
        for name, host in cluster.hosts.items():
            for family in Family:
                try:
                    found = host.addresses(family)
                except KproxyError:  # the map says of the node that its links cannot be read
                    break
                for address in found:
                    self.nodes.setdefault(address, name)
        self._named_by_slices = {
            address: f"node/{endpoint.node_name}"
            for each in manifests.endpoint_slices
            for endpoint in each.endpoints
            if endpoint.node_name in cluster.hosts
            for address in endpoint.addresses
        }

    def target(self, address: str) -> tuple[str, str]:
        """What has an address, and the node that it is on: ids of the map. Of an endpoint whose Pod is not among the
        objects, as in manifests, the EndpointSlice says the node."""
        pod = self._pods.get(address)
        if pod is not None:
            return f"pod/{pod.name}", f"node/{pod.node}" if pod.node else ""
        node = self.nodes.get(address)
        if node:
            return f"node/{node}", f"node/{node}"
        return f"{OUTSIDE}{address}", self._named_by_slices.get(address, "")

    def pod_network_of(self, address: str) -> str:
        """The node, as an id of the map, in whose Pod network an address is that nobody has, and that no EndpointSlice
        names: only of objects with Pods. Else ""."""
        if not self._pods_known or address in self._pods or address in self.nodes or address in self._named_by_slices:
            return ""
        found = ipaddress.ip_address(address)
        return next((f"node/{name}" for network, name in self._pod_networks if found in network), "")


class Doors:
    """The addresses and ports of Services."""

    def __init__(self, services: Iterable[Service]) -> None:
        self._at: dict[tuple[str, int, str], dict[str, None]] = {}
        self._node_ports: dict[tuple[int, str], str] = {}
        self._own: set[str] = set()
        self._of: dict[str, frozenset[str]] = {}
        for service in services:
            spec, key = service.spec, service.metadata.key
            own = {*spec.cluster_ips, *spec.external_ips, *(each.ip for each in service.ingress)} - {"", "None"}
            self._own |= own
            self._of[key] = frozenset(own)
            for port in spec.ports:
                protocol = port.protocol.lower()
                for address in own:
                    self._at.setdefault((address, port.port, protocol), {})[key] = None
                if port.node_port:
                    self._node_ports[port.node_port, protocol] = key

    def at(self, address: str, port: int, protocol: str) -> tuple[str, ...]:
        """The Services, `namespace/name`, of an address and port; what is no Service's address may be a node's."""
        if address in self._own:
            return tuple(self._at.get((address, port, protocol), ()))
        found = self._node_ports.get((port, protocol))
        return () if found is None else (found,)

    def of(self, service: str) -> frozenset[str]:
        """The addresses of a Service, `namespace/name`."""
        return self._of.get(service, frozenset())

    def is_node_port(self, port: int, protocol: str) -> bool:
        return (port, protocol) in self._node_ports
