"""Matches on the link layer and on the path: `physdev`, `mac`, `pkttype`, `rpfilter`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

from kproxy.netfilter.family import Family
from kproxy.netfilter.iptables.codec import INTERFACE, choice
from kproxy.netfilter.iptables.matches.base import Match
from kproxy.netfilter.iptables.option import Codec, Negatable, Option


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
        Option("--physdev-is-in", "is_in", negatable=True, listed="! --physdev-is-in"),
        Option("--physdev-in", "physdev_in", INTERFACE, negatable=True, listed="! --physdev-in {}"),
        Option("--physdev-is-out", "is_out", negatable=True, listed="! --physdev-is-out"),
        Option("--physdev-out", "physdev_out", INTERFACE, negatable=True, listed="! --physdev-out {}"),
        Option("--physdev-is-bridged", "is_bridged", negatable=True, listed="! --physdev-is-bridged"),
    )
    SOME: ClassVar[tuple[str, ...]] = tuple(row.field for row in OPTIONS)


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
    OPTIONS: ClassVar[tuple[Option, ...]] = (
        Option("--mac-source", "mac_source", Codec(_parse_mac, str), negatable=True, listed="MAC ! {}"),
    )


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
                ("unicast", "broadcast", "multicast", "otherhost"),
                "a packet type",
                {"host": "unicast", "bcast": "broadcast", "mcast": "multicast"},
            ),
            True,
            listed="PKTTYPE = {}|PKTTYPE != {}",
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
