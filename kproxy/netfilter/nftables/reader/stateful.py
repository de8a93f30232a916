"""Reading counters, limits and quotas: as statements, at elements, and in the blocks of named objects."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from kproxy.netfilter.nftables.constant import read_duration
from kproxy.netfilter.nftables.reader.cursor import Cursor
from kproxy.netfilter.nftables.stateful import DEFAULT_BURST, ConnectionLimit, Counter, Last, Limit, Quota, Stateful

BYTE_UNITS: Final = MappingProxyType({"bytes": 1, "kbytes": 1 << 10, "mbytes": 1 << 20})
_TIME_UNITS: Final = frozenset({"second", "minute", "hour", "day", "week"})
_RATE: Final = re.compile(r"([0-9]{1,18})/([a-z]+)")
_BYTE_RATE: Final = re.compile(r"([a-z]+)/([a-z]+)")


def read_counter(cursor: Cursor) -> Counter:
    """`counter [packets N bytes N]`."""
    cursor.expect("counter")
    return read_counter_body(cursor)


def read_counter_body(cursor: Cursor) -> Counter:
    """`[packets N bytes N]`."""
    if not cursor.accept("packets"):
        return Counter()
    packets = cursor.number()
    cursor.expect("bytes")
    return Counter(packets, cursor.number())


def read_quota(cursor: Cursor) -> Quota:
    """`quota [over|until] N UNIT [used N UNIT]`."""
    cursor.expect("quota")
    return read_quota_body(cursor)


def read_quota_body(cursor: Cursor) -> Quota:
    """`[over|until] N UNIT [used N UNIT]`."""
    over = cursor.accept("over")
    if not over:
        cursor.accept("until")
    total = _read_bytes(cursor)
    used = _read_bytes(cursor) if cursor.accept("used") else 0
    return Quota(total, over, used)


def _read_bytes(cursor: Cursor) -> int:
    number = cursor.number()
    factor = BYTE_UNITS.get(cursor.peek())
    if factor is None:
        cursor.fail("bytes, kbytes or mbytes expected")
    cursor.i += 1
    return number * factor


def read_limit(cursor: Cursor) -> Limit:
    """`limit rate [over|until] N[ UNIT]/TIME [burst N UNIT]`."""
    cursor.expect("limit")
    return read_limit_body(cursor)


def read_limit_body(cursor: Cursor) -> Limit:
    """`rate [over|until] N[ UNIT]/TIME [burst N UNIT]`."""
    cursor.expect("rate")
    over = cursor.accept("over")
    if not over:
        cursor.accept("until")
    found = _RATE.fullmatch(cursor.peek())
    factor: int | None = None
    if found is not None:
        cursor.i += 1
        rate, unit = int(found[1]), found[2]
    else:
        rate = cursor.number("a rate")
        units = _BYTE_RATE.fullmatch(cursor.peek())
        if units is not None:
            factor = BYTE_UNITS.get(units[1])
            unit = units[2]
            cursor.i += 1
        else:
            cursor.expect("/")
            unit = cursor.take()
        if units is not None and factor is None:
            cursor.fail("bytes, kbytes or mbytes expected", cursor.i - 1)
    if unit not in _TIME_UNITS:
        cursor.fail("a rate by second, minute, hour, day or week expected", cursor.i - 1)
    burst = 0 if factor else DEFAULT_BURST
    if cursor.accept("burst"):
        burst = cursor.number()
        if cursor.peek() in BYTE_UNITS:
            burst *= BYTE_UNITS[cursor.take()]
        else:
            cursor.accept("packets")
    return Limit(rate * (factor or 1), unit, burst, over, factor is not None)


def read_ct_count(cursor: Cursor) -> ConnectionLimit:
    """`ct count [over] N`."""
    cursor.expect("ct")
    cursor.expect("count")
    over = cursor.accept("over")
    if not over:
        cursor.accept("until")
    return ConnectionLimit(cursor.number(), over)


def read_last(cursor: Cursor) -> Last:
    """`last [used never|TIME]`."""
    cursor.expect("last")
    if not cursor.accept("used"):
        return Last()
    if cursor.accept("never"):
        return Last()
    try:
        used = read_duration(cursor.peek())
    except ValueError as error:
        cursor.fail(str(error))
    cursor.i += 1
    return Last(used)


STATEFUL: Final[Mapping[str, Callable[[Cursor], Stateful]]] = MappingProxyType(
    {"counter": read_counter, "limit": read_limit, "quota": read_quota, "ct": read_ct_count, "last": read_last}
)
"""The readers by the word that stands first, for what an element can hold."""
