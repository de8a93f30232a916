"""`-m limit` and `-m hashlimit`: token buckets, one for the rule or one per address and port.

Both extensions store a rate as the time between two packets, in units of 1/scale of a second, and iptables-save turns
that time back into the rate it comes nearest to; `60/min` is printed as `1/sec`, and `6000/sec` as `10000/sec`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from kproxy.netfilter.condition import Condition, Not, Open
from kproxy.netfilter.family import Family
from kproxy.netfilter.iptables.codec import bare_name, names, number
from kproxy.netfilter.iptables.matches.base import Match
from kproxy.netfilter.iptables.option import Codec, Negatable, Option, UnsupportedError

_UNITS: Final = (("day", 86400), ("hour", 3600), ("min", 60), ("sec", 1))
_RATE: Final = re.compile(r"([0-9]{1,10})(?:/(s(?:ec(?:ond)?)?|m(?:in(?:ute)?)?|h(?:our)?|d(?:ay)?))?", re.IGNORECASE)
LIMIT_SCALE: Final = 10_000
HASHLIMIT_SCALE: Final = 1_000_000


def parse_rate(text: str, scale: int) -> tuple[int, int]:
    """Read `N[/unit]`: the time between packets in units of 1/scale seconds, and the unit in seconds.

    Raises:
        ValueError: it is not a rate, or a faster one than the kernel can store.
    """
    found = _RATE.fullmatch(text)
    rate = int(found.group(1)) if found else 0
    if found is None or rate == 0:
        raise ValueError(f"a rate such as 5/sec expected, not {text!r}")
    letter = (found.group(2) or "s")[0].lower()
    unit = next(seconds for word, seconds in _UNITS if word[0] == letter)
    period = scale * unit // rate
    if period == 0:
        raise ValueError(f"a rate of at most {scale}/sec expected, not {text!r}")
    return period, unit


def _printed_unit(period: int, scale: int) -> tuple[str, int]:
    chosen = _UNITS[0]
    for unit in _UNITS[1:]:
        length = scale * unit[1]
        if period > length or length // period < length % period:
            break
        chosen = unit
    return chosen


def rate_text(period: int, scale: int) -> str:
    """The rate as iptables-save prints it for a time between packets."""
    word, seconds = _printed_unit(period, scale)
    return f"{scale * seconds // period}/{word}"


_LIMIT_RATE: Final = Codec(
    lambda words, _family: parse_rate(words[0], LIMIT_SCALE)[0], lambda value: rate_text(value, LIMIT_SCALE)
)


_WITHIN: Final = "whether the rate is within the limit"


@dataclass(frozen=True, slots=True)
class LimitMatch(Match):
    """`period` is the average time between packets in units of 100 microseconds, `burst` the size of the bucket."""

    period: int = 12_000_000
    burst: int = 5

    NAME: ClassVar[str] = "limit"
    OPTIONS: ClassVar[tuple[Option, ...]] = (
        Option("--limit", "period", _LIMIT_RATE, listed="limit: avg {}"),
        Option("--limit-burst", "burst", number(10_000), omit=5, listed="burst {}"),
    )

    @classmethod
    def complete(cls, values: dict[str, Any], family: Family) -> None:
        if values.get("burst") == 0:  # iptables-nft stores 5; legacy is refused by the kernel
            values["burst"] = 5

    def condition(self) -> Condition:
        return Open("rate", self.to_save(), _WITHIN, each=True)


def _parse_hash_rate(words: Sequence[str], _family: Family) -> tuple[int, int]:
    if re.fullmatch(r"[0-9]+[km]?b/s", words[0]):
        raise UnsupportedError("byte rates are not interpreted")
    return parse_rate(words[0], HASHLIMIT_SCALE)


_HASH_RATE: Final[Codec[Any]] = Codec(_parse_hash_rate, lambda value: rate_text(value, HASHLIMIT_SCALE))
_MILLI: Final = number()
_MODES: Final = ("srcip", "srcport", "dstip", "dstport")


@dataclass(frozen=True, slots=True)
class HashlimitMatch(Match):
    """A bucket per value of `mode` (names of srcip, srcport, dstip, dstport; None: one bucket).

    One of `upto` and `above` holds the average time between packets in microseconds: the match applies up to that rate
    or above it. `htable_gcinterval` and `htable_expire` are in milliseconds. `srcmask` and `dstmask` are prefix
    lengths; None is the whole address. Byte rates and `--hashlimit-rate-match` are left to `OpaqueMatch`.
    """

    name: str
    upto: int | None = None
    above: int | None = None
    burst: int = 5
    mode: frozenset[str] | None = None
    htable_size: int | None = None
    htable_max: int | None = None
    htable_gcinterval: int = 1000
    htable_expire: int = 1000
    srcmask: int | None = None
    dstmask: int | None = None

    NAME: ClassVar[str] = "hashlimit"
    SOME: ClassVar[tuple[str, ...]] = ("upto", "above")
    EXCLUSIVE: ClassVar[tuple[tuple[str, ...], ...]] = (SOME,)
    OPTIONS: ClassVar[tuple[Option, ...]] = (
        Option(
            "--hashlimit-upto", "upto", _HASH_RATE, negatable=True, aliases=("--hashlimit",), listed="limit: up to {}"
        ),
        Option("--hashlimit-above", "above", _HASH_RATE, negatable=True, listed="limit: above {}"),
        Option("--hashlimit-burst", "burst", number(1_000_000, 1), listed="burst {}"),
        Option("--hashlimit-mode", "mode", names(_MODES, "modes"), listed="mode {}"),
        Option("--hashlimit-name", "name", bare_name(254), loose=True, listed=""),
        Option("--hashlimit-htable-size", "htable_size", number(), omit=0, listed="htable-size {}"),
        Option("--hashlimit-htable-max", "htable_max", number(), omit=0, listed="htable-max {}"),
        Option("--hashlimit-htable-gcinterval", "htable_gcinterval", _MILLI, omit=1000, listed="htable-gcinterval {}"),
        Option("--hashlimit-htable-expire", "htable_expire", _MILLI, listed="htable-expire {}"),
        Option("--hashlimit-srcmask", "srcmask", number(128), listed="srcmask {}"),
        Option("--hashlimit-dstmask", "dstmask", number(128), listed="dstmask {}"),
    )

    @classmethod
    def complete(cls, values: dict[str, Any], family: Family) -> None:
        field = "upto" if "upto" in values else "above"
        rate: Negatable[tuple[int, int]] = values.pop(field)
        period, unit = rate.value
        values[{"upto": "above", "above": "upto"}[field] if rate.negated else field] = period
        values.setdefault("htable_expire", unit * 1000)
        for mask in ("srcmask", "dstmask"):
            if values.get(mask, 0) > family.bits:
                raise ValueError(f"a prefix length of at most {family.bits} expected")
            if values.get(mask) == family.bits:
                del values[mask]

    def option_text(self) -> str:
        kind, period = ("upto", self.upto) if self.upto is not None else ("above", self.above or 1)
        unprinted = {"htable_expire": _printed_unit(period, HASHLIMIT_SCALE)[1] * 1000}
        texts = [f"--hashlimit-{kind} {rate_text(period, HASHLIMIT_SCALE)}"]
        for field, write in self.writers():
            value = getattr(self, field)
            if field not in ("upto", "above") and value is not None and value != unprinted.get(field):
                texts.append(write(value))
        return " ".join(filter(None, texts))

    def condition(self) -> Condition:
        """A named table of buckets, which all rules share that name it; `above` asks the opposite of `upto`."""
        within = Open("rate", self.to_save().replace("--hashlimit-above", "--hashlimit-upto"), _WITHIN)
        return within if self.above is None else Not(within)
