"""A table while operations work on it; the operations themselves are tested through restore input."""

from __future__ import annotations

import pytest

from kproxy.netfilter import Chain, Jump, Rule, Table
from kproxy.netfilter.iptables.operation import RefusedError, TableState


def test_a_new_table_has_its_built_in_chains() -> None:
    state = TableState(Table("raw"))
    assert state.table() == Table("raw", (Chain("PREROUTING", "ACCEPT"), Chain("OUTPUT", "ACCEPT")))


def test_chains() -> None:
    state = TableState(Table("raw", (Chain("X"),), ("# note",)))
    state.rules("OUTPUT").append(Rule(target=Jump("X")))
    assert state.is_used("X")
    state.rules("OUTPUT").clear()
    assert not state.is_used("X")
    state.remove("X")
    with pytest.raises(RefusedError, match="no chain X"):
        state.rules("X")
    assert state.table().comments == ("# note",)
