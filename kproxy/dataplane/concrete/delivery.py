"""The routing decision on a packet that arrived: to this host, onward, or nowhere (ip_route_input_slow).

The kernel decides after PREROUTING, on the destination as it is then. It refuses loopback addresses unless
`route_localnet` allows them, source addresses that are the host's own, and sources that reverse-path filtering does not
expect on the interface (fib_validate_source). IPv6 has none of these checks, but does not pass on packets whose source
is no address of a host beyond the link (ip6_forward).
"""

from __future__ import annotations

from typing import Final

from kproxy.dataplane.concrete import bridge
from kproxy.dataplane.concrete.graph import Cursor, Edge, End, Fork, Node, Step, either, sure
from kproxy.dataplane.concrete.routing import (
    OPEN,
    REFUSING,
    ROUTED,
    Query,
    RouteResult,
    Unknown,
    is_link_local,
    lookup,
    possible_routes,
)
from kproxy.dataplane.concrete.state import BRIDGED, State
from kproxy.dataplane.model.conntrack import ORIGINAL
from kproxy.dataplane.model.host import LOOPBACK_NETWORKS, MULTICAST_NETWORKS, Host
from kproxy.dataplane.model.packet import LOOPBACK, Packet
from kproxy.dataplane.model.verdict import DROP
from kproxy.netfilter.family import Family
from kproxy.netfilter.hooks import Hook
from kproxy.netfilter.iptables.codec import UINT32


def route(host: Host, state: State) -> Fork:
    """Where the packet goes after PREROUTING."""
    packet = state.packet
    if bridge.is_switched(state):
        switched = state.with_packet(out_interface=packet.in_interface, out_port=None)
        switched = switched.with_answer(BRIDGED, True)
        step = Step("route", Hook.PREROUTING, f"bridged on {packet.in_interface}")
        return sure(Node(Cursor(Hook.FORWARD), switched), (step,))
    if packet.dst is None:
        return Fork((), tuple(_checked(host, state, result) for result in OPEN), _WHERE)
    refused = _martian(host, state)
    if refused is not None:
        reason, certain = refused
        dropped = _dropped(state, reason)
        if certain:
            return either([dropped], "")
        return either([dropped, *_routed(host, state).edges], f"{reason}: route_localnet is not known")
    return _routed(host, state)


_WHERE: Final = "whether the packet is for this host is not known"


def _dropped(state: State, reason: str) -> Edge:
    return Edge(None, End(DROP, Hook.PREROUTING, state, reason=reason))


def _keeps_its_route(state: State) -> bool:
    """Whether a packet on the loopback interface brings along the route of its way out, so that nothing is checked."""
    return state.packet.in_interface == LOOPBACK and not state.looped


def _martian(host: Host, state: State) -> tuple[str, bool] | None:
    """Why the kernel refuses the addresses as they are, and whether that is sure."""
    packet = state.packet
    if packet.family is not Family.IPV4 or _keeps_its_route(state):
        return None
    src, dst = packet.src, packet.dst
    if src is not None and (MULTICAST_NETWORKS[Family.IPV4].contains(src) or src == UINT32):
        return "a source that is multicast or broadcast", True
    if src == 0 and dst != UINT32:
        return "the source 0.0.0.0", True
    if dst == 0:
        return "the destination 0.0.0.0", True
    loopback = LOOPBACK_NETWORKS[Family.IPV4]
    if any(address is not None and loopback.contains(address) for address in (src, dst)):
        allowed = host.flag("route_localnet", packet.in_interface)
        if not allowed:
            return "a loopback address on another interface", allowed == 0
    return None


def _routed(host: Host, state: State) -> Fork:
    packet = state.packet
    found = possible_routes(host, Query.of(packet, packet.in_interface))
    edges = []
    for result in found:
        if result.device is None and packet.in_port and result.kind == "unicast":
            edges.append(_checked(host, state, result._replace(device=packet.in_interface)))
        edges.append(_checked(host, state, result))
    return either(edges, _WHERE if any(result.kind == "local" for result in found) else ROUTED)


def _checked(host: Host, state: State, result: RouteResult) -> Edge:
    """What follows from one result, after the checks that belong to it."""
    if result.kind in REFUSING:
        return _dropped(state, REFUSING[result.kind])
    if result.kind == "multicast":
        ways = [_forwarded(state, RouteResult("unicast")), _delivered(state)]
        return Edge(None, Fork((), (*ways, _dropped(state, "nobody listens")), "multicast is not modelled"))
    refused = _source_refused(host, state)
    if refused is not None:
        reason, certain = refused
        if certain:
            return _dropped(state, reason)
    onward = _delivered(state) if result.kind in ("local", "broadcast") else _forward(host, state, result)
    return onward if refused is None else _unless(state, refused[0], onward, f"{refused[0]}? {_RP}")


def _delivered(state: State) -> Edge:
    return Edge(None, Node(Cursor(Hook.INPUT), state), (Step("route", Hook.PREROUTING, "to this host"),))


_RP: Final = "rp_filter, accept_local or the routes are not known"


