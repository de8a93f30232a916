"""Expressions as a whole: what joins keys (operators, concatenation, maps), and the values beside them, which their
types give a meaning."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from kproxy.netfilter.nftables.bitwise import combine
from kproxy.netfilter.nftables.constant import atom_reader
from kproxy.netfilter.nftables.cursor import Cursor
from kproxy.netfilter.nftables.datatype import INET_SERVICE, INTEGER, IPV4_ADDR, IPV6_ADDR, DataType, Form
from kproxy.netfilter.nftables.elements import (
    print_elements,
    print_value,
    read_elements,
    read_single,
    read_value,
)
from kproxy.netfilter.nftables.expression import (
    KEY_READERS,
    KEY_TEXTS,
    LAYERS,
    AnonymousMap,
    AnonymousSet,
    Binary,
    Concat,
    Expression,
    Jhash,
    MapLookup,
    Payload,
    RawPayload,
    SetReference,
    type_of,
    types_of,
    unknown_name,
)
from kproxy.netfilter.nftables.lexer import END
from kproxy.netfilter.nftables.style import Scope
from kproxy.netfilter.nftables.value import InterfacePrefix, Prefix, Range

ADDRESS_TYPES: Final = {"ip": IPV4_ADDR, "ip6": IPV6_ADDR}
CONSTANTS: Final = (int, str, Prefix, Range, InterfacePrefix, tuple)
_PRECEDENCE: Final = {"|": 1, "^": 2, "&": 3, "<<": 4, ">>": 4}
_OPERATORS: Final = {word: word for word in _PRECEDENCE} | {
    "and": "&", "xor": "^", "or": "|", "lshift": "<<", "rshift": ">>",
}  # fmt: skip


def _read_jhash(cursor: Cursor) -> Expression:
    cursor.i += 1
    return Jhash(read_expression(cursor), **Jhash.GRAMMAR.read_rows(cursor))


_READERS: Final[Mapping[str, Callable[[Cursor], Expression]]] = MappingProxyType({**KEY_READERS, "jhash": _read_jhash})
"""The readers of expressions by the first word."""


def is_expression(token: str) -> bool:
    """Whether an expression that is no constant starts with this word."""
    return token in _READERS


def read_expression(cursor: Cursor) -> Expression:
    """An expression: several may be joined by `.`, and `map` may follow.

    Raises:
        UnexpectedError: something else stands there.
        UnknownNameError: a name is not known to kproxy.
    """
    left = read_key(cursor)
    return read_map(cursor, left) if cursor.peek() == "map" else left


def read_key(cursor: Cursor) -> Expression:
    """An expression without `map`."""
    left = _read_bitwise(cursor, INTEGER, 0)
    if cursor.peek() != ".":
        return left
    parts = [left]
    while cursor.accept("."):
        parts.append(_read_bitwise(cursor, INTEGER, 0))
    return Concat(tuple(parts))


def read_map(cursor: Cursor, key: Expression, data_types: Sequence[DataType] | None = None) -> Expression:
    """`map @name`, `map { ... }`; `data_types` are what the statement wants. Where it wants an address, the data may
    hold a port as well."""
    cursor.expect("map")
    if (found := read_reference(cursor)) is not None:
        return MapLookup(key, found)
    types = types_of(key)
    data = tuple(data_types) if data_types else (INTEGER,)
    if len(data) == 1 and data[0].form in (Form.IPV4, Form.IPV6) and _data_is_concatenated(cursor):
        data = (*data, INET_SERVICE)
    return MapLookup(key, AnonymousMap(read_elements(cursor, types, data), types, data))


def read_reference(cursor: Cursor) -> SetReference | None:
    """`@NAME`, or else None with the opening brace taken that has to stand here. Raises UnexpectedError."""
    name = cursor.set_reference()
    if name is None:
        cursor.expect("{")
        return None
    return SetReference(name)


def _data_is_concatenated(cursor: Cursor) -> bool:
    tokens, index = cursor.tokens, cursor.i
    while tokens[index] not in (":", "}", END):
        index += 1
    return tokens[index] == ":" and tokens[index + 2] == "."


def _read_bitwise(cursor: Cursor, kind: DataType, level: int) -> Expression:
    """Operators that bind tighter than `level`; `kind` is the type of constants."""
    left = _read_primary(cursor, kind)
    while (operator := _OPERATORS.get(cursor.peek())) is not None and _PRECEDENCE[operator] > level:
        cursor.i += 1
        if not isinstance(left, (int, str)):
            kind = type_of(left)
        shift = operator in ("<<", ">>")
        right = _read_bitwise(cursor, INTEGER if shift else kind, _PRECEDENCE[operator])
        left = combine(operator, left, right, kind.bits)
    return left


def _read_primary(cursor: Cursor, kind: DataType) -> Expression:
    token = cursor.peek()
    if token == "(":
        cursor.i += 1
        inner = _read_bitwise(cursor, kind, 0)
        cursor.expect(")")
        return inner
    if _starts_expression(token, kind):
        return _READERS[token](cursor)
    if kind is INTEGER and not token[:1].isdigit():
        if token[:1].isalpha():
            raise unknown_name(cursor)
        cursor.fail("an expression expected")
    if not token or token in "{},;:.\n":
        cursor.fail("a value expected")
    return cursor.value(atom_reader(kind))


def _starts_expression(token: str, kind: DataType) -> bool:
    """Whether an expression starts with this word, which is no constant of the type."""
    if token not in _READERS or kind is INTEGER:
        return token in _READERS or token == "("
    try:
        atom_reader(kind)(token)
    except ValueError:
        return True
    return False


def read_right(cursor: Cursor, left: Expression) -> Expression:
    """What stands on the right of a comparison: a constant of the left side's type, a set, a list of flags.

    Raises:
        UnexpectedError: something else stands there.
        UnknownNameError: a name is not known to kproxy.
    """
    token = cursor.peek()
    types = types_of(left)
    if token == "{":
        cursor.i += 1
        return AnonymousSet(read_elements(cursor, types), types)
    if token not in LAYERS and (name := cursor.set_reference()) is not None:
        return SetReference(name)
    return read_value(cursor, types) if len(types) > 1 else read_argument(cursor, types[0])


def _read_flags(cursor: Cursor, kind: DataType) -> int:
    number = 0
    while True:
        value = _read_bitwise(cursor, kind, 0) if cursor.peek() == "(" else read_single(cursor, kind)
        if not isinstance(value, int):
            cursor.fail(f"a value of type {kind.name} expected", cursor.i - 1)
        number |= value
        if not cursor.accept(","):
            return number


def read_argument(cursor: Cursor, kind: DataType, *extra: DataType) -> Expression:
    """A constant of a type, or any expression that yields one: what `set`, `to` and element data take; with `extra`
    types a concatenation. Raises UnexpectedError, UnknownNameError."""
    token = cursor.peek()
    if _starts_expression(token, kind):
        left = read_key(cursor) if token != "(" else _read_bitwise(cursor, kind, 0)
        return read_map(cursor, left, (kind, *extra)) if cursor.peek() == "map" else left
    if token.startswith("@") and len(token) > 1:
        cursor.fail("a value or an expression expected")
    if kind.form is Form.FLAGS:
        return _read_flags(cursor, kind)
    value: Expression = read_single(cursor, kind)
    while isinstance(value, int) and (operator := _OPERATORS.get(cursor.peek())) is not None:
        cursor.i += 1
        value = combine(operator, value, _read_bitwise(cursor, kind, _PRECEDENCE[operator]), kind.bits)
    return value


def argument_text(value: Expression, scope: Scope, *kinds: DataType) -> str:
    """A constant of a type, or of several when it is a concatenation, or an expression."""
    return print_value(value, kinds) if isinstance(value, CONSTANTS) else print_expression(value, scope)


def print_operand(value: Expression, beside: Expression, scope: Scope, *, inside: bool = False) -> str:
    """What stands on the right of an operator, a constant of the left side's type or an expression. Beside raw bits
    numbers are hexadecimal; in 1.1.3 also where a header's field is computed with."""
    if not isinstance(value, CONSTANTS):
        return print_expression(value, scope)
    base = beside
    while isinstance(base, Binary):
        base = base.left
    computed = scope.newer and (base is not beside or inside)
    raw = isinstance(base, RawPayload) or (computed and isinstance(base, Payload) and type_of(base).name == "integer")
    if raw and isinstance(value, int):
        return f"0x{value:x}"
    if raw and isinstance(value, Range):
        return f"0x{value.first:x}-0x{value.last:x}"
    return print_value(value, types_of(beside))


