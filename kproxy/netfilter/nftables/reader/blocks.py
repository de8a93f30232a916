"""Reading what stands between braces after a chain, set or map, and what blocks have in common."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

from kproxy.netfilter.hooks import PRIORITY_NAMES
from kproxy.netfilter.nftables.datatype import DATATYPES, VERDICT, DataType
from kproxy.netfilter.nftables.element import NO_ELEMENTS, Elements
from kproxy.netfilter.nftables.expression import Expression
from kproxy.netfilter.nftables.objects import (
    OBJECT_WORDS,
)
from kproxy.netfilter.nftables.reader.cursor import Cursor
from kproxy.netfilter.nftables.reader.elements import read_elements, take_duration
from kproxy.netfilter.nftables.reader.expressions import read_expression
from kproxy.netfilter.nftables.reader.stateful import (
    STATEFUL,
)
from kproxy.netfilter.nftables.reader.statements import read_rule
from kproxy.netfilter.nftables.ruleset import BaseChain, Chain, Rule
from kproxy.netfilter.nftables.sets import Set
from kproxy.netfilter.nftables.stateful import Stateful
from kproxy.netfilter.nftables.typeof import types_of

CHAIN_TYPES: Final = frozenset({"filter", "nat", "route"})
HOOKS: Final = frozenset({"prerouting", "input", "forward", "output", "postrouting", "ingress", "egress"})
SET_FLAGS: Final = frozenset({"constant", "interval", "timeout", "dynamic"})
_OFFSET_PRIORITY: Final = re.compile(r"([a-z]+)([-+])([0-9]+)")


def end_line(cursor: Cursor) -> None:
    """The end of a line inside a block. Raises UnexpectedError."""
    token = cursor.peek()
    if token in ("\n", ";"):
        cursor.i += 1
    elif token != "}":
        cursor.fail("the end of the line expected")


def skip_ends(cursor: Cursor) -> None:
    """Go on over ends of lines and statements."""
    while cursor.peek() in ("\n", ";"):
        cursor.i += 1


def open_block(cursor: Cursor) -> int | None:
    """The opening brace and the handle behind it."""
    cursor.expect("{")
    return cursor.handle()


def block_lines(cursor: Cursor) -> bool:
    """Go on to the next line of a block: False when the block has ended, with its brace taken. Raises
    UnexpectedError."""
    skip_ends(cursor)
    if cursor.accept("}"):
        return False
    if not cursor.peek():
        cursor.fail("a closing } expected")
    return True


def read_flags(cursor: Cursor, known: frozenset[str], what: str) -> frozenset[str]:
    """`flags a,b`, behind the word. Raises UnexpectedError."""
    flags = set()
    while True:
        if cursor.peek() not in known:
            cursor.fail(f"{what} expected ({', '.join(sorted(known))})")
        flags.add(cursor.take())
        if not cursor.accept(","):
            return frozenset(flags)


def read_devices(cursor: Cursor) -> tuple[str, ...]:
    """`device "eth0"`, `devices = { eth0, eth1 }`."""
    if cursor.accept("device"):
        return (cursor.name("an interface"),)
    cursor.expect("devices")
    cursor.expect("=")
    cursor.expect("{")
    found: list[str] = []
    while True:
        cursor.skip_lines()
        if cursor.accept("}"):
            return tuple(found)
        found.append(cursor.name("an interface"))
        cursor.skip_lines()
        if not cursor.accept(",") and cursor.peek() != "}":
            cursor.fail(", or } expected")


def read_priority(cursor: Cursor) -> int:
    """`filter`, `dstnat - 10`, `-110`. Raises UnexpectedError."""
    token = cursor.take()
    found = _OFFSET_PRIORITY.fullmatch(token)
    if found is not None:
        name, sign, offset = found[1], found[2], int(found[3][:12])
    else:
        name, sign, offset = token, "+", 0
    names = PRIORITY_NAMES[cursor.family.value]
    if name not in names:
        try:
            priority = int(token) if len(token) < 12 else None
        except ValueError:
            priority = None
        if priority is None or not -(1 << 31) <= priority < 1 << 31:
            cursor.fail("a priority expected", cursor.i - 1)
        return priority
    if cursor.peek() in ("-", "+"):
        sign, offset = cursor.take(), cursor.number()
    elif re.fullmatch(r"[-+][0-9]{1,10}", cursor.peek()):
        signed = cursor.take()
        sign, offset = signed[0], int(signed[1:])
    return names[name] + (offset if sign == "+" else -offset)


def read_base(cursor: Cursor) -> BaseChain:
    """`type T hook H [device D] priority P`, behind the first word. Raises UnexpectedError."""
    kind = cursor.take()
    if kind not in CHAIN_TYPES:
        cursor.fail("a chain type expected (filter, nat or route)", cursor.i - 1)
    cursor.expect("hook")
    hook = cursor.take()
    if hook not in HOOKS:
        cursor.fail("a hook expected", cursor.i - 1)
    devices: tuple[str, ...] = ()
    if cursor.peek() in ("device", "devices"):
        devices = read_devices(cursor)
    cursor.expect("priority")
    priority = read_priority(cursor)
    return BaseChain(kind, hook, priority, None, devices)


def read_chain(cursor: Cursor, name: str) -> Chain:
    """The block of a chain, with its rules. Raises UnexpectedError."""
    line = cursor.line_here()
    handle = open_block(cursor)
    base: BaseChain | None = None
    policy: str | None = None
    comment: str | None = None
    devices: tuple[str, ...] = ()
    flags: frozenset[str] = frozenset()
    rules: list[Rule] = []
    while block_lines(cursor):
        token = cursor.peek()
        if token == "type":
            cursor.i += 1
            base = read_base(cursor)
        elif token == "policy":
            cursor.i += 1
            if cursor.peek() not in ("accept", "drop"):
                cursor.fail("accept or drop expected")
            policy = cursor.take()
        elif token == "comment":
            cursor.i += 1
            comment = cursor.string("a comment")
        elif token == "flags":
            cursor.i += 1
            flags = read_flags(cursor, frozenset({"offload"}), "a flag")
        elif token in ("device", "devices"):
            devices = read_devices(cursor)
        else:
            rules.append(read_rule(cursor))
        end_line(cursor)
    if base is not None and (policy or devices):
        base = BaseChain(base.type, base.hook, base.priority, policy, devices or base.devices)
    elif policy:
        base = None
    return Chain(name, base, tuple(rules), comment, flags, handle, line)


def _read_type(cursor: Cursor) -> tuple[DataType, ...]:
    types = []
    while True:
        token = cursor.peek()
        kind = DATATYPES.get(token)
        if kind is None:
            cursor.fail("a data type expected")
        cursor.i += 1
        types.append(kind)
        if not cursor.accept("."):
            return tuple(types)


@dataclass(slots=True)
class SetFields:
    """The fields of a set while its block is read."""

    types: tuple[DataType, ...] = ()
    data_types: tuple[DataType, ...] = ()
    object_kind: str | None = None
    key_of: Expression | None = None
    data_of: Expression | None = None
    data_interval: bool = False
    stateful: list[Stateful] = field(default_factory=list)
    elements: Elements = NO_ELEMENTS
    more: dict[str, Any] = field(default_factory=dict)


def read_set(cursor: Cursor, name: str, *, is_map: bool) -> Set:
    """The block of a set or map. Raises UnexpectedError, UnknownNameError."""
    line = cursor.line_here()
    start = cursor.i
    handle = open_block(cursor)
    fields = SetFields()
    while block_lines(cursor):
        token = cursor.peek()
        reader = _SET_LINES.get(token)
        if reader is not None:
            cursor.i += 1
            reader(cursor, fields)
        elif token in STATEFUL:
            fields.stateful.append(STATEFUL[token](cursor))
        else:
            cursor.fail("a property of a set expected")
        end_line(cursor)
    if not fields.types:
        cursor.fail("type or typeof expected", start)
    if is_map != bool(fields.data_types or fields.object_kind):
        cursor.fail(
            "a map with : and the type of its data expected" if is_map else "a set without data expected", start
        )
    return Set(
        name, fields.types, fields.data_types, fields.object_kind, fields.key_of, fields.data_of, fields.data_interval,
        stateful=tuple(fields.stateful), elements=fields.elements, handle=handle, line=line, **fields.more,
    )  # fmt: skip


def _set_type(cursor: Cursor, fields: SetFields) -> None:
    fields.types = _read_type(cursor)
    if cursor.accept(":"):
        fields.data_interval = cursor.accept("interval")
        if cursor.peek() in ("counter", "quota", "limit", "synproxy", "secmark"):
            fields.object_kind = cursor.take()
        elif cursor.peek() == "ct":
            cursor.i += 1
            fields.object_kind = f"ct {cursor.name('helper, timeout or expectation')}"
        else:
            fields.data_types = _read_type(cursor)


def _set_typeof(cursor: Cursor, fields: SetFields) -> None:
    fields.key_of = read_expression(cursor)
    fields.types = types_of(fields.key_of)
    if cursor.accept(":"):
        fields.data_interval = cursor.accept("interval")
        if cursor.accept("verdict"):
            fields.data_types = (VERDICT,)
        elif cursor.peek() in OBJECT_WORDS:
            fields.object_kind = cursor.take()
        elif cursor.peek() in DATATYPES:  # as in the JSON of 1.1.3
            fields.data_types = _read_type(cursor)
        else:
            fields.data_of = read_expression(cursor)
            fields.data_types = types_of(fields.data_of)


def _set_flags(cursor: Cursor, fields: SetFields) -> None:
    fields.more["flags"] = read_flags(cursor, SET_FLAGS, "a flag")


def _set_timeout(cursor: Cursor, fields: SetFields) -> None:
    fields.more["timeout"] = take_duration(cursor)


def _set_gc_interval(cursor: Cursor, fields: SetFields) -> None:
    fields.more["gc_interval"] = take_duration(cursor)


def _set_size(cursor: Cursor, fields: SetFields) -> None:
    fields.more["size"] = cursor.number()


def _set_policy(cursor: Cursor, fields: SetFields) -> None:
    if cursor.peek() not in ("performance", "memory"):
        cursor.fail("performance or memory expected")
    policy = cursor.take()
    fields.more["policy"] = policy if policy == "memory" else None


def _set_auto_merge(cursor: Cursor, fields: SetFields) -> None:
    fields.more["auto_merge"] = True


def _set_comment(cursor: Cursor, fields: SetFields) -> None:
    fields.more["comment"] = cursor.string("a comment")


def _set_elements(cursor: Cursor, fields: SetFields) -> None:
    if not fields.types:
        cursor.fail("the type of the set expected before its elements", cursor.i - 1)
    cursor.expect("=")
    cursor.skip_lines()
    cursor.expect("{")
    fields.elements = read_elements(cursor, fields.types, fields.data_types, objects=fields.object_kind is not None)


_SET_LINES: Final[Mapping[str, Callable[[Cursor, SetFields], None]]] = MappingProxyType(
    {
        "type": _set_type, "typeof": _set_typeof, "flags": _set_flags, "timeout": _set_timeout, "comment": _set_comment,
        "gc-interval": _set_gc_interval, "size": _set_size, "policy": _set_policy, "auto-merge": _set_auto_merge,
        "elements": _set_elements,
    }
)  # fmt: skip
