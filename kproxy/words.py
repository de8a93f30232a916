"""Lists and numbers in sentences."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Final

_EXACT_BITS: Final = 2048
_NEAR: Final = 1 << 256
_NEARER: Final = 1 << _EXACT_BITS + 64


def listed(names: Sequence[object], most: int) -> str:
    """`a, b and 3 more`: at most so many of them, and how many are left."""
    left = len(names) - most
    return ", ".join(map(str, names[:most])) + (f" and {left} more" if left > 0 else "")


def with_arrows(text: str) -> str:
    """Words on packets as people read them, `a → b`. JSON and rules' comments have `a -> b`."""
    return text.replace(" -> ", " → ")


def counted(count: int, noun: str) -> str:
    """A number with its noun, which takes an `s` for any number but one."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def chance_words(chance: Fraction) -> str:
    """A chance for people: exact while that can be read. One match of `-m statistic` has a chance of k / 2^31; several
    one after the other soon have a hundred digits.

    >>> chance_words(Fraction(1, 3)), chance_words(Fraction(1, 7**40))
    ('1/3', 'about 1.570785e-34')
    """
    return str(chance) if chance.denominator <= 1 << 31 else f"about {float(chance):.7g}"


def near(chance: Fraction) -> Fraction:
    """A chance to be added to others. Of one whose sums are told by 256 bits alone (`exact`) as much as these need:
    exact sums take a time that is quadratic in their digits."""
    if chance.denominator.bit_length() > _EXACT_BITS:
        return Fraction(round(chance * _NEARER), _NEARER)
    return chance


def exact(chance: Fraction) -> str:
    """A chance for programs: `1/3`. That of one of hundreds of endpoints in iptables mode, whose digits Python does not
    even print (each rule adds 31 bits), as near as 256 bits say it."""
    if chance.denominator.bit_length() > _EXACT_BITS:
        chance = Fraction(round(chance * _NEAR), _NEAR)
    return f"{chance.numerator}/{chance.denominator}"
