"""Chains, tables and rule sets as values."""

from __future__ import annotations

import pytest

from kproxy.netfilter import ACCEPT, Chain, Counters, Family, Rule, Ruleset, Table

RULE = Rule(target=ACCEPT)


def table(*names: str) -> Table:
    return Table("filter", tuple(Chain(name) for name in names))


def test_lookup() -> None:
    chain = Chain("X", rules=(RULE, RULE))
    ruleset = Ruleset(Family.IPV4, (Table("nat"), Table("filter", (Chain("INPUT", "DROP"), chain))))
    assert ruleset.chain("filter", "X") is chain
    assert ruleset.chain("nat", "X") is None
    assert ruleset.chain("raw", "X") is None
    assert ruleset.table("filter") is ruleset.tables[1]
    assert ruleset.rule_count == 2
    assert [(each.name, where.name, place) for each, where, place, _ in ruleset.rules()] == [
        ("filter", "X", 1), ("filter", "X", 2)
    ]  # fmt: skip


def test_values() -> None:
    one = Ruleset(Family.IPV4, (Table("filter", (Chain("X", None, Counters(1, 2), (RULE,)),), ("# a",)),), ("# b",))
    two = Ruleset(Family.IPV4, (Table("filter", (Chain("X", None, Counters(), (RULE,)),)),))
    assert one == two
    assert hash(one) == hash(two)
    assert one != Ruleset(Family.IPV6, two.tables)
    assert table("A", "B") != table("B", "A")
    assert Chain("X", "DROP") != Chain("X", "ACCEPT")


def test_names_are_unique() -> None:
    with pytest.raises(ValueError, match="table filter: chain names"):
        table("X", "X")
    with pytest.raises(ValueError, match="table names"):
        Ruleset(None, (Table("nat"), Table("nat")))


def test_save_order() -> None:
    mixed = table("b", "OUTPUT", "B", "INPUT", "a-1", "FORWARD", "a")
    assert [chain.name for chain in mixed.in_save_order().chains] == [
        "INPUT", "FORWARD", "OUTPUT", "B", "a", "a-1", "b"
    ]  # fmt: skip
    names = ["nat", "raw", "odd", "security", "filter", "mangle"]
    ordered = Ruleset(None, tuple(map(Table, names))).in_save_order()
    assert [each.name for each in ordered.tables] == ["mangle", "security", "raw", "filter", "nat", "odd"]


def test_declaration() -> None:
    assert Chain("X").to_save() == ":X - [0:0]"
    assert Chain("INPUT", "DROP", Counters(1, 2)).to_save() == ":INPUT DROP [1:2]"
