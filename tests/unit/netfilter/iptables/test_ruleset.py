"""Chains, tables and rule sets as values."""

from __future__ import annotations

import pytest

from kproxy.netfilter import Chain, Ruleset, Table


def table(*names: str) -> Table:
    return Table("filter", tuple(Chain(name) for name in names))


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
