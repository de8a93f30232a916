"""`-m ipvs`: whether IPVS has sent the packet to a real server, and from which virtual server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Final

from kproxy.netfilter.address import Network
from kproxy.netfilter.condition import ALWAYS, NEVER, Condition, all_of, equals, network
from kproxy.netfilter.family import Family
from kproxy.netfilter.iptables.codec import UINT16, choice, number
from kproxy.netfilter.iptables.matches.base import Match
from kproxy.netfilter.iptables.matches.conntrack import NETWORK, PROTOCOL
from kproxy.netfilter.iptables.option import Negatable, Option

_DIRECTIONS: Final = ("ORIGINAL", "REPLY")
_TAKEN: Final = equals("ipvs")(1)
_REQUEST: Final = equals("reply")(0)


@dataclass(frozen=True, slots=True)
class IpvsMatch(Match):
    """`ipvs` True: IPVS has had the packet; False: it has not. Other options, of the virtual server, imply it,
    and only a request has a virtual server (ipvs_mt looks for no other connections). What asks how packets are
    forwarded (`--vmethod`) is left to `OpaqueMatch`."""

    ipvs: bool | None = None
    vproto: Negatable[int] | None = None
    vaddr: Negatable[Network] | None = None
    vport: Negatable[int] | None = None
    vdir: str | None = None

    NAME: ClassVar[str] = "ipvs"
    OPTIONS: ClassVar[tuple[Option, ...]] = (
        Option("--ipvs", "ipvs", None, True, asks=lambda _: _TAKEN),
        Option("--vproto", "vproto", PROTOCOL, True, asks=equals("protocol")),
        Option("--vaddr", "vaddr", NETWORK, True, asks=network("ctorigdst")),
        Option("--vport", "vport", number(UINT16), True, asks=equals("ctorigdstport")),
        Option(
            "--vdir",
            "vdir",
            choice(_DIRECTIONS, "a direction"),
            asks=lambda name: ALWAYS if name == "ORIGINAL" else NEVER,
        ),
    )
    SOME: ClassVar[tuple[str, ...]] = tuple(row.field for row in OPTIONS)

    @classmethod
    def complete(cls, values: dict[str, Any], family: Family) -> None:
        if len(values) > 1:
            values.pop("ipvs", None)

    def condition(self) -> Condition | None:
        """All parts, of a request that IPVS has had."""
        asked = Match.condition(self)
        return asked if self.ipvs is not None or asked is None else all_of((_TAKEN, _REQUEST, asked))
