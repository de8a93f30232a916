"""How statements, keys and blocks read and print themselves: from one table of rows per class, as options of iptables.

A class has a `Grammar`: the words that stand first, and rows in the order in which nft prints them. A `Row` names a
word, a field and a codec, and this one row serves for reading and for printing, so the two cannot drift apart. Rows
follow one another; those of an `AnyOrder` may come in any order, and as the lines of a block (`read_block`). What no
row can say is `Own`: two small functions. A row reads into the values of fields by name, from which its class is made.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from kproxy.netfilter.nftables.constant import read_duration, write_duration
from kproxy.netfilter.nftables.cursor import Cursor
from kproxy.netfilter.nftables.style import Scope


@dataclass(frozen=True, slots=True)
class Codec:
    """Text to value and back. `read` takes its tokens, or raises UnexpectedError with what it expected; `text` gives
    them as nft prints them."""

    read: Callable[[Cursor], Any]
    text: Callable[[Any, Scope], str] = lambda value, scope: str(value)


class Part(Protocol):
    """What a grammar is made of. `read` puts the values of fields into `values`; `text` gives what nft prints for a
    value of the class, and "" for nothing."""

    def read(self, cursor: Cursor, values: dict[str, Any]) -> None: ...

    def text(self, item: Any, scope: Scope) -> str: ...


@dataclass(frozen=True, slots=True)
class Row:
    """`WORD VALUE`, which may be missing unless it is `required`; with an empty word the value stands alone.

    Without a codec it is a flag: True for its word, False for one of `others`; with a codec these are words that nft
    takes in place of its own. `omit` is the value that nft does not print. `counted` marks what the kernel counts, of
    which a stateless listing says nothing.
    """

    word: str
    field: str
    codec: Codec | None = None
    omit: object = None
    required: bool = False
    counted: bool = False
    merged: bool = False
    others: tuple[str, ...] = ()

    @property
    def words(self) -> tuple[str, ...]:
        """The words that this row starts with."""
        return (self.word, *self.others)

    def read(self, cursor: Cursor, values: dict[str, Any]) -> None:
        """Take the word, if it has to be or is there, and the value. Raises UnexpectedError."""
        if self.word:
            token = cursor.peek()
            if token != self.word and token not in self.others:
                if self.required:
                    cursor.fail(f"{self.word} expected")
                return
            cursor.i += 1
            if self.codec is None:
                values[self.field] = token == self.word
                return
        self.read_value(cursor, values)

    def read_value(self, cursor: Cursor, values: dict[str, Any]) -> None:
        """Take what stands behind the word. Raises UnexpectedError."""
        value = True if self.codec is None else self.codec.read(cursor)
        values[self.field] = values.get(self.field, frozenset()) | value if self.merged else value

    def text(self, item: Any, scope: Scope) -> str:
        """What nft prints for the field."""
        value = getattr(item, self.field)
        if value == self.omit or (self.counted and scope.stateless):
            return ""
        if self.codec is None:
            return self.word if value else ""
        text = self.codec.text(value, scope)
        return f"{self.word} {text}" if self.word else text


@dataclass(frozen=True, slots=True)
class Own:
    """What no row can say. In an `AnyOrder` it stands behind `words`."""

    read: Callable[[Cursor, dict[str, Any]], None]
    text: Callable[[Any, Scope], str] = lambda item, scope: ""
    words: tuple[str, ...] = ()

    def read_value(self, cursor: Cursor, values: dict[str, Any]) -> None:
        """Take what stands behind the word. Raises UnexpectedError."""
        self.read(cursor, values)


def literal(word: str, expected: str = "") -> Own:
    """A word that has to stand here and says nothing."""

    def read(cursor: Cursor, _values: dict[str, Any]) -> None:
        if not cursor.accept(word):
            cursor.fail(expected or f"{word} expected")

    return Own(read, lambda item, scope: word)


class AnyOrder:
    """Rows that may come in any order, up to a word that none of them has. Printed in their own order."""

    __slots__ = ("by_word", "rows")

    def __init__(self, *rows: Row | Own | Many) -> None:
        self.rows = rows
        self.by_word = {word: row for row in rows for word in row.words}

    def read(self, cursor: Cursor, values: dict[str, Any]) -> None:
        """Take rows while there are any. Raises UnexpectedError."""
        while self.read_one(cursor, values):
            pass

    def read_one(self, cursor: Cursor, values: dict[str, Any]) -> bool:
        """Take a row, if one stands here. Raises UnexpectedError."""
        row = self.by_word.get(cursor.peek())
        if row is None:
            return False
        cursor.i += 1
        row.read_value(cursor, values)
        return True

    def parts(self, item: Any, scope: Scope) -> list[str]:
        """What nft prints, a text for each row that has one, and for each value of `Many`."""
        texts = (row.texts(item, scope) if isinstance(row, Many) else [row.text(item, scope)] for row in self.rows)
        return [text for found in texts for text in found if text]

    def text(self, item: Any, scope: Scope) -> str:
        """What nft prints, on one line."""
        return " ".join(self.parts(item, scope))


class Many:
    """A field that holds several values, each with a grammar of its own: `counter`, `limit rate 3/second`. `readers`
    are by the word that stands first."""

    __slots__ = ("field", "readers", "words", "write")

    def __init__(
        self, field: str, readers: Mapping[str, Callable[[Cursor], Any]], write: Callable[[Any, Scope], str]
    ) -> None:
        self.field = field
        self.readers = readers
        self.words = tuple(readers)
        self.write = write

    def read_value(self, cursor: Cursor, values: dict[str, Any]) -> None:
        """Take one more, whose word has been taken. Raises UnexpectedError."""
        cursor.i -= 1
        values[self.field] = (*values.get(self.field, ()), self.readers[cursor.peek()](cursor))

    def texts(self, item: Any, scope: Scope) -> list[str]:
        """What nft prints for each."""
        return [self.write(value, scope) for value in getattr(item, self.field)]


class Grammar:
    """The words that stand first and the rows behind them. `words` are the first words, where the first row reads
    them."""

    __slots__ = ("head", "rows", "words")

    def __init__(self, head: str, *rows: Part, words: tuple[str, ...] = ()) -> None:
        self.head = head
        self.rows = rows
        self.words = words or (head.split()[0],)

    def read(self, cursor: Cursor) -> dict[str, Any]:
        """The values of fields, from the first word on. Raises UnexpectedError."""
        for word in self.head.split():
            cursor.expect(word)
        return self.read_rows(cursor)

    def read_rows(self, cursor: Cursor, values: dict[str, Any] | None = None) -> dict[str, Any]:
        """The values of fields, behind the words that stand first, with those known before. Raises UnexpectedError."""
        values = {} if values is None else values
        for row in self.rows:
            row.read(cursor, values)
        return values

    def rows_text(self, item: Any, scope: Scope) -> str:
        """What nft prints without the first words."""
        return " ".join([text for row in self.rows if (text := row.text(item, scope))])

    def text(self, item: Any, scope: Scope) -> str:
        """What nft prints."""
        text = self.rows_text(item, scope)
        return f"{self.head} {text}" if self.head and text else self.head or text


def read_block(
    cursor: Cursor, rows: AnyOrder, expected: str, other: Callable[[Cursor], bool] = lambda cursor: False
) -> dict[str, Any]:
    """The lines between braces, which are taken, in any order, with the block's `line` and what a comment behind the
    first says of it (`handle`, a table's `owner`). `other` takes a
    line that is no row's, if it can. Raises UnexpectedError."""
    values: dict[str, Any] = {"line": cursor.line_here()}
    cursor.expect("{")
    if (owner := cursor.program()) is not None:
        values["owner"] = owner
    values["handle"] = cursor.handle()
    while cursor.next_line():
        if not rows.read_one(cursor, values) and not other(cursor):
            cursor.fail(expected)
        cursor.end_line()
    return values


def quoted(what: str) -> Codec:
    """A string in quotes."""
    return Codec(lambda cursor: cursor.string(what), lambda value, scope: f'"{value}"')


def named(what: str) -> Codec:
    """A name, in quotes or not; printed without."""
    return Codec(lambda cursor: cursor.name(what))


def one_of(expected: str, *words: str, default: str | None = None) -> Codec:
    """One of these words, None for the `default`, which nft does not print; `expected` says so in an error."""

    def read(cursor: Cursor) -> str | None:
        if cursor.peek() not in words:
            cursor.fail(expected)
        word = cursor.take()
        return None if word == default else word

    return Codec(read)


def reference(what: str) -> Codec:
    """`@NAME`."""

    def read(cursor: Cursor) -> str:
        name = cursor.set_reference()
        if name is None:
            cursor.fail(f"@ and the name of {what} expected")
        return name

    return Codec(read, lambda value, scope: f"@{value}")


def flags_of(*known: str) -> Codec:
    """`a,b`, at least one of these, printed in this order."""

    def read(cursor: Cursor) -> frozenset[str]:
        flags = set()
        while True:
            if cursor.peek() not in known:
                cursor.fail(f"a flag expected ({', '.join(sorted(known))})")
            flags.add(cursor.take())
            if not cursor.accept(","):
                return frozenset(flags)

    return Codec(read, lambda value, scope: ",".join(flag for flag in known if flag in value))


def some_of(*known: str) -> Codec:
    """`a,b`, any of these or none, printed in this order."""
    flags = flags_of(*known)
    return Codec(lambda cursor: flags.read(cursor) if cursor.peek() in known else frozenset(), flags.text)


NUMBER: Final = Codec(lambda cursor: cursor.number())
DURATION: Final = Codec(lambda cursor: cursor.value(read_duration), lambda value, scope: write_duration(value))
COMMENT: Final = quoted("a comment")


def reader_of(kind: type[Any]) -> Callable[[Cursor], Any]:
    """The function that reads a value of a class with a grammar."""
    grammar: Grammar = kind.GRAMMAR
    read = grammar.read
    return lambda cursor: kind(**read(cursor))
