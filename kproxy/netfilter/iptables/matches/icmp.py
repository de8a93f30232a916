"""`-m icmp` and `-m icmp6`: the message type and code."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

from kproxy.netfilter.condition import ALWAYS, Asks, Condition, all_of, equals, within
from kproxy.netfilter.family import ICMP_NUMBERS, Family
from kproxy.netfilter.iptables.codec import UINT8, Range, parse_uint
from kproxy.netfilter.iptables.matches.base import Match
from kproxy.netfilter.iptables.option import Codec, Negatable, Option, UnsupportedError

_ANY_CODE: Final = Range(0, UINT8)


@dataclass(frozen=True, slots=True)
class IcmpType:
    """A message type and the range of codes that fit; `codes` is 0 to 255 when no code is given."""

    type: int
    codes: Range = _ANY_CODE

    def text(self) -> str:
        """`type` or `type/code`."""
        return str(self.type) if self.codes == _ANY_CODE else f"{self.type}/{self.codes.first}"


def _codec(any_type: int | None) -> Codec[IcmpType]:
    def parse(words: Sequence[str], family: Family) -> IcmpType:
        kind, slash, rest = words[0].partition("/")
        if kind == "any" and any_type is not None:
            number: int | None = any_type
        else:
            number = parse_uint(kind, UINT8) if kind[:1].isdigit() else ICMP_NUMBERS[family].get(kind)
        if number is None:
            raise UnsupportedError(f"{kind!r} is not a type of ICMP with a known name")
        # A type of 255 in IPv4 fits everything, whatever the code.
        code = parse_uint(rest, UINT8) if slash else None
        return IcmpType(number, _ANY_CODE if code is None or number == any_type else Range(code, code))

    return Codec(parse, lambda value: "any" if value.type == any_type else value.text())


_V4_TYPE: Final = _codec(255)
_V6_TYPE: Final = _codec(None)


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
