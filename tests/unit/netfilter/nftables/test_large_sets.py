"""Sets of 100,000 elements are read in about a second, whatever they hold: the work for each element is bounded, and
does not grow with their number."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from types import FrameType

import pytest

from kproxy.netfilter.nftables.ruleset import NftRuleset
from kproxy.netfilter.nftables.text import parse_nft


def addresses(count: int) -> list[str]:
    return [f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}" for number in range(count)]


def listing(head: str, elements: Sequence[str], joint: str = ", ") -> str:
    return f"table ip t {{\n chain x {{ }}\n {head}\n elements = {{ {joint.join(elements)} }}\n }}\n}}\n"


def script(count: int) -> str:
    head = "add table ip t\nadd set ip t s { type ipv4_addr ; }\n"
    return head + "".join(f"add element ip t s {{ {address} }}\n" for address in addresses(count))


WRITINGS: dict[str, Callable[[int], str]] = {
    "addresses": lambda count: listing("set s { type ipv4_addr", addresses(count)),
    "a line each": lambda count: listing("set s { type ipv4_addr", addresses(count), ",\n\t\t\t     "),
    "timeouts and comments": lambda count: listing(
        "set s { type ipv4_addr; flags timeout",
        [f'{each} timeout 1d expires 5h3m comment "{each}"' for each in addresses(count)],
    ),
    "prefixes and ranges": lambda count: listing(
        "set s { type ipv4_addr; flags interval",
        [f"{each}-{each}" if each[-1] in "13579" else f"{each}/32" for each in addresses(count)],
    ),
    "verdicts": lambda count: listing(
        "map s { type ipv4_addr . inet_proto . inet_service : verdict",
        [f"{each} . tcp . 80 : goto x" for each in addresses(count)],
    ),
    "script": script,
}


def calls_of(text: str) -> tuple[int, NftRuleset]:
    """How many functions are called while a text is read, and what was read."""
    calls = 0

    def count(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        ruleset = parse_nft(text)
    finally:
        sys.setprofile(before)
    return calls, ruleset


@pytest.mark.parametrize("writing", WRITINGS)
def test_the_work_for_an_element_is_bounded(writing: str) -> None:
    few, many = 200, 1000
    parse_nft(WRITINGS[writing](few))  # what is made once
    small, _ = calls_of(WRITINGS[writing](few))
    large, ruleset = calls_of(WRITINGS[writing](many))
    (table,) = ruleset.tables
    assert len(table.sets[0].elements) == many
    each = (large - small) / (many - few)
    assert each < MAX_CALLS
    assert large < small * many / few * 1.1


MAX_CALLS = 80
"""Functions called for an element, in Python or in C: about a second for 100,000 elements at most."""
