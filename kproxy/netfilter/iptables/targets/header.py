"""Targets that rewrite a field of the IP header: `TTL`, `HL`, `DSCP`, `TOS`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from kproxy.netfilter import effect
from kproxy.netfilter.effect import Effect
from kproxy.netfilter.iptables.codec import UINT8, Masked, number
from kproxy.netfilter.iptables.matches.header import DSCP, TOS
from kproxy.netfilter.iptables.option import Option
from kproxy.netfilter.iptables.targets.base import Target

_HOPS: Final = number(UINT8)
_HOPS_BY: Final = number(UINT8, 1)


def _hops_options(name: str) -> tuple[Option, ...]:
    return (
        Option(f"--{name}-set", "new", _HOPS, listed=f"{name.upper()} set to {{}}"),
        Option(f"--{name}-dec", "less", _HOPS_BY, listed=f"{name.upper()} decrement by {{}}"),
        Option(f"--{name}-inc", "more", _HOPS_BY, listed=f"{name.upper()} increment by {{}}"),
    )


@dataclass(frozen=True, slots=True)
class TtlTarget(Target):
    """The IPv4 TTL is set to `new`, or becomes `less` or `more` by a number: one of the three."""

    new: int | None = None
    less: int | None = None
    more: int | None = None

    NAME: ClassVar[str] = "TTL"
    SOME: ClassVar[tuple[str, ...]] = ("new", "less", "more")
    EXCLUSIVE: ClassVar[tuple[tuple[str, ...], ...]] = (SOME,)
    OPTIONS: ClassVar[tuple[Option, ...]] = _hops_options("ttl")

    def effect(self) -> Effect:
        less, more = self.less or 0, self.more or 0
        moved = tuple(min(max(old - less + more, 0), UINT8) for old in range(256))
        return effect.SetField("ttl", moved if self.new is None else (self.new,) * 256, "sets the TTL")


@dataclass(frozen=True, slots=True)
class HlTarget(TtlTarget):
    """As `TtlTarget`, for the IPv6 hop limit."""

    NAME: ClassVar[str] = "HL"
    OPTIONS: ClassVar[tuple[Option, ...]] = _hops_options("hl")


@dataclass(frozen=True, slots=True)
class DscpTarget(Target):
    """Set the six-bit code point."""

    dscp: int

    NAME: ClassVar[str] = "DSCP"
    OPTIONS: ClassVar[tuple[Option, ...]] = (Option("--set-dscp", "dscp", DSCP, listed="DSCP set {}"),)

    def effect(self) -> Effect:
        return effect.SetField("tos", tuple(old & 3 | self.dscp << 2 for old in range(256)), "sets the DSCP")


@dataclass(frozen=True, slots=True)
class TosTarget(Target):
    """Clear the bits of the mask in the TOS octet, then xor the value."""

    tos: Masked

    NAME: ClassVar[str] = "TOS"
    OPTIONS: ClassVar[tuple[Option, ...]] = (Option("--set-tos", "tos", TOS, listed="TOS set {}"),)

    def effect(self) -> Effect:
        values = tuple(old & ~self.tos.mask & UINT8 ^ self.tos.value for old in range(256))
        return effect.SetField("tos", values, "sets the TOS")
