"""Address translation: what DNAT, SNAT, MASQUERADE, REDIRECT and NETMAP choose, and how a connection's choice is
applied to its packets.

A target changes only the connection (nf_nat_setup_info); `translate` then rewrites the packet, at each hook the way
its direction and the connection's tuples say (nf_nat_packet). Where the kernel chooses among several addresses it
hashes the packet's addresses, which spreads clients evenly: here each address has the same chance. A source port that
is chosen at random or from a range is left open; one that may stay is taken to be free.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Final, NamedTuple

from kproxy.dataplane.concrete.routing import Query, Unknown, device_address, first_address, is_link_local, lookup
from kproxy.dataplane.concrete.state import DST, SRC, State, View
from kproxy.dataplane.model.conntrack import MAX_CHOICES, ORIGINAL, tuple_of
from kproxy.dataplane.model.packet import LOOPBACK
from kproxy.family import join_host_port
from kproxy.netfilter.address import format_address
from kproxy.netfilter.effect import Nat
from kproxy.netfilter.family import Family
from kproxy.netfilter.hooks import Hook

MANIP: Final = {Hook.PREROUTING: DST, Hook.OUTPUT: DST, Hook.POSTROUTING: SRC, Hook.INPUT: SRC}
"""Which side each hook of the nat table rewrites, for packets of the original direction."""


class Choice(NamedTuple):
    """One possible translation: the address and port (None: open), with its chance."""

    address: int | None
    port: int | None
    chance: Fraction


def choices(nat: Nat, view: View) -> list[Choice] | None:
    """What a rule may rewrite the packet's source or destination to; None if the kernel would drop the packet."""
    packet, source = view.state.packet, MANIP[view.hook] == SRC
    # What is kept is what the connection has: a header that a rule has written is not asked (get_unique_tuple).
    kept = (view.state.connection.known_as(packet).reply or tuple_of(packet).reversed()).reversed()
    address, port = (kept.src, kept.sport) if source else (kept.dst, kept.dport)
    if nat.kind == "netmap":
        inside = packet.src if source else packet.dst
        network = nat.network
        mapped = None if inside is None else network.address | inside & (network.mask ^ network.family.full_mask)
        return [Choice(mapped, port, Fraction(1))]
    addresses: list[int | None] = [address]
    if nat.kind in ("masquerade", "redirect"):
        addresses = _redirected(view) if nat.kind == "redirect" else [masquerade_address(view)]
    elif nat.addresses is not None:
        first, last = nat.addresses
        addresses = [*range(first, last + 1)] if 0 <= last - first < MAX_CHOICES else [None]
        if source and not nat.at_random and _has_port(nat, port) and (address is None or first <= address <= last):
            addresses = [address]  # a source in the range stays
    ports = _ports(nat, port, source=source)
    chance = Fraction(1, max(len(addresses), 1) * len(ports))
    return [Choice(address, port, chance) for address in addresses for port in ports] or None


def _has_port(nat: Nat, port: int | None) -> bool:
    return nat.ports is None or (port is not None and nat.ports[0] <= port <= nat.ports[1])


def _ports(nat: Nat, port: int | None, *, source: bool) -> list[int | None]:
    if nat.ports is None:
        return [None] if nat.at_random and source else [port]  # a destination's port only changes by a range
    first, last = nat.ports
    size = last - first + 1
    if size == 1:
        return [first]
    if nat.base is not None:
        return [None if port is None else first + (port - nat.base & 0xFFFF) % size]
    if not nat.at_random:
        if port is None:
            return [None]
        if first <= port <= last:
            return [port]
        if not source:
            return [first]
    if source or size > MAX_CHOICES:
        return [None]
    return list(range(first, last + 1))


