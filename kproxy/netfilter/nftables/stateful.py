"""What counts and limits: in a rule, at each element of a set, or by itself as a named object of a table.

The kernel's own count (packets seen, bytes used) does not take part in comparisons, since two dumps of one rule set
differ in it; the limits do.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, TypeAlias

from kproxy.netfilter.nftables.constant import read_number, write_duration
from kproxy.netfilter.nftables.cursor import Cursor
from kproxy.netfilter.nftables.grammar import DURATION, NUMBER, Codec, Grammar, Many, Own, Row, literal, reader_of
from kproxy.netfilter.nftables.style import Scope, Style

DEFAULT_BURST: Final = 5
"""The burst of a packet limit that gives none."""

_BYTE_UNITS: Final = {"mbytes": 1 << 20, "kbytes": 1 << 10, "bytes": 1}
_RATE: Final = re.compile(r"([0-9]{1,18})(?: ([mk]?bytes))?/(second|minute|hour|day|week)")


def _read_bytes(cursor: Cursor) -> int:
    number = cursor.number()
    factor = _BYTE_UNITS.get(cursor.peek())
    if factor is None:
        cursor.fail("bytes, kbytes or mbytes expected")
    cursor.i += 1
    return number * factor


def _bytes_text(number: int) -> str:
    """A number of bytes in the largest unit that divides it."""
    name, factor = next(item for item in _BYTE_UNITS.items() if number % item[1] == 0) if number else ("bytes", 1)
    return f"{number // factor} {name}"


_BYTES: Final = Codec(_read_bytes, lambda value, scope: _bytes_text(value))
_OVER: Final = Row("over", "over", omit=False, others=("until",))


@dataclass(frozen=True, slots=True)
class Counter:
    """`counter`: counts packets and bytes, and lets every packet go on."""

    packets: int = field(default=0, compare=False)
    bytes: int = field(default=0, compare=False)

    GRAMMAR: ClassVar = Grammar(
        "counter", Row("packets", "packets", NUMBER, counted=True), Row("bytes", "bytes", NUMBER, counted=True)
    )


def _read_rate(cursor: Cursor, values: dict[str, Any]) -> None:
    """`N/TIME`, `N UNIT/TIME`, and the burst."""
    start, text = cursor.i, cursor.take()
    text += "" if "/" in text else f" {cursor.take()}"
    found = _RATE.fullmatch(text)
    if found is None:
        cursor.fail("a rate by second, minute, hour, day or week, of packets, bytes, kbytes or mbytes expected", start)
    factor = _BYTE_UNITS.get(found[2])
    burst = 0 if factor else DEFAULT_BURST
    if cursor.accept("burst"):
        burst = cursor.number()
        if cursor.peek() in _BYTE_UNITS:
            burst *= _BYTE_UNITS[cursor.take()]
        else:
            cursor.accept("packets")
    rate = cursor.convert(read_number, found[1], start)
    values |= {"rate": rate * (factor or 1), "unit": found[3], "burst": burst, "in_bytes": factor is not None}


def _rate_text(limit: Limit, scope: Scope) -> str:
    rate = _bytes_text(limit.rate) if limit.in_bytes else str(limit.rate)
    burst = _bytes_text(limit.burst) if limit.in_bytes else f"{limit.burst} packets"
    shown = limit.burst and (limit.in_bytes or scope.newer or limit.burst != DEFAULT_BURST)
    return f"{rate}/{limit.unit}" + (f" burst {burst}" if shown else "")


@dataclass(frozen=True, slots=True)
class Limit:
    """`limit rate [over] 10/second [burst 5 packets]`: holds for packets within the rate, with `over` for those above
    it.

    `rate` and `burst` count packets, or bytes when `in_bytes`; `unit` is second, minute, hour, day or week.
    """

    rate: int
    unit: str
    burst: int
    over: bool = False
    in_bytes: bool = False

    GRAMMAR: ClassVar = Grammar("limit", literal("rate"), _OVER, Own(_read_rate, _rate_text))


@dataclass(frozen=True, slots=True)
class Quota:
    """`quota [over] 10 mbytes [used 2 bytes]`: holds until `bytes` have passed, with `over` from then on."""

    bytes: int
    over: bool = False
    used: int = field(default=0, compare=False)

    GRAMMAR: ClassVar = Grammar(
        "quota", _OVER, Row("", "bytes", _BYTES), Row("used", "used", _BYTES, omit=0, counted=True)
    )


@dataclass(frozen=True, slots=True)
class ConnectionLimit:
    """`ct count [over] N`: holds while there are at most `count` connections (of this set element, or of the rule),
    with `over` while there are more."""

    count: int
    over: bool = False

    GRAMMAR: ClassVar = Grammar("ct count", _OVER, Row("", "count", NUMBER))


_AGO: Final = Codec(
    lambda cursor: None if cursor.accept("never") else DURATION.read(cursor),
    lambda value, scope: "never" if value is None else write_duration(value),
)


@dataclass(frozen=True, slots=True)
class Last:
    """`last [used TIME]`: remembers when a packet came by. `used` is milliseconds ago, None for never."""

    used: int | None = field(default=None, compare=False)

    GRAMMAR: ClassVar = Grammar("last", Row("used", "used", _AGO, omit=..., counted=True))


Stateful: TypeAlias = Counter | Limit | Quota | ConnectionLimit | Last
"""A statement that a set element can hold too."""

_READERS: Final = {
    word: reader_of(kind)
    for word, kind in (
        ("counter", Counter), ("limit", Limit), ("quota", Quota), ("ct", ConnectionLimit), ("last", Last),
    )
}  # fmt: skip
_STATELESS: Final = Scope(Style(stateless=True))

STATEFUL: Final = Many("stateful", _READERS, lambda item, scope: item.GRAMMAR.text(item, scope))
"""The row of what an element holds of these."""

STATEFUL_OF_NEW: Final = Many("stateful", _READERS, lambda item, scope: item.GRAMMAR.text(item, _STATELESS))
"""The row of what new elements get, which has no counts."""
