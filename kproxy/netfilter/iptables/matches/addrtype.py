"""`-m addrtype`: what kind of address the routing table says it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from kproxy.netfilter.iptables.codec import names
from kproxy.netfilter.iptables.matches.base import Match
from kproxy.netfilter.iptables.option import Negatable, Option

ADDRESS_TYPES: Final = (
    "UNSPEC", "UNICAST", "LOCAL", "BROADCAST", "ANYCAST", "MULTICAST", "BLACKHOLE", "UNREACHABLE", "PROHIBIT",
    "THROW", "NAT", "XRESOLVE",
)  # fmt: skip
"""The kernel's route types, in its order."""

_TYPES: Final = names(ADDRESS_TYPES, "address types")


@dataclass(frozen=True, slots=True)
class AddrtypeMatch(Match):
    """The type of the source and of the destination address; each holds names of `ADDRESS_TYPES`.

    With `limit_iface_in` (or `limit_iface_out`) only routes over the packet's input (output) interface count.
    """

    src_type: Negatable[frozenset[str]] | None = None
    dst_type: Negatable[frozenset[str]] | None = None
    limit_iface_in: bool = False
    limit_iface_out: bool = False

    NAME: ClassVar[str] = "addrtype"
    LISTED: ClassVar[str] = "ADDRTYPE match"
    SOME: ClassVar[tuple[str, ...]] = ("src_type", "dst_type")
    EXCLUSIVE: ClassVar[tuple[tuple[str, ...], ...]] = (("limit_iface_in", "limit_iface_out"),)
    OPTIONS: ClassVar[tuple[Option, ...]] = (
        Option("--src-type", "src_type", _TYPES, negatable=True, listed="src-type !{}"),
        Option("--dst-type", "dst_type", _TYPES, negatable=True, listed="dst-type !{}"),
        Option("--limit-iface-in", "limit_iface_in", listed="limit-in"),
        Option("--limit-iface-out", "limit_iface_out", listed="limit-out"),
    )