def masquerade_address(view: View) -> int | None:
    """The address that MASQUERADE takes: one of the output interface, towards the next hop; None if not known.

    A packet that leaves by the loopback interface: IPv4 takes the first address of another interface, because those of
    lo have host scope (inet_select_addr); IPv6 prefers the destination itself, which is one of the host's own
    (ipv6_dev_get_saddr, rule 1).
    """
    packet, host = view.state.packet, view.host
    towards = packet.dst
    if packet.family is Family.IPV6 and packet.dst is not None:
        local = host.is_local(packet.family, packet.dst)
        # A rule may have written the destination after routing: only one that is the host's own is preferred.
        if local or packet.out_interface == LOOPBACK:
            return packet.dst if local is not False else None
    elif packet.out_interface == LOOPBACK:
        if host.interfaces is not None:
            return first_address(host, packet.family)
        return device_address(host, packet.family, None, None)
    if packet.dst is not None:
        route = lookup(host, Query.of(packet, packet.in_interface))
        if route is not None and not isinstance(route, Unknown) and route.gateway is not None:
            towards = route.gateway
    return device_address(host, packet.family, packet.out_interface, towards)


def _redirected(view: View) -> list[int | None]:
    """The address that REDIRECT takes: loopback's for packets of this host, else the first of the input interface."""
    packet, host = view.state.packet, view.host
    if view.hook is Hook.OUTPUT:
        return [0x7F000001 if packet.family is Family.IPV4 else 1]
    device = host.interface(packet.in_interface)
    if device is None:
        return [device_address(host, packet.family, None, None)]
    own = [item.value for item in device.addresses if item.family is packet.family]
    if packet.family is Family.IPV6:
        wide = [address for address in own if not is_link_local(address)]
        if packet.dst is not None and not is_link_local(packet.dst) and wide:
            own = wide
    return [*own[:1]]


def set_ups(state: State, manip: int, choice: Choice) -> list[State]:
    """The states once the connection's translation on one side is chosen: two if it is open whether that changes
    anything, because the address or port that is rewritten is open."""
    packet = state.packet
    address, port = (packet.dst, packet.dport) if manip == DST else (packet.src, packet.sport)
    entry = before = state.connection.known_as(packet)
    original = entry.original or tuple_of(packet)
    reply = entry.reply or original.reversed()
    if manip == DST:
        changed = (reply.src, reply.sport) != (choice.address, choice.port)
        reply = reply._replace(src=choice.address, sport=choice.port)
        entry = entry.replace(reply=reply, dnat=entry.dnat or changed)
    else:
        changed = (reply.dst, reply.dport) != (choice.address, choice.port)
        reply = reply._replace(dst=choice.address, dport=choice.port)
        entry = entry.replace(reply=reply, snat=entry.snat or changed)
    masqueraded = state.masqueraded or manip == SRC
    done = state._replace(connection=entry, nat_done=state.nat_done | manip, masqueraded=masqueraded)
    same_port = port == choice.port or port is None
    if (address is None and choice.address is not None and same_port) or (
        port is None and choice.port is not None and address in (None, choice.address)
    ):
        unchanged = entry.replace(dnat=before.dnat) if manip == DST else entry.replace(snat=before.snat)
        return [done, done._replace(connection=unchanged)]
    return [done]


def translate(state: State, hook: Hook) -> State:
    """The packet as its connection's translation leaves it at this hook."""
    entry = state.connection
    manip = MANIP[hook]
    reply_direction = entry.direction != ORIGINAL
    if not (entry.dnat if (manip == DST) != reply_direction else entry.snat):
        return state
    if entry.original is None or entry.reply is None:
        return state
    target = (entry.original if reply_direction else entry.reply).reversed()
    if manip == DST:
        port = target.dport if state.packet.has_ports else None
        return state.with_packet(dst=target.dst, dport=port)
    port = target.sport if state.packet.has_ports else None
    return state.with_packet(src=target.src, sport=port)


def choice_text(state: State, choice: Choice) -> str:
    """An address and port for a step's text; `?` stands for an open one."""
    family = state.packet.family
    host = "?" if choice.address is None else format_address(choice.address, family)
    if not state.packet.has_ports:
        return host
    port = "?" if choice.port is None else str(choice.port)
    return join_host_port(host, port)
