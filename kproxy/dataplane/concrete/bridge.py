"""Packets that come by a bridge port: whether iptables sees them, and under which interface names.

With `bridge-nf-call-iptables` the bridge itself calls iptables: then the bridge is the input interface, the port is
physdev's, and a frame between two ports passes PREROUTING, FORWARD and POSTROUTING. Without it, such a frame never
meets iptables, and a packet for the bridge itself arrives like on any interface.
"""

from __future__ import annotations

from kproxy.dataplane.concrete.graph import Cursor, Edge, End, Fork, Node, either, entering
from kproxy.dataplane.concrete.state import State
from kproxy.dataplane.model.host import Host
from kproxy.dataplane.model.packet import Packet
from kproxy.dataplane.model.verdict import ACCEPT
from kproxy.netfilter.hooks import Hook


def arrive(host: Host, state: State) -> Fork:
    """The first stage of a packet that arrives."""
    packet = state.packet
    port, bridge = packet.in_port, packet.in_interface
    master = host.bridge_of(bridge)
    if master and bridge is not None:
        port, bridge = bridge, master
    if not port:
        known_plain = port == "" or (host.interfaces is not None and bridge is not None and not is_bridge(host, bridge))
        plain = state.with_packet(in_port="" if known_plain else None)
        if bridge is None and _may_be_switched(host, packet) and host.calls_iptables(packet.family) is not True:
            ports = [item for item in (host.interfaces or {}).values() if item.bridge]
            ways = [arrive(host, state.with_packet(in_interface=item.name)).edges for item in ports]
            edges = [Edge(None, Node(Cursor(Hook.PREROUTING), plain)), *(edge for way in ways for edge in way)]
            return either(edges, "whether the packet comes by a bridge port is not known")
        return entering(Hook.PREROUTING, plain)
    state = state.with_packet(in_port=port, in_interface=bridge)
    bridged = is_bridged(host, state.packet)
    calls = host.calls_iptables(packet.family)
    edges = []
    if calls is not False:
        seen = state.with_packet(bridged=bridged)
        edges.append(Edge(None, Node(Cursor(Hook.PREROUTING), seen)))
    if calls is not True:
        plain = state.with_packet(in_port="", bridged=False)
        switched = plain.with_packet(out_interface=bridge)
        edges.append(Edge(None, unseen(switched) if bridged else Node(Cursor(Hook.PREROUTING), plain)))
    return either(edges, "bridge-nf-call-iptables is not known")


def unseen(state: State) -> End:
    """The end of a frame that a bridge passes on without iptables."""
    return End(ACCEPT, Hook.PREROUTING, state, via="bridged", reason="bridged without iptables")


def is_bridge(host: Host, name: str | None) -> bool:
    """Whether the interface is known to be a bridge; None: whether there is any."""
    return any(item.bridge and name in (None, item.bridge) for item in (host.interfaces or {}).values())


def is_bridged(host: Host, packet: Packet) -> bool:
    """Whether the frame is for another port: given, or because its sender shares a network with the destination."""
    if packet.bridged is not None:
        return packet.bridged
    bridge = host.interface(packet.in_interface)
    if packet.dst is None or bridge is None or host.is_local(packet.family, packet.dst):
        return False
    return any(own.family is packet.family and own.network.contains(packet.dst) for own in bridge.addresses)


def _may_be_switched(host: Host, packet: Packet) -> bool:
    """Whether the packet may be a frame between two ports of some bridge."""
    if host.interfaces is None or packet.bridged is False:
        return False
    return any(
        is_bridge(host, name) and is_bridged(host, packet.replace(in_interface=name)) for name in host.interfaces
    )


def is_switched(state: State) -> bool:
    """Whether the packet is a frame that stays on its bridge: bridged, and its destination address not translated."""
    packet = state.packet
    if not packet.in_port or packet.bridged is not True:
        return False
    return not (state.has_connection and state.connection.moved_from(packet))
