"""What rules do beside deciding a packet's way, in one table for both evaluations.

A target or statement that is here goes on to the next rule. What the model holds of a packet may change (`FIELDS`);
what it does not hold is told by the rule's text.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Final, NamedTuple

from kproxy.netfilter.nftables.expression import Ct, Meta, Payload
from kproxy.netfilter.nftables.statement import Dup, FlowAdd, Mangle, ObjectReference, ResetOption, Statement, Tproxy

HARMLESS_TARGETS: Final = frozenset(
    {
        "AUDIT", "CHECKSUM", "CLASSIFY", "CONNSECMARK", "IDLETIMER", "LED", "RATEEST", "SECMARK", "TCPOPTSTRIP",
        "ULOG",
    }
)  # fmt: skip
"""Targets of iptables that are not interpreted, of which it is known that they decide nothing."""


CLEARS_ECN: Final = ("ECN", "--ecn-tcp-remove")
"""A target that is not interpreted either, and clears ECE and CWR of TCP's flags."""


class Part(NamedTuple):
    """Where a packet has a header's field: an attribute of `Packet`, and the bits of it (`mask` before the shift)."""

    name: str
    mask: int = 0xFF
    shift: int = 0

    def written(self, old: int, new: int) -> int:
        """The attribute with the field written."""
        return old & ~(self.mask << self.shift) | (new & self.mask) << self.shift


FIELDS: Final = MappingProxyType(
    {
        ("ip", "ttl"): Part("ttl"),
        ("ip6", "hoplimit"): Part("ttl"),
        **{(header, "dscp"): Part("tos", 0x3F, 2) for header in ("ip", "ip6")},
        **{(header, "ecn"): Part("tos", 3) for header in ("ip", "ip6")},
        ("tcp", "flags"): Part("tcp_flags"),
        **{(header, field): Part(f"icmp_{field}") for header in ("icmp", "icmpv6") for field in ("type", "code")},
    }
)
"""Fields of a byte or less that a statement of nftables may write, by header and field."""
UNMODELLED: Final = frozenset({"protocol", "nexthdr", "length"})
"""Fields of `ip` and `ip6` that packets have, and whose writing is not modelled."""


def is_told(statement: Statement) -> bool:
    """Whether what a statement of nftables does is known by its text alone: it writes something that packets of the
    model do not have, sends a copy, names a helper, gives the packet to a socket."""
    if isinstance(statement, ObjectReference):
        return statement.kind not in ("counter", "limit", "quota", "synproxy")
    if not isinstance(statement, Mangle):
        return isinstance(statement, (Dup, FlowAdd, ResetOption, Tproxy))
    target = statement.target
    if isinstance(target, (Meta, Ct)):
        return target.key not in ("mark", "nftrace")
    if not isinstance(target, Payload):
        return True
    known = target.field in ("saddr", "daddr", "sport", "dport") or target.field in UNMODELLED
    return not known and (target.protocol, target.field) not in FIELDS


def stays_of_dropped(statement: Statement) -> bool:
    """Whether what a told statement does stays if the packet is dropped afterwards."""
    return isinstance(statement, (Dup, FlowAdd))


def place_of(text: str) -> str:
    """The beginning of a told statement's text that says what it writes: the last one that begins so counts."""
    target, written, _ = text.partition(" set ")
    return target + written
