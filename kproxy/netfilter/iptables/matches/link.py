"""Matches on the link layer and on the path: `physdev`, `mac`, `pkttype`, `rpfilter`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final

from kproxy.netfilter.condition import Among, Asks, Condition, Not, equals, named
from kproxy.netfilter.family import Family
from kproxy.netfilter.iptables.codec import INTERFACE, choice
from kproxy.netfilter.iptables.matches.base import Match
from kproxy.netfilter.iptables.option import Codec, Negatable, Option


def _met(port: str) -> Asks:
    """The packet came or goes by a bridge port."""
    return lambda _: Not(Among(port, frozenset({""})))


@dataclass(frozen=True, slots=True)
class PhysdevMatch(Match):
    """The bridge ports of a bridged packet; a trailing `+` in a name stands for any ending. The three `is_` flags are
    True, False (negated with `!`) or None."""

    is_in: bool | None = None
    physdev_in: Negatable[str] | None = None
    is_out: bool | None = None
    physdev_out: Negatable[str] | None = None
    is_bridged: bool | None = None

    NAME: ClassVar[str] = "physdev"
    LISTED: ClassVar[str] = "PHYSDEV match"
    OPTIONS: ClassVar[tuple[Option, ...]] = (
        Option("--physdev-is-in", "is_in", None, True, listed="! --physdev-is-in", asks=_met("in_port")),
        Option("--physdev-in", "physdev_in", INTERFACE, True, listed="! --physdev-in {}", asks=named("in_port")),
        Option("--physdev-is-out", "is_out", None, True, listed="! --physdev-is-out", asks=_met("out_port")),
        Option("--physdev-out", "physdev_out", INTERFACE, True, listed="! --physdev-out {}", asks=named("out_port")),
        Option(
            "--physdev-is-bridged",
            "is_bridged",
            negatable=True,
            listed="! --physdev-is-bridged",
            asks=lambda _: equals("bridged")(1),
        ),
    )
    SOME: ClassVar[tuple[str, ...]] = tuple(row.field for row in OPTIONS)

    @property
    def positive(self) -> tuple[PhysdevMatch, bool]:
        """The match without the `!` of the one flag that it is about, and whether it has that."""
        given = [row.field for row in self.OPTIONS if getattr(self, row.field) is not None]
        if len(given) > 1 or getattr(self, given[0]) is not False:
            return self, False
        changes: dict[str, Any] = {given[0]: True}
        return replace(self, **changes), True


_MAC: Final = re.compile(r"[0-9a-fA-F]{1,2}(?::[0-9a-fA-F]{1,2}){5}")


def _parse_mac(words: Sequence[str], _family: Family) -> str:
    if not _MAC.fullmatch(words[0]):
        raise ValueError(f"a MAC address expected, not {words[0]!r}")
    return ":".join(f"{int(part, 16):02x}" for part in words[0].split(":"))


@dataclass(frozen=True, slots=True)
class MacMatch(Match):
    """The source address of the Ethernet frame, as twelve lower-case hexadecimal digits with colons."""

    mac_source: Negatable[str]

    NAME: ClassVar[str] = "mac"
    FIRST: ClassVar[Condition] = equals("framed")(1)
    OPTIONS: ClassVar[tuple[Option, ...]] = (
        Option("--mac-source", "mac_source", Codec(_parse_mac, str), True, listed="MAC ! {}", asks=named("mac")),
    )


_PACKET_TYPES: Final = ("unicast", "broadcast", "multicast", "otherhost")
"""In the order of the kernel's numbers."""


@dataclass(frozen=True, slots=True)
class PkttypeMatch(Match):
    """`pkt_type` is unicast (to this host), broadcast, multicast or otherhost."""

    pkt_type: Negatable[str]

    NAME: ClassVar[str] = "pkttype"
    OPTIONS: ClassVar[tuple[Option, ...]] = (
        Option(
            "--pkt-type",
            "pkt_type",
            choice(
                _PACKET_TYPES,
                "a packet type",
                {"host": "unicast", "bcast": "broadcast", "mcast": "multicast"},
            ),
            True,
            listed="PKTTYPE = {}|PKTTYPE != {}",
            asks=lambda kind: equals("pkttype")(_PACKET_TYPES.index(kind)),
        ),
    )


@dataclass(frozen=True, slots=True)
class RpfilterMatch(Match):
    """Applies when the reply to the packet would leave by the interface it came from; `loose`: by any interface;
    `invert` turns the result round."""

    loose: bool = False
    validmark: bool = False
    accept_local: bool = False
    invert: bool = False

    NAME: ClassVar[str] = "rpfilter"
    LISTED: ClassVar[str] = "rpfilter"
    OPTIONS: ClassVar[tuple[Option, ...]] = (
        Option("--loose", "loose"),
        Option("--validmark", "validmark"),
        Option("--accept-local", "accept_local"),
        Option("--invert", "invert"),
    )

    def condition(self) -> Condition:
        names = [name for name in ("loose", "validmark", "accept-local") if getattr(self, name.replace("-", "_"))]
        asked = equals(" ".join(("src_path", *names)))(1)
        return Not(asked) if self.invert else asked
