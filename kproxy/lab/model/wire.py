"""Where a packet goes when it leaves a host: over which link, to which host, by which of its interfaces; and what VXLAN
wraps around it.

Where no host is there to take it, what happens depends on what the host's kernel knows of its neighbours. If it takes
the neighbour's address for valid, the packet is sent, and lost on the wire without a word. If not, the packet waits
while the kernel asks for the neighbour, three times in three seconds; then its sender is notified (ICMP host
unreachable, ICMPv6 address unreachable). What waits in a tunnel's outer packet is dropped without a word to the inner
one's sender.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kproxy.dataplane import Packet
from kproxy.dataplane.concrete.routing import Query, RouteResult, lookup
from kproxy.lab.model.hosts import POD, LabHost, LabModel
from kproxy.lab.network import OUTSIDE
from kproxy.lab.spec import CLIENT, FABRIC
from kproxy.netfilter.address import format_address


@dataclass(frozen=True, slots=True)
class Outer:
    """The header that VXLAN puts around a packet: underlay addresses, UDP port and identifier."""

    src: str
    dst: str
    port: int
    vni: int
    device: str
    """The underlay's interface that the outer packet leaves by."""

    def __str__(self) -> str:
        return f"VXLAN {self.vni} {self.src} -> {self.dst}:{self.port}"


@dataclass(frozen=True, slots=True)
class Arrival:
    """The next host, its interface, and what the packet travelled in; `host` is empty if it gets nowhere.

    Attributes:
        held: it has not left the host: no neighbour answers, or the interface has no carrier.
        told: the sender is told so, after `NEIGHBOUR_SECONDS`.
    """

    host: str
    device: str = ""
    outer: Outer | None = None
    reason: str = ""
    held: bool = False
    told: bool = False


NEIGHBOUR_SECONDS: Final = 3.0
"""How long a kernel asks for a neighbour in vain: mcast_solicit (3) times retrans_time_ms (1000)."""


def next_host(model: LabModel, host: LabHost, packet: Packet) -> Arrival:
    """Where a packet that leaves `host` by `packet.out_interface` arrives."""
    if packet.dst is None or packet.out_interface is None:
        return Arrival("", reason="where it goes is not known")
    device = packet.out_interface
    target = format_address(packet.dst, packet.family)
    route = lookup(host.host, Query(packet.family, packet.dst, packet.src, packet.mark, packet.mark_known, ""))
    gateway = target
    if isinstance(route, RouteResult) and route.gateway is not None:
        gateway = format_address(route.gateway, packet.family)
    link = host.links.get(device)
    if link is None:
        return Arrival("", reason=f"there is no interface {device}", held=True)
    if not link.up:
        return Arrival("", reason=f"{device} is down", held=True)
    if link.tunnel is not None:
        return _tunnelled(model, host, device, gateway)
    if host.is_pod:
        return _out_of_pod(model, host, device)
    if host.name == CLIENT:
        return Arrival(FABRIC, OUTSIDE)
    if device == OUTSIDE:
        if model.host(CLIENT).owns("eth0", gateway):
            return Arrival(CLIENT, "eth0")
        return _no_host(model, host, device, gateway)
    if host.is_node and device != "eth0":
        pod = next((item for item in model.pods_of(host.name) if target in item.addresses), None)
        return Arrival(f"{POD}{pod.key}", "eth0") if pod is not None else _no_host(model, host, device, target)
    return _over_fabric(model, host, device, gateway)


def _no_host(model: LabModel, host: LabHost, device: str, address: str) -> Arrival:
    return _unanswered(model, host, device, address, f"no host has {address} behind {device}")


def _unanswered(model: LabModel, host: LabHost, device: str, address: str, why: str) -> Arrival:
    """What becomes of a packet that no host will take from the wire."""
    if not model.knows_neighbour(host, device, address):
        return Arrival("", reason=f"{why}; {host.name} asks for {address} in vain", held=True, told=True)
    # A device without carrier has no queue that would take a packet (noop_qdisc).
    return Arrival("", reason=why, held=not host.links[device].carrier)


def _out_of_pod(model: LabModel, host: LabHost, device: str) -> Arrival:
    pod = next(item for item in model.cluster.pods if f"{POD}{item.key}" == host.name)
    node = model.host(pod.node)
    peer = next(
        (link for link in node.links.values() if link.index == host.links[device].peer and not link.tunnel), None
    )
    return Arrival(node.name, peer.name) if peer is not None else Arrival("", reason=f"{device} has no other end")


def _over_fabric(model: LabModel, host: LabHost, device: str, gateway: str) -> Arrival:
    if not host.links[device].carrier:
        return _unanswered(model, host, device, gateway, f"the link of {host.name} is down")
    if model.host(FABRIC).owns(FABRIC, gateway):
        return Arrival(FABRIC, FABRIC)
    for node in model.cluster.nodes:
        if gateway in node.addresses:
            if not node.link:
                return _unanswered(model, host, device, gateway, f"the link of {node.name} is down")
            return Arrival(node.name, "eth0")
    return _no_host(model, host, device, gateway)


def _tunnelled(model: LabModel, host: LabHost, device: str, gateway: str) -> Arrival:
    """By the kernel's own tables: the gateway's MAC address, and the tunnel endpoint behind it."""
    mac = host.neighbours.get((device, gateway))
    if mac is None:
        # The overlay enters every neighbour itself; for others the kernel asks through the tunnel, without an answer.
        return Arrival("", reason=f"no neighbour {gateway} on {device}", held=True, told=True)
    remote = host.tunnels.get(device, {}).get(mac)
    link = host.links[device]
    assert link.tunnel is not None
    if remote is None:
        return Arrival("", reason=f"no tunnel endpoint for {mac} on {device}")
    carrier = _over_fabric(model, host, "eth0", remote)
    outer = Outer(link.tunnel.local, remote, link.tunnel.port, link.tunnel.vni, "eth0")
    if not carrier.host:
        return Arrival("", outer=outer, reason=carrier.reason, held=carrier.held)
    target = model.host(carrier.host)
    ends = [item for item in target.links.values() if item.tunnel and item.tunnel.vni == link.tunnel.vni and item.up]
    if not ends:
        return Arrival("", outer=outer, reason=f"{carrier.host} has no VXLAN link {link.tunnel.vni}")
    # One for each family of the underlay may have the same identifier.
    same = [item.name for item in ends if item.mac == mac]
    if not same:
        return Arrival("", outer=outer, reason=f"{carrier.host} does not have the address {mac}")
    return Arrival(carrier.host, same[0], outer)
