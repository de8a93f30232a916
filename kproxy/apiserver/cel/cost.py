"""What an expression may cost at most, by the schema's bounds: an estimate, before any object is there.

Source: cel-go checker/cost.go and k8s.io/apiserver pkg/cel/library/cost.go: a step costs 1, text costs a tenth a byte,
a loop costs what is in it once for each element that the schema allows; without a bound, as many as a request of 3 MiB
can hold. Sizes that the schema cannot tell (of what a function makes, mostly) count as small here, where kube-apiserver
takes them for endless: an expression that is refused here is refused there, not always the other way round.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from kproxy.apiserver.schema.protobuf.decoder import wire_fields
from kproxy.apiserver.schema.types import Node

MAX_REQUEST: Final = 3 * 1024 * 1024
_BYTES_PER_CHARACTER: Final = 4
_TEXT, _REGEX = 0.1, 0.25
_FORMATS: Final = {"date": (12, 12), "date-time": (21, 32), "datetime": (21, 32), "duration": (3, 32)}
"""Bytes of JSON, least and most, of texts that are values of another type."""
_TRAVERSING: Final = frozenset(
    (
        "lowerAscii", "upperAscii", "trim", "substring", "split", "indexOf", "lastIndexOf", "replace", "string",
        "bytes", "url", "isURL", "ip", "isIP", "cidr", "isCIDR", "quantity", "isQuantity", "semver", "isSemver",
    )
)  # fmt: skip
_REDUCING: Final = frozenset(("isSorted", "sum", "min", "max"))
_COMPARING: Final = frozenset(("_==_", "_!=_", "_<_", "_<=_", "_>_", "_>=_"))
_CONST, _IDENT, _SELECT, _CALL, _LIST, _STRUCT, _LOOP = range(3, 10)
"""Fields of cel.expr.Expr."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What is known of a value: elements or bytes at most, its type, the shape of an element."""

    size: int = 1
    node: Node | None = None
    item: Shape | None = None
    text: bool = False

    def element(self) -> Shape:
        """What a list or a map holds."""
        if self.item is not None:
            return self.item
        return shape_of(self.node.item) if self.node is not None and self.node.item is not None else Shape()


_UNKNOWN: Final = Shape()


def least_bytes(node: Node | None) -> int:
    """How long the shortest JSON of a type is."""
    if node is None:
        return 1
    match node.kind:
        case "boolean":
            return 4
        case "string":
            return _FORMATS.get(node.schema.get("format", ""), (2, 0))[0]
        case "list" | "map":
            return 2
        case "object":
            needed = [(name, node.props[name].node) for name in node.required if name in node.props]
            return 2 + sum(len(name) + 4 + least_bytes(child) for name, child in needed)
    return 1


def shape_of(node: Node) -> Shape:
    """The largest value of a type."""
    schema = node.schema or {}
    match node.kind:
        case "list":
            most = schema.get("maxItems")
            fits = (MAX_REQUEST - 2) // (least_bytes(node.item) + 1)
        case "map":
            most = schema.get("maxProperties")
            fits = (MAX_REQUEST - 2) // (least_bytes(node.item) + 6)
        case "string":
            return Shape(_longest(schema), node, None, True)
        case _:
            return Shape(1, node)
    return Shape(fits if most is None else most, node)


def _longest(schema: Mapping[str, Any]) -> int:
    form = schema.get("format", "")
    if form in _FORMATS:
        return _FORMATS[form][1]
    if schema.get("enum"):
        return max(len(str(each)) for each in schema["enum"])
    most = schema.get("maxLength")
    return MAX_REQUEST - 2 if most is None else int(most) * _BYTES_PER_CHARACTER


def estimate(tree: bytes, variables: Mapping[str, Shape]) -> int:
    """The cost of an expression, at most. `tree` is a cel.expr.Expr."""
    return _Estimate(variables).of(tree)[0]


def identifiers(tree: bytes) -> frozenset[str]:
    """The names that an expression uses, those of its own loops among them."""
    found: set[str] = set()
    _collect(tree, found)
    return frozenset(found)


def _collect(tree: bytes, found: set[str]) -> None:
    for number, value in wire_fields(tree):
        if not isinstance(value, bytes):
            continue
        if number == _IDENT:
            found.add(_text(value, 1))
        elif number in (_SELECT, _CALL, _LIST, _STRUCT, _LOOP):
            for inner, part in wire_fields(value):
                if isinstance(part, bytes) and _is_expression(number, inner):
                    _collect(part, found)
                elif number == _STRUCT and inner == 2 and isinstance(part, bytes):
                    for place, entry in wire_fields(part):
                        if place in (3, 4) and isinstance(entry, bytes):
                            _collect(entry, found)


def _is_expression(number: int, inner: int) -> bool:
    """Whether a field of a node of the tree holds another node."""
    return inner in {_SELECT: (1,), _CALL: (1, 3), _LIST: (1,), _LOOP: (2, 4, 5, 6, 7)}.get(number, ())


def _text(data: bytes, wanted: int) -> str:
    return next(
        (value.decode() for number, value in wire_fields(data) if number == wanted and isinstance(value, bytes)), ""
    )


def _times(size: float, factor: float) -> int:
    return math.ceil(round(size * factor, 6))


