"""Targets that rewrite a field of the IP header: `TTL`, `HL`, `DSCP`, `TOS`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Final

from kproxy.netfilter.family import Family
from kproxy.netfilter.iptables.codec import UINT8, Masked, number, parse_uint
from kproxy.netfilter.iptables.matches.header import DSCP, DSCP_CLASS, TOS
from kproxy.netfilter.iptables.option import Codec, Option
from kproxy.netfilter.iptables.targets.base import Target

_HOPS: Final = number(UINT8)
_VERBS: Final = {"set": "set to", "dec": "decrement by", "inc": "increment by"}


class _HopsTarget(Target):
    """Sets, decrements or increments how many hops a packet may still make: one of its three options."""

    __slots__ = ()

    @classmethod
    def complete(cls, values: dict[str, Any], family: Family) -> None:
        given = [row.field for row in cls.OPTIONS if row.field in values]
        if len(given) != 1:
            raise ValueError(f"one of {', '.join(row.name for row in cls.OPTIONS)} expected")
        if values[given[0]] == 0 and not given[0].endswith("_set"):
            raise ValueError("an increment or decrement other than 0 expected")


@dataclass(frozen=True, slots=True)
class TtlTarget(_HopsTarget):
    """Set, decrement or increment the IPv4 TTL: one of the three."""

    ttl_set: int | None = None
    ttl_dec: int | None = None
    ttl_inc: int | None = None

    NAME: ClassVar[str] = "TTL"
    OPTIONS: ClassVar[tuple[Option, ...]] = (
        Option("--ttl-set", "ttl_set", _HOPS, listed="TTL set to {}"),
        Option("--ttl-dec", "ttl_dec", _HOPS, listed="TTL decrement by {}"),
        Option("--ttl-inc", "ttl_inc", _HOPS, listed="TTL increment by {}"),
    )


@dataclass(frozen=True, slots=True)
class HlTarget(_HopsTarget):
    """As `TtlTarget`, for the IPv6 hop limit."""

    hl_set: int | None = None
    hl_dec: int | None = None
    hl_inc: int | None = None

    NAME: ClassVar[str] = "HL"
    OPTIONS: ClassVar[tuple[Option, ...]] = (
        Option("--hl-set", "hl_set", _HOPS, listed="HL set to {}"),
        Option("--hl-dec", "hl_dec", _HOPS, listed="HL decrement by {}"),
        Option("--hl-inc", "hl_inc", _HOPS, listed="HL increment by {}"),
    )


@dataclass(frozen=True, slots=True)
class DscpTarget(Target):
    """Set the six-bit code point."""

    dscp: int

    NAME: ClassVar[str] = "DSCP"
    OPTIONS: ClassVar[tuple[Option, ...]] = (
        Option("--set-dscp", "dscp", DSCP, listed="DSCP set {}"),
        Option("--set-dscp-class", "dscp", DSCP_CLASS, printed=False),
    )


def _bits(word: str) -> int:
    return parse_uint(word, UINT8)


_AND: Final = Codec(lambda words, _family: Masked(0, _bits(words[0]) ^ UINT8), TOS.text)
_OR: Final = Codec(lambda words, _family: Masked(_bits(words[0]), _bits(words[0])), TOS.text)
_XOR: Final = Codec(lambda words, _family: Masked(_bits(words[0]), 0), TOS.text)


@dataclass(frozen=True, slots=True)
class TosTarget(Target):
    """Clear the bits of the mask in the TOS octet, then xor the value."""

    tos: Masked

    NAME: ClassVar[str] = "TOS"
    OPTIONS: ClassVar[tuple[Option, ...]] = (
        Option("--set-tos", "tos", TOS, listed="TOS set {}"),
        Option("--and-tos", "tos", _AND, printed=False),
        Option("--or-tos", "tos", _OR, printed=False),
        Option("--xor-tos", "tos", _XOR, printed=False),
    )
