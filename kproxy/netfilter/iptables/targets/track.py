"""Targets of the raw and mangle tables that steer what happens later: `CT`, `NOTRACK`, `TPROXY`, `TCPMSS`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Final

from kproxy.netfilter import effect
from kproxy.netfilter.address import Address
from kproxy.netfilter.effect import Effect
from kproxy.netfilter.family import Family
from kproxy.netfilter.iptables.codec import ADDRESS, UINT16, Masked, masked, names, number, parse_uint, string
from kproxy.netfilter.iptables.option import Codec, Option
from kproxy.netfilter.iptables.targets.base import Target

EVENTS: Final = (
    "new", "related", "destroy", "reply", "assured", "protoinfo", "helper", "mark", "natseqinfo", "secmark",
)  # fmt: skip
"""The conntrack events of `--ctevents`, in the order of iptables-save."""

_NAME: Final = string(31, least=1, text=str)


def _parse_zone(word: str) -> int | str:
    return word if word == "mark" else parse_uint(word, UINT16)


_ZONE: Final[Codec[int | str]] = Codec(lambda words, _family: _parse_zone(words[0]), str)


@dataclass(frozen=True, slots=True)
class CtTarget(Target):
    """How conntrack will treat the packet's connection. A zone is a number or `mark`."""

    notrack: bool = False
    helper: str | None = None
    timeout: str | None = None
    ctevents: frozenset[str] | None = None
    expevents: frozenset[str] | None = None
    zone_orig: int | str | None = None
    zone_reply: int | str | None = None
    zone: int | str | None = None

    NAME: ClassVar[str] = "CT"
    LISTED: ClassVar[str] = "CT"
    EXCLUSIVE: ClassVar[tuple[tuple[str, ...], ...]] = (("zone", "zone_orig", "zone_reply"),)
    OPTIONS: ClassVar[tuple[Option, ...]] = (
        Option("--notrack", "notrack"),
        Option("--helper", "helper", _NAME, loose=True),
        Option("--timeout", "timeout", _NAME, loose=True),
        Option("--ctevents", "ctevents", names(EVENTS, "conntrack events")),
        Option("--expevents", "expevents", names(("new",), "expectation events")),
        Option("--zone-orig", "zone_orig", _ZONE),
        Option("--zone-reply", "zone_reply", _ZONE),
        Option("--zone", "zone", _ZONE),
    )

    def effect(self) -> Effect:
        return effect.Untrack() if self.notrack else self.told("sets how the connection is tracked")


@dataclass(frozen=True, slots=True)
class NotrackTarget(Target):
    """The old name of `CT --notrack`; iptables keeps the two apart."""

    NAME: ClassVar[str] = "NOTRACK"
    LISTED: ClassVar[str] = "NOTRACK"
    DOES: ClassVar[Effect | None] = effect.Untrack()


@dataclass(frozen=True, slots=True)
class TproxyTarget(Target):
    """Give the packet to a local socket on `on_port` (and `on_ip`; unspecified: the input interface's) and mark it."""

    on_port: int
    on_ip: Address
    tproxy_mark: Masked

    NAME: ClassVar[str] = "TPROXY"
    PROTOCOLS: ClassVar[frozenset[int]] = frozenset({6, 17})
    OPTIONS: ClassVar[tuple[Option, ...]] = (
        Option("--on-port", "on_port", number(UINT16), listed=":{}"),
        Option("--on-ip", "on_ip", ADDRESS, listed="TPROXY redirect {}"),
        Option("--tproxy-mark", "tproxy_mark", masked(), listed="mark {}"),
    )

    @classmethod
    def complete(cls, values: dict[str, Any], family: Family) -> None:
        values.setdefault("on_ip", Address(family, 0))
        values.setdefault("tproxy_mark", Masked(0, 0))

    def effect(self) -> Effect:
        mark = effect.marked("mark", self.tproxy_mark.value, self.tproxy_mark.mask)
        return effect.Socket(self.on_port or None, str(self.on_ip), final=True, mark=mark)


@dataclass(frozen=True, slots=True)
class TcpmssTarget(Target):
    """Rewrite the MSS option of a SYN packet: to a number, or to what the path MTU allows."""

    set_mss: int | None = None
    clamp_mss_to_pmtu: bool = False

    NAME: ClassVar[str] = "TCPMSS"
    SOME: ClassVar[tuple[str, ...]] = ("set_mss", "clamp_mss_to_pmtu")
    EXCLUSIVE: ClassVar[tuple[tuple[str, ...], ...]] = (SOME,)
    OPTIONS: ClassVar[tuple[Option, ...]] = (
        Option("--clamp-mss-to-pmtu", "clamp_mss_to_pmtu", listed="TCPMSS clamp to PMTU"),
        Option("--set-mss", "set_mss", number(UINT16 - 40), listed="TCPMSS set {}"),
    )

    def effect(self) -> Effect:
        return self.told("sets the MSS")
