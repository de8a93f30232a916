"""Reading flowtables and the named objects of a table: counters, quotas, limits, helpers of connections."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from kproxy.netfilter.nftables.constant import atom_reader
from kproxy.netfilter.nftables.datatype import DATATYPES
from kproxy.netfilter.nftables.objects import (
    CtExpectation,
    CtHelper,
    CtTimeout,
    Flowtable,
    NamedObject,
    ObjectBody,
    Secmark,
)
from kproxy.netfilter.nftables.reader.blocks import (
    block_lines,
    end_line,
    open_block,
    read_devices,
    read_flags,
    read_priority,
)
from kproxy.netfilter.nftables.reader.cursor import Cursor
from kproxy.netfilter.nftables.reader.elements import take_duration
from kproxy.netfilter.nftables.reader.stateful import read_counter_body, read_limit_body, read_quota_body
from kproxy.netfilter.nftables.reader.statements import read_synproxy_body
from kproxy.netfilter.nftables.statement import Synproxy

_L3PROTOS: Final = frozenset({"ip", "ip6", "inet"})
_PROTO: Final = DATATYPES["inet_proto"]


def read_flowtable(cursor: Cursor, name: str) -> Flowtable:
    """The block of a flowtable. Raises UnexpectedError."""
    line = cursor.line_here()
    handle = open_block(cursor)
    hook: str | None = None
    priority, counter = 0, False
    devices: tuple[str, ...] = ()
    flags: frozenset[str] = frozenset()
    while block_lines(cursor):
        token = cursor.peek()
        if token == "hook":
            cursor.i += 1
            hook = cursor.take()
            if hook != "ingress":
                cursor.fail("ingress expected", cursor.i - 1)
            cursor.expect("priority")
            priority = read_priority(cursor)
        elif token in ("device", "devices"):
            devices = read_devices(cursor)
        elif token == "counter":
            cursor.i += 1
            counter = True
        elif token == "flags":
            cursor.i += 1
            flags = read_flags(cursor, frozenset({"offload"}), "a flag")
        else:
            cursor.fail("a property of a flowtable expected")
        end_line(cursor)
    return Flowtable(name, hook, priority, devices, counter, flags, handle, line)


def _read_protocol(cursor: Cursor) -> int:
    token = cursor.peek()
    try:
        number = atom_reader(_PROTO)(token)
    except ValueError as error:
        cursor.fail(str(error))
    cursor.i += 1
    return number


def _read_l3proto(cursor: Cursor) -> str:
    if cursor.peek() not in _L3PROTOS:
        cursor.fail("ip, ip6 or inet expected")
    return cursor.take()


def _read_helper(cursor: Cursor, fields: dict[str, Any]) -> None:
    match cursor.take():
        case "type":
            fields["type"] = cursor.string("a helper")
            cursor.expect("protocol")
            fields["protocol"] = _read_protocol(cursor)
        case "l3proto":
            fields["l3proto"] = _read_l3proto(cursor)
        case _:
            cursor.fail("type or l3proto expected", cursor.i - 1)


def _read_timeout(cursor: Cursor, fields: dict[str, Any]) -> None:
    match cursor.take():
        case "protocol":
            fields["protocol"] = _read_protocol(cursor)
        case "l3proto":
            fields["l3proto"] = _read_l3proto(cursor)
        case "policy":
            cursor.expect("=")
            cursor.expect("{")
            fields["policy"] = _read_policy(cursor)
        case _:
            cursor.fail("protocol, l3proto or policy expected", cursor.i - 1)


def _read_policy(cursor: Cursor) -> dict[str, int]:
    policy: dict[str, int] = {}
    while True:
        cursor.skip_lines()
        if cursor.accept("}"):
            return policy
        state = cursor.name("a state")
        if state.endswith(":"):
            state = state[:-1]
        else:
            cursor.expect(":")
        policy[state] = take_duration(cursor)
        cursor.skip_lines()
        if not cursor.accept(",") and cursor.peek() != "}":
            cursor.fail(", or } expected")


def _read_expectation(cursor: Cursor, fields: dict[str, Any]) -> None:
    match cursor.take():
        case "protocol":
            fields["protocol"] = _read_protocol(cursor)
        case "l3proto":
            fields["l3proto"] = _read_l3proto(cursor)
        case "dport":
            fields["dport"] = cursor.number()
        case "timeout":
            fields["timeout"] = take_duration(cursor)
        case "size":
            fields["size"] = cursor.number()
        case _:
            cursor.fail("protocol, dport, timeout, size or l3proto expected", cursor.i - 1)


_CT_OBJECTS: Final[
    Mapping[
        str, tuple[Callable[[Cursor, dict[str, Any]], None], type[CtHelper] | type[CtTimeout] | type[CtExpectation]]
    ]
] = MappingProxyType(
    {
        "ct helper": (_read_helper, CtHelper),
        "ct timeout": (_read_timeout, CtTimeout),
        "ct expectation": (_read_expectation, CtExpectation),
    }
)


def read_object(cursor: Cursor, kind: str, name: str) -> NamedObject:
    """The block of an object. Raises UnexpectedError."""
    line = cursor.line_here()
    start = cursor.i
    handle = open_block(cursor)
    comment: str | None = None
    body: ObjectBody | None = None
    fields: dict[str, Any] = {}
    while block_lines(cursor):
        if cursor.peek() == "comment":
            cursor.i += 1
            comment = cursor.string("a comment")
        elif kind in _CT_OBJECTS:
            _CT_OBJECTS[kind][0](cursor, fields)
        else:
            body = read_body(cursor, kind, body)
        end_line(cursor)
    if kind in _CT_OBJECTS:
        try:
            body = _CT_OBJECTS[kind][1](**fields)
        except TypeError:
            cursor.fail(f"all properties of a {kind} expected", start)
    if body is None:
        body = read_body(cursor, kind, None)
    return NamedObject(kind, name, body, comment, handle, line)


def read_body(cursor: Cursor, kind: str, before: ObjectBody | None) -> ObjectBody:
    """What an object says, on one line of its block or behind its name. `before` is what an earlier line said."""
    if kind == "synproxy":
        found = read_synproxy_body(cursor)
        if not isinstance(before, Synproxy):
            return found
        mss = before.mss if found.mss is None else found.mss
        wscale = before.wscale if found.wscale is None else found.wscale
        return Synproxy(mss, wscale, found.flags | before.flags)
    return _BODIES[kind](cursor)


_BODIES: Final[Mapping[str, Callable[[Cursor], ObjectBody]]] = MappingProxyType(
    {
        "counter": read_counter_body,
        "quota": read_quota_body,
        "limit": read_limit_body,
        "secmark": lambda cursor: Secmark(cursor.name("a security context")),
    }
)
