"""Matches on fields of the IP header: `ttl`, `hl`, `dscp`, `tos`, `ecn`, `length`, `iprange`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from kproxy.netfilter.address import AddressRange
from kproxy.netfilter.condition import Asks, Condition, In, Under, bits, equals, under, within
from kproxy.netfilter.iptables.codec import ADDRESS_RANGE, UINT8, UINT16, Masked, Range, masked, number, number_range
from kproxy.netfilter.iptables.matches.base import Match
from kproxy.netfilter.iptables.option import Negatable, Option

_HOPS: Final = number(UINT8)


def _less(hops: int) -> Condition:
    return In("ttl", ((0, hops - 1),) if hops else ())


def _greater(hops: int) -> Condition:
    return In("ttl", ((hops + 1, UINT8),) if hops < UINT8 else ())


def _hops_options(name: str) -> tuple[Option, ...]:
    listed = f"{name.upper()} match {name.upper()}"
    equal = f"{listed} == {{}}|{listed} != {{}}"
    return (
        Option(f"--{name}-eq", "equal", _HOPS, True, (f"--{name}",), asks=equals("ttl"), listed=equal),
        Option(f"--{name}-lt", "less", _HOPS, asks=_less, listed=f"{listed} < {{}}"),
        Option(f"--{name}-gt", "greater", _HOPS, asks=_greater, listed=f"{listed} > {{}}"),
    )


@dataclass(frozen=True, slots=True)
class TtlMatch(Match):
    """One of the three: the IPv4 TTL equals, is less than, or is greater than."""

    equal: Negatable[int] | None = None
    less: int | None = None
    greater: int | None = None

    NAME: ClassVar[str] = "ttl"
    SOME: ClassVar[tuple[str, ...]] = ("equal", "less", "greater")
    EXCLUSIVE: ClassVar[tuple[tuple[str, ...], ...]] = (SOME,)
    OPTIONS: ClassVar[tuple[Option, ...]] = _hops_options(NAME)


@dataclass(frozen=True, slots=True)
class HlMatch(TtlMatch):
    """As `TtlMatch`, for the IPv6 hop limit."""

    NAME: ClassVar[str] = "hl"
    OPTIONS: ClassVar[tuple[Option, ...]] = _hops_options(NAME)


DSCP: Final = number(63, form="0x{:02x}")


@dataclass(frozen=True, slots=True)
class DscpMatch(Match):
    """Matches the six-bit code point of the IP header."""

    dscp: Negatable[int]

    NAME: ClassVar[str] = "dscp"
    OPTIONS: ClassVar[tuple[Option, ...]] = (
        Option("--dscp", "dscp", DSCP, negatable=True, asks=bits("tos", 0xFC, 2), listed="DSCP match !{}"),
    )


TOS: Final = masked(UINT8, form="0x{:02x}")


@dataclass(frozen=True, slots=True)
class TosMatch(Match):
    """The TOS or traffic class octet under a mask."""

    tos: Negatable[Masked]

    NAME: ClassVar[str] = "tos"
    OPTIONS: ClassVar[tuple[Option, ...]] = (
        Option("--tos", "tos", TOS, True, asks=under("tos"), listed="tos match!{}"),
    )


def _flag(bit: int) -> Asks:
    return lambda _given: Under("tcp_flags", bit, bit)


@dataclass(frozen=True, slots=True)
class EcnMatch(Match):
    """The bits of Explicit Congestion Notification: ECE and CWR of the TCP header (which take `-p tcp`), and the two
    last bits of the TOS or traffic class octet. All that are given have to fit."""

    tcp_ece: bool | None = None
    tcp_cwr: bool | None = None
    ip_ect: Negatable[int] | None = None

    NAME: ClassVar[str] = "ecn"
    LISTED: ClassVar[str] = "ECN match"
    SOME: ClassVar[tuple[str, ...]] = ("tcp_ece", "tcp_cwr", "ip_ect")
    OPTIONS: ClassVar[tuple[Option, ...]] = (
        Option("--ecn-tcp-ece", "tcp_ece", negatable=True, asks=_flag(0x40), listed="!ECE"),
        Option("--ecn-tcp-cwr", "tcp_cwr", negatable=True, asks=_flag(0x80), listed="!CWR"),
        Option("--ecn-ip-ect", "ip_ect", number(3), negatable=True, asks=bits("tos", 3), listed="!ECT={}"),
    )

    def protocols(self) -> frozenset[int]:
        return frozenset() if self.tcp_ece is None and self.tcp_cwr is None else frozenset({6})


@dataclass(frozen=True, slots=True)
class LengthMatch(Match):
    """The length of the packet in octets, IP header included."""

    length: Negatable[Range]

    NAME: ClassVar[str] = "length"
    OPTIONS: ClassVar[tuple[Option, ...]] = (
        Option("--length", "length", number_range(UINT16), negatable=True, asks=within("length"), listed="length !{}"),
    )


def _range(field: str) -> Asks:
    return lambda addresses: In(field, ((addresses.first.value, addresses.last.value),))


@dataclass(frozen=True, slots=True)
class IprangeMatch(Match):
    """Source and destination in ranges of addresses."""

    src_range: Negatable[AddressRange] | None = None
    dst_range: Negatable[AddressRange] | None = None

    NAME: ClassVar[str] = "iprange"
    SOME: ClassVar[tuple[str, ...]] = ("src_range", "dst_range")
    OPTIONS: ClassVar[tuple[Option, ...]] = (
        Option("--src-range", "src_range", ADDRESS_RANGE, True, asks=_range("src"), listed="source IP range ! {}"),
        Option("--dst-range", "dst_range", ADDRESS_RANGE, True, asks=_range("dst"), listed="destination IP range ! {}"),
    )
