"""What a node's kernel must hold so that its pods and those of other nodes meet.

VXLAN, as flannel does it with DirectRouting off: one device per family, learning off, and for every other node

    a route       10.244.2.0/24 via 10.244.2.0 dev kproxy.1 onlink     "the VTEP of that subnet has its first address"
    a neighbour   10.244.2.0 lladdr MAC-OF-THAT-VTEP dev kproxy.1
    an FDB entry  MAC-OF-THAT-VTEP dst ADDRESS-OF-THAT-NODE dev kproxy.1

so a packet needs no broadcast to find its way, and the work grows by three entries a node. The device has the first
address of its own subnet, which is the source when the node itself speaks to a pod. host-gw has no device: one route
by the other node's own address, which must be on a common link. IPv4 pods travel between IPv4 addresses, IPv6 pods
between IPv6 ones.

Items are values with a key; `difference` compares two sets of them, whatever they are.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import ClassVar, Final

import msgspec

from kproxy.overlay.ipam import Network
from kproxy.overlay.nodes import OverlayNode
from kproxy.overlay.rules import RuleChain

VNI: Final = 1
PORT: Final = 8472
"""Flannel's, and Linux's default before IANA gave VXLAN 4789."""
DEVICES: Final = {4: "kproxy.1", 6: "kproxy-v6.1"}
OVERHEAD: Final = {4: 50, 6: 70}
"""Bytes: outer IP header, UDP 8, VXLAN 8, inner Ethernet 14."""
EMPTY: Final[Mapping[int, int]] = MappingProxyType({})
ETHERNET_MTU: Final = 1500
LEAST_IPV6_MTU: Final = 1280
"""Bytes; the kernel has no IPv6 on a device with less (RFC 8200, section 5)."""


class Backend(enum.Enum):
    """How packets pass between nodes: VXLAN, or routes."""

    VXLAN = "vxlan"
    HOST_GW = "host-gw"


class _Entry(msgspec.Struct, frozen=True):
    """What the kernel has: its kind and the fields that it is known by, and its words."""

    KEY: ClassVar[tuple[str, ...]]
    WORDS: ClassVar[str]

    @property
    def key(self) -> tuple[str, ...]:
        kind, *fields = self.KEY
        return (kind, *(str(getattr(self, name)) for name in fields))

    def __str__(self) -> str:
        return self.WORDS.format(self)


class VxlanLink(_Entry, frozen=True):
    """A VXLAN device that is up."""

    KEY = ("link", "name")
    name: str
    vni: int
    port: int
    local: str
    mac: str
    mtu: int
    learning: bool = False

    def __str__(self) -> str:
        learning = "learning" if self.learning else "nolearning"
        return (
            f"link {self.name} vxlan id {self.vni} local {self.local} dstport {self.port} {learning} "
            f"address {self.mac} mtu {self.mtu}"
        )


class LinkAddress(_Entry, frozen=True):
    """An address of a device, with its prefix length."""

    KEY = ("address", "device", "address")
    WORDS = "address {0.address} dev {0.device}"
    device: str
    address: str


class NodeRoute(_Entry, frozen=True):
    """A route to another node's pods.

    `device` "" is whichever leads to the gateway, `metric` 0 the kernel's default.
    """

    KEY = ("route", "destination", "metric")
    destination: str
    gateway: str
    device: str
    onlink: bool
    metric: int = 0

    def __str__(self) -> str:
        device = f" dev {self.device}" if self.device else ""
        metric = f" metric {self.metric}" if self.metric else ""
        return f"route {self.destination} via {self.gateway}{device}{metric}{' onlink' if self.onlink else ''}"


class Neighbour(_Entry, frozen=True):
    """A permanent neighbour entry."""

    KEY = ("neighbour", "device", "address")
    WORDS = "neighbour {0.address} lladdr {0.mac} dev {0.device}"
    device: str
    address: str
    mac: str


class FdbEntry(_Entry, frozen=True):
    """Where a VXLAN device sends frames for a MAC. One MAC may have several destinations, each an entry of its own."""

    KEY = ("fdb", "device", "mac", "destination")
    WORDS = "fdb {0.mac} dst {0.destination} dev {0.device}"
    device: str
    mac: str
    destination: str


class Sysctl(_Entry, frozen=True):
    """A sysctl, its name with slashes."""

    KEY = ("sysctl", "name")
    name: str
    value: str

    def __str__(self) -> str:
        return f"sysctl {self.name.replace('/', '.')} = {self.value}"


Item = VxlanLink | LinkAddress | NodeRoute | Neighbour | FdbEntry | Sysctl | RuleChain


class OverlayPlan(msgspec.Struct, frozen=True):
    """What must be there, in the order of making, and what kept parts of the cluster out, in words.

    `mtu` is what pods of this node can send to pods of others, of all its families, in bytes; 0 without a plan.
    """

    items: tuple[Item, ...]
    problems: tuple[str, ...]
    mtu: int = 0


class Change(msgspec.Struct, frozen=True):
    """A difference: `missing` (only desired), `unexpected` (only found) or `different` (both)."""

    kind: str
    desired: Item | None
    found: Item | None

    def __str__(self) -> str:
        if self.desired is None or self.found is None:
            return f"{self.kind}: {self.desired or self.found}"
        return f"{self.kind}: {self.found}, wanted {self.desired}"


def plan_overlay(
    nodes: Iterable[OverlayNode],
    name: str,
    backend: Backend = Backend.VXLAN,
    underlay_mtus: Mapping[int, int] = EMPTY,
    mtu: int | None = None,
) -> OverlayPlan:
    """Plans the node called `name`. The order of `nodes` does not matter.

    Args:
        underlay_mtus: MTU in bytes of the network between the nodes by IP version; Ethernet's where it is not given.
        mtu: MTU in bytes of the overlay itself; None for what the network between the nodes leaves.
    """
    ordered = sorted(nodes, key=lambda node: node.name)
    own = next((node for node in ordered if node.name == name), None)
    if own is None:
        return OverlayPlan((), (f"node {name} is not among the Node objects",))
    if not own.pod_cidrs:
        return OverlayPlan((), (f"node {name} has no podCIDR yet",))
    items: list[Item] = []
    problems: list[str] = []
    mtus = []
    for version, cidr in sorted(own.pod_cidrs.items()):
        items.append(Sysctl("net/ipv4/ip_forward" if version == 4 else "net/ipv6/conf/all/forwarding", "1"))
        if version not in own.addresses:
            problems.append(f"node {name} has pods in {cidr} and no IPv{version} address")
            continue
        size = mtu or overlay_mtu(backend, version, underlay_mtus.get(version, ETHERNET_MTU))
        if version == 6 and size < LEAST_IPV6_MTU:
            problems.append(f"node {name} has no IPv6 overlay: an MTU of {size} bytes is below {LEAST_IPV6_MTU}")
            continue
        mtus.append(size)
        others = _reachable(ordered, own, version, problems)
        if backend is Backend.VXLAN:
            items += _vxlan(own, others, version, size)
        else:
            items += [
                NodeRoute(str(node.pod_cidrs[version]), str(node.addresses[version]), "", False) for node in others
            ]
    return OverlayPlan(tuple(items), tuple(problems), min(mtus, default=0))


def overlay_mtu(backend: Backend, version: int, underlay_mtu: int) -> int:
    """The MTU in bytes of what goes between pods: the network's less what VXLAN adds, as flannel takes it."""
    return underlay_mtu - OVERHEAD[version] if backend is Backend.VXLAN else underlay_mtu


