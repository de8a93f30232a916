"""`-m tcp`, `-m udp`, `-m sctp`: ports, TCP flags and options."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

from kproxy.netfilter.condition import Condition, Open, Under, within
from kproxy.netfilter.family import Family
from kproxy.netfilter.iptables.codec import UINT16, Range, number, number_range
from kproxy.netfilter.iptables.matches.base import Match
from kproxy.netfilter.iptables.option import Codec, Negatable, Option

_PORTS: Final = number_range(UINT16, ordered=True)
_ANY_PORT: Final = Negatable(Range(0, UINT16))
"""The kernel's "no port given", so TCP and UDP cannot tell the two apart."""

TCP_FLAGS: Final = {"FIN": 0x01, "SYN": 0x02, "RST": 0x04, "PSH": 0x08, "ACK": 0x10, "URG": 0x20}
"""The flags that iptables names, with their bits in the TCP header, in the order of iptables-save."""


def _port_options(omit: Negatable[Range] | None = None) -> tuple[Option, ...]:
    return tuple(
        Option(
            f"--{name}",
            name,
            _PORTS,
            True,
            (f"--{long}-port",),
            omit,
            asks=within(name),
            listed=f"{name[0]}pt[s]:!{{}}",
        )
        for name, long in (("sport", "source"), ("dport", "destination"))
    )


@dataclass(frozen=True, slots=True)
class TcpFlags:
    """Applies when `flags & mask == comp`; both are bit sets of `TCP_FLAGS`."""

    mask: int
    comp: int


_SYN: Final = TcpFlags(0x17, 0x02)


def _flag_bits(text: str) -> int:
    bits = 0
    for word in text.split(","):
        upper = word.upper()
        if upper == "ALL":
            bits |= 0x3F
        elif upper != "NONE":
            if upper not in TCP_FLAGS:
                raise ValueError(f"TCP flags expected ({','.join(TCP_FLAGS)},ALL,NONE), not {text!r}")
            bits |= TCP_FLAGS[upper]
    return bits


def _flag_names(bits: int) -> str:
    return ",".join(name for name, bit in TCP_FLAGS.items() if bits & bit) or "NONE"


def _parse_flags(words: Sequence[str], _family: Family) -> TcpFlags:
    return TcpFlags(_flag_bits(words[0]), _flag_bits(words[1]))


def _option(number: int) -> Condition:
    return Open("header", f"TCP option {number}", "what TCP options it has")


@dataclass(frozen=True, slots=True)
class TcpMatch(Match):
    """Ports from 0 to 65535 inclusive, `flags` (`--syn` is FIN,SYN,RST,ACK against SYN) and the presence of a TCP
    option by number. A port range 0:65535 that is not negated is the absence of the option."""

    sport: Negatable[Range] | None = None
    dport: Negatable[Range] | None = None
    option: Negatable[int] | None = None
    flags: Negatable[TcpFlags] | None = None

    NAME: ClassVar[str] = "tcp"
    LISTED: ClassVar[str] = "tcp"
    PROTOCOLS: ClassVar[frozenset[int]] = frozenset({6})
    OPTIONS: ClassVar[tuple[Option, ...]] = (
        *_port_options(_ANY_PORT),
        Option("--tcp-option", "option", number(255, 1), negatable=True, asks=_option, listed="option=!{}"),
        Option(
            "--tcp-flags",
            "flags",
            Codec(_parse_flags, lambda value: f"{_flag_names(value.mask)} {_flag_names(value.comp)}", arity=2),
            negatable=True,
            omit=Negatable(TcpFlags(0, 0)),
            asks=lambda flags: Under("tcp_flags", flags.comp, flags.mask),
            listed="flags:!{}",
        ),
        Option("--syn", "flags", constant=_SYN, negatable=True, printed=False),
    )


@dataclass(frozen=True, slots=True)
class UdpMatch(Match):
    """Ports as in `TcpMatch`."""

    sport: Negatable[Range] | None = None
    dport: Negatable[Range] | None = None

    NAME: ClassVar[str] = "udp"
    LISTED: ClassVar[str] = "udp"
    PROTOCOLS: ClassVar[frozenset[int]] = frozenset({17})
    OPTIONS: ClassVar[tuple[Option, ...]] = _port_options(_ANY_PORT)


@dataclass(frozen=True, slots=True)
class SctpMatch(Match):
    """Ports as in `TcpMatch`, except that 0:65535 is kept."""

    sport: Negatable[Range] | None = None
    dport: Negatable[Range] | None = None

    NAME: ClassVar[str] = "sctp"
    LISTED: ClassVar[str] = "sctp"
    PROTOCOLS: ClassVar[frozenset[int]] = frozenset({132})
    OPTIONS: ClassVar[tuple[Option, ...]] = _port_options()
