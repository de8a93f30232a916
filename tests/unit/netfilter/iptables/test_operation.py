"""A table while operations work on it; the operations themselves are tested through restore input."""

from __future__ import annotations

import pytest

from kproxy.netfilter import ACCEPT, Chain, Jump, Rule, Table
from kproxy.netfilter.iptables.operation import RefusedError, TableState


def test_a_new_table_has_its_built_in_chains() -> None:
    state = TableState("raw", None, flush=False)
    assert state.table() == Table("raw", (Chain("PREROUTING", "ACCEPT"), Chain("OUTPUT", "ACCEPT")))


def test_flushing_keeps_policies() -> None:
    table = Table("raw", (Chain("OUTPUT", "DROP", rules=(Rule(target=ACCEPT),)), Chain("X")), ("# note",))
    flushed = TableState("raw", table, flush=True).table()
    assert flushed.chains == (Chain("PREROUTING", "ACCEPT"), Chain("OUTPUT", "DROP"))
    assert flushed.comments == ("# note",)


def test_chains() -> None:
    state = TableState("raw", None, flush=False)
    state.make("X")
    state.rules("OUTPUT").append(Rule(target=Jump("X")))
    assert state.referenced("X")
    state.set_rules("OUTPUT", ())
    assert not state.referenced("X")
    state.remove("X")
    for action in (state.chain, state.rules):
        with pytest.raises(RefusedError, match="no chain X"):
            action("X")
