"""The values that expressions have: known, partly known, drawn at random, or absent.

A known value is what `netfilter.nftables.value` makes of constants: a number, a string, or a tuple. `Open` stands for a
value that is not known, or only in some of its bits; `Uniform` for a random number that has not been drawn yet;
`MISSING` says that the packet has no such thing, which ends the rule.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from typing import Final, TypeAlias

from kproxy.netfilter.nftables.value import InterfacePrefix, Prefix, Range


class Missing(Enum):
    """The type of `MISSING`."""

    MISSING = "missing"


MISSING: Final = Missing.MISSING


@dataclass(frozen=True, slots=True)
class Open:
    """A value that is not known, apart from the bits of `known`. `field` names the question, so that it has one answer
    for a packet; `why` says what is not known."""

    field: Hashable
    why: str
    value: int = 0
    known: int = 0


@dataclass(frozen=True, slots=True)
class Uniform:
    """A number from `offset` on, one of `modulus`, that the kernel draws: `reciprocal_scale` of 32 random bits, so a
    number k has as many chances in 2^32 as there are x with x * modulus >> 32 == k (nft_numgen)."""

    modulus: int
    offset: int = 0

    def chance(self, first: int, last: int) -> Fraction:
        """The exact chance of a number from `first` to `last`."""
        low = min(max(first - self.offset, 0), self.modulus)
        high = min(max(last - self.offset + 1, 0), self.modulus)
        return Fraction(max(self._below(high) - self._below(low), 0), 1 << 32)

    def _below(self, number: int) -> int:
        """How many of the 2^32 numbers are scaled to one below `number`."""
        return -(-(number << 32) // self.modulus)


@dataclass(frozen=True, slots=True)
class Drawn:
    """One of several values, each with its chance; with chance None it is not known which, and `why` says why."""

    items: tuple[tuple[Value, Fraction | None], ...]
    why: str = ""


Value: TypeAlias = "int | str | Prefix | Range | InterfacePrefix | tuple[Value, ...] | Open | Uniform | Drawn | Missing"
"""What an expression may evaluate to."""


def alternatives(value: Value) -> Drawn:
    """The value as what may be drawn: itself, if there is nothing to draw. A random number is every number that it can
    be, up to MAX_NUMBERS; of more it is not known."""
    if isinstance(value, Drawn):
        return value
    if isinstance(value, Uniform):
        if value.modulus > MAX_NUMBERS:
            return Drawn(((Open(("numgen", value.modulus), "the random number is not known"), Fraction(1)),))
        numbers = range(value.offset, value.offset + value.modulus)
        return Drawn(tuple((number, value.chance(number, number)) for number in numbers))
    return Drawn(((value, Fraction(1)),))


MAX_NUMBERS: Final = 4096
"""Of a random number with more values than this, used in arithmetic, single values are not told apart."""


def is_known(value: Value) -> bool:
    """Whether nothing of the value is open."""
    if isinstance(value, tuple):
        return all(map(is_known, value))
    return not isinstance(value, (Open, Uniform))


def fits(value: Value, constant: object) -> bool | None:
    """Whether a value is (in) the constant; None if an open part decides."""
    if isinstance(value, tuple):
        if not isinstance(constant, tuple) or len(constant) != len(value):
            return False
        unsure = False
        for part, wanted in zip(value, constant, strict=True):
            found = fits(part, wanted)
            if found is False:
                return False
            unsure = unsure or found is None
        return None if unsure else True
    if isinstance(value, Open):
        return _open_fits(value, constant)
    if isinstance(value, Uniform):
        return None
    if isinstance(value, int):
        if isinstance(constant, int):
            return value == constant
        return constant.first <= value <= constant.last if isinstance(constant, (Prefix, Range)) else False
    if isinstance(value, str):
        return constant.contains(value) if isinstance(constant, InterfacePrefix) else value == constant
    return value == constant


def _open_fits(value: Open, constant: object) -> bool | None:
    if isinstance(constant, int):
        return False if (value.value ^ constant) & value.known else None
    if isinstance(constant, Prefix):
        differs = (value.value ^ constant.address) & constant.mask & value.known
        return False if differs else None if constant.mask & ~value.known else True
    return None
