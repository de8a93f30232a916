"""One evaluator per match, by its class. A match that is not here makes its rule undecidable."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from kproxy.dataplane.concrete.matches import header as header
from kproxy.dataplane.concrete.matches import link as link
from kproxy.dataplane.concrete.matches import opaque as opaque
from kproxy.dataplane.concrete.matches import state as state
from kproxy.dataplane.concrete.state import Answer, View, unknown
from kproxy.netfilter.iptables.matches import (
    AddrtypeMatch,
    CommentMatch,
    ConnmarkMatch,
    ConntrackMatch,
    DscpMatch,
    EcnMatch,
    HashlimitMatch,
    HlMatch,
    Icmp6Match,
    IcmpMatch,
    IprangeMatch,
    LengthMatch,
    LimitMatch,
    MacMatch,
    MarkMatch,
    Match,
    MultiportMatch,
    NfacctMatch,
    OpaqueMatch,
    OwnerMatch,
    PhysdevMatch,
    PkttypeMatch,
    RecentMatch,
    RpfilterMatch,
    SctpMatch,
    SetMatch,
    StateMatch,
    StatisticMatch,
    TcpMatch,
    TosMatch,
    TtlMatch,
    UdpMatch,
)

Evaluator = Callable[[Any, View], Answer]

EVALUATORS: Final[dict[type[Match], Evaluator]] = {
    AddrtypeMatch: state.addrtype,
    ConnmarkMatch: header.connmark,
    ConntrackMatch: state.conntrack,
    DscpMatch: header.dscp,
    EcnMatch: header.ecn,
    HashlimitMatch: state.limit,
    HlMatch: header.hops,
    Icmp6Match: header.icmp,
    IcmpMatch: header.icmp,
    IprangeMatch: header.iprange,
    LengthMatch: header.length,
    LimitMatch: state.limit,
    MacMatch: link.mac,
    MarkMatch: header.mark,
    MultiportMatch: header.multiport,
    OpaqueMatch: opaque.opaque,
    OwnerMatch: header.owner,
    PhysdevMatch: header.physdev,
    PkttypeMatch: link.pkttype,
    RecentMatch: state.recent,
    RpfilterMatch: link.rpfilter,
    SctpMatch: header.sctp,
    SetMatch: state.ip_set,
    StateMatch: state.conntrack_state,
    StatisticMatch: state.statistic,
    TcpMatch: header.tcp,
    TosMatch: header.tos,
    TtlMatch: header.hops,
    UdpMatch: header.udp,
}

IGNORED: Final[frozenset[type[Match]]] = frozenset({CommentMatch, NfacctMatch})
"""Matches that always apply."""

EFFECTS: Final[frozenset[type[Match]]] = frozenset({RecentMatch, StatisticMatch, SetMatch, LimitMatch, HashlimitMatch})
"""Matches that change something when they are asked, so that the order within a rule counts."""


def evaluate(match: Match, view: View) -> Answer:
    """Whether the match applies."""
    evaluator = EVALUATORS.get(type(match))
    if evaluator is None:
        return True if type(match) in IGNORED else unknown(view, f"{match.to_save()} is not interpreted")
    return evaluator(match, view)
