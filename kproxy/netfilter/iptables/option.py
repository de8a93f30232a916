"""How a match or a target reads and writes itself: from one table of options per class.

A class lists its options in the order in which iptables-save prints them. Each option names a field and a codec, and
that one row serves for reading, for writing and for refusing a `!` that iptables refuses, so printer and parser cannot
drift apart. What the rows cannot say (defaults that depend on the family, options that exclude one another) a class
adds in `complete`.

A field holds None (or, for a flag, False) when its option is absent. An option that may be negated with `!` holds its
value in a `Negatable`; a flag that may be negated holds True, False (negated) or None.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import MISSING, dataclass, fields
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, ClassVar, Generic, Self, TypeVar, cast

from kproxy.netfilter.condition import Asks
from kproxy.netfilter.family import Family

T = TypeVar("T")
E = TypeVar("E", bound="Extension")


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


@dataclass(frozen=True, slots=True)
class Option:
    """One row of a class's table.

    `codec` None makes a flag; then `constant` is what the field holds when the flag is given. `omit` is the value that
    is the same as no option, and is not printed. `aliases` are other names that the command line takes. A row with
    `printed` False is input only: another row prints its field. `loose` marks a string that iptables prints without
    quotes even when it holds blanks. `asks` gives, of a match's value, what it asks of a packet (`condition`).

    `listed` is what `iptables -L -n -v` of 1.8.9 prints for the option: `{}` stands for the value, `!` for the `!` of a
    negated one (or a `|` divides the text from a negated one's), `[s]` for an `s` of a range. None is the name without
    its dashes, and the value. A row that is input only says a spelling that the kernel's value gets.
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
    asks: Asks | None = None
    listed: str | None = None

    @property
    def arity(self) -> int:
        """The number of arguments."""
        return 0 if self.codec is None else self.codec.arity

    def read(self, negated: bool, arguments: Sequence[str], family: Family) -> object:
        """The field's value, from whether `!` stood before the option and from its unquoted arguments.

        Raises:
            ValueError: iptables would refuse them.
            UnsupportedError: the class has no field for them.
        """
        if negated and not self.negatable:
            raise ValueError(f"no ! expected before {self.name}")
        if self.codec is None:
            if self.constant is True:
                return not negated
            return Negatable(self.constant, negated) if self.negatable else self.constant
        value = self.codec.parse(arguments, family)
        return Negatable(value, negated) if self.negatable else value

    def writer(self) -> Callable[[Any], str]:
        """A function that gives the option as iptables-save prints it for a value other than None, or an empty string
        if it prints nothing for that value. A function per row, because large dumps print millions of options."""
        name, omit, constant = self.name, self.omit, self.constant
        if self.codec is None:
            if constant is True:
                unset = f"! {name}" if self.negatable else ""
                return lambda value: name if value else unset
            if self.negatable:
                return lambda value: value.sign + name if value.value == constant else ""
            return lambda value: name if value == constant else ""
        text = self.codec.text
        if self.negatable:
            return lambda value: "" if value == omit else f"{value.sign}{name} {text(value.value)}"
        return lambda value: "" if value == omit else f"{name} {text(value)}"


class Extension:
    """What matches and targets have in common: a name, a table of options, and fields.

    `NAMES` are other names that load the same extension. `LISTED` is what `iptables -L` prints before the options.
    Equality and hash are the fields', so two spellings that the kernel stores alike are equal.
    """

    __slots__ = ()

    NAME: ClassVar[str] = ""
    NAMES: ClassVar[tuple[str, ...]] = ()
    OPTIONS: ClassVar[tuple[Option, ...]] = ()
    FLAG: ClassVar[str] = ""
    LISTED: ClassVar[str] = ""
    SOME: ClassVar[tuple[str, ...]] = ()
    """The fields of which at least one must be given; empty: none."""
    EXCLUSIVE: ClassVar[tuple[tuple[str, ...], ...]] = ()
    """Fields of which at most one may be given."""

    PROTOCOLS: ClassVar[frozenset[int]] = frozenset()
    """The protocols of which the rule must name one (`-p`) for the kernel to take it; empty: any."""

    def protocols(self) -> frozenset[int]:
        """`PROTOCOLS`, or those that the given options ask for."""
        return self.PROTOCOLS

    @classmethod
    @cache
    def options(cls) -> dict[str, Option]:
        """The option rows by every name that the command line takes."""
        return {name: row for row in cls.OPTIONS for name in (row.name, *row.aliases)}

    @classmethod
    @cache
    def writers(cls) -> tuple[tuple[str, Callable[[Any], str]], ...]:
        """The fields that are printed, in order, each with its row's writer."""
        known = {item.name for item in fields(cast(Any, cls))}
        return tuple((row.field, row.writer()) for row in cls.OPTIONS if row.printed and row.field in known)

    @classmethod
    @cache
    def required(cls) -> frozenset[str]:
        """The fields that have no default."""
        return frozenset(
            item.name for item in fields(cast(Any, cls)) if item.default is MISSING and item.default_factory is MISSING
        )

    @classmethod
    def build(cls, values: dict[str, Any], family: Family) -> Self:
        """Make the value from the fields that options have set (which it may change).

        Raises:
            ValueError: iptables would refuse the options; the message says what was expected.
            UnsupportedError: the options are fine, and this class cannot hold them.
        """
        if cls.SOME and values.keys().isdisjoint(cls.SOME):
            raise ValueError(f"one of these expected: {cls._names(cls.SOME)}")
        for group in cls.EXCLUSIVE:
            given = [field for field in group if field in values]
            if len(given) > 1:
                raise ValueError(f"only one of these expected: {cls._names(given)}")
        for row in cls.OPTIONS:
            if row.omit is not None and values.get(row.field) == row.omit:
                del values[row.field]
        cls.complete(values, family)
        if not cls.required() <= values.keys():
            missing = (row.name for row in cls.OPTIONS if row.field in cls.required() and row.field not in values)
            raise ValueError(f"{next(missing)} expected")
        return cls(**values)

    @classmethod
    def _names(cls, fields: Sequence[str]) -> str:
        return ", ".join(row.name for row in cls.OPTIONS if row.printed and row.field in fields)

    @classmethod
    def complete(cls, values: dict[str, Any], family: Family) -> None:
        """Fill in defaults and check what rows cannot: changes `values`. Raises ValueError or UnsupportedError."""

    def option_text(self) -> str:
        """The options as iptables-save prints them."""
        parts = []
        for field, write in self.writers():
            value = getattr(self, field)
            if value is not None:
                text = write(value)
                if text:
                    parts.append(text)
        return " ".join(parts)

    def to_save(self) -> str:
        """The match or target as iptables-save prints it, from `-m` or `-j` on."""
        options = self.option_text()
        return f"{self.FLAG} {self.NAME} {options}" if options else f"{self.FLAG} {self.NAME}"


def named_classes(base: type[E], package: str) -> tuple[type[E], ...]:
    """The classes with a `NAME` in the modules of a package: a new one needs no other line than its own."""
    paths = import_module(package).__path__
    modules = [import_module(f"{package}.{module.name}") for module in iter_modules(paths)]
    return tuple(
        value
        for module in modules
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, base) and value.NAME and value.__module__ == module.__name__
    )
