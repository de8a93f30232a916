"""Evaluators of the matches that look at what the host remembers: connections, address types, sets, lists, counters."""

from __future__ import annotations

from fractions import Fraction

from kproxy.dataplane.concrete.answer import both
from kproxy.dataplane.concrete.matches.header import compare
from kproxy.dataplane.concrete.routing import UNKNOWN, Query, address_type, lookup
from kproxy.dataplane.concrete.state import Answer, Split, View, by_chance, negate, open_question, unknown
from kproxy.dataplane.model.conntrack import FlowTuple
from kproxy.dataplane.model.ipset import PortPart
from kproxy.dataplane.model.packet import ICMP, ICMPV6, PORT_PROTOCOLS, Packet
from kproxy.netfilter.family import Family
from kproxy.netfilter.iptables.matches import (
    AddrtypeMatch,
    HashlimitMatch,
    LimitMatch,
    RecentMatch,
    SetMatch,
    SetReference,
    StatisticMatch,
)

_V6_LOOKED_UP = frozenset({"LOCAL", "ANYCAST", "UNREACHABLE"})


def addrtype(match: AddrtypeMatch, view: View) -> Answer:
    """The types of the addresses."""
    packet = view.state.packet
    device: str | None = None
    limited = match.limit_iface_in or match.limit_iface_out
    if limited:
        device = packet.in_interface if match.limit_iface_in else packet.out_interface
    answers: list[Answer] = []
    for field, wanted in (("src", match.src_type), ("dst", match.dst_type)):
        if wanted is None:
            continue
        address: int | None = getattr(packet, field)
        key = (field, address, wanted.value, device, limited)
        if address is None or (limited and device is None):
            answers.append(compare(view, None, None, wanted.negated, key, "the address is not known"))
            continue
        kinds = wanted.value
        fits = _fits_v6(view, address, device, kinds) if packet.family is Family.IPV6 else None
        if packet.family is Family.IPV4:
            kind = address_type(view.host, packet.family, address, device or None)
            fits = None if kind is UNKNOWN else kind in kinds
        why = "whether the address is local is not known"
        answers.append(compare(view, None if fits is None else 0, fits, wanted.negated, key, why))
    return both(view, answers)


def _fits_v6(view: View, address: int, device: str | None, kinds: frozenset[str]) -> bool | None:
    """xt_addrtype's addrtype_check6: the types are alternatives only among those that routing answers."""
    if kinds & {"BLACKHOLE", "PROHIBIT", "THROW", "BROADCAST", "NAT", "XRESOLVE"}:
        return None
    multicast = address >> 120 == 0xFF
    if "MULTICAST" in kinds and not multicast:
        return False
    if "UNICAST" in kinds and (multicast or address == 0):
        return False
    if "UNSPEC" in kinds and address != 0:
        return False
    looked_up = kinds & _V6_LOOKED_UP
    if not looked_up:
        return True
    kind = address_type(view.host, Family.IPV6, address, device or None)
    if kind == "LOCAL":
        return True if "LOCAL" in looked_up else None
    if looked_up == {"LOCAL"}:
        return None if kind is UNKNOWN else False
    anycast = view.host.is_anycast(Family.IPV6, address)
    if anycast or "ANYCAST" in looked_up:
        return "ANYCAST" in looked_up if anycast else None
    route = lookup(view.host, Query(Family.IPV6, address))
    if route is UNKNOWN or kind is UNKNOWN or view.host.routes is None:
        return None
    return route is None or route.kind in ("blackhole", "unreachable", "prohibit")


def statistic(match: StatisticMatch, view: View) -> Answer:
    """By chance: exactly k / 2^31 in mode random; every n-th packet in mode nth, whose counter may be known.

    The kernel (statistic_mt) compares 31 random bits with k. In mode nth the packets that come to the rule are numbered
    from 0, and those match whose number modulo `every` is `packet` (observed).
    """
    chance = match.chance
    if chance is not None:
        return by_chance(view, chance)
    every = 1 if match.every is None else match.every.value
    negated = match.every is not None and match.every.negated
    ref = (view.ref.table, view.ref.chain, view.ref.rule)
    if ref not in view.host.nth or view.ref.source:
        answer = by_chance(view, Fraction(1, every))
        return negate(answer) if negated else answer
    met = dict(view.state.nth)
    before = met.get(ref, 0)
    fits = (view.host.nth[ref] + before) % every == (match.packet or 0)
    met[ref] = before + 1
    state = view.state._replace(nth=frozenset(met.items()))
    return Split(state, None) if fits != negated else Split(None, state)


