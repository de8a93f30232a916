"""How a match or a target reads and writes itself: from one table of options per class.

A class lists its options in the order in which iptables-save prints them. Each option names a field and a codec, and
that one row serves for reading, for writing and for refusing a `!` that iptables refuses, so printer and parser cannot
drift apart. What the rows cannot say (defaults that depend on the family, options that exclude one another) a class
adds in `complete`.

A field holds None (or, for a flag, False) when its option is absent. An option that may be negated with `!` holds its
value in a `Negatable`; a flag that may be negated holds True, False (negated) or None.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import MISSING, dataclass
from functools import cache
from typing import Any, ClassVar, Generic, NamedTuple, Self, TypeVar, cast

from kproxy.netfilter.family import Family

T = TypeVar("T")


class UnsupportedError(Exception):
    """A known match or target says something that its class has no field for: it has to stay opaque."""


@dataclass(frozen=True, slots=True)
class Negatable(Generic[T]):
    """A value that a rule compares with, or with `!` in front, wants to differ from."""

    value: T
    negated: bool = False

    @property
    def sign(self) -> str:
        """What stands before the option: `! ` or nothing."""
        return "! " if self.negated else ""


@dataclass(frozen=True, slots=True)
class Codec(Generic[T]):
    """Text to value and back. `parse` gets the option's unquoted arguments and raises ValueError with what it expected;
    `text` gives the arguments as iptables-save prints them."""

    parse: Callable[[Sequence[str], Family], T]
    text: Callable[[T], str]
    arity: int = 1


class Given(NamedTuple):
    """One option as it stands in a rule: its name, whether `!` stood before it, and its unquoted arguments."""

    name: str
    negated: bool
    arguments: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Option:
    """One row of a class's table.

    `codec` None makes a flag; then `constant` is what the field holds when the flag is given. `omit` is the value that
    iptables-save does not print. `aliases` are other names that the command line takes. A row with `printed` False is
    input only: another row prints its field. `loose` marks a string that iptables prints without quotes even when it
    holds blanks.
    """

    name: str
    field: str
    codec: Codec[Any] | None = None
    negatable: bool = False
    aliases: tuple[str, ...] = ()
    omit: object = None
    constant: object = True
    printed: bool = True
    loose: bool = False

    @property
    def arity(self) -> int:
        """The number of arguments."""
        return 0 if self.codec is None else self.codec.arity

    def read(self, given: Given, family: Family) -> object:
        """The field's value. Raises ValueError."""
        if given.negated and not self.negatable:
            raise ValueError(f"{given.name} cannot be negated")
        if self.codec is None:
            if self.constant is True:
                return not given.negated
            return Negatable(self.constant, given.negated) if self.negatable else self.constant
        value = self.codec.parse(given.arguments, family)
        return Negatable(value, given.negated) if self.negatable else value

    def write(self, value: Any) -> str:
        """The option as iptables-save prints it, or an empty string if it prints nothing for this value."""
        if value is None or not self.printed or value == self.omit:
            return ""
        if self.codec is None:
            return self._write_flag(value)
        if not self.negatable:
            return f"{self.name} {self.codec.text(value)}"
        return f"{value.sign}{self.name} {self.codec.text(value.value)}"

    def _write_flag(self, value: Any) -> str:
        if self.constant is True:
            return self.name if value else f"! {self.name}" if self.negatable else ""
        if self.negatable:
            return f"{value.sign}{self.name}" if value.value == self.constant else ""
        return self.name if value == self.constant else ""


class Extension:
    """What matches and targets have in common: a name, a table of options, and fields.

    `NAMES` are other names that load the same extension. Equality and hash are the fields', so two spellings that the
    kernel stores alike are equal.
    """

    __slots__ = ()

    NAME: ClassVar[str] = ""
    NAMES: ClassVar[tuple[str, ...]] = ()
    OPTIONS: ClassVar[tuple[Option, ...]] = ()
    FLAG: ClassVar[str] = ""

    @classmethod
    @cache
    def options(cls) -> dict[str, Option]:
        """The option rows by every name that the command line takes."""
        return {name: row for row in cls.OPTIONS for name in (row.name, *row.aliases)}

    @classmethod
    @cache
    def required(cls) -> frozenset[str]:
        """The fields that have no default."""
        return frozenset(
            item.name
            for item in cast(Any, cls).__dataclass_fields__.values()
            if item.default is MISSING and item.default_factory is MISSING
        )

    @classmethod
    def parse(cls, given: Iterable[Given], family: Family) -> Self:
        """Build the value from the options of one match or target.

        Raises:
            ValueError: iptables would refuse the options; the message says what was expected.
            UnsupportedError: the options are fine or unknown, and this class cannot hold them.
        """
        values: dict[str, Any] = {}
        rows = cls.options()
        for item in given:
            row = rows.get(item.name)
            if row is None:
                raise UnsupportedError(f"{cls.NAME} has no option {item.name} here")
            if row.field in values:
                raise ValueError(f"{item.name}: only one of its kind expected")
            values[row.field] = row.read(item, family)
        cls.complete(values, family)
        for row in cls.OPTIONS:
            if row.field in cls.required() and row.field not in values:
                raise ValueError(f"{row.name} expected")
        return cls(**values)

    @classmethod
    def complete(cls, values: dict[str, Any], family: Family) -> None:
        """Fill in defaults and check what rows cannot: changes `values`. Raises ValueError or UnsupportedError."""

    def option_text(self) -> str:
        """The options as iptables-save prints them."""
        return " ".join(filter(None, (row.write(getattr(self, row.field)) for row in self.OPTIONS)))

    def to_save(self) -> str:
        """The match or target as iptables-save prints it, from `-m` or `-j` on."""
        options = self.option_text()
        return f"{self.FLAG} {self.NAME} {options}" if options else f"{self.FLAG} {self.NAME}"

    def to_list(self) -> str:
        """What `iptables -L -n -v` prints for it, without the blank before it; empty if it prints nothing."""
        raise NotImplementedError


def require(values: dict[str, Any], *fields: str) -> None:
    """Refuse options of which none of these fields is set. Raises ValueError."""
    if not any(values.get(name) not in (None, False) for name in fields):
        raise ValueError(f"one of these expected: {', '.join(name.replace('_', '-') for name in fields)}")


def at_most_one(values: dict[str, Any], *fields: str) -> None:
    """Refuse options that exclude one another. Raises ValueError."""
    given = [name.replace("_", "-") for name in fields if values.get(name) not in (None, False)]
    if len(given) > 1:
        raise ValueError(f"only one of these expected: {', '.join(given)}")
