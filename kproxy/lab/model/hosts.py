"""The hosts of a lab as the model sees them: facts and rules, read from their namespaces when a packet first comes
there.

A host is `client`, `fabric`, `node-1`, or `pod/NAMESPACE/NAME`. Pods on the host network are their node.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import MappingProxyType

from kproxy.api.kubeproxyconfig.types import MODE_NFTABLES
from kproxy.cluster.facts.links import Link
from kproxy.cluster.rules import HostRules
from kproxy.dataplane import Host, Index, index_ruleset
from kproxy.lab.cluster import ClusterView, PodView
from kproxy.lab.errors import LabError
from kproxy.lab.links import read_fdb, read_links, read_neighbours
from kproxy.lab.model.recent import read_recent
from kproxy.lab.spec import CLIENT, FABRIC, LabSpec
from kproxy.linux.host.facts import read_host
from kproxy.linux.host.rules import read_host_rules
from kproxy.linux.namespace import Namespace
from kproxy.netfilter import Family
from kproxy.netfilter.address import format_address
from kproxy.netfilter.hooks import Variant

POD: str = "pod/"
_FAMILIES = {4: Family.IPV4, 6: Family.IPV6}


@dataclass(frozen=True)
class LabHost:
    """One host: its name, its namespace, what is known of it, and its rules by family."""

    name: str
    netns: str
    host: Host
    indexes: dict[Family, Index]
    links: dict[str, Link]
    neighbours: dict[tuple[str, str], str]
    """MAC addresses by device and IP address, of hosts that have tunnels."""
    tunnels: dict[str, dict[str, str]]
    """Tunnel endpoints by device and MAC address."""

    @property
    def is_pod(self) -> bool:
        return self.name.startswith(POD)

    @property
    def is_node(self) -> bool:
        return not self.is_pod and self.name not in (CLIENT, FABRIC)

    def owns(self, device: str, address: str) -> bool:
        """Whether a device of the host has an address."""
        found = self.host.interface(device)
        return found is not None and any(format_address(item.value, item.family) == address for item in found.addresses)


class LabModel:
    """All hosts, read once each. `refresh` forgets, when something has changed."""

    def __init__(self, spec: LabSpec, cluster: ClusterView) -> None:
        self.spec = spec
        self.cluster = cluster
        self._hosts: dict[str, LabHost] = {}
        self._neighbours: dict[str, frozenset[tuple[str, str]]] = {}

    def refresh(self, cluster: ClusterView, hosts: Iterable[str] | None = None) -> None:
        """Takes a new view of the cluster; forgets all hosts, or those named."""
        self.cluster = cluster
        for name in list(self._hosts) if hosts is None else hosts:
            self._hosts.pop(name, None)
        self._neighbours.clear()

    def knows_neighbour(self, host: LabHost, device: str, address: str) -> bool:
        """Whether a host's kernel takes the link-layer address of a neighbour for known, and so sends without asking.

        Read when it first matters, which is where no host would answer; `refresh_neighbours` forgets.

        Raises:
            LinuxError: it cannot be read.
        """
        found = self._neighbours.get(host.name)
        if found is None:
            found = self._neighbours[host.name] = frozenset(read_neighbours(host.netns))
        return (device, address) in found

    def refresh_neighbours(self) -> None:
        """Forgets what the kernels knew of neighbours, which every packet and the passing of time may change."""
        self._neighbours.clear()

    def refresh_affinity(self) -> None:
        """Reads again whom session affinity remembers, which every packet may change: the lists of `-m recent`, in
        nftables mode the sets of the rules."""
        for name, known in list(self._hosts.items()):
            if not self._has_rules(name):
                continue
            if self.spec.mode == MODE_NFTABLES:
                del self._hosts[name]
            else:
                lists = read_recent(known.netns)
                kept = None if lists is None else MappingProxyType(dict(lists))
                self._hosts[name] = dataclasses.replace(known, host=dataclasses.replace(known.host, recent=kept))

    def host(self, name: str) -> LabHost:
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

    def nodes(self) -> list[LabHost]:
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

    def _read(self, name: str) -> LabHost:
        netns = self.netns(name)
        links = read_links(netns)
        tunnelled = any(link.tunnel is not None for link in links.values())
        tunnels = read_fdb(netns) if tunnelled else {}
        neighbours = read_neighbours(netns) if tunnelled else {}
        with Namespace.named(netns) as inside:
            host = read_host(inside)
            families = [_FAMILIES[version] for version in self.spec.families]
            rules = HostRules([])
            if self._has_rules(name):
                native = self.spec.mode == MODE_NFTABLES
                rules = read_host_rules(inside, name, Variant(self.spec.variant), nft=native, families=families)
            indexes = {
                family: index_ruleset(rules.iptables(family), nftables=rules.nftables, family=family)
                for family in families
            }
        if self._has_rules(name):
            recent = read_recent(netns)
            kept = None if recent is None else MappingProxyType(dict(recent))
            host = dataclasses.replace(host, recent=kept)
        return LabHost(name, netns, host, indexes, links, neighbours, tunnels)

    @staticmethod
    def _has_rules(name: str) -> bool:
        return not name.startswith(POD) and name not in (CLIENT, FABRIC)
