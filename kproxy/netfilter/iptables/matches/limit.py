"""`-m limit` and `-m hashlimit`: token buckets, one for the rule or one per address and port."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

from kproxy.netfilter.condition import Condition, Not, Open
from kproxy.netfilter.family import Family
from kproxy.netfilter.iptables.codec import bare_name, names, number
from kproxy.netfilter.iptables.matches.base import Match
from kproxy.netfilter.iptables.option import Codec, Option, UnsupportedError

_UNITS: Final = {"s": "sec", "m": "min", "h": "hour", "d": "day"}
_RATE: Final = re.compile(r"([1-9][0-9]{0,9})(?:/([smhd])[a-z]*)?")


def _parse_rate(words: Sequence[str], _family: Family) -> str:
    """A rate, `5/sec`. iptables-save prints the time between two packets that the kernel keeps, `1/sec` for `60/min`;
    here a rate stays as it was written."""
    found = _RATE.fullmatch(words[0])
    if found is None:
        raise UnsupportedError(f"{words[0]} is not a rate of packets")
    return f"{found[1]}/{_UNITS[found[2] or 's']}"


_RATE_TEXT: Final = Codec(_parse_rate, str)
_WITHIN: Final = "whether the rate is within the limit"


@dataclass(frozen=True, slots=True)
class LimitMatch(Match):
    """`limit` is the rate, `5/min`; `burst` the size of the bucket."""

    limit: str = "3/hour"
    burst: int = 5

    NAME: ClassVar[str] = "limit"
    OPTIONS: ClassVar[tuple[Option, ...]] = (
        Option("--limit", "limit", _RATE_TEXT, listed="limit: avg {}"),
        Option("--limit-burst", "burst", number(10_000, 1), omit=5, listed="burst {}"),
    )

    def condition(self) -> Condition:
        return Open("rate", self.to_save(), _WITHIN, each=True)


_NUMBER: Final = number()
_MASK: Final = number(128)
_MODES: Final = ("srcip", "srcport", "dstip", "dstport")


@dataclass(frozen=True, slots=True)
class HashlimitMatch(Match):
    """A bucket per value of `mode` (names of srcip, srcport, dstip, dstport; None: one bucket), up to a rate or above
    it. What iptables-save does not print is None."""

    name: str
    upto: str | None = None
    above: str | None = None
    burst: int = 5
    mode: frozenset[str] | None = None
    htable_size: int | None = None
    htable_max: int | None = None
    htable_gcinterval: int | None = None
    htable_expire: int | None = None
    srcmask: int | None = None
    dstmask: int | None = None

    NAME: ClassVar[str] = "hashlimit"
    SOME: ClassVar[tuple[str, ...]] = ("upto", "above")
    EXCLUSIVE: ClassVar[tuple[tuple[str, ...], ...]] = (SOME,)
    OPTIONS: ClassVar[tuple[Option, ...]] = (
        Option("--hashlimit-upto", "upto", _RATE_TEXT, listed="limit: up to {}"),
        Option("--hashlimit-above", "above", _RATE_TEXT, listed="limit: above {}"),
        Option("--hashlimit-burst", "burst", _NUMBER, listed="burst {}"),
        Option("--hashlimit-mode", "mode", names(_MODES, "modes"), listed="mode {}"),
        Option("--hashlimit-name", "name", bare_name(254), loose=True, listed=""),
        Option("--hashlimit-htable-size", "htable_size", _NUMBER, listed="htable-size {}"),
        Option("--hashlimit-htable-max", "htable_max", _NUMBER, listed="htable-max {}"),
        Option("--hashlimit-htable-gcinterval", "htable_gcinterval", _NUMBER, listed="htable-gcinterval {}"),
        Option("--hashlimit-htable-expire", "htable_expire", _NUMBER, listed="htable-expire {}"),
        Option("--hashlimit-srcmask", "srcmask", _MASK, listed="srcmask {}"),
        Option("--hashlimit-dstmask", "dstmask", _MASK, listed="dstmask {}"),
    )

    def condition(self) -> Condition:
        """A named table of buckets, which all rules share that name it; `above` asks the opposite of `upto`."""
        within = Open("rate", self.to_save().replace("--hashlimit-above", "--hashlimit-upto"), _WITHIN)
        return within if self.above is None else Not(within)
