"""nftables' values: what compares equal, and what a key is looked up with."""

from __future__ import annotations

import dataclasses

import pytest

from kproxy.netfilter.nftables.datatype import DATATYPES
from kproxy.netfilter.nftables.element import Element, Elements
from kproxy.netfilter.nftables.expression import Payload
from kproxy.netfilter.nftables.protocol import HEADERS, Layer
from kproxy.netfilter.nftables.ruleset import Chain, NftRuleset, Rule, Table, TableFamily
from kproxy.netfilter.nftables.sets import Set
from kproxy.netfilter.nftables.stateful import Counter
from kproxy.netfilter.nftables.value import DROP


def test_the_order_of_elements_and_what_the_kernel_counts_do_not_compare() -> None:
    types = (DATATYPES["inet_service"],)
    one = Element(22, stateful=(Counter(5, 300),), expires=7)
    a = Set("s", types, elements=Elements((one, Element(80))), handle=4)
    b = Set("s", types, elements=Elements((Element(80), Element(22, stateful=(Counter(),)))))
    assert a == b
    assert hash(a) == hash(b)
    assert a != dataclasses.replace(b, elements=Elements((Element(80),)))
    assert Rule((Counter(1, 2), DROP), handle=3, line=9) == Rule((Counter(), DROP))


def test_fields_lie_inside_their_headers() -> None:
    row = Payload("tcp", "dport").row
    assert (row.offset, row.bits, row.type.name) == (16, 16, "inet_service")
    assert Payload("ip6", "daddr").layer is Layer.NETWORK
    for header in HEADERS.values():
        for name, row in header.fields.items():
            assert row.name == name
            assert row.bits > 0
            assert row.type.bits == row.bits


def test_names_are_unique() -> None:
    with pytest.raises(ValueError, match="chain names are not unique"):
        Table(TableFamily.IP, "t", (Chain("a"), Chain("a")))
    table = Table(TableFamily.IP, "t")
    with pytest.raises(ValueError, match="table names are not unique"):
        NftRuleset((table, table))
    assert NftRuleset((table,)).table(TableFamily.IP, "t") is table
    assert NftRuleset((table,)).table(TableFamily.IP6, "t") is None
