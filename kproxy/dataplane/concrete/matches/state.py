"""Evaluators of the matches that look at what the host remembers: sets, lists."""

from __future__ import annotations

from kproxy.dataplane.concrete.state import Answer, Split, View, negate, open_question, unknown
from kproxy.dataplane.model.conntrack import FlowTuple
from kproxy.dataplane.model.ipset import PortPart
from kproxy.dataplane.model.packet import ICMP, ICMPV6, Packet
from kproxy.netfilter.iptables.matches import (
    RecentMatch,
    SetMatch,
    SetReference,
)


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
    if packet.has_ports:
        return PortPart(packet.protocol, packet.sport if direction == "src" else packet.dport)
    if packet.protocol in (ICMP, ICMPV6):
        if packet.icmp_type is None or packet.icmp_code is None:
            return None
        return PortPart(packet.protocol, packet.icmp_type << 8 | packet.icmp_code)
    return PortPart(packet.protocol, 0)  # `gre:0` (ip_set_get_ip4_port)


def set_key(packet: Packet, reference: SetReference) -> tuple[object, ...]:
    """What an open question about a set is about."""
    flow = FlowTuple(packet.src, packet.sport, packet.dst, packet.dport)
    return ("set", reference.name, reference.directions, flow)


def ip_set(match: SetMatch, view: View) -> Answer:
    """Membership, if the set's contents are given."""
    packet, reference = view.state.packet, match.match_set.value
    negated = match.match_set.negated
    why = f"the contents of set {reference.name} are not known"
    key = set_key(packet, reference)
    changed = (("changed-set", reference.name), True) in view.state.answers
    known = view.host.sets.get(reference.name)
    if known is not None and not known.entries and not changed:
        return negated
    if match.return_nomatch:
        return unknown(view, why)
    if changed or known is None or (key, True) in view.state.answers or (key, False) in view.state.answers:
        answer = open_question(view, key, why)
        return negate(answer) if negated else answer
    fits = known.contains(packet.family, set_parts(packet, reference, known.dimensions))
    if fits is None:
        answer = open_question(view, key, f"an address or port that set {reference.name} is asked for is not known")
        return negate(answer) if negated else answer
    return fits != negated
