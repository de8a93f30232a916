"""The order in which nft lists the elements of sets, and the form in which the kernel keeps intervals.

nft sorts what the kernel gives it: single values as numbers, interface names and concatenations as the kernel's bytes
read from the last to the first (so by the last part of the key first). Intervals are sorted by their start;
concatenations with intervals are left in the kernel's order, which is that in which they were added. (Seen with nft
1.0.6 and 1.1.3.)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Final, Literal

from kproxy.netfilter.nftables.datatype import DataType, Form
from kproxy.netfilter.nftables.element import Element, Elements
from kproxy.netfilter.nftables.value import CatchAll, InterfacePrefix, Prefix, Range, Single, Value

_HOST_ORDER: Final = frozenset(
    {
        "mark", "iface_index", "uid", "gid", "realm", "classid", "ct_state", "ct_status", "fib_addrtype", "devgroup",
        "ct_id", "nf_proto", "ct_dir", "iface_type", "pkt_type", "time", "ct_event", "ct_label", "cgroupsv2",
    }
)  # fmt: skip
"""Types that the kernel keeps in the machine's byte order."""

_ADDRESSES: Final = frozenset({Form.IPV4, Form.IPV6})


def listing_order(elements: Elements, types: Sequence[DataType], *, interval: bool) -> Sequence[Element]:
    """The elements in the order in which nft lists them; `interval` says that the set holds intervals."""
    if len(elements) < 2:
        return elements
    if len(types) > 1:
        return elements if interval else _by_bytes(elements, types)
    byteorder: Literal["little", "big"] = "big" if interval else "little"
    return sorted(elements, key=lambda element: _rank(element.key, byteorder))


def _rank(key: Value | CatchAll, byteorder: Literal["little", "big"]) -> tuple[int, int]:
    """Where a key that is no concatenation stands: by its number, or by the bytes of its name as a number."""
    if isinstance(key, int):
        return 0, key
    if isinstance(key, (Prefix, Range)):
        return 0, key.first
    if isinstance(key, InterfacePrefix):
        key = key.prefix
    if not isinstance(key, str):
        return 1, 0
    return 0, int.from_bytes(key.encode("utf-8", "surrogateescape").ljust(16, b"\0"), byteorder)


def _by_bytes(elements: Elements, types: Sequence[DataType]) -> Sequence[Element]:
    """Concatenations: each part is padded to whole registers of four bytes; the number is read from the end."""
    layout: list[tuple[int, Literal["little", "big"]]] = [
        ((kind.bits + 7) // 8 or 4, "little" if kind.name in _HOST_ORDER else "big") for kind in types
    ]

    def key_of(element: Element) -> tuple[int, bytes]:
        key = element.key
        if not isinstance(key, tuple):
            return 1, b""
        parts = []
        for part, (size, byteorder) in zip(key, layout, strict=True):
            if isinstance(part, int):
                data = (part & (1 << 8 * size) - 1).to_bytes(size, byteorder)
            else:
                data = part.encode("utf-8", "surrogateescape")[:size] if isinstance(part, str) else b""
            parts.append(data.ljust(-(-size // 4) * 4, b"\0"))
        return 0, b"".join(parts)[::-1]

    return sorted(elements, key=key_of)


def has_intervals(elements: Iterable[Element]) -> bool:
    """Whether one of the keys stands for more than one value."""
    kinds = (Prefix, Range, InterfacePrefix)
    return any(
        isinstance(element.key, kinds)
        or (isinstance(element.key, tuple) and any(isinstance(part, kinds) for part in element.key))
        for element in elements
    )


def as_interval(first: int, last: int, kind: DataType) -> Single:
    """The numbers from first to last as the kernel's lister shows them: a number, in addresses a prefix, else a
    range."""
    if first == last:
        return first
    size = last - first + 1
    if kind.form in _ADDRESSES and size & (size - 1) == 0 and first % size == 0:
        return Prefix(first, kind.bits - size.bit_length() + 1, kind.bits)
    return Range(first, last)


def merge_intervals(elements: Elements, kind: DataType) -> Elements:
    """Numbers and intervals joined where they touch or overlap, as nft does in anonymous sets and with `auto-merge`.

    Elements with something of their own (a comment, a counter) are taken as they are, and so are sets of names.
    """
    if kind.form is Form.STRING or not has_intervals(elements):
        return elements
    spans: list[tuple[int, int]] = []
    rest: list[Element] = []
    for element in elements:
        key = element.key
        plain = element == Element(key)
        if isinstance(key, int) and plain:
            spans.append((key, key))
        elif isinstance(key, (Prefix, Range)) and plain:
            spans.append((key.first, key.last))
        else:
            rest.append(element)
    spans.sort()
    merged: list[tuple[int, int]] = []
    for first, last in spans:
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(merged[-1][1], last))
        else:
            merged.append((first, last))
    return Elements([*(Element(as_interval(first, last, kind)) for first, last in merged), *rest])


def same_intervals(elements: Elements, types: Sequence[DataType]) -> Elements:
    """Every key in the lister's form, without joining any: a range that is a prefix becomes one."""

    def part(value: Single, kind: DataType) -> Single:
        return as_interval(value.first, value.last, kind) if isinstance(value, (Prefix, Range)) else value

    def key_of(key: Value | CatchAll) -> Value | CatchAll:
        if isinstance(key, tuple):
            return tuple(map(part, key, types))
        return key if isinstance(key, CatchAll) else part(key, types[0])

    if not has_intervals(elements):
        return elements
    return Elements(dataclasses.replace(element, key=key_of(element.key)) for element in elements)
