"""Named objects of a table, which rules and maps refer to, and its flowtables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from kproxy.netfilter.nftables.cursor import Cursor
from kproxy.netfilter.nftables.grammar import COMMENT, AnyOrder, Row, read_block
from kproxy.netfilter.nftables.stateful import Counter, Limit, Quota

_STATEFUL: Final[Mapping[str, type[Counter | Quota | Limit]]] = {"counter": Counter, "quota": Quota, "limit": Limit}

OBJECTS: Final = (
    *_STATEFUL, "synproxy", "secmark", "ct helper", "ct timeout", "ct expectation", "flowtable",
)  # fmt: skip
"""The kinds of objects, as they are written."""


@dataclass(frozen=True, slots=True)
class NamedObject:
    """An object of a kind. `body` is what a counter, quota or limit is; of other kinds, which decide no packet's way,
    the lines of the block as they were written."""

    kind: str
    name: str
    body: Counter | Quota | Limit | tuple[str, ...]
    comment: str | None = None
    handle: int | None = field(default=None, compare=False)
    line: int = field(default=0, compare=False)


_ABOUT: Final = AnyOrder(Row("comment", "comment", COMMENT))


def read_object(cursor: Cursor, kind: str, name: str) -> NamedObject:
    """An object: the block behind its name. Raises UnexpectedError."""
    start = cursor.i
    stateful = _STATEFUL.get(kind)
    values: dict[str, Any] = {}
    lines: list[str] = []

    def row(cursor: Cursor) -> bool:
        if stateful is None:
            lines.append(cursor.rest())
        else:
            stateful.GRAMMAR.read_rows(cursor, values)
        return True

    about = read_block(cursor, _ABOUT, "", row)
    try:
        return NamedObject(kind, name, tuple(lines) if stateful is None else stateful(**values), **about)
    except TypeError:
        cursor.fail(f"all properties of a {kind} expected", start)
