"""Numbers for programs."""

from __future__ import annotations

from fractions import Fraction

import pytest

from kproxy.explorer.answers.shares import chances
from kproxy.words import chance_words, exact, near


def test_a_chance_is_exact_as_long_as_its_digits_can_be_printed() -> None:
    assert exact(Fraction(1, 3)) == "1/3"
    assert exact(Fraction(715827883, 2**31)) == "715827883/2147483648"
    found = [Fraction(exact(each)) for each in chances(600, "iptables")]
    assert abs(sum(found, Fraction(-1))) < Fraction(1, 2**240)
    assert max(len(exact(each)) for each in chances(600, "iptables")) < 2 * 620


def test_sums_of_what_is_near_are_told_as_exact_ones_are() -> None:
    """Chances of many endpoints in iptables mode, each rule of which has 31 bits."""
    each = [Fraction(1, 3) * Fraction((1 << 31) - number, 1 << 31) ** number for number in range(1, 200)]
    assert near(each[5]) == each[5]
    assert near(each[-1]) != each[-1]
    for some in (each[:60], each[60:130], each):
        assert exact(sum(map(near, some), Fraction(0))) == exact(sum(some, Fraction(0)))


@pytest.mark.parametrize(
    ("chance", "words"),
    [
        (Fraction(1), "1"),
        (Fraction(1, 3), "1/3"),
        (Fraction(715827883, 1 << 31), "715827883/2147483648"),
        (Fraction(715827883, 1 << 31) ** 2, "about 0.1111111"),
        (Fraction(613566757, 1 << 31) ** 7, "about 0.000155426"),
    ],
)
def test_exact_while_it_can_be_read(chance: Fraction, words: str) -> None:
    assert chance_words(chance).startswith(words)
    assert len(chance_words(chance)) < 30
