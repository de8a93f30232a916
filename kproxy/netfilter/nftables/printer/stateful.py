"""Printing counters, limits and quotas."""

from __future__ import annotations

from typing import Final

from kproxy.netfilter.nftables.constant import write_duration
from kproxy.netfilter.nftables.printer.style import Style
from kproxy.netfilter.nftables.stateful import DEFAULT_BURST, ConnectionLimit, Counter, Last, Limit, Quota, Stateful

_UNITS: Final = ((1 << 20, "mbytes"), (1 << 10, "kbytes"), (1, "bytes"))


def print_bytes(number: int) -> tuple[int, str]:
    """A number of bytes in the largest unit that divides it."""
    for factor, name in _UNITS:
        if number and number % factor == 0:
            return number // factor, name
    return 0, "bytes"


def print_counter_body(counter: Counter, style: Style) -> str:
    """`packets N bytes N`; nothing in a stateless listing."""
    return "" if style.stateless else f"packets {counter.packets} bytes {counter.bytes}"


def print_quota_body(quota: Quota, style: Style) -> str:
    """`[over ]N UNIT[ used N UNIT]`."""
    number, unit = print_bytes(quota.bytes)
    text = f"{'over ' if quota.over else ''}{number} {unit}"
    if quota.used and not style.stateless:
        used, used_unit = print_bytes(quota.used)
        text += f" used {used} {used_unit}"
    return text


def print_limit_body(limit: Limit, style: Style) -> str:
    """`rate [over ]N/TIME[ burst N packets]`."""
    over = "over " if limit.over else ""
    if limit.in_bytes:
        rate, unit = print_bytes(limit.rate)
        text = f"rate {over}{rate} {unit}/{limit.unit}"
        if limit.burst:
            burst, burst_unit = print_bytes(limit.burst)
            text += f" burst {burst} {burst_unit}"
        return text
    text = f"rate {over}{limit.rate}/{limit.unit}"
    shown = limit.burst and (style.newer or limit.burst != DEFAULT_BURST)
    return f"{text} burst {limit.burst} packets" if shown else text


def print_stateful(item: Stateful, style: Style) -> str:
    """A counter, limit or quota as a statement or at an element."""
    match item:
        case Counter():
            return f"counter {print_counter_body(item, style)}".rstrip()
        case Quota():
            return f"quota {print_quota_body(item, style)}"
        case Limit():
            return f"limit {print_limit_body(item, style)}"
        case ConnectionLimit(count, over):
            return f"ct count {'over ' if over else ''}{count}"
        case Last(used):
            return _print_last(used, style)


def _print_last(used: int | None, style: Style) -> str:
    if style.stateless:
        return "last"
    return "last used never" if used is None else f"last used {write_duration(used)}"
