"""`-m addrtype`: what kind of address the routing table says it is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Final

from kproxy.netfilter.condition import V4, V6, All, Any, Condition, In, Not, Under, all_of, equals
from kproxy.netfilter.iptables.codec import names
from kproxy.netfilter.iptables.matches.base import Match
from kproxy.netfilter.iptables.option import Negatable, Option

ADDRESS_TYPES: Final = (
    "UNSPEC", "UNICAST", "LOCAL", "BROADCAST", "ANYCAST", "MULTICAST", "BLACKHOLE", "UNREACHABLE", "PROHIBIT",
    "THROW", "NAT", "XRESOLVE",
)  # fmt: skip
"""The kernel's route types, in its order."""

_TYPES: Final = names(ADDRESS_TYPES, "address types")


_BY_ADDRESS: Final = frozenset({"UNSPEC", "UNICAST", "LOCAL", "MULTICAST"})


def _asked_of_v6(side: str, kinds: frozenset[str], words: tuple[str, ...]) -> Iterator[Condition]:
    """addrtype_check6: the types are alternatives only among those that routing answers."""
    multicast, zero = Under(side, 0xFF << 120, 0xFF << 120), equals(side)(0)
    if "MULTICAST" in kinds:
        yield multicast
    if "UNICAST" in kinds:
        yield Not(Any((multicast, zero)))
    if "UNSPEC" in kinds:
        yield zero
    routed = [equals(" ".join((f"{side}_local", *words)))(1)] if "LOCAL" in kinds else []
    numbers = (ADDRESS_TYPES.index(name) for name in kinds - _BY_ADDRESS)
    # A route that refuses makes an address unreachable, however it refuses: black holes and prohibitions, too.
    routed += [In(f"{side}_kind", ((6, 8),) if number == 7 else ((number, number),)) for number in sorted(numbers)]
    if routed:
        yield Any(tuple(routed))


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

    def condition(self) -> Condition:
        words = ("iif",) * self.limit_iface_in + ("oif",) * self.limit_iface_out
        parts = []
        for side, wanted in (("src", self.src_type), ("dst", self.dst_type)):
            if wanted is not None:
                numbers = tuple((number, number) for number, name in enumerate(ADDRESS_TYPES) if name in wanted.value)
                v4 = In(" ".join((f"{side}_kind", *words)), numbers)
                asked = Any((All((V4, v4)), All((V6, *_asked_of_v6(side, wanted.value, words)))))
                parts.append(Not(asked) if wanted.negated else asked)
        return all_of(parts)