def limit(match: LimitMatch | HashlimitMatch, view: View) -> Answer:
    """A choice: within the rate or above it. `View.limit` may have made it."""
    within = view.limit
    if within is None:
        return unknown(view, "whether the rate is within the limit is not known")
    return within if not isinstance(match, HashlimitMatch) or match.above is None else not within


def recent(match: RecentMatch, view: View) -> Answer:
    """Lists of addresses and when they were last seen (recent_mt)."""
    state = view.state
    address = state.packet.src if match.side == "source" else state.packet.dst
    action, negated = match.action.value, match.action.negated
    if address is None or (match.rttl and action in ("rcheck", "update")):
        return unknown(view, f"list {match.name} is not known")
    key = (match.name, address & match.mask.value)
    changed = dict(state.recent)
    ages: tuple[int, ...] | None
    if key in changed:
        ages = changed[key]
    elif view.host.recent is None:
        ages = None
    else:
        ages = tuple(view.host.recent.get(match.name, {}).get(key[1], ()))
    if action == "set":
        changed[key] = (0, *(ages or ()))
        state = state._replace(recent=frozenset(changed.items()))
        return Split(None, state) if negated else Split(state, None)
    if ages is None:
        why = f"whether {match.name} holds the address is not known"
        answer = open_question(view, ("recent", *key, match.seconds, match.hitcount), why)
        if action == "remove" or (action == "update" and isinstance(answer, Split)):
            answer = _changed_open(view, answer, key, action)
        return negate(answer) if negated else answer
    if action == "remove":
        changed[key] = ()
        fits = bool(ages)
    else:
        recently = [age for age in ages if match.seconds is None or age <= match.seconds]
        fits = len(recently) >= max(match.hitcount or 1, 1)
        if action == "update" and fits != negated:
            changed[key] = (0, *ages)
    state = state._replace(recent=frozenset(changed.items()))
    return Split(state, None) if fits != negated else Split(None, state)


def _changed_open(view: View, answer: Answer, key: tuple[str, int], action: str) -> Answer:
    found = (
        answer if isinstance(answer, Split) else Split(view.state if answer else None, None if answer else view.state)
    )
    after: tuple[int, ...] = () if action == "remove" else (0,)
    yes = None if found.yes is None else found.yes._replace(recent=found.yes.recent | {(key, after)})
    return found._replace(yes=yes)


def set_parts(packet: Packet, reference: SetReference, dimensions: tuple[str, ...]) -> list[int | PortPart | None]:
    """What a set compares: for each dimension the packet's address or port."""
    parts: list[int | PortPart | None] = []
    for kind, direction in zip(dimensions, reference.directions, strict=False):
        if kind == "port":
            parts.append(_port_part(packet, direction))
        else:
            parts.append(packet.src if direction == "src" else packet.dst)
    return parts


def _port_part(packet: Packet, direction: str) -> PortPart | None:
    if packet.protocol in PORT_PROTOCOLS:
        return PortPart(packet.protocol, packet.sport if direction == "src" else packet.dport)
    if packet.protocol in (ICMP, ICMPV6):
        if packet.icmp_type is None or packet.icmp_code is None:
            return None
        return PortPart(packet.protocol, packet.icmp_type << 8 | packet.icmp_code)
    return PortPart(-1, 0)


def set_key(packet: Packet, reference: SetReference) -> tuple[object, ...]:
    """What an open question about a set is about."""
    flow = FlowTuple(packet.src, packet.sport, packet.dst, packet.dport)
    return ("set", reference.name, reference.directions, flow)


def ip_set(match: SetMatch, view: View) -> Answer:
    """Membership, if the set's contents are given; counters are not known."""
    packet, reference = view.state.packet, match.match_set.value
    negated = match.match_set.negated
    why = f"the contents of set {reference.name} are not known"
    asks_counters = any(
        item is not None
        for item in (
            match.packets_eq, match.packets_lt, match.packets_gt, match.bytes_eq, match.bytes_lt, match.bytes_gt
        )
    )  # fmt: skip
    key = set_key(packet, reference)
    changed = (("changed-set", reference.name), True) in view.state.answers
    known = view.host.sets.get(reference.name)
    if known is not None and not known.entries and not changed:
        return negated
    if asks_counters or match.return_nomatch:
        return unknown(view, why)
    if changed or known is None or (key, True) in view.state.answers or (key, False) in view.state.answers:
        answer = open_question(view, key, why)
        return negate(answer) if negated else answer
    fits = known.contains(packet.family, set_parts(packet, reference, known.dimensions))
    if fits is None:
        answer = open_question(view, key, f"an address or port that set {reference.name} is asked for is not known")
        return negate(answer) if negated else answer
    return fits != negated
