"""The hosts of a lab as the model sees them: facts and rules, read from their namespaces when a packet first comes
there.

A host is `client`, `fabric`, `node-1`, or `pod/NAMESPACE/NAME`. Pods on the host network are their node.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import MappingProxyType

from kproxy.api.kubeproxyconfig.types import MODE_NFTABLES
from kproxy.cluster.facts.recent import Lists, parse_lists
from kproxy.cluster.journey.network import POD, Arrival, NetworkHost
from kproxy.cluster.rules import HostRules
from kproxy.dataplane import Packet, index_ruleset
from kproxy.lab.cluster import ClusterView, PodView
from kproxy.lab.errors import LabError
from kproxy.lab.kubelet.servers import kernel_has_sctp
from kproxy.lab.links import read_fdb, read_links, read_neighbours
from kproxy.lab.network import OUTSIDE
from kproxy.lab.spec import CLIENT, FABRIC, LabSpec
from kproxy.linux.host.facts import read_host
from kproxy.linux.host.rules import read_host_rules
from kproxy.linux.namespace import Namespace
from kproxy.netfilter import Family
from kproxy.netfilter.hooks import Variant

_FAMILIES = {4: Family.IPV4, 6: Family.IPV6}


def is_node(host: str) -> bool:
    """Whether a host of that name is a node."""
    return not host.startswith(POD) and host not in (CLIENT, FABRIC)


class LabModel:
    """All hosts, read once each, as a network (`kproxy.cluster.journey`)."""

    def __init__(self, spec: LabSpec, cluster: ClusterView) -> None:
        self.spec = spec
        self.cluster = cluster
        self._hosts: dict[str, NetworkHost] = {}
        self._neighbours: dict[str, frozenset[tuple[str, str]]] = {}

    def knows_neighbour(self, host: NetworkHost, device: str, address: str) -> bool:
        """Whether a host's kernel takes the link-layer address of a neighbour for known, and so sends without asking.

        Read when it first matters, which is where no host would answer; `refresh_neighbours` forgets.

        Raises:
            LinuxError: it cannot be read.
        """
        found = self._neighbours.get(host.name)
        if found is None:
            found = self._neighbours[host.name] = frozenset(read_neighbours(self.netns(host.name)))
        return (device, address) in found

    def refresh_neighbours(self) -> None:
        """Forgets what the kernels knew of neighbours, which every packet and the passing of time may change."""
        self._neighbours.clear()

    def host(self, name: str) -> NetworkHost:
        """A host by name.

        Raises:
            LabError: there is none.
            LinuxError: it cannot be read.
        """
        found = self._hosts.get(name)
        if found is None:
            found = self._read(name)
            self._hosts[name] = found
        return found

    def preload(self, names: Iterable[str]) -> None:
        """Reads several hosts at once."""
        wanted = [name for name in dict.fromkeys(names) if name not in self._hosts]
        with ThreadPoolExecutor(4) as pool:
            for found in pool.map(self._read, wanted):
                self._hosts[found.name] = found

    def nodes(self) -> list[NetworkHost]:
        names = [item.name for item in self.cluster.nodes]
        self.preload(names)
        return [self._hosts[name] for name in names]

    def pods_of(self, node: str) -> list[PodView]:
        """The pods of a node that have a namespace of their own."""
        return [item for item in self.cluster.pods if item.node == node and item.netns and not item.host_network]

    def netns(self, name: str) -> str:
        """The namespace of a host. Raises LabError."""
        if name.startswith(POD):
            pod = next((item for item in self.cluster.pods if item.key == name.removeprefix(POD)), None)
            if pod is None or not pod.netns:
                raise LabError(f"{name} has no namespace")
            return pod.netns
        return self.spec.namespace(name)

    # --- what is between the hosts ---

    def unrouted(self, host: NetworkHost, packet: Packet) -> Arrival:
        return Arrival("", reason="where it goes is not known")

    def _out_of_pod(self, host: NetworkHost, device: str) -> Arrival:
        """By the other end of its veth."""
        assert host.links is not None
        pod = next(item for item in self.cluster.pods if f"{POD}{item.key}" == host.name)
        node = self.host(pod.node)
        peers = (node.links or {}).values()
        peer = next((link for link in peers if link.index == host.links[device].peer and not link.tunnel), None)
        return Arrival(node.name, peer.name) if peer is not None else Arrival("", reason=f"{device} has no other end")

    def station(self, host: NetworkHost, device: str, gateway: str, target: str) -> Arrival:
        """By the fabric, with its cables, or by the link between it and the client; of a node all links but eth0 lead
        to its pods."""
        if host.is_pod:
            return self._out_of_pod(host, device)
        if is_node(host.name) and device != "eth0":
            pod = next((item for item in self.pods_of(host.name) if target in item.addresses), None)
            return self._no_host(host, device, target) if pod is None else Arrival(f"{POD}{pod.key}", "eth0")
        if host.name == CLIENT:
            return Arrival(FABRIC, OUTSIDE)
        if device == OUTSIDE:
            if self.host(CLIENT).owns("eth0", gateway):
                return Arrival(CLIENT, "eth0")
            return self._no_host(host, device, gateway)
        return self._over_fabric(host, device, gateway)

    def _over_fabric(self, host: NetworkHost, device: str, gateway: str) -> Arrival:
        assert host.links is not None
        if not host.links[device].carrier:
            return self._unanswered(host, device, gateway, f"the link of {host.name} is down")
        if self.host(FABRIC).owns(FABRIC, gateway):
            return Arrival(FABRIC, FABRIC)
        for node in self.cluster.nodes:
            if gateway in node.addresses:
                if not node.link:
                    return self._unanswered(host, device, gateway, f"the link of {node.name} is down")
                return Arrival(node.name, "eth0")
        return self._no_host(host, device, gateway)

    def _no_host(self, host: NetworkHost, device: str, address: str) -> Arrival:
        return self._unanswered(host, device, address, f"no host has {address} behind {device}")

    def _unanswered(self, host: NetworkHost, device: str, address: str, why: str) -> Arrival:
        """What becomes of a packet that no host will take from the wire."""
        if not self.knows_neighbour(host, device, address):
            asked = f"nobody answers when {host.name} asks who has {address}"
            return Arrival("", reason=f"{why}, and {asked}", held=True, refused=True)
        # A device without carrier has no queue that would take a packet (noop_qdisc).
        assert host.links is not None
        return Arrival("", reason=why, held=not host.links[device].carrier)

    def refuses_sctp(self) -> bool:
        """A kernel without SCTP refuses the protocol only where nothing has a raw socket, as the lab's clients have."""
        return kernel_has_sctp()

    def listens(self, host: str, protocol: str, port: int) -> bool:
        """The API server on the fabric, and the echo servers of pods."""
        if host == FABRIC:
            return protocol == "TCP" and port == self.cluster.api_port and self.cluster.api_running
        if host.startswith(POD):
            key = host.removeprefix(POD)
            return any(pod.key == key and pod.serves(protocol, port) for pod in self.cluster.pods)
        return any(pod.host_network and pod.node == host and pod.serves(protocol, port) for pod in self.cluster.pods)

    def _read(self, name: str) -> NetworkHost:
        netns = self.netns(name)
        links = read_links(netns)
        tunnelled = any(link.tunnel is not None for link in links.values())
        tunnels = read_fdb(netns) if tunnelled else {}
        neighbours = read_neighbours(netns) if tunnelled else {}
        with Namespace.named(netns) as inside:
            host = read_host(inside)
            families = [_FAMILIES[version] for version in self.spec.families]
            rules = HostRules([])
            if is_node(name):
                native = self.spec.mode == MODE_NFTABLES
                rules = read_host_rules(inside, name, Variant(self.spec.variant), nft=native, families=families)
                recent = inside.call(read_recent)
                kept = None if recent is None else MappingProxyType(dict(recent))
                host = dataclasses.replace(host, recent=kept)
            indexes = {
                family: index_ruleset(rules.iptables(family), nftables=rules.nftables, family=family)
                for family in families
            }
        return NetworkHost(name, host, indexes, links, neighbours, tunnels)


def read_recent() -> Lists | None:
    """All lists of `-m recent` of the namespace that the calling thread is in, None if they cannot be understood."""
    directory, clock = Path("/proc/thread-self/net/xt_recent"), ""
    try:
        lists = [f"== {file.name}\n{file.read_text()}" for file in directory.iterdir()] if directory.is_dir() else []
    except OSError:
        return None
    with contextlib.suppress(OSError):
        clock = Path("/proc/timer_list").read_text() if lists else ""
    return parse_lists("".join([clock, *lists]))
