"""Matches: what a rule wants of a packet. One class per extension, `OpaqueMatch` for the rest."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from kproxy.netfilter.iptables.matches.base import Match, OpaqueMatch
from kproxy.netfilter.iptables.matches.comment import CommentMatch
from kproxy.netfilter.iptables.matches.conntrack import ConntrackMatch, StateMatch
from kproxy.netfilter.iptables.matches.ipset import SetMatch, SetReference
from kproxy.netfilter.iptables.matches.limit import HashlimitMatch, LimitMatch
from kproxy.netfilter.iptables.matches.link import PhysdevMatch
from kproxy.netfilter.iptables.matches.local import NfacctMatch
from kproxy.netfilter.iptables.matches.mark import ConnmarkMatch, MarkMatch
from kproxy.netfilter.iptables.matches.multiport import MultiportMatch
from kproxy.netfilter.iptables.matches.recent import RecentMatch
from kproxy.netfilter.iptables.matches.statistic import StatisticMatch
from kproxy.netfilter.iptables.matches.transport import TCP_FLAGS, SctpMatch, TcpMatch, UdpMatch
from kproxy.netfilter.iptables.option import named_classes

MATCH_CLASSES: Final[tuple[type[Match], ...]] = named_classes(Match, __name__)
"""Every match that kproxy interprets."""

MATCHES: Final = MappingProxyType({name: cls for cls in MATCH_CLASSES for name in (cls.NAME, *cls.NAMES)})
"""The interpreted matches by every name that `-m` takes."""

PROTOCOL_MATCHES: Final = MappingProxyType(
    {6: "tcp", 17: "udp", 132: "sctp", 1: "icmp", 58: "icmp6", 33: "dccp", 50: "esp", 51: "ah", 135: "mh"}
)
"""The match that iptables loads by itself when an option follows `-p` that nothing else knows."""

__all__ = [
    "MATCHES",
    "MATCH_CLASSES",
    "PROTOCOL_MATCHES",
    "TCP_FLAGS",
    "CommentMatch",
    "ConnmarkMatch",
    "ConntrackMatch",
    "HashlimitMatch",
    "LimitMatch",
    "MarkMatch",
    "Match",
    "MultiportMatch",
    "NfacctMatch",
    "OpaqueMatch",
    "PhysdevMatch",
    "RecentMatch",
    "SctpMatch",
    "SetMatch",
    "SetReference",
    "StateMatch",
    "StatisticMatch",
    "TcpMatch",
    "UdpMatch",
]
