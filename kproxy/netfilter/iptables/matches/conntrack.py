"""`-m conntrack` and its forerunner `-m state`: what connection tracking knows about the packet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Final

from kproxy.netfilter.address import Network
from kproxy.netfilter.condition import (
    TRACKED,
    All,
    Any,
    Condition,
    Not,
    Open,
    all_of,
    among,
    equals,
    network,
    nothing,
    within,
)
from kproxy.netfilter.family import Family
from kproxy.netfilter.iptables.codec import UINT16, UINT32, Range, choice, names, number_range, parse_protocol
from kproxy.netfilter.iptables.matches.base import Match
from kproxy.netfilter.iptables.option import Codec, Negatable, Option, UnsupportedError

STATES: Final = ("INVALID", "NEW", "RELATED", "ESTABLISHED", "UNTRACKED")
"""The states of `-m state`, in the order of iptables-save; `-m conntrack` knows SNAT and DNAT too."""

STATUSES: Final = ("EXPECTED", "SEEN_REPLY", "ASSURED", "CONFIRMED")


def _parse_network(words: Sequence[str], family: Family) -> Network:
    network = Network.parse(words[0], family, keep_host_bits=True)
    if network.prefix_length is None:
        raise UnsupportedError("iptables-save does not print a mask with holes here")
    return network


def _network_text(value: Network) -> str:
    return str(value) if value.mask != value.family.full_mask else str(value)[: str(value).index("/")]


NETWORK: Final = Codec(_parse_network, _network_text)
_PORTS: Final = number_range(UINT16)
_EXPIRE: Final = number_range(UINT32)
_STATE: Final = names((*STATES, "SNAT", "DNAT"), "connection states")
PROTOCOL: Final = Codec(lambda words, _family: parse_protocol(words[0]), str)


def _parse_status(words: Sequence[str], family: Family) -> frozenset[str]:
    # NONE is the empty set: beside another name it adds nothing.
    others = [word for word in words[0].split(",") if word.upper() != "NONE"]
    return names(STATUSES, "connection statuses").parse([",".join(others)], family) if others else frozenset()


_STATUS: Final = Codec(
    _parse_status, lambda value: ",".join(status for status in STATUSES if status in value) or "NONE"
)


def _backward(direction: str) -> Condition:
    return equals("reply")(int(direction == "REPLY"))


@dataclass(frozen=True, slots=True)
class ConntrackMatch(Match):
    """All options that are given have to hold.

    `ctstate` and `ctstatus` hold names, upper case; an empty `ctstatus` is NONE: no status bit is set. The addresses
    and ports are those of the original and the reply tuple. `ctexpire` is in seconds. `ctdir` is ORIGINAL or REPLY.
    """

    ctstate: Negatable[frozenset[str]] | None = None
    ctproto: Negatable[int] | None = None
    ctorigsrc: Negatable[Network] | None = None
    ctorigdst: Negatable[Network] | None = None
    ctreplsrc: Negatable[Network] | None = None
    ctrepldst: Negatable[Network] | None = None
    ctorigsrcport: Negatable[Range] | None = None
    ctorigdstport: Negatable[Range] | None = None
    ctreplsrcport: Negatable[Range] | None = None
    ctrepldstport: Negatable[Range] | None = None
    ctstatus: Negatable[frozenset[str]] | None = None
    ctexpire: Negatable[Range] | None = None
    ctdir: str | None = None

    NAME: ClassVar[str] = "conntrack"
    OPTIONS: ClassVar[tuple[Option, ...]] = (
        Option("--ctstate", "ctstate", _STATE, True, asks=among("ctstate")),
        Option("--ctproto", "ctproto", PROTOCOL, True, asks=equals("protocol")),
        Option("--ctorigsrc", "ctorigsrc", NETWORK, True, asks=network("ctorigsrc")),
        Option("--ctorigdst", "ctorigdst", NETWORK, True, asks=network("ctorigdst")),
        Option("--ctreplsrc", "ctreplsrc", NETWORK, True, asks=network("ctreplsrc")),
        Option("--ctrepldst", "ctrepldst", NETWORK, True, asks=network("ctrepldst")),
        Option("--ctorigsrcport", "ctorigsrcport", _PORTS, True, asks=within("ctorigsrcport")),
        Option("--ctorigdstport", "ctorigdstport", _PORTS, True, asks=within("ctorigdstport")),
        Option("--ctreplsrcport", "ctreplsrcport", _PORTS, True, asks=within("ctreplsrcport")),
        Option("--ctrepldstport", "ctrepldstport", _PORTS, True, asks=within("ctrepldstport")),
        Option("--ctstatus", "ctstatus", _STATUS, True, asks=among("ctstatus")),
        Option("--ctexpire", "ctexpire", _EXPIRE, True, asks=nothing),
        Option("--ctdir", "ctdir", choice(("ORIGINAL", "REPLY"), "a direction"), asks=_backward),
    )
    SOME: ClassVar[tuple[str, ...]] = tuple(row.field for row in OPTIONS)

    def condition(self) -> Condition | None:
        """All parts; without a connection the state alone, and a rule that asks for none never fits (conntrack_mt)."""
        asked = Match.condition(replace(self, ctexpire=None))
        assert asked is not None, self
        if self.ctexpire is not None:  # negated or not, the open question is the match as it is written
            asked = all_of((asked, Open("opaque", self.to_save(), "the connection's time left")))
        state = StateMatch(self.ctstate).condition() if self.ctstate is not None else Any(())
        assert state is not None, self
        return asked if asked == state else Any((All((TRACKED, asked)), All((Not(TRACKED), state))))


_PLAIN_STATE: Final = names(STATES, "connection states")


@dataclass(frozen=True, slots=True)
class StateMatch(Match):
    """`state` holds names of `STATES`."""

    state: Negatable[frozenset[str]]

    NAME: ClassVar[str] = "state"
    OPTIONS: ClassVar[tuple[Option, ...]] = (
        Option("--state", "state", _PLAIN_STATE, negatable=True, asks=among("ctstate")),
    )
