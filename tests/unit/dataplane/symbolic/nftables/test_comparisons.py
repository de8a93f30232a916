"""Random numbers of nftables, and the bits that comparisons read."""

from __future__ import annotations

from fractions import Fraction

import pytest

from kproxy.dataplane.symbolic.nftables.comparisons import random_chances
from kproxy.netfilter.nftables.expression import Binary, Meta
from kproxy.netfilter.nftables.lowering import fields_in


@pytest.mark.parametrize("modulus", [1, 2, 3, 7, 10, 1000])
def test_random_numbers_have_the_shares_that_the_kernel_gives_them(modulus: int) -> None:
    """reciprocal_scale: of all 32-bit numbers x, those with x * N >> 32 equal to a number."""
    chances = random_chances(modulus, 5)
    assert [number for number, _ in chances] == list(range(5, 5 + modulus))
    assert sum(chance for _, chance in chances) == 1
    for number, chance in chances:
        first = -(-(number - 5 << 32) // modulus)
        assert (first * modulus) >> 32 == number - 5
        assert ((first - 1) * modulus) >> 32 == number - 6
        assert chance in (Fraction((1 << 32) // modulus, 1 << 32), Fraction((1 << 32) // modulus + 1, 1 << 32))


def test_a_third_is_not_the_same_for_all() -> None:
    assert [chance * (1 << 32) for _, chance in random_chances(3, 0)] == [1431655766, 1431655765, 1431655765]


def test_bits_that_are_read() -> None:
    assert list(fields_in(Binary("&", Meta("mark"), 0xFF))) == [("mark", 0xFF)]