def print_map(found: SetReference | AnonymousMap, scope: Scope) -> str:
    """The map of a look-up."""
    if isinstance(found, SetReference):
        return f"@{found.name}"
    return print_elements(found.elements, found.types, found.data_types, scope)


def _print_binary(expression: Binary, scope: Scope) -> str:
    level = _PRECEDENCE[expression.operator]
    left = print_expression(expression.left, scope)
    if isinstance(expression.left, Binary) and _PRECEDENCE[expression.left.operator] < level:
        left = f"({left})"
    right = expression.right
    if isinstance(right, int) and expression.operator in ("<<", ">>"):
        shown = str(right)
    elif isinstance(right, int) and type_of(expression.left).form is Form.FLAGS:
        shown = print_value(right, types_of(expression.left), separator=" | ")
        shown = f"({shown})" if " | " in shown else shown
    else:
        shown = print_operand(right, expression.left, scope, inside=True)
        if isinstance(right, Binary) and _PRECEDENCE[right.operator] <= level:
            shown = f"({shown})"
    return f"{left} {expression.operator} {shown}"


_PRINTERS: Final[Mapping[type, Callable[[Any, Scope], str]]] = MappingProxyType(
    {
        **KEY_TEXTS,
        Jhash: lambda item, scope: f"jhash {print_expression(item.key, scope)} {Jhash.GRAMMAR.rows_text(item, scope)}",
        Binary: _print_binary,
        Concat: lambda item, scope: " . ".join(print_expression(part, scope) for part in item.parts),
        MapLookup: lambda item, scope: f"{print_expression(item.key, scope)} map {print_map(item.map, scope)}",
        SetReference: lambda item, scope: f"@{item.name}",
        AnonymousSet: lambda item, scope: print_elements(item.elements, item.types, (), scope),
        AnonymousMap: print_map,
    }
)


def print_expression(expression: Expression, scope: Scope) -> str:
    """An expression as nft prints it; a constant without a type beside it as a number."""
    printer = _PRINTERS.get(type(expression))
    if printer is None:
        return print_value(expression, (INTEGER,))  # type: ignore[arg-type]
    return printer(expression, scope)
