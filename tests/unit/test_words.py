"""Numbers for programs."""

from __future__ import annotations

from fractions import Fraction

from kproxy.explorer.model.chances import chances
from kproxy.words import exact


def test_a_chance_is_exact_as_long_as_its_digits_can_be_printed() -> None:
    assert exact(Fraction(1, 3)) == "1/3"
    assert exact(Fraction(715827883, 2**31)) == "715827883/2147483648"
    found = [Fraction(exact(each)) for each in chances(600, "iptables")]
    assert abs(sum(found, Fraction(-1))) < Fraction(1, 2**240)
    assert max(len(exact(each)) for each in chances(600, "iptables")) < 2 * 620
