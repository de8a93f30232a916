"""The matches that more than a condition decides, with one evaluator each: those that are state, and those without a
class of their own, which are open under their names.

`_OPEN` names those that only a running kernel can answer (time, string, socket, ...), with what they depend on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from kproxy.dataplane.concrete.answer import answer
from kproxy.dataplane.concrete.matches.state import ip_set, recent
from kproxy.dataplane.concrete.state import Answer, View, open_question, unknown
from kproxy.dataplane.model.unseen import unseen_reason
from kproxy.netfilter.condition import Condition
from kproxy.netfilter.iptables.matches import (
    HashlimitMatch,
    LimitMatch,
    Match,
    OpaqueMatch,
    RecentMatch,
    SetMatch,
    StatisticMatch,
)

_OPEN: Final = {
    "ah": "the index of the security association (SPI)",
    "bpf": "what the BPF program says",
    "cgroup": "the sender's control group",
    "cluster": "which node of the cluster takes the packet",
    "connbytes": "how much the connection has carried",
    "connlabel": "the connection's labels",
    "connlimit": "how many connections there are",
    "cpu": "which CPU handles the packet",
    "dccp": "what the DCCP header says",
    "devgroup": "the group of the interface",
    "esp": "the index of the security association (SPI)",
    "helper": "the connection's helper",
    "ipcomp": "the compression index (CPI)",
    "ipvs": "what IPVS does with the packet",
    "l2tp": "the L2TP session",
    "osf": "the sender's operating system",
    "policy": "whether IPsec transforms the packet",
    "rateest": "the estimated rate",
    "realm": "the routing realm",
    "socket": "whether a local socket takes the packet",
    "string": "the packet's content",
    "tcpmss": "the maximum segment size that the packet offers",
    "time": "the time of day",
    "u32": "the packet's content",
}
"""What an open match depends on, by its name."""


_EXTENSION_HEADERS: Final = frozenset({"rt", "hbh", "dst", "frag", "mh"})
"""Matches on IPv6 extension headers; without the header they never apply, negated or not."""


def opaque(match: OpaqueMatch, view: View) -> Answer:
    """A match that needs more than the packet and the host: open, under its own name."""
    if match.name in _EXTENSION_HEADERS and not view.state.packet.fragment:
        return False
    if reason := unseen_reason(match):
        return open_question(view, ("unseen", match), reason)
    what = _OPEN.get(match.name)
    if what is None:
        return unknown(view, f"{match.to_save()} is not interpreted")
    packet = view.state.packet
    key = ("match", match, packet.src, packet.sport, packet.dst, packet.dport)
    return open_question(view, key, f"{what} is not known ({match.to_save()})")


EVALUATORS: Final[dict[type[Match], Callable[[Any, View], Answer]]] = {
    OpaqueMatch: opaque,
    RecentMatch: recent,
    SetMatch: ip_set,
}

EFFECTS: Final[frozenset[type[Match]]] = frozenset({RecentMatch, StatisticMatch, SetMatch, LimitMatch, HashlimitMatch})
"""Matches that change something when they are asked, so that the order within a rule counts."""


def evaluate(match: Match, condition: Condition | None, view: View) -> Answer:
    """Whether a match applies, whose condition is this; None if it is more than a condition."""
    return EVALUATORS[type(match)](match, view) if condition is None else answer(condition, view)
