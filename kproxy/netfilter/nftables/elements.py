"""Reading and printing elements: constants, verdicts, anonymous sets and maps, the elements of named ones.

Large sets are read by columns: when the tokens between the braces repeat with a fixed stride, each part of the key is
one slice, read by the reader of its type. Everything else goes element by element.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any, Final

from kproxy.netfilter.nftables.constant import (
    UnknownNameError,
    atom_reader,
    constant_reader,
    read_range,
    unquote,
    write_constant,
)
from kproxy.netfilter.nftables.cursor import STOPS, Cursor, UnexpectedError
from kproxy.netfilter.nftables.datatype import INTEGER, DataType, Form
from kproxy.netfilter.nftables.element import Data, Element, Elements
from kproxy.netfilter.nftables.grammar import COMMENT, DURATION, AnyOrder, Row
from kproxy.netfilter.nftables.order import has_intervals, listing_order
from kproxy.netfilter.nftables.stateful import STATEFUL
from kproxy.netfilter.nftables.style import Scope
from kproxy.netfilter.nftables.value import CATCH_ALL, CatchAll, Prefix, Range, Single, Value, Verdict

PLAIN_VERDICTS: Final = frozenset({"accept", "drop", "continue", "return"})
CHAIN_VERDICTS: Final = frozenset({"jump", "goto"})
_PUNCTUATION: Final = frozenset("{}(),;=!<>&|^[]") | STOPS | {"==", "!=", "<=", ">=", "<<", ">>", ":", "."}
_AFTER_VALUES: Final = frozenset({",", ":", ".", "}"})
_FAST_FROM: Final = 12


_EXTRAS: Final = AnyOrder(
    STATEFUL, Row("timeout", "timeout", DURATION), Row("expires", "expires", DURATION, counted=True),
    Row("comment", "comment", COMMENT),
)  # fmt: skip
"""What may stand at an element."""


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
            cursor.i += 1
            value = read_single(cursor, kind)
            cursor.expect(")")
            return value
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
        raise
    except ValueError as error:
        raise UnexpectedError(str(error), index) from None


def _read_joined(cursor: Cursor, kind: DataType, token: str, joint: str) -> Single:
    """`syn | ack`, `10 - 20`, `10.0.0.0 / 8`: a constant in several tokens, of which the first has been taken."""
    index = cursor.i - 1
    if joint in ("|", "or"):
        number = cursor.convert(atom_reader(kind), token, index)
        while cursor.peek() in ("|", "or"):
            cursor.i += 1
            number |= cursor.convert(atom_reader(kind), cursor.take(), index)
        return number
    if joint == "/" and kind.form is Form.FLAGS:
        return cursor.convert(atom_reader(kind), token, index)
    cursor.i += 1
    last = cursor.take()
    if joint == "/":
        return cursor.convert(constant_reader(kind), f"{token}/{last}", index)
    return cursor.convert(lambda first: read_range(first, last, kind), token, index)


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


def read_elements(cursor: Cursor, types: Sequence[DataType], data_types: Sequence[DataType] = ()) -> Elements:
    """The elements up to the closing brace, which is taken; the opening one has been.

    `data_types` are those of a map's data; the name of an object is a string.

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
        elements.append(_read_element(cursor, types, data_types))
        cursor.skip_lines()
        if not cursor.accept(",") and cursor.peek() != "}":
            cursor.fail(", or } expected")


def _read_element(cursor: Cursor, types: Sequence[DataType], data_types: Sequence[DataType]) -> Element:
    key: Value | CatchAll = CATCH_ALL if cursor.accept("*") else read_value(cursor, types)
    data = None
    more: dict[str, Any] = {}
    while (token := cursor.peek()) not in (",", "}", ":"):
        if token == "\n":
            cursor.i += 1
        elif not _EXTRAS.read_one(cursor, more):
            cursor.fail(", or } expected")
    if cursor.accept(":"):
        data = _read_data(cursor, data_types)
    elif data_types:
        cursor.fail(": and the data of the map expected")
    return Element(key, data, **more)


