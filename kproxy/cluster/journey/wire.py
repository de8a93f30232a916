"""Where a packet goes when it leaves a host: over which link, to which host, by which of its interfaces; and what a
tunnel wraps around it.

Where no host is there to take it, what happens depends on what the host's kernel knows of its neighbours. If it takes
the neighbour's address for valid, the packet is sent, and lost on the wire without a word. If not, the packet waits
while the kernel asks for the neighbour, three times in three seconds; then its sender is told (ICMP host unreachable,
ICMPv6 address unreachable). What waits in a tunnel's outer packet is dropped without a word to the inner one's sender.
"""

from __future__ import annotations

import dataclasses
from typing import Final

from kproxy.cluster.facts.links import GENEVE, VXLAN, Link, Tunnel
from kproxy.cluster.journey.network import Arrival, Network, NetworkHost, Outer
from kproxy.dataplane import Packet
from kproxy.dataplane.concrete.routing import Query, RouteResult, lookup
from kproxy.dataplane.model.packet import parse_ip
from kproxy.netfilter import Family
from kproxy.netfilter.address import format_address

NEIGHBOUR_SECONDS: Final = 3.0
"""How long a kernel asks for a neighbour in vain: mcast_solicit (3) times retrans_time_ms (1000)."""

_ANY_MAC: Final = "00:00:00:00:00:00"
"""Of a VXLAN's entry for all that has no entry of its own."""


def next_host(network: Network, host: NetworkHost, packet: Packet) -> Arrival:
    """Where a packet that leaves `host` by `packet.out_interface` arrives."""
    if packet.dst is None or packet.out_interface is None:
        return network.unrouted(host, packet)
    device = packet.out_interface
    target = format_address(packet.dst, packet.family)
    query = Query(packet.family, packet.dst, packet.src, packet.mark, packet.mark_known, "")
    gateway = _gateway(host, query) or target
    link = None if host.links is None else host.links.get(device)
    if host.links is not None and link is None:
        return Arrival("", reason=f"there is no interface {device}", held=True)
    if link is not None and not link.up:
        return Arrival("", reason=f"{device} is down", held=True)
    if link is not None and link.tunnel is not None:
        return _tunnelled(network, host, link, link.tunnel, gateway, packet)
    return network.station(host, device, gateway, target)


def _gateway(host: NetworkHost, query: Query) -> str:
    found = lookup(host.host, query)
    if isinstance(found, RouteResult) and found.gateway is not None:
        return format_address(found.gateway, query.family)
    return ""


def _tunnelled(
    network: Network, host: NetworkHost, link: Link, tunnel: Tunnel, gateway: str, packet: Packet
) -> Arrival:
    """By the kernel's own tables: the gateway's MAC address, and the tunnel endpoint behind it."""
    if tunnel.by_route:
        return network.unrouted(host, packet)
    mac = ""
    if tunnel.kind in (VXLAN, GENEVE):
        if host.neighbours is None:
            return network.unrouted(host, packet)
        # An overlay enters every neighbour itself; for others the kernel asks through the tunnel, without an answer.
        mac = host.neighbours.get((link.name, gateway), "")
        if not mac:
            return Arrival("", reason=f"no neighbour {gateway} on {link.name}", held=True, refused=True)
        if host.tunnels is None and not tunnel.remote:
            return network.unrouted(host, packet)
        entries = (host.tunnels or {}).get(link.name, {})
        remote = entries.get(mac) or entries.get(_ANY_MAC) or tunnel.remote
        if not remote:
            return Arrival("", reason=f"no tunnel endpoint for {mac} on {link.name}")
    else:
        # A tunnel without an endpoint of its own takes the next hop's address for it (NBMA).
        remote = tunnel.remote or gateway
    return _carried(network, host, link, tunnel, remote, mac)


def _carried(network: Network, host: NetworkHost, link: Link, tunnel: Tunnel, remote: str, mac: str) -> Arrival:
    """Where a tunnel's packet to `remote` arrives, taken out of its wrapping."""
    family, value = parse_ip(remote)
    way = lookup(host.host, Query(family, value))
    if not isinstance(way, RouteResult) or way.device is None:
        outer = Outer(tunnel.kind, tunnel.local, remote, "", tunnel.vni, tunnel.port)
        return Arrival("", outer=outer, reason=f"no route to the tunnel endpoint {remote} is known", unknown=True)
    gateway = remote if way.gateway is None else format_address(way.gateway, family)
    outer = Outer(tunnel.kind, tunnel.local or _source(host, way, family), remote, way.device, tunnel.vni, tunnel.port)
    carrier = network.station(host, way.device, gateway, remote)
    if not carrier.host:
        return dataclasses.replace(carrier, outer=outer, refused=False)
    target = network.host(carrier.host)
    if target.links is None:
        return Arrival(carrier.host, None, outer)
    ends = [item for item in target.links.values() if _takes(item, tunnel, outer.src)]
    if not ends:
        name = f"{tunnel.kind.upper()} link{f' {tunnel.vni}' if tunnel.vni else ''}"
        return Arrival("", outer=outer, reason=f"{carrier.host} has no {name}")
    # One for each family of the underlay may have the same identifier.
    same = [item.name for item in ends if not mac or item.mac == mac]
    if not same:
        return Arrival("", outer=outer, reason=f"{carrier.host} does not have the address {mac}")
    return Arrival(carrier.host, same[0], outer)


def _takes(link: Link, tunnel: Tunnel, source: str) -> bool:
    """Whether a link unwraps what another one of the same kind sent."""
    other = link.tunnel
    if other is None or not link.up or (other.kind, other.vni) != (tunnel.kind, tunnel.vni):
        return False
    # A tunnel with an endpoint takes packets from there only; of VXLAN it is where unknown addresses are sent.
    return tunnel.kind in (VXLAN, GENEVE) or other.remote in ("", source)


def _source(host: NetworkHost, way: RouteResult, family: Family) -> str:
    if way.source is not None:
        return format_address(way.source, family)
    device = host.host.interface(way.device)
    own = [item for item in (device.addresses if device is not None else ()) if item.family is family]
    return format_address(own[0].value, family) if own else ""