def _reachable(
    ordered: Sequence[OverlayNode], own: OverlayNode, version: int, problems: list[str]
) -> list[OverlayNode]:
    """The other nodes with pods of a family; of two that claim a CIDR, the first by name keeps it."""
    taken: list[tuple[str, Network]] = [(own.name, own.pod_cidrs[version])]
    others = []
    for node in ordered:
        cidr = node.pod_cidrs.get(version)
        if node.name == own.name or cidr is None:
            continue
        clash = next((owner for owner, other in taken if other.overlaps(cidr)), None)
        if clash is not None:
            problems.append(f"node {node.name} is left out: its {cidr} overlaps that of node {clash}")
        elif version not in node.addresses:
            problems.append(f"node {node.name} is left out: it has pods in {cidr} and no IPv{version} address")
        elif node.addresses[version] == own.addresses[version]:
            problems.append(f"node {node.name} is left out: its address {node.addresses[version]} is this node's own")
        else:
            taken.append((node.name, cidr))
            others.append(node)
    return others


def _vxlan(own: OverlayNode, others: Sequence[OverlayNode], version: int, mtu: int) -> list[Item]:
    device = DEVICES[version]
    bits = 32 if version == 4 else 128
    first = own.pod_cidrs[version].network_address
    items: list[Item] = [
        VxlanLink(device, VNI, PORT, str(own.addresses[version]), own.macs[version], mtu),
        LinkAddress(device, f"{first}/{bits}"),
    ]
    # A packet that takes the route must find the other two entries there already.
    for node in others:
        vtep = str(node.pod_cidrs[version].network_address)
        items += [
            FdbEntry(device, node.macs[version], str(node.addresses[version])),
            Neighbour(device, vtep, node.macs[version]),
            NodeRoute(str(node.pod_cidrs[version]), vtep, device, True),
        ]
    return items


def difference(desired: Iterable[Item], found: Iterable[Item]) -> list[Change]:
    """How what was found differs, in the order of mending: first what is too much, in the reverse order of making."""
    there = {item.key: item for item in found}
    asked = {item.key: item for item in desired}
    order = ("rules", "route", "neighbour", "fdb", "address", "link", "sysctl")
    surplus = [item for key, item in there.items() if key not in asked]
    changes = [
        Change("unexpected", None, item) for item in sorted(surplus, key=lambda i: (order.index(i.key[0]), i.key))
    ]
    for key, item in asked.items():
        if key not in there:
            changes.append(Change("missing", item, None))
        elif not _alike(item, there[key]):
            changes.append(Change("different", item, there[key]))
    return changes


def _alike(desired: Item, found: Item) -> bool:
    if isinstance(desired, NodeRoute) and isinstance(found, NodeRoute) and not desired.device:
        found = msgspec.structs.replace(found, device="")
    return desired == found