def _source_refused(host: Host, state: State) -> tuple[str, bool] | None:
    """fib_validate_source: why the source is refused, and whether that is sure."""
    packet = state.packet
    if packet.family is not Family.IPV4 or packet.src is None or packet.src == 0 or _keeps_its_route(state):
        return None
    device = packet.in_interface
    if host.is_local(packet.family, packet.src):
        # Of 127.0.0.0/8 only 127.0.0.1 is an address that the kernel finds without a full check.
        exact = not LOOPBACK_NETWORKS[Family.IPV4].contains(packet.src) or packet.src == 0x7F000001
        accepts = host.flag("accept_local", device)
        return None if accepts else ("a source that is this host's own address", accepts == 0 and exact)
    mode = host.flag("rp_filter", device)
    if mode == 0:
        return None
    back = lookup(host, Query(packet.family, packet.src, packet.dst, packet.mark, packet.mark_known, device))
    if isinstance(back, RouteResult) and back.kind == "unicast" and device is not None and back.device == device:
        return None
    reason = "reverse-path filter: the source is not expected on this interface"
    if mode is None or isinstance(back, Unknown):
        return reason, False
    if back is None or back.kind != "unicast":
        return reason, True
    if mode == 2:
        return None
    return reason, back.device is not None and device is not None


def _forward(host: Host, state: State, result: RouteResult) -> Edge:
    """Onward, if the host forwards and the bridge that the packet may have come by lets it back."""
    packet = state.packet
    bridged = _stays_on_bridge(state, result)
    onward = _forwarded(state, result)
    if not bridged:
        forwards = host.forwards(packet.family, packet.in_interface)
        if forwards is False:
            return _dropped(state, "forwarding is off")
        if _is_bound_to_link(packet) and result.device != packet.in_interface:
            refused = "a source that is unspecified, multicast or link-local"
            if result.device is None or packet.in_interface is None:
                return _unless(state, refused, onward, f"{refused}, and by which interface it leaves is not known")
            return _dropped(state, refused)
        if packet.ttl is not None and packet.ttl <= 1:
            onward = _dropped(state, "the TTL is used up")
        elif state.assigned:
            onward = _dropped(state, "TPROXY gave it to a socket, but it is not routed to this host")
        elif packet.in_interface is None and packet.src in (None, packet.dst) and bridge.is_bridge(host, result.device):
            why = "whether the packet came by a bridge port that it would have to go back to is not known"
            onward = _unless(state, "its bridge port is not in hairpin mode", onward, why)
        if forwards is None:
            return _unless(state, "forwarding is off", onward, "whether this host forwards is not known")
        return onward
    hairpin = _hairpin(host, state)
    refused = f"bridge port {packet.in_port} is not in hairpin mode"
    if hairpin is False:
        return _dropped(state, refused)
    if hairpin is None:
        return _unless(state, refused, onward, f"whether bridge port {packet.in_port} is in hairpin mode is not known")
    return onward


def _is_bound_to_link(packet: Packet) -> bool:
    """Whether IPv6 passes on a packet with this source at most to where it came from."""
    src = packet.src
    if packet.family is Family.IPV4 or src is None:
        return False
    return src == 0 or is_link_local(src) or MULTICAST_NETWORKS[packet.family].contains(src)


def _unless(state: State, refused: str, onward: Edge, why: str) -> Edge:
    """On, or dropped, which is not known."""
    return Edge(None, Fork((), (_dropped(state, refused), onward), why))


def _forwarded(state: State, result: RouteResult) -> Edge:
    packet = state.packet
    bridged = _stays_on_bridge(state, result)
    ttl = packet.ttl if packet.ttl is None or bridged else packet.ttl - 1
    forwarded = state.with_packet(out_interface=result.device, ttl=ttl, out_port=None if bridged else "")
    if bridged:
        forwarded = forwarded.with_answer(BRIDGED, True)
    step = Step("route", Hook.PREROUTING, f"onward by {result.device or 'an interface that is not known'}")
    return Edge(None, Node(Cursor(Hook.FORWARD), forwarded), (step,))


def _stays_on_bridge(state: State, result: RouteResult) -> bool:
    """Whether DNAT to another address sent the packet back to the bridge that it came by.

    br_netfilter then bridges it, with no need for forwarding, and as a bridge it sends nothing back to the port that it
    came from. A change of the port alone does not count (br_nf_ipv4_daddr_was_changed).
    """
    packet = state.packet
    moved = bool(packet.in_port) and state.has_connection and state.connection.moved_from(packet)
    return moved and result.device is not None and result.device == packet.in_interface


def _hairpin(host: Host, state: State) -> bool | None:
    """Whether a packet that goes back to its own sender may; None if not known. A rule may have written its source."""
    packet, entry = state.packet, state.connection
    came = entry.original if entry.direction == ORIGINAL else entry.reply
    src = packet.src if came is None else came.src
    if src is not None and src != packet.dst:
        return True
    port = host.interface(packet.in_port)
    if port is None or port.hairpin is None:
        return None
    return port.hairpin or (None if src is None else False)
