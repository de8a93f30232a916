"""Quantities: for which packets a number or name is one of some values."""

from __future__ import annotations

from fractions import Fraction

import pytest

from kproxy.dataplane.symbolic.nftables.marks import changed_bits, linear_bits, read_bits
from kproxy.dataplane.symbolic.nftables.quantity import (
    Bits,
    Constant,
    OpaqueError,
    Small,
    Wide,
    any_of,
    random_chances,
)
from kproxy.dataplane.symbolic.nodes import FALSE, TRUE
from kproxy.dataplane.symbolic.variables import Interfaces, Variables
from kproxy.netfilter import Family
from kproxy.netfilter.nftables.expression import Binary, Ct, Meta
from kproxy.netfilter.nftables.value import InterfacePrefix, Prefix, Range


@pytest.fixture
def variables() -> Variables:
    return Variables(Family.IPV4, Interfaces(["eth0"]), 1)


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


def test_constants() -> None:
    assert Constant(7).among((Range(5, 9),)) == TRUE
    assert Constant(7).among((1, 2)) == FALSE
    assert Constant("eth1").among((InterfacePrefix("eth"),)) == TRUE


def test_addresses_ports_and_masks(variables: Variables) -> None:
    diagrams = variables.diagrams
    dst = Wide(variables, variables.dst, (1 << 32) - 1)
    node = dst.among((Prefix(0x0A000000, 8, 32),))
    assert node == variables.between(variables.dst, 0x0A000000, 0x0AFFFFFF)
    assert diagrams.both(node, dst.among((0x0B000000,))) == FALSE
    masked = Wide(variables, variables.dst, 0xFF)
    assert masked.among((7,)) == any_of(diagrams, [masked.among((7,))])
    assert diagrams.at(masked.among((7,)), dict(variables.values_of(variables.dst, 0xC0000207))) == TRUE
    assert diagrams.at(masked.among((7,)), dict(variables.values_of(variables.dst, 0xC0000208))) == FALSE
    assert masked.among((0x100,)) == FALSE


def test_a_function_of_one_variable(variables: Variables) -> None:
    dscp = Small(variables, variables.tos, tuple(value >> 2 for value in range(256)))
    assert variables.diagrams.at(dscp.among((0x2E,)), {variables.tos: 0xB8}) == TRUE
    assert variables.diagrams.at(dscp.among((0x2E,)), {variables.tos: 0xBC}) == FALSE
    assert dscp.changed(lambda value: value & 1).among((0, 1)) == TRUE


def test_bits(variables: Variables) -> None:
    diagrams = variables.diagrams
    mark = Bits(variables, tuple(diagrams.equals(level, 1) for level in variables.levels["mark"]))
    for number in (0, 1, 5, 0x4000):
        point = dict(variables.values_of(variables.mark, number))
        for first, last in ((0, 0), (1, 5), (5, 0xFFFF), (0x4000, 0x4000)):
            expected = TRUE if first <= number <= last else FALSE
            assert diagrams.at(mark.among((Range(first, last),)), point) == expected
        assert diagrams.at(mark.any_bit(0x4001), point) == (TRUE if number & 0x4001 else FALSE)


def test_marks_are_exclusive_ors_of_bits(variables: Variables) -> None:
    mark, connmark = Meta("mark"), Ct("mark")
    set_bit = linear_bits(variables, Binary("|", mark, 1))
    assert set_bit[31] == frozenset({-1})
    assert set_bit[30] == frozenset({variables.levels["mark"][30]})
    assert linear_bits(variables, Binary("^", mark, connmark))[0] == {variables.mark, variables.connmark}
    assert linear_bits(variables, Binary("<<", Binary("&", mark, 1), 31))[0] == {variables.levels["mark"][31]}
    with pytest.raises(OpaqueError):
        linear_bits(variables, Binary("&", mark, connmark))
    assert changed_bits(Binary("&", Binary("|", mark, 0x4000), 0xFFFFFFFE), Meta) == 0x4001
    assert changed_bits(connmark, Meta) == 0xFFFFFFFF
    assert read_bits(Binary("&", mark, 0xFF), Meta) == 0xFF
