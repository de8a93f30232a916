"""Where the reader stands in a text, and what it knows there."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final, NoReturn, TypeVar

from kproxy.netfilter.nftables.constant import UnknownNameError, read_number, unquote
from kproxy.netfilter.nftables.datatype import DataType
from kproxy.netfilter.nftables.lexer import END, Source

_NAME: Final = re.compile(r'[^\s{}(),;=!<>&|^"#\[\]@$\\]+')

T = TypeVar("T")

STOPS: Final = frozenset({"\n", ";", "}", END})
"""Tokens that end a statement; so does a comment."""


class UnexpectedError(ValueError):
    """Another token was expected: `index` is the token's."""

    def __init__(self, expected: str, index: int) -> None:
        super().__init__(expected)
        self.expected = expected
        self.index = index


class Cursor:
    """A source's tokens and the place of the next one, `i`. Of the table that is being read, `family` is the family's
    name, and `data_types` gives the data types of a map by name, () for a set and for what is not there."""

    __slots__ = ("counted", "data_types", "family", "i", "joined", "line", "source", "tokens")

    def __init__(self, source: Source) -> None:
        self.source = source
        self.tokens = source.tokens
        self.i = 0
        self.family = "ip"
        self.data_types: Callable[[str], Sequence[DataType]] = lambda name: ()
        self.counted = 0
        self.line = 1
        self.joined = "\\\n" in source.text

    def peek(self) -> str:
        """The next token."""
        return self.tokens[self.i]

    def take(self) -> str:
        """The next token, and go on, but not over the end."""
        token = self.tokens[self.i]
        if token:
            self.i += 1
        return token

    def accept(self, token: str) -> bool:
        """Whether the next token is this one; if so, go on."""
        if self.tokens[self.i] == token:
            self.i += 1
            return True
        return False

    def expect(self, token: str) -> None:
        """Go on over this token. Raises UnexpectedError if it is another."""
        if self.tokens[self.i] != token:
            self.fail(f"{token} expected")
        self.i += 1

    def value(self, reader: Callable[[str], T]) -> T:
        """What a reader makes of the next token, and go on. Raises UnexpectedError, UnknownNameError."""
        self.i += 1
        return self.convert(reader, self.tokens[self.i - 1], self.i - 1)

    def convert(self, reader: Callable[..., T], text: str, index: int) -> T:
        """What a reader makes of a text from the token `index` on. Raises UnexpectedError, UnknownNameError."""
        try:
            return reader(text)
        except UnknownNameError:
            raise
        except ValueError as error:
            raise UnexpectedError(str(error), index) from None

    def fail(self, expected: str, index: int | None = None) -> NoReturn:
        """Raise UnexpectedError at the next token, or at `index`."""
        raise UnexpectedError(expected, self.i if index is None else index)

    def skip_lines(self) -> None:
        """Go on over ends of lines."""
        tokens = self.tokens
        while tokens[self.i] == "\n":
            self.i += 1

    def end_line(self) -> None:
        """The end of a line inside a block. Raises UnexpectedError."""
        token = self.tokens[self.i]
        if token in ("\n", ";"):
            self.i += 1
        elif token != "}":
            self.fail("the end of the line expected")

    def next_line(self) -> bool:
        """Go on to the next line of a block: False when the block has ended, with its brace taken. Raises
        UnexpectedError."""
        while self.tokens[self.i] in ("\n", ";"):
            self.i += 1
        if self.accept("}"):
            return False
        if not self.tokens[self.i]:
            self.fail("a closing } expected")
        return True

    def at_stop(self) -> bool:
        """Whether the statement ends here."""
        token = self.tokens[self.i]
        return token in STOPS or token[0] == "#"

    def rest(self) -> str:
        """The text up to the end of the statement or line; braces inside belong to it. Raises UnexpectedError."""
        start, depth = self.i, 0
        while (token := self.tokens[self.i]) != END and (depth or not self.at_stop()):
            depth += (token == "{") - (token == "}")
            self.i += 1
        if depth:
            self.fail("a closing } expected")
        return self.source.between(start, self.i)

    def line_here(self) -> int:
        """The line of the next token; called in the order of the text, it costs little."""
        if self.joined:
            return self.source.line_of(self.i)
        if self.i > self.counted:
            self.line += self.tokens[self.counted : self.i].count("\n")
            self.counted = self.i
        return self.line

    def name(self, what: str) -> str:
        """A name, in quotes or not, without blanks and punctuation. Raises UnexpectedError."""
        token = self.tokens[self.i]
        name = unquote(token)
        if not _NAME.fullmatch(name):
            self.fail(f"{what} expected")
        self.i += 1
        return name

    def set_reference(self) -> str | None:
        """The name of a set in `@NAME`, if that stands here."""
        token = self.tokens[self.i]
        if token[:1] != "@" or len(token) < 2:
            return None
        self.i += 1
        return token[1:]

    def string(self, what: str) -> str:
        """A string in quotes. Raises UnexpectedError."""
        token = self.tokens[self.i]
        if token[:1] != '"' or len(token) < 2:
            self.fail(f"{what} in quotes expected")
        self.i += 1
        return token[1:-1]

    def number(self, what: str = "a number") -> int:
        """A number. Raises UnexpectedError."""
        try:
            number = read_number(self.tokens[self.i])
        except ValueError:
            self.fail(f"{what} expected")
        self.i += 1
        return number

    def handle(self) -> int | None:
        """The number of a `# handle N` comment, if one stands here."""
        token = self.tokens[self.i]
        if token[:9] != "# handle ":
            return None
        self.i += 1
        return int(token[9:])

    def program(self) -> str | None:
        """The name in a `# progname NAME` comment, if one stands here."""
        token = self.tokens[self.i]
        if token[:11] != "# progname ":
            return None
        self.i += 1
        return token[11:].partition(" #")[0].strip() or None
