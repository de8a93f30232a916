"""What IPVS does with one packet: a request goes to a real server, and an answer gets the virtual server's address.

ip_vs_in_hook, ip_vs_schedule, ip_vs_leave and ip_vs_nat_xmit of net/netfilter/ipvs. Where the packet goes then is
`hooks.PacketPath`'s to say.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Final, NamedTuple

from kproxy.dataplane.concrete.graph import End, Step
from kproxy.dataplane.concrete.state import State
from kproxy.dataplane.model.conntrack import ESTABLISHED, NEW, ORIGINAL, REPLY, UNTRACKED, Connection
from kproxy.dataplane.model.host import LOOPBACK_NETWORKS, Host
from kproxy.dataplane.model.ipvs import CONNTRACK, Destination, Ipvs, Service
from kproxy.dataplane.model.packet import SYN, TCP, Packet
from kproxy.dataplane.model.verdict import INDETERMINATE, REJECT
from kproxy.netfilter.family import Family
from kproxy.netfilter.hooks import Hook

NO_LOOPBACK: Final = "IPVS sends nothing from a loopback address to another host"
_REFUSAL: Final = {Family.IPV4: "icmp-port-unreachable", Family.IPV6: "icmp6-port-unreachable"}
_ANY_REAL: Final = "which real server the connection has is not known"
_OF_SCHEDULER: Final = "which real server the scheduler {} takes is not known"


class Scheduled(NamedTuple):
    """A packet on its way to a real server, or the end of one that has none."""

    chance: Fraction | None
    to: State | End
    step: Step


def schedule(servers: Ipvs, host: Host, hook: Hook, state: State) -> tuple[list[Scheduled], str] | None:
    """Where a packet goes that comes to a virtual server, and why that is open where it is; None: IPVS lets it pass."""
    packet, entry = state.packet, state.connection
    if state.ipvs or (state.has_connection and entry.direction != ORIGINAL) or packet.protocol not in servers.protocols:
        return None
    if packet.dst is None or packet.dport is None:
        return [_open(state, hook, "the destination is not known, which may be a virtual server of IPVS")], ""
    service = servers.find(packet.protocol, packet.dst, packet.dport)
    began = state.has_connection and entry.state == ESTABLISHED
    if service is None:
        return None
    known = None if began else servers.known(packet)
    if (
        not began
        and known is None
        and packet.protocol == TCP
        and packet.tcp_flags is not None
        and not packet.tcp_flags & SYN
    ):
        return None  # no SYN, no new connection (tcp_conn_schedule)
    if not service.is_masqueraded:
        return [_open(state, hook, "what IPVS does by routing or a tunnel is not modelled")], ""
    if host.sysctls.get(CONNTRACK) == 0:
        state = state._replace(tracking=UNTRACKED)  # ip_vs_notrack
    if began and not entry.ipvs and entry.original is not None and entry.reply is not None:
        return None  # a connection that IPVS has not: it began before the virtual server
    if began and entry.ipvs and entry.reply is not None and entry.reply.src is not None:
        state = state._replace(ipvs=True).with_packet(dst=entry.reply.src, dport=entry.reply.sport)
        return [Scheduled(Fraction(1), state, _step(hook, service, state))], ""
    known = known or (None if began else servers.known(packet, template=True))
    if known is not None:
        return [_to(known, service, hook, state)], ""
    destinations = service.all_destinations if began else service.destinations
    ways = [_to(each, service, hook, state) for each in destinations]
    if not began and service.may_refuse:
        refused = End(REJECT, hook, state, reject=_REFUSAL[packet.family], reason="IPVS has no real server for it")
        ways.append(Scheduled(None if ways else Fraction(1), refused, Step("ipvs", hook, service.server.name)))
    return ways, _ANY_REAL if began else _OF_SCHEDULER.format(service.server.scheduler).replace("  ", " ")


def _to(real: Destination, service: Service, hook: Hook, state: State) -> Scheduled:
    entry = state.connection
    if state.has_connection:
        entry = entry.known_as(state.packet)
        assert entry.reply is not None
        entry = entry.replace(ipvs=True, reply=entry.reply._replace(src=real.address, sport=real.port))
    state = state._replace(connection=entry, ipvs=True).with_packet(dst=real.address, dport=real.port)
    return Scheduled(real.chance, state, _step(hook, service, state))


def _step(hook: Hook, service: Service, state: State) -> Step:
    return Step("ipvs", hook, f"{service.server.line.removeprefix('-A ')}: to {state.packet.destination}")


def _open(state: State, hook: Hook, why: str) -> Scheduled:
    return Scheduled(Fraction(1), End(INDETERMINATE, hook, state, reason=why), Step("ipvs", hook, why))


def not_sent(packet: Packet) -> str:
    """Why IPVS does not send a packet to another host (crosses_local_route_boundary, decrement_ttl); "" if it does."""
    if packet.src is not None and LOOPBACK_NETWORKS[packet.family].contains(packet.src):
        return NO_LOOPBACK
    return "the TTL is used up" if packet.ttl is not None and packet.ttl <= 1 else ""


def answer(hook: Hook, state: State) -> tuple[State, Step] | None:
    """The answer of a real server as the client is to see it; None for any other packet."""
    entry = state.connection
    if state.ipvs or not state.has_connection or not entry.ipvs or entry.direction != REPLY or entry.original is None:
        return None
    before, port = state.packet.source, entry.original.dport if state.packet.has_ports else None
    state = state._replace(ipvs=True).with_packet(src=entry.original.dst, sport=port)
    return state, Step("ipvs", hook, f"an answer: {before} becomes {state.packet.source}")


def recognised(servers: Ipvs | None, entry: Connection, protocol: int) -> Connection:
    """A connection as IPVS has it, if conntrack's entry tells that it goes from a virtual server to another address:
    conntrack shows both kinds of translation alike."""
    if servers is None or not entry.dnat or entry.state == NEW or entry.original is None:
        return entry
    original = entry.original
    if original.dst is None or servers.find(protocol, original.dst, original.dport) is None:
        return entry
    return entry.replace(dnat=False, ipvs=True)
