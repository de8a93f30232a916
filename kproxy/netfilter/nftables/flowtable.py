"""Flowtables, and what they have in common with base chains: priorities and devices."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from kproxy.netfilter.hooks import PRIORITY_NAMES
from kproxy.netfilter.nftables.constant import read_number
from kproxy.netfilter.nftables.cursor import Cursor
from kproxy.netfilter.nftables.grammar import AnyOrder, Codec, Own, Row, flags_of, one_of, read_block
from kproxy.netfilter.nftables.style import Scope

_PRIORITY: Final = re.compile(r"(?=.)([a-z]*)(?:([-+]?)([0-9][0-9a-fA-FxX]*))?")
_HOOK_NAMES: Final = {"dstnat": ("prerouting",), "srcnat": ("postrouting",)}
_NEWER_HOOK_NAMES: Final = {"dstnat": ("prerouting", "output"), "srcnat": ("postrouting",)}
"""Names of priorities that are printed at some hooks only."""


def read_priority(cursor: Cursor) -> int:
    """`filter`, `dstnat - 10`, `-110`. Raises UnexpectedError."""
    index = cursor.i
    text = cursor.take()
    if cursor.peek() in ("-", "+"):
        text += cursor.take() + cursor.take()
    elif cursor.peek()[:1] in ("-", "+"):
        text += cursor.take()
    found = _PRIORITY.fullmatch(text)
    names = PRIORITY_NAMES[cursor.family]
    if found is None or (found[1] and found[1] not in names):
        cursor.fail("a priority expected", index)
    offset = cursor.convert(read_number, found[3] or "0", index)
    priority = names.get(found[1], 0) + (-offset if found[2] == "-" else offset)
    if not -(1 << 31) <= priority < 1 << 31:
        cursor.fail("a priority expected", index)
    return priority


def priority_text(priority: int, hook: str, family: str, scope: Scope) -> str:
    """A priority by the name that is at most ten away, else as a number."""
    hooks = _NEWER_HOOK_NAMES if scope.newer else _HOOK_NAMES
    for name, number in PRIORITY_NAMES[family].items():
        if hook not in hooks.get(name, (hook,)):
            continue
        offset = priority - number
        if offset == 0:
            return name
        if abs(offset) <= 10:
            return f"{name} {'+' if offset > 0 else '-'} {abs(offset)}"
    return str(priority)


def read_devices(cursor: Cursor, values: dict[str, Any]) -> None:
    """`device "eth0"`, `devices = { eth0, eth1 }`, behind the word."""
    if cursor.tokens[cursor.i - 1] == "device":
        values["devices"] = (cursor.name("an interface"),)
        return
    cursor.expect("=")
    cursor.expect("{")
    found: list[str] = []
    while cursor.next_item():
        found.append(cursor.name("an interface"))
        cursor.end_item()
    values["devices"] = tuple(found)


DEVICES: Final = ("device", "devices")


def _devices_text(flowtable: Flowtable, _scope: Scope) -> str:
    return f"devices = {{ {', '.join(flowtable.devices)} }}" if flowtable.devices else ""


@dataclass(frozen=True, slots=True)
class Flowtable:
    """`flowtable NAME { hook ingress priority 0; devices = { eth0, eth1 }; }`: connections that skip the hooks."""

    name: str
    hook: str | None = None
    priority: int = 0
    devices: tuple[str, ...] = ()
    counter: bool = False
    flags: frozenset[str] = frozenset()
    handle: int | None = field(default=None, compare=False)
    line: int = field(default=0, compare=False)

    ROWS: ClassVar = AnyOrder(
        Row("hook", "hook", one_of("ingress expected", "ingress"), then=Row("priority", "priority", Codec(
            read_priority, lambda value, scope: priority_text(value, "", "netdev", Scope())
        ), required=True)),
        Own(read_devices, _devices_text, DEVICES),
        Row("flags", "flags", flags_of("offload"), omit=frozenset()),
        Row("counter", "counter", omit=False),
    )  # fmt: skip
    """The lines of its block."""


def read_flowtable(cursor: Cursor, name: str) -> Flowtable:
    """The block of a flowtable. Raises UnexpectedError."""
    return Flowtable(name, **read_block(cursor, Flowtable.ROWS, "a property of a flowtable expected"))
