"""Evaluators of the matches on the link and on the way back."""

from __future__ import annotations

from kproxy.dataplane.concrete.matches.header import compare
from kproxy.dataplane.concrete.routing import Query, Unknown, address_type, lookup
from kproxy.dataplane.concrete.state import Answer, View
from kproxy.dataplane.model.packet import LOOPBACK
from kproxy.netfilter.family import Family
from kproxy.netfilter.iptables.codec import UINT32
from kproxy.netfilter.iptables.matches import MacMatch, PkttypeMatch, RpfilterMatch


def rpfilter(match: RpfilterMatch, view: View) -> Answer:
    """Whether an answer would leave by the interface that the packet came from (ipt_rpfilter, ip6t_rpfilter)."""
    packet = view.state.packet
    fits = _reverse_path(match, view)
    key = ("rpfilter", match, packet.src, packet.dst, packet.in_interface)
    why = "which way an answer would take is not known"
    return compare(view, None if fits is None else 0, fits, match.invert, key, why)


def _reverse_path(match: RpfilterMatch, view: View) -> bool | None:
    packet = view.state.packet
    if packet.in_interface == LOOPBACK:
        return True
    if packet.src is None:
        return None
    if packet.src == 0:
        return packet.family is Family.IPV6 or packet.dst == UINT32
    mark, known = (packet.mark, packet.mark_known) if match.validmark else (0, UINT32)
    route = lookup(view.host, Query(packet.family, packet.src, packet.dst, mark, known))
    if isinstance(route, Unknown):
        return None
    if route is None:
        return False
    if route.kind == "local":
        if packet.family is Family.IPV6 or not match.accept_local:
            return match.accept_local
    elif route.kind != "unicast":
        return False
    if match.loose:
        return True
    if route.device is None or packet.in_interface is None:
        return None
    return route.device == packet.in_interface


def mac(match: MacMatch, view: View) -> Answer:
    """The sender's address in the frame, which no packet here has."""
    packet = view.state.packet
    if packet.in_interface in ("", LOOPBACK):
        return match.mac_source.negated and packet.in_interface == LOOPBACK
    key = ("mac", match.mac_source.value)
    return compare(view, None, None, match.mac_source.negated, key, "the sender's MAC address is not known")


def pkttype(match: PkttypeMatch, view: View) -> Answer:
    """How the frame was addressed: what comes to iptables with a unicast address was for this host."""
    packet = view.state.packet
    known: str | None = None
    if packet.dst is not None and address_type(view.host, packet.family, packet.dst) in ("LOCAL", "UNICAST"):
        known = "unicast"
    wanted = match.pkt_type
    fits = None if known is None else known == wanted.value
    value = None if known is None else 0
    return compare(view, value, fits, wanted.negated, ("pkttype", wanted.value), "the packet type is not known")