def _read_data(cursor: Cursor, data_types: Sequence[DataType]) -> Data:
    cursor.skip_lines()
    if not data_types:
        cursor.fail(", or } expected", cursor.i - 1)
    if data_types[0].form is Form.VERDICT:
        return read_verdict(cursor)
    return read_value(cursor, data_types)


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
    if body[-1:] != [","]:
        body.append(",")
    verdicts = bool(data_types) and data_types[0].form is Form.VERDICT
    columns = [*_columns(types), ","]
    if data_types:
        columns[-1:] = [":", *([_chain_verdict, unquote] if verdicts else _columns(data_types)), ","]
    if len(body) % len(columns):
        return None
    words = [body[offset :: len(columns)] for offset in range(len(columns))]
    if any(
        column.count(each) != len(column) if isinstance(each, str) else not _PUNCTUATION.isdisjoint(column)
        for each, column in zip(columns, words, strict=True)
    ):
        return None
    try:
        values = [
            list(map(each, column)) for each, column in zip(columns, words, strict=True) if not isinstance(each, str)
        ]
    except ValueError:
        return None  # the way element by element says where
    cursor.i = stop + 1
    keys, data = values[: len(types)], values[len(types) :]
    if not data_types:
        return Elements(map(Element, _joined(keys)))
    return Elements(map(Element, _joined(keys), map(verdict_of, *data) if verdicts else _joined(data)))


def _columns(types: Sequence[DataType]) -> list[str | Callable[[str], Any]]:
    """What stands in each column of a value: a reader, or a word."""
    columns: list[str | Callable[[str], Any]] = []
    for kind in types:
        columns += [constant_reader(kind), "."]
    return columns[:-1]


def _chain_verdict(word: str) -> str:
    if word not in CHAIN_VERDICTS:
        raise ValueError
    return word


def _joined(columns: list[list[Any]]) -> Iterable[Any]:
    return columns[0] if len(columns) == 1 else zip(*columns, strict=True)


def print_verdict(verdict: Verdict) -> str:
    """A verdict."""
    return verdict.kind if verdict.chain is None else f"{verdict.kind} {verdict.chain}"


def print_value(value: Value, types: Sequence[DataType], *, separator: str = ",") -> str:
    """A constant; the parts of a concatenation have a type each."""
    if isinstance(value, tuple):
        kinds = types if len(types) == len(value) else [INTEGER] * len(value)
        return " . ".join(
            write_constant(part, kind, separator=separator) for part, kind in zip(value, kinds, strict=True)
        )
    return write_constant(value, types[0] if types else INTEGER, separator=separator)


def has_extras(element: Element) -> bool:
    """Whether something stands at an element besides its data."""
    return bool(element.stateful) or (element.timeout, element.expires, element.comment) != (None, None, None)


def print_element(element: Element, types: Sequence[DataType], data_types: Sequence[DataType], scope: Scope) -> str:
    """An element of a set or map."""
    key, data = element.key, element.data
    if not scope.newer and isinstance(key, Range) and types[0].name == "mark":
        key = _mark_prefix(key)
    text = "*" if key is CATCH_ALL else print_value(key, types, separator=" | ")
    if has_extras(element) and (extras := _EXTRAS.text(element, scope)):
        text += f" {extras}"
    if data is None:
        return text
    if isinstance(data, Verdict):
        return f"{text} : {print_verdict(data)}"
    return f"{text} : {print_value(data, data_types, separator=' | ')}"


def _mark_prefix(key: Range) -> Range | Prefix:
    """A range of marks as 1.0.6 prints it: as a prefix if it is one."""
    size = key.last - key.first + 1
    if size & (size - 1) or key.first % size:
        return key
    return Prefix(key.first, 33 - size.bit_length(), 32)


def print_elements(elements: Elements, types: Sequence[DataType], data_types: Sequence[DataType], scope: Scope) -> str:
    """An anonymous set or map, in braces."""
    ordered = listing_order(elements, types, interval=has_intervals(elements))
    return "{ " + ", ".join(print_element(item, types, data_types, scope) for item in ordered) + " }"
