"""Reading elements: constants, anonymous sets and maps, the elements of named ones, and element statements.

Large sets are read by columns: when the tokens between the braces repeat with a fixed stride, each part of the key is
one slice, read by the reader of its type. Everything else goes element by element.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Final, cast

from kproxy.netfilter.nftables.constant import (
    UnknownNameError,
    atom_reader,
    constant_reader,
    read_duration,
    read_number,
    read_range,
    unquote,
)
from kproxy.netfilter.nftables.datatype import DataType, Form
from kproxy.netfilter.nftables.element import Data, Element, Elements
from kproxy.netfilter.nftables.reader.cursor import STOPS, Cursor, UnexpectedError
from kproxy.netfilter.nftables.reader.stateful import STATEFUL
from kproxy.netfilter.nftables.stateful import Stateful
from kproxy.netfilter.nftables.value import CATCH_ALL, CatchAll, Prefix, Range, Single, Value, Verdict

PLAIN_VERDICTS: Final = frozenset({"accept", "drop", "continue", "return"})
CHAIN_VERDICTS: Final = frozenset({"jump", "goto"})
_PUNCTUATION: Final = frozenset("{}(),;=!<>&|^[]") | STOPS | {"==", "!=", "<=", ">=", "<<", ">>", ":", "."}
_AFTER_VALUES: Final = frozenset({",", ":", ".", "}"})
_FAST_FROM: Final = 12


@lru_cache(maxsize=200_000)
def verdict_of(kind: str, chain: str) -> Verdict:
    """One value for a verdict that occurs often."""
    return Verdict(kind, chain)


_PLAIN: Final = {kind: Verdict(kind) for kind in PLAIN_VERDICTS}


def read_verdict(cursor: Cursor) -> Verdict:
    """A verdict. Raises UnexpectedError."""
    token = cursor.peek()
    if token in CHAIN_VERDICTS:
        cursor.i += 1
        return verdict_of(token, cursor.name("a chain"))
    if token not in PLAIN_VERDICTS:
        cursor.fail("a verdict expected")
    cursor.i += 1
    return _PLAIN[token]


def read_single(cursor: Cursor, kind: DataType) -> Single:
    """One constant of a type, without concatenation. Raises UnexpectedError, UnknownNameError."""
    index = cursor.i
    token = cursor.tokens[index]
    if token in _PUNCTUATION:
        if token == "(":
            return _read_parenthesis(cursor, kind)
        if kind.form is Form.TIME and token in _AFTER_VALUES:
            return 0  # of which nft 1.0.6 prints nothing
        cursor.fail(f"a value of type {kind.name} expected")
    cursor.i += 1
    following = cursor.tokens[cursor.i]
    if following in ("|", "-", "/") or (following == "or" and kind.form is not Form.STRING):
        return _read_joined(cursor, kind, token, following)
    try:
        return constant_reader(kind)(token)
    except UnknownNameError:
        if not _split_colon(cursor, index):
            raise
    except ValueError as error:
        if not _split_colon(cursor, index):
            raise UnexpectedError(str(error), index) from None
    return read_single(cursor, kind)


def _split_colon(cursor: Cursor, index: int) -> bool:
    """Divide a word such as `22:accept` in two and stand before it again."""
    token = cursor.tokens[index]
    head, colon, tail = token.partition(":")
    if not colon or not head or token[0] == '"':
        return False
    positions = cursor.source.positions
    found = list(range(len(cursor.tokens))) if positions is None else list(positions)
    parts = [head, ":", tail] if tail else [head, ":"]
    cursor.source.positions = found[:index] + [found[index]] * len(parts) + found[index + 1 :]
    cursor.tokens[index : index + 1] = parts
    cursor.i = index
    return True


def _read_parenthesis(cursor: Cursor, kind: DataType) -> Single:
    cursor.expect("(")
    value = read_single(cursor, kind)
    cursor.expect(")")
    return value


def _read_joined(cursor: Cursor, kind: DataType, token: str, joint: str) -> Single:
    """`syn | ack`, `10 - 20`, `10.0.0.0 / 8`: a constant in several tokens, of which the first has been taken."""
    index = cursor.i - 1
    try:
        if joint in ("|", "or"):
            number = atom_reader(kind)(token)
            while cursor.peek() in ("|", "or"):
                cursor.i += 1
                number |= atom_reader(kind)(cursor.take())
            return number
        if joint == "/" and kind.form is Form.FLAGS:
            return atom_reader(kind)(token)
        cursor.i += 1
        if joint == "/":
            return constant_reader(kind)(f"{token}/{cursor.take()}")
        return read_range(token, cursor.take(), kind)
    except UnknownNameError:
        raise
    except ValueError as error:
        raise UnexpectedError(str(error), index) from None


def read_value(cursor: Cursor, types: Sequence[DataType]) -> Value:
    """A constant, a tuple when it is a concatenation. Raises UnexpectedError, UnknownNameError."""
    if len(types) == 1:
        return read_single(cursor, types[0])
    parts = [read_single(cursor, types[0])]
    for kind in types[1:]:
        if not cursor.accept("."):
            cursor.fail(f". and a value of type {kind.name} expected")
        parts.append(read_single(cursor, kind))
    return tuple(parts)


def read_elements(
    cursor: Cursor, types: Sequence[DataType], data_types: Sequence[DataType] = (), *, objects: bool = False
) -> Elements:
    """The elements up to the closing brace, which is taken; the opening one has been.

    `data_types` are those of a map's data; `objects` says that the data are objects' names.

    Raises:
        UnexpectedError: something else stands there.
        UnknownNameError: a constant has a name that kproxy does not know.
    """
    found = _read_columns(cursor, types, data_types)
    if found is not None:
        return found
    elements: list[Element] = []
    while True:
        cursor.skip_lines()
        if (elements or types[0].form is not Form.TIME) and cursor.accept("}"):
            return Elements(elements)
        if cursor.accept("{"):  # a variable that holds a set itself
            elements += read_elements(cursor, types, data_types, objects=objects)
        else:
            elements.append(_read_element(cursor, types, data_types, objects=objects))
        cursor.skip_lines()
        if not cursor.accept(",") and cursor.peek() != "}":
            cursor.fail(", or } expected")


def _read_element(
    cursor: Cursor, types: Sequence[DataType], data_types: Sequence[DataType], *, objects: bool
) -> Element:
    key: Value | CatchAll = CATCH_ALL if cursor.accept("*") else read_value(cursor, types)
    timeout = expires = comment = data = None
    stateful: tuple[Stateful, ...] = ()
    while (token := cursor.peek()) not in (",", "}", ":"):
        if token == "\n":
            cursor.i += 1
        elif token == "comment":
            cursor.i += 1
            comment = cursor.string("a comment")
        elif token == "timeout":
            cursor.i += 1
            timeout = take_duration(cursor)
        elif token == "expires":
            cursor.i += 1
            expires = take_duration(cursor)
        elif token in STATEFUL:
            stateful += (STATEFUL[token](cursor),)
        else:
            cursor.fail(", or } expected")
    if cursor.accept(":"):
        data = _read_data(cursor, data_types, objects=objects)
    elif data_types or objects:
        cursor.fail(": and the data of the map expected")
    return Element(key, data, timeout, expires, comment, stateful)


def _read_data(cursor: Cursor, data_types: Sequence[DataType], *, objects: bool) -> Data:
    cursor.skip_lines()
    if objects:
        return cursor.name("the name of an object")
    if not data_types:
        cursor.fail(", or } expected", cursor.i - 1)
    if data_types[0].form is Form.VERDICT:
        return read_verdict(cursor)
    return read_value(cursor, data_types)


def take_duration(cursor: Cursor) -> int:
    """A duration in milliseconds. Raises UnexpectedError."""
    try:
        duration = read_duration(cursor.peek())
    except ValueError as error:
        cursor.fail(str(error))
    cursor.i += 1
    return duration


def _read_columns(cursor: Cursor, types: Sequence[DataType], data_types: Sequence[DataType]) -> Elements | None:
    """The elements when their tokens repeat with a fixed stride; None, with nothing taken, when they do not."""
    tokens, first = cursor.tokens, cursor.i
    try:
        stop = tokens.index("}", first)
    except ValueError:
        cursor.fail("a closing } expected", len(tokens) - 1)
    if stop - first < _FAST_FROM:
        return None
    body = [token for token in tokens[first:stop] if token != "\n"]
    if body and body[-1] == ",":
        body.pop()
    key_width = 2 * len(types) - 1
    verdicts = bool(data_types) and data_types[0].form is Form.VERDICT
    data_width = (2 if verdicts else 2 * len(data_types) - 1) if data_types else 0
    stride = key_width + data_width + (1 if data_types else 0) + 1
    if (len(body) + 1) % stride or not _columns_fit(body, stride, key_width, data_types, verdicts=verdicts):
        return None
    try:
        keys = _read_parts(body, 0, stride, types)
        data = _read_data_columns(body, key_width + 1, stride, data_types, verdicts=verdicts) if data_types else None
    except ValueError:
        return None  # the way element by element says where
    cursor.i = stop + 1
    return Elements(map(Element, keys) if data is None else map(Element, keys, data))


def _columns_fit(
    body: list[str], stride: int, key_width: int, data_types: Sequence[DataType], *, verdicts: bool
) -> bool:
    def only(offset: int, token: str) -> bool:
        column = body[offset::stride]
        return column.count(token) == len(column)

    dots = [*range(1, key_width, 2)]
    if data_types and not verdicts:
        dots += range(key_width + 2, stride - 1, 2)
    values = set(range(stride - 1)) - set(dots) - ({key_width} if data_types else set())
    return (
        only(stride - 1, ",")
        and all(only(offset, ".") for offset in dots)
        and (not data_types or only(key_width, ":"))
        and (not verdicts or set(body[key_width + 1 :: stride]) <= CHAIN_VERDICTS)
        and all(_PUNCTUATION.isdisjoint(body[offset::stride]) for offset in values)
    )


def _read_parts(body: list[str], first: int, stride: int, types: Sequence[DataType]) -> list[Value]:
    columns = [list(map(constant_reader(kind), body[first + 2 * index :: stride])) for index, kind in enumerate(types)]
    return cast(list[Value], columns[0]) if len(types) == 1 else cast(list[Value], list(zip(*columns, strict=True)))


def _read_data_columns(
    body: list[str], first: int, stride: int, data_types: Sequence[DataType], *, verdicts: bool
) -> Sequence[Data]:
    if verdicts:
        return list(map(verdict_of, body[first::stride], map(unquote, body[first + 1 :: stride])))
    return _read_parts(body, first, stride, data_types)


def take_range(cursor: Cursor, reader: Callable[[str], int] = read_number) -> int | Range | Prefix:
    """A number or a range of numbers, in one word or with blanks around the `-`. Raises UnexpectedError."""
    index = cursor.i
    token = cursor.take()
    if cursor.accept("-"):
        token += "-" + cursor.take()
    first, dash, last = token.partition("-")
    try:
        low = reader(first)
        return Range(low, reader(last)) if dash else low
    except ValueError as error:
        raise UnexpectedError(str(error), index) from None
