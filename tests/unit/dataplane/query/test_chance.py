"""Chances in words."""

from __future__ import annotations

from fractions import Fraction

import pytest

from kproxy.dataplane.query.chance import chance_words


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
