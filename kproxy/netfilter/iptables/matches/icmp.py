"""`-m icmp` and `-m icmp6`: the message type and code."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

from kproxy.netfilter.condition import ALWAYS, Asks, Condition, all_of, equals, within
from kproxy.netfilter.family import Family
from kproxy.netfilter.iptables.codec import UINT8, Range, parse_uint
from kproxy.netfilter.iptables.matches.base import Match
from kproxy.netfilter.iptables.option import Codec, Negatable, Option

_ANY_CODE: Final = Range(0, UINT8)

# Names that iptables takes on input; it prints numbers. (type, code), code None: any.
_V4_NAMES: Final[dict[str, tuple[int, int | None]]] = {
    "any": (255, None), "echo-reply": (0, None), "pong": (0, None), "destination-unreachable": (3, None),
    "network-unreachable": (3, 0), "host-unreachable": (3, 1), "protocol-unreachable": (3, 2),
    "port-unreachable": (3, 3), "fragmentation-needed": (3, 4), "source-route-failed": (3, 5),
    "network-unknown": (3, 6), "host-unknown": (3, 7), "network-prohibited": (3, 9), "host-prohibited": (3, 10),
    "tos-network-unreachable": (3, 11), "tos-host-unreachable": (3, 12), "communication-prohibited": (3, 13),
    "host-precedence-violation": (3, 14), "precedence-cutoff": (3, 15), "source-quench": (4, None),
    "redirect": (5, None), "network-redirect": (5, 0), "host-redirect": (5, 1), "tos-network-redirect": (5, 2),
    "tos-host-redirect": (5, 3), "echo-request": (8, None), "ping": (8, None), "router-advertisement": (9, None),
    "router-solicitation": (10, None), "time-exceeded": (11, None), "ttl-exceeded": (11, None),
    "ttl-zero-during-transit": (11, 0), "ttl-zero-during-reassembly": (11, 1), "parameter-problem": (12, None),
    "ip-header-bad": (12, 0), "required-option-missing": (12, 1), "timestamp-request": (13, None),
    "timestamp-reply": (14, None), "address-mask-request": (17, None), "address-mask-reply": (18, None),
}  # fmt: skip
_V6_NAMES: Final[dict[str, tuple[int, int | None]]] = {
    "destination-unreachable": (1, None), "no-route": (1, 0), "communication-prohibited": (1, 1),
    "beyond-scope": (1, 2), "address-unreachable": (1, 3), "port-unreachable": (1, 4), "failed-policy": (1, 5),
    "reject-route": (1, 6), "packet-too-big": (2, None), "time-exceeded": (3, None), "ttl-exceeded": (3, None),
    "ttl-zero-during-transit": (3, 0), "ttl-zero-during-reassembly": (3, 1), "parameter-problem": (4, None),
    "bad-header": (4, 0), "unknown-header-type": (4, 1), "unknown-option": (4, 2), "echo-request": (128, None),
    "ping": (128, None), "echo-reply": (129, None), "pong": (129, None), "router-solicitation": (133, None),
    "router-advertisement": (134, None), "neighbour-solicitation": (135, None), "neighbor-solicitation": (135, None),
    "neighbour-advertisement": (136, None), "neighbor-advertisement": (136, None), "redirect": (137, None),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class IcmpType:
    """A message type and the range of codes that fit; `codes` is 0 to 255 when no code is given."""

    type: int
    codes: Range = _ANY_CODE

    def text(self) -> str:
        """`type` or `type/code`."""
        return str(self.type) if self.codes == _ANY_CODE else f"{self.type}/{self.codes.first}"


def _codec(names: dict[str, tuple[int, int | None]], any_type: int | None) -> Codec[IcmpType]:
    def parse(words: Sequence[str], _family: Family) -> IcmpType:
        word = words[0]
        if word[:1].isdigit():
            kind, slash, rest = word.partition("/")
            number = parse_uint(kind, UINT8)
            code = parse_uint(rest, UINT8) if slash else None
        elif word.lower() in names:
            number, code = names[word.lower()]
        else:
            raise ValueError(f"an ICMP type expected, not {word!r}")
        # A type of 255 in IPv4 fits everything, whatever the code.
        return IcmpType(number, _ANY_CODE if code is None or number == any_type else Range(code, code))

    return Codec(parse, lambda value: "any" if value.type == any_type else value.text())


_V4_TYPE: Final = _codec(_V4_NAMES, 255)
_V6_TYPE: Final = _codec(_V6_NAMES, None)


def _asks(any_type: int | None) -> Asks:
    def condition(wanted: IcmpType) -> Condition:
        if wanted.type == any_type:
            return ALWAYS
        codes = ALWAYS if wanted.codes == _ANY_CODE else within("icmp_code")(wanted.codes)
        return all_of((equals("icmp_type")(wanted.type), codes))

    return condition


@dataclass(frozen=True, slots=True)
class IcmpMatch(Match):
    """`icmp_type.value.type` 255 fits every message."""

    icmp_type: Negatable[IcmpType]

    NAME: ClassVar[str] = "icmp"
    PROTOCOLS: ClassVar[frozenset[int]] = frozenset({1})
    OPTIONS: ClassVar[tuple[Option, ...]] = (
        Option("--icmp-type", "icmp_type", _V4_TYPE, True, asks=_asks(255), listed="icmptype {}|icmp !type {}"),
    )


@dataclass(frozen=True, slots=True)
class Icmp6Match(Match):
    """As `IcmpMatch`, for ICMPv6; 255 is a type like any other."""

    icmp_type: Negatable[IcmpType]

    NAME: ClassVar[str] = "icmp6"
    NAMES: ClassVar[tuple[str, ...]] = ("icmpv6", "ipv6-icmp")
    PROTOCOLS: ClassVar[frozenset[int]] = frozenset({58})
    OPTIONS: ClassVar[tuple[Option, ...]] = (
        Option(
            "--icmpv6-type", "icmp_type", _V6_TYPE, True, asks=_asks(None), listed="ipv6-icmptype {}|ipv6-icmp !type {}"
        ),
    )
