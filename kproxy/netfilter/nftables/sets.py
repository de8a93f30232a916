"""Named sets and maps."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from kproxy.netfilter.nftables.cursor import Cursor
from kproxy.netfilter.nftables.datatype import DATATYPES, STRING, DataType
from kproxy.netfilter.nftables.element import NO_ELEMENTS, Elements
from kproxy.netfilter.nftables.elements import has_extras, print_element, read_elements
from kproxy.netfilter.nftables.expression import Expression, types_of
from kproxy.netfilter.nftables.grammar import (
    COMMENT,
    DURATION,
    NUMBER,
    AnyOrder,
    Own,
    Row,
    flags_of,
    one_of,
    read_block,
)
from kproxy.netfilter.nftables.operand import print_expression, read_expression
from kproxy.netfilter.nftables.order import has_intervals, listing_order
from kproxy.netfilter.nftables.stateful import STATEFUL_OF_NEW, Stateful
from kproxy.netfilter.nftables.style import Scope

_OF_OBJECTS: Final = frozenset({"counter", "quota", "limit", "synproxy", "secmark"})
_FIVE_A_LINE: Final = frozenset(
    {
        "nf_proto", "integer", "arp_op", "inet_proto", "inet_service", "tcp_flag", "mark",
        "iface_index", "classid", "uid", "gid", "ct_dir",
    }
)  # fmt: skip
_TWO_A_LINE: Final = frozenset({"ipv4_addr", "ct_state", "ct_status", "pkt_type"})
_WRAP: Final = ",\n\t\t\t     "


def _take_types(cursor: Cursor) -> tuple[DataType, ...]:
    types = []
    while True:
        kind = DATATYPES.get(cursor.peek())
        if kind is None:
            cursor.fail("a data type expected")
        cursor.i += 1
        types.append(kind)
        if not cursor.accept("."):
            return tuple(types)


def _read_type(cursor: Cursor, values: dict[str, Any]) -> None:
    """`type T [. T] [: [interval] DATA]`, `typeof EXPRESSION [: [interval] DATA]`, behind the word."""
    by_expression = cursor.tokens[cursor.i - 1] == "typeof"
    if by_expression:
        values["key_of"] = read_expression(cursor)
        values["types"] = types_of(values["key_of"])
    else:
        values["types"] = _take_types(cursor)
    if not cursor.accept(":"):
        return
    values["data_interval"] = cursor.accept("interval")
    token = cursor.peek()
    if token in _OF_OBJECTS or (token == "ct" and not by_expression):
        cursor.i += 1
        values["object_kind"] = f"ct {cursor.name('helper, timeout or expectation')}" if token == "ct" else token
        values["data_types"] = (STRING,)
    elif token in DATATYPES or not by_expression:
        values["data_types"] = _take_types(cursor)
    else:
        values["data_of"] = read_expression(cursor)
        values["data_types"] = types_of(values["data_of"])


def _type_text(item: Set, scope: Scope) -> str:
    def text(expression: Expression | None, types: tuple[DataType, ...]) -> str:
        return " . ".join(map(str, types)) if expression is None else print_expression(expression, scope)

    key = f"{'type' if item.key_of is None else 'typeof'} {text(item.key_of, item.types)}"
    if not item.is_map:
        return key
    return (
        f"{key} : {'interval ' if item.data_interval else ''}{item.object_kind or text(item.data_of, item.data_types)}"
    )


def _read_set_elements(cursor: Cursor, values: dict[str, Any]) -> None:
    if "types" not in values:
        cursor.fail("the type of the set expected before its elements", cursor.i - 1)
    cursor.expect("=")
    cursor.skip_lines()
    cursor.expect("{")
    values["elements"] = read_elements(cursor, values["types"], values.get("data_types", ()))


def _elements_text(item: Set, scope: Scope) -> str:
    if not item.elements:
        return ""
    ordered = listing_order(
        item.elements, item.types, interval="interval" in item.flags or has_intervals(item.elements)
    )
    items = [print_element(element, item.types, item.data_types, scope) for element in ordered]
    width = _elements_a_line(item, scope)
    rows = [", ".join(items[start : start + width]) for start in range(0, len(items), width)]
    return "elements = { " + _WRAP.join(rows) + " }"


def _elements_a_line(item: Set, scope: Scope) -> int:
    if len(item.types) > 1 or (scope.newer and (item.is_map or any(map(has_extras, item.elements)))):
        return 1
    name = item.types[0].name
    return 5 if name in _FIVE_A_LINE else 2 if name in _TWO_A_LINE else 1


_POLICY: Final = one_of("performance or memory expected", "performance", "memory", default="performance")


@dataclass(frozen=True, slots=True)
class Set:
    """A set, or, when it has `data_types`, a map.

    `types` are the data types of the key's parts, more than one for a concatenation, and so `data_types` for a map's
    data (`verdict` in a verdict map). A map of objects names their kind in `object_kind` (`counter`, `quota`, ...) and
    holds their names, strings. Sets declared with `typeof` keep the expressions in `key_of` and `data_of`. `flags` are
    constant, interval, timeout, dynamic. `timeout` (for elements without one of their own) and `gc_interval` are in
    milliseconds; `size` is the most elements, None for the kernel's default; `policy` memory or None. `stateful` is
    what every new element gets. `elements` are in the order of the text, which does not count in comparisons.
    """

    name: str
    types: tuple[DataType, ...]
    data_types: tuple[DataType, ...] = ()
    object_kind: str | None = None
    key_of: Expression | None = None
    data_of: Expression | None = None
    data_interval: bool = False
    flags: frozenset[str] = frozenset()
    timeout: int | None = None
    gc_interval: int | None = None
    size: int | None = None
    policy: str | None = None
    auto_merge: bool = False
    comment: str | None = None
    stateful: tuple[Stateful, ...] = ()
    elements: Elements = NO_ELEMENTS
    handle: int | None = field(default=None, compare=False)
    line: int = field(default=0, compare=False)

    ROWS: ClassVar = AnyOrder(
        Own(_read_type, _type_text, ("type", "typeof")),
        Row("policy", "policy", _POLICY),
        Row("size", "size", NUMBER),
        Row("flags", "flags", flags_of("constant", "interval", "dynamic", "timeout"), omit=frozenset()),
        STATEFUL_OF_NEW,
        Row("timeout", "timeout", DURATION),
        Row("gc-interval", "gc_interval", DURATION),
        Row("auto-merge", "auto_merge", omit=False),
        Row("comment", "comment", COMMENT),
        Own(_read_set_elements, _elements_text, ("elements",)),
    )
    """The lines of its block."""

    @property
    def is_map(self) -> bool:
        """Whether it is a map."""
        return bool(self.data_types)

    @property
    def is_verdict_map(self) -> bool:
        """Whether its data are verdicts."""
        return len(self.data_types) == 1 and self.data_types[0].name == "verdict"


def read_set(cursor: Cursor, name: str, *, is_map: bool) -> Set:
    """The block of a set or map. Raises UnexpectedError, UnknownNameError."""
    start = cursor.i
    values = read_block(cursor, Set.ROWS, "a property of a set expected")
    if "types" not in values:
        cursor.fail("type or typeof expected", start)
    item = Set(name, **values)
    if is_map != item.is_map:
        wanted = "a map with : and the type of its data expected" if is_map else "a set without data expected"
        cursor.fail(wanted, start)
    return item
