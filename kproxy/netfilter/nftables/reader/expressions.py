"""Reading expressions: a dispatch on the first word, then the bitwise operators, concatenation and maps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from kproxy.netfilter.nftables.bitwise import combine
from kproxy.netfilter.nftables.constant import UnknownNameError, atom_reader
from kproxy.netfilter.nftables.datatype import DATATYPES, INET_SERVICE, INTEGER, DataType, Form
from kproxy.netfilter.nftables.expression import (
    AnonymousMap,
    AnonymousSet,
    Concat,
    Expression,
    Jhash,
    MapLookup,
    SetReference,
)
from kproxy.netfilter.nftables.lexer import END
from kproxy.netfilter.nftables.reader.cursor import Cursor, UnexpectedError
from kproxy.netfilter.nftables.reader.elements import read_elements, read_single, read_value
from kproxy.netfilter.nftables.reader.keys import KEYS, LAYERS, read_modulus, read_offset, unknown_name
from kproxy.netfilter.nftables.typeof import type_of, types_of

_OPERATORS: Final = {
    "&": ("&", 3), "and": ("&", 3), "^": ("^", 2), "xor": ("^", 2), "|": ("|", 1), "or": ("|", 1), "<<": ("<<", 4),
    "lshift": ("<<", 4), ">>": (">>", 4), "rshift": (">>", 4),
}  # fmt: skip


def _read_jhash(cursor: Cursor) -> Expression:
    cursor.i += 1
    key = read_expression(cursor)
    modulus = read_modulus(cursor)
    seed = cursor.number() if cursor.accept("seed") else None
    return Jhash(key, modulus, seed, read_offset(cursor))


_READERS: Final[Mapping[str, Callable[[Cursor], Expression]]] = MappingProxyType({**KEYS, "jhash": _read_jhash})
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
    name = cursor.set_reference()
    if name is not None:
        return MapLookup(key, SetReference(name))
    cursor.expect("{")
    types = types_of(key)
    data = tuple(data_types) if data_types else (INTEGER,)
    if len(data) == 1 and data[0].form in (Form.IPV4, Form.IPV6) and _data_is_concatenated(cursor):
        data = (*data, INET_SERVICE)
    return MapLookup(key, AnonymousMap(read_elements(cursor, types, data), types, data))


def _data_is_concatenated(cursor: Cursor) -> bool:
    tokens, index = cursor.tokens, cursor.i
    while tokens[index] not in (":", "}", END):
        index += 1
    return tokens[index] == ":" and tokens[index + 2] == "."


def _read_bitwise(cursor: Cursor, kind: DataType, level: int) -> Expression:
    """Operators that bind tighter than `level`; `kind` is the type of constants."""
    left = _read_primary(cursor, kind)
    while (found := _OPERATORS.get(cursor.peek())) is not None and found[1] > level:
        cursor.i += 1
        operator, binding = found
        if not isinstance(left, (int, str)):
            kind = type_of(left)
        shift = operator in ("<<", ">>")
        right = _read_bitwise(cursor, INTEGER if shift else kind, binding)
        left = combine(operator, left, right, kind.bits)
    return left


def _read_primary(cursor: Cursor, kind: DataType) -> Expression:
    token = cursor.peek()
    if token == "(":
        cursor.i += 1
        inner = _read_bitwise(cursor, kind, 0)
        cursor.expect(")")
        return inner
    reader = _READERS.get(token)
    if reader is not None and (kind is INTEGER or not _is_constant(token, kind)):
        return reader(cursor)
    if kind is INTEGER and not token[:1].isdigit():
        if token[:1].isalpha():
            raise unknown_name(cursor)
        cursor.fail("an expression expected")
    index = cursor.i
    if not token or token in "{},;:.\n":
        cursor.fail("a value expected")
    try:
        number = atom_reader(kind)(token)
    except UnknownNameError:
        raise
    except ValueError as error:
        raise UnexpectedError(str(error), index) from None
    cursor.i += 1
    return number


def _is_constant(token: str, kind: DataType) -> bool:
    try:
        atom_reader(kind)(token)
    except ValueError:
        return False
    return True


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
    if token not in LAYERS:
        name = cursor.set_reference()
        if name is not None:
            return SetReference(name)
    if len(types) > 1:
        return read_value(cursor, types)
    kind = types[0]
    if kind.form is Form.FLAGS:
        return _read_flags(cursor, kind)
    if token in _READERS and not _is_constant(token, kind) and kind.form is not Form.STRING:
        return _read_bitwise(cursor, kind, 0)
    if token == "(":
        return _read_bitwise(cursor, kind, 0)
    value = read_single(cursor, kind)
    if isinstance(value, int) and cursor.peek() in _OPERATORS:
        cursor.fail("a single value expected")
    return value


def _read_flags(cursor: Cursor, kind: DataType) -> int:
    if cursor.peek() == "(":
        number = _read_bitwise(cursor, kind, 0)
        if not isinstance(number, int):
            cursor.fail("a value expected")
        return number
    total = 0
    while True:
        value = read_single(cursor, kind)
        if not isinstance(value, int):
            cursor.fail(f"a value of type {kind.name} expected", cursor.i - 1)
        total |= value
        if not cursor.accept(","):
            return total


def read_argument(cursor: Cursor, kind: DataType, *extra: DataType) -> Expression:
    """A constant of a type, or any expression that yields one: what `set`, `to` and element data take; with `extra`
    types a concatenation. Raises UnexpectedError, UnknownNameError."""
    token = cursor.peek()
    kinds = (kind, *extra)
    if kind.form is Form.STRING and token not in _READERS:
        return read_single(cursor, kind)
    if token == "(" or (token in _READERS and not _is_constant(token, kind)):
        left = read_key(cursor) if token != "(" else _read_bitwise(cursor, kind, 0)
        return read_map(cursor, left, kinds) if cursor.peek() == "map" else left
    if token.startswith("@") and len(token) > 1:
        cursor.fail("a value or an expression expected")
    if kind.form is Form.FLAGS:
        return _read_flags(cursor, kind)
    value: Expression = read_single(cursor, kind)
    while isinstance(value, int) and (found := _OPERATORS.get(cursor.peek())) is not None:
        cursor.i += 1
        value = combine(found[0], value, _read_bitwise(cursor, kind, found[1]), kind.bits)
    return value


ADDRESS_TYPES: Final = {"ip": DATATYPES["ipv4_addr"], "ip6": DATATYPES["ipv6_addr"]}
