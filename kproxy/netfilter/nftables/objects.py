"""Named objects of a table, which rules and maps refer to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, TypeAlias

from kproxy.netfilter.nftables.constant import atom_reader, read_duration, write_constant, write_duration
from kproxy.netfilter.nftables.cursor import Cursor
from kproxy.netfilter.nftables.datatype import INET_PROTO
from kproxy.netfilter.nftables.grammar import (
    COMMENT,
    DURATION,
    NUMBER,
    AnyOrder,
    Codec,
    Grammar,
    Row,
    one_of,
    quoted,
    read_block,
)
from kproxy.netfilter.nftables.stateful import Counter, Limit, Quota
from kproxy.netfilter.nftables.statement import Synproxy
from kproxy.netfilter.nftables.style import Scope

_PROTOCOL: Final = Codec(
    lambda cursor: cursor.value(atom_reader(INET_PROTO)), lambda value, scope: write_constant(value, INET_PROTO)
)
_L3PROTO: Final = Row("l3proto", "l3proto", one_of("ip, ip6 or inet expected", "ip", "ip6", "inet"))


@dataclass(frozen=True, slots=True)
class CtHelper:
    """`ct helper NAME { type "ftp" protocol tcp; l3proto ip; }`: `protocol` is an IP protocol, `l3proto` ip, ip6 or
    inet."""

    type: str
    protocol: int
    l3proto: str | None = None

    GRAMMAR: ClassVar = Grammar("ct helper", AnyOrder(
        Row("type", "type", quoted("a helper"), then=Row("protocol", "protocol", _PROTOCOL, required=True)), _L3PROTO,
    ))  # fmt: skip


def _read_policy(cursor: Cursor) -> dict[str, int]:
    cursor.expect("=")
    cursor.expect("{")
    policy: dict[str, int] = {}
    while cursor.next_item():
        state = cursor.name("a state")
        if state.endswith(":"):
            state = state[:-1]
        else:
            cursor.expect(":")
        policy[state] = cursor.value(read_duration)
        cursor.end_item()
    return policy


def _policy_text(policy: Mapping[str, int], scope: Scope) -> str:
    times = ((state, write_duration(time) if scope.newer else str(time // 1000)) for state, time in policy.items())
    return "= { " + ", ".join(f"{state} : {time}" for state, time in times) + " }"


@dataclass(frozen=True, slots=True)
class CtTimeout:
    """`ct timeout NAME { protocol tcp; l3proto ip; policy = { established : 2m } }`: `policy` gives milliseconds by the
    connection's state."""

    protocol: int
    l3proto: str | None = None
    policy: Mapping[str, int] = field(default_factory=dict)

    GRAMMAR: ClassVar = Grammar("ct timeout", AnyOrder(
        Row("protocol", "protocol", _PROTOCOL), _L3PROTO, Row("policy", "policy", Codec(_read_policy, _policy_text)),
    ))  # fmt: skip

    def __hash__(self) -> int:
        return hash((self.protocol, self.l3proto, frozenset(self.policy.items())))


@dataclass(frozen=True, slots=True)
class CtExpectation:
    """`ct expectation NAME { protocol tcp; dport 9876; timeout 2m; size 8; l3proto ip; }`; `timeout` in
    milliseconds."""

    protocol: int
    dport: int
    timeout: int
    size: int
    l3proto: str | None = None

    GRAMMAR: ClassVar = Grammar("ct expectation", AnyOrder(
        Row("protocol", "protocol", _PROTOCOL), Row("dport", "dport", NUMBER), Row("timeout", "timeout", DURATION),
        Row("size", "size", NUMBER), _L3PROTO,
    ))  # fmt: skip


@dataclass(frozen=True, slots=True)
class Secmark:
    """`secmark NAME { "system_u:object_r:..." }`."""

    context: str

    GRAMMAR: ClassVar = Grammar(
        "secmark",
        Row("", "context", Codec(lambda cursor: cursor.name("a security context"), lambda value, scope: f'"{value}"')),
    )


ObjectBody: TypeAlias = Counter | Quota | Limit | Synproxy | CtHelper | CtTimeout | CtExpectation | Secmark

OBJECTS: Final[Mapping[str, type[ObjectBody]]] = {
    kind.GRAMMAR.head: kind
    for kind in (Counter, Quota, Limit, Synproxy, Secmark, CtHelper, CtTimeout, CtExpectation)
}  # fmt: skip
"""The kinds of objects, as they are written."""


@dataclass(frozen=True, slots=True)
class NamedObject:
    """An object: `kind` is counter, quota, limit, synproxy, `ct helper`, `ct timeout`, `ct expectation` or secmark."""

    kind: str
    name: str
    body: ObjectBody
    comment: str | None = None
    handle: int | None = field(default=None, compare=False)
    line: int = field(default=0, compare=False)


_ABOUT: Final = AnyOrder(Row("comment", "comment", COMMENT))


def read_object(cursor: Cursor, kind: str, name: str) -> NamedObject:
    """An object: the block behind its name, or what it says on the same line. Raises UnexpectedError."""
    start = cursor.i
    grammar = OBJECTS[kind].GRAMMAR
    rows = grammar.rows[0]
    values: dict[str, Any] = {}
    about: dict[str, Any] = {"line": cursor.line_here()}

    def row(cursor: Cursor) -> bool:
        if isinstance(rows, AnyOrder) and kind.startswith("ct "):
            return rows.read_one(cursor, values)
        grammar.read_rows(cursor, values)
        return True

    if cursor.peek() == "{" or kind.startswith("ct "):
        *words, last = rows.by_word if isinstance(rows, AnyOrder) else ("", "")
        about = read_block(cursor, _ABOUT, f"{', '.join(words)} or {last} expected", row)
    else:
        grammar.read_rows(cursor, values)
    try:
        body = OBJECTS[kind](**values)
    except TypeError:
        cursor.fail(f"all properties of a {kind} expected", start)
    return NamedObject(kind, name, body, **about)