class _Estimate:
    """One walk over a tree; `of` gives the cost and the shape of an expression."""

    def __init__(self, variables: Mapping[str, Shape]) -> None:
        self._scope = dict(variables)

    def of(self, tree: bytes) -> tuple[int, Shape]:
        for number, value in wire_fields(tree):
            if isinstance(value, bytes) and number in self._BY_FIELD:
                found: tuple[int, Shape] = self._BY_FIELD[number](self, value)
                return found
        return 0, _UNKNOWN

    def _constant(self, data: bytes) -> tuple[int, Shape]:
        for number, value in wire_fields(data):
            if number in (6, 7) and isinstance(value, bytes):
                return 0, Shape(len(value), None, None, True)
        return 0, Shape(0)

    def _identifier(self, data: bytes) -> tuple[int, Shape]:
        return 1, self._scope.get(_text(data, 1), _UNKNOWN)

    def _selection(self, data: bytes) -> tuple[int, Shape]:
        parts = dict(wire_fields(data))
        operand = parts.get(1, b"")
        cost, shape = self.of(operand) if isinstance(operand, bytes) else (0, _UNKNOWN)
        if parts.get(3):
            return max(0, cost - 1), _UNKNOWN  # has()
        name, node = _text(data, 2), shape.node
        if node is not None and node.kind == "map":
            return cost + 1, shape.element()
        prop = next((prop for field, prop in (node.props if node else {}).items() if field == name), None)
        return cost + 1, shape_of(prop.node) if prop is not None else _UNKNOWN

    def _list(self, data: bytes) -> tuple[int, Shape]:
        found = [self.of(value) for number, value in wire_fields(data) if number == 1 and isinstance(value, bytes)]
        return 10 + sum(cost for cost, _ in found), Shape(len(found), None, found[0][1] if found else None)

    def _struct(self, data: bytes) -> tuple[int, Shape]:
        cost = count = 0
        for number, entry in wire_fields(data):
            if number == 2 and isinstance(entry, bytes):
                count += 1
                cost += sum(
                    self.of(part)[0]
                    for place, part in wire_fields(entry)
                    if place in (3, 4) and isinstance(part, bytes)
                )
        return 30 + cost, Shape(count)

    def _loop(self, data: bytes) -> tuple[int, Shape]:
        parts = {number: value for number, value in wire_fields(data) if isinstance(value, bytes)}
        range_cost, over = self.of(parts.get(2, b""))
        start_cost, start = self.of(parts.get(4, b""))
        first, second, result = (parts.get(each, b"").decode() for each in (1, 8, 3))
        is_map = over.node is not None and over.node.kind == "map"
        element = over.element()
        before = dict(self._scope)
        self._scope[result] = Shape(over.size, None, element) if start_cost >= 10 else start
        if second:
            self._scope[first], self._scope[second] = Shape(text=is_map), element
        else:
            self._scope[first] = Shape(MAX_REQUEST - 2 if is_map else 1, text=True) if is_map else element
        each = self.of(parts.get(5, b""))[0] + self.of(parts.get(6, b""))[0]
        end_cost, shape = self.of(parts.get(7, b""))
        self._scope = before
        return range_cost + start_cost + end_cost + over.size * each, shape

    def _call(self, data: bytes) -> tuple[int, Shape]:
        name, given = _text(data, 2), []
        target = next((v for n, v in wire_fields(data) if n == 1 and isinstance(v, bytes)), None)
        if target is not None:
            given.append(self.of(target))
        given += [self.of(value) for number, value in wire_fields(data) if number == 3 and isinstance(value, bytes)]
        if name == "_?_:_" and len(given) == 3:
            larger = max(given[1:], key=lambda each: each[0])
            return given[0][0] + larger[0], larger[1]
        cost, shape = _call_cost(name, [each for _, each in given])
        return sum(each for each, _ in given) + cost, shape

    _BY_FIELD: Final = {
        _CONST: _constant, _IDENT: _identifier, _SELECT: _selection, _CALL: _call, _LIST: _list, _STRUCT: _struct,
        _LOOP: _loop,
    }  # fmt: skip


def _call_cost(name: str, given: list[Shape]) -> tuple[int, Shape]:
    """The cost of a call beside that of its arguments, and what it gives."""
    first = given[0] if given else _UNKNOWN
    second = given[1] if len(given) > 1 else _UNKNOWN
    if name in ("_&&_", "_||_"):
        return 0, _UNKNOWN
    if name in _COMPARING:
        both_text = first.text and second.text
        return (_times(min(first.size, second.size), _TEXT) if both_text or name in ("_==_", "_!=_") else 1), _UNKNOWN
    if name == "_[_]":
        return 1, first.element()
    if name == "_+_" and (first.text or second.text or first.item or first.node):
        size = first.size + second.size
        return _times(size, _TEXT), Shape(size, first.node, first.item, first.text or second.text)
    if name in ("startsWith", "endsWith"):
        return _times(second.size, _TEXT), _UNKNOWN
    if name in ("matches", "find", "findAll"):
        return _times(first.size + 1, _TEXT) * _times(second.size, _REGEX), Shape(first.size, text=True)
    if name == "contains":
        return _times(first.size, _TEXT) * _times(second.size, _TEXT), _UNKNOWN
    if name in ("@in", "_in_"):
        is_map = second.node is not None and second.node.kind == "map"
        return 1 if is_map else second.size, _UNKNOWN
    if name in _REDUCING:
        element = first.element()
        return first.size * max(1, _times(element.size, _TEXT) if element.text else 1), element
    if name == "join":
        return _times(first.size * first.element().size, _TEXT), Shape(first.size * first.element().size, text=True)
    if name in _TRAVERSING and first.text:
        item = Shape(first.size, text=True) if name == "split" else None
        return _times(first.size, _TEXT), Shape(first.size, None, item, True)
    return 1, _UNKNOWN
