"""Comparisons as far as the time suffices."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kproxy.cluster.edits import Edit
from kproxy.cluster.migrate.analysis import analyse
from kproxy.cluster.node import NodeFacts
from kproxy.dataplane.compare.compare import compare
from kproxy.explorer.compare import compare as comparing
from kproxy.explorer.compare import node_by_node, present_rules
from kproxy.explorer.compare.compare import Compare, DiffAnswer, MigrateAnswer, Side, WhatIf, compare_sides, what_if
from kproxy.explorer.compare.findings import TIME_OVER
from kproxy.explorer.compare.present_rules import rules_of
from kproxy.explorer.errors import Refusal
from kproxy.explorer.model.model import Work
from kproxy.explorer.state import Explorer
from tests.support.explorer.sources import source_of

NFTABLES = WhatIf((Edit("mode", mode="nftables"),))


@pytest.fixture(name="explorer")
def _explorer(snapshot: Path) -> Explorer:
    return Explorer(source_of(snapshot), against=source_of(snapshot))


def test_nodes_for_which_the_time_does_not_suffice_are_named(
    explorer: Explorer, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The two nodes' rules differ, so each is compared.
    edits = (*NFTABLES.edits, Edit("policy", service="shop/web", set={"internalTrafficPolicy": "Local"}))
    now = [0.0]

    def slow(*given: Any, **named: Any) -> Any:
        now[0] += 10.0
        return compare(*given, **named)

    monkeypatch.setattr(node_by_node, "compare", slow)
    for seconds, undecided in ((25, []), (15, ["n2"]), (5, ["n1", "n2"])):
        now[0] = 0.0
        found = what_if(explorer.model, explorer.copy_with(edits), WhatIf(edits), Work(seconds, lambda: now[0]))
        assert [each.node for each in found.undecided if each.reason == TIME_OVER] == undecided, seconds
        assert not found.alike
        assert bool(found.findings) is (len(undecided) < 2)
        assert found.map.edges


def test_migrate_and_drift_say_which_nodes_they_left_out(explorer: Explorer, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]

    def slow(*given: Any, **named: Any) -> Any:
        now[0] += 10.0
        return (analyse if isinstance(given[0], NodeFacts) else rules_of)(*given, **named)

    monkeypatch.setattr(comparing, "analyse", slow)
    monkeypatch.setattr(present_rules, "rules_of", slow)
    model = explorer.model
    for kind in ("migrate", "drift"):
        for seconds, left_out in ((25, set()), (15, {"n2"}), (5, {"n1", "n2"})):
            now[0] = 0.0
            work = Work(seconds, lambda: now[0])
            found = compare_sides(model, model, Compare(kind, family="IPv4"), work)
            undecided = found.report.undecided if isinstance(found, MigrateAnswer) else found.undecided
            assert {each.node for each in undecided if each.reason == TIME_OVER} == left_out, (kind, seconds)
            if left_out:
                assert found.report.changes if isinstance(found, MigrateAnswer) else not found.alike


def test_when_the_time_is_over_the_answer_has_all_but_the_comparison(explorer: Explorer) -> None:
    model = explorer.model
    over = Work(-1)
    for asked in (Compare("drift"), Compare("diff", b=Side("against"))):
        answer = compare_sides(model, explorer.state(asked.b.source, ()), asked, over)
        assert isinstance(answer, DiffAnswer)
        assert ({each.node for each in answer.undecided}, answer.alike) == ({"n1", "n2"}, False), asked.kind
    found = what_if(model, explorer.copy_with(NFTABLES.edits), NFTABLES, over)
    assert {(each.node, each.reason) for each in found.undecided} == {("n1", TIME_OVER), ("n2", TIME_OVER)}
    assert found.map.edges
    over.cancel()
    with pytest.raises(Refusal):
        what_if(model, explorer.copy_with(NFTABLES.edits), NFTABLES, over)


def test_a_part_of_the_time_ends_with_the_whole() -> None:
    now = [0.0]
    whole = Work(100, lambda: now[0])
    part, rest = whole.part(0.75), whole.to_the_end()
    now[0] = 80.0
    whole.check()
    rest.check()
    with pytest.raises(Refusal):
        part.check()
    whole.cancel()
    assert (part.cancelled, rest.cancelled) == (True, True)
    with pytest.raises(Refusal):
        rest.check()


def test_a_step_that_takes_longer_than_there_is_time_is_ended_midway(
    explorer: Explorer, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]

    def endless(*_given: Any, progress: Any = None, tell: Any = None, **_named: Any) -> Any:
        while True:
            now[0] += 1.0
            (progress or tell)("")

    monkeypatch.setattr(comparing, "analyse", endless)
    monkeypatch.setattr(node_by_node, "compare", endless)
    for edits in (NFTABLES.edits, (*NFTABLES.edits, Edit("delete", service="shop/web"))):
        now[0] = 0.0
        asked = WhatIf(edits)
        found = what_if(explorer.model, explorer.copy_with(edits), asked, Work(30, lambda: now[0]))
        assert [(each.node, each.reason) for each in found.undecided] == [("n1", TIME_OVER), ("n2", TIME_OVER)]
        assert found.map.edges or len(edits) > 1
