"""Where a packet goes when it leaves a host: over which link, to which host, by which of its interfaces; and what VXLAN
wraps around it."""

from __future__ import annotations

from dataclasses import dataclass

from kproxy.dataplane import Packet
from kproxy.dataplane.routing import Query, Way, lookup
from kproxy.lab.model.hosts import POD, LabHost, LabModel
from kproxy.lab.network import OUTSIDE
from kproxy.lab.plan import CLIENT, FABRIC
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
    """The next host, its interface, and what the packet travelled in; `host` is empty if it gets nowhere."""

    host: str
    device: str = ""
    outer: Outer | None = None
    reason: str = ""


def next_host(model: LabModel, host: LabHost, packet: Packet) -> Arrival:
    """Where a packet that leaves `host` by `packet.out_interface` arrives."""
    if packet.dst is None or packet.out_interface is None:
        return Arrival("", reason="where it goes is not known")
    device = packet.out_interface
    target = format_address(packet.dst, packet.family)
    way = lookup(host.host, Query(packet.family, packet.dst, packet.src, packet.mark, packet.mark_known, ""))
    gateway = target
    if isinstance(way, Way) and way.gateway is not None:
        gateway = format_address(way.gateway, packet.family)
    link = host.links.get(device)
    if link is None:
        return Arrival("", reason=f"there is no interface {device}")
    if not link.up:
        return Arrival("", reason=f"{device} is down")
    if link.vxlan is not None:
        return _tunnelled(model, host, device, gateway)
    if host.is_pod:
        return _out_of_pod(model, host, device)
    if host.name == CLIENT:
        return Arrival(FABRIC, OUTSIDE)
    if device == OUTSIDE:
        return Arrival(CLIENT, "eth0") if model.host(CLIENT).owns("eth0", gateway) else _nobody(gateway, device)
    if host.is_node and device != "eth0":
        pod = next((item for item in model.pods_of(host.name) if target in item.addresses), None)
        return Arrival(f"{POD}{pod.key}", "eth0") if pod is not None else _nobody(target, device)
    return _over_fabric(model, gateway)


def _nobody(address: str, device: str) -> Arrival:
    return Arrival("", reason=f"nobody has {address} behind {device}")


def _out_of_pod(model: LabModel, host: LabHost, device: str) -> Arrival:
    pod = next(item for item in model.cluster.pods if f"{POD}{item.key}" == host.name)
    node = model.host(pod.node)
    peer = next(
        (link for link in node.links.values() if link.index == host.links[device].peer and not link.vxlan), None
    )
    return Arrival(node.name, peer.name) if peer is not None else Arrival("", reason=f"{device} has no other end")


def _over_fabric(model: LabModel, gateway: str) -> Arrival:
    if model.host(FABRIC).owns(FABRIC, gateway):
        return Arrival(FABRIC, FABRIC)
    for node in model.cluster.nodes:
        if gateway in node.addresses:
            if not node.link:
                return Arrival("", reason=f"the link of {node.name} is down")
            return Arrival(node.name, "eth0")
    return _nobody(gateway, "the fabric")


def _tunnelled(model: LabModel, host: LabHost, device: str, gateway: str) -> Arrival:
    """By the kernel's own tables: the gateway's MAC address, and the tunnel endpoint behind it."""
    mac = host.neighbours.get((device, gateway))
    if mac is None:
        return Arrival("", reason=f"no neighbour {gateway} on {device}")
    remote = host.tunnels[device].get(mac)
    link = host.links[device]
    assert link.vxlan is not None
    if remote is None:
        return Arrival("", reason=f"no tunnel endpoint for {mac} on {device}")
    carrier = _over_fabric(model, remote)
    outer = Outer(link.vxlan.local, remote, link.vxlan.port, link.vxlan.vni, "eth0")
    if not carrier.host:
        return Arrival("", outer=outer, reason=carrier.reason)
    target = model.host(carrier.host)
    ends = [item for item in target.links.values() if item.vxlan and item.vxlan.vni == link.vxlan.vni and item.up]
    if not ends:
        return Arrival("", outer=outer, reason=f"{carrier.host} has no VXLAN link {link.vxlan.vni}")
    # One for each family of the underlay may have the same identifier.
    same = [item.name for item in ends if item.mac == mac]
    if not same:
        return Arrival("", outer=outer, reason=f"{carrier.host} does not have the address {mac}")
    return Arrival(carrier.host, same[0], outer)
