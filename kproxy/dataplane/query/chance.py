"""Chances for people: exact while that can be read, rounded otherwise. JSON has them exact always."""

from __future__ import annotations

from fractions import Fraction
from typing import Final

_READABLE: Final = 1 << 31
"""One match of `-m statistic` has a chance of k / 2^31; several one after the other soon have a hundred digits."""


def chance_words(chance: Fraction) -> str:
    """`1/3`, `715827883/2147483648`, or `about 0.1428571`.

    >>> chance_words(Fraction(1, 3)), chance_words(Fraction(1, 7**40))
    ('1/3', 'about 1.570785e-34')
    """
    return str(chance) if chance.denominator <= _READABLE else f"about {float(chance):.7g}"
