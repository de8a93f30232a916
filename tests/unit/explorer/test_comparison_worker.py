"""Comparisons of large clusters: in a process of their own, and as far as the time suffices."""

from __future__ import annotations

import ipaddress
import itertools
import json
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kproxy.cluster.edits import Edit
from kproxy.cluster.migrate.analysis import analyse
from kproxy.cluster.node import NodeFacts
from kproxy.dataplane.compare.compare import compare
from kproxy.explorer import comparison_worker
from kproxy.explorer.compare import compare as comparing
from kproxy.explorer.compare import node_by_node, present_rules
from kproxy.explorer.compare.compare import Compare, DiffAnswer, MigrateAnswer, Side, WhatIf, compare_sides, what_if
from kproxy.explorer.compare.findings import TIME_OVER
from kproxy.explorer.compare.present_rules import rules_of
from kproxy.explorer.errors import Refusal
from kproxy.explorer.model.model import Work
from kproxy.explorer.sources.source import ManifestSource, ReadSource, SnapshotSource
from kproxy.explorer.state import Explorer
from kproxy.render import Features
from tests.support.explore import CONFIGURATION
from tests.support.waiting import eventually

NFTABLES = WhatIf((Edit("mode", mode="nftables"),))


@pytest.fixture(name="explorer")
def _explorer(snapshot: Path) -> Explorer:
    return Explorer(SnapshotSource(str(snapshot)), against=SnapshotSource(str(snapshot)), revision=3)


@pytest.fixture(name="started")
def _started(monkeypatch: pytest.MonkeyPatch) -> list[subprocess.Popen[bytes]]:
    """Every cluster is a large one; the processes that are begun for it."""
    monkeypatch.setattr(comparison_worker, "LARGE", 0)
    monkeypatch.setattr(comparison_worker, "AUDITED_HERE", 0)
    found: list[subprocess.Popen[bytes]] = []

    class Seen(subprocess.Popen[bytes]):
        def __init__(self, *given: Any, **named: Any) -> None:
            super().__init__(*given, **named)
            found.append(self)

    monkeypatch.setattr(subprocess, "Popen", Seen)
    return found


def _answered(explorer: Explorer, body: comparison_worker.Body) -> Any:
    return json.loads(comparison_worker.compared(explorer, body, Work(60)))


def test_a_process_of_its_own_answers_the_same(
    explorer: Explorer, started: list[subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    bodies = (NFTABLES, Compare("diff", b=Side("against", NFTABLES.edits)))
    there = [_answered(explorer, each) for each in bodies]
    assert len(started) == 2
    monkeypatch.setattr(comparison_worker, "LARGE", 1)
    assert there == [_answered(explorer, each) for each in bodies]
    assert len(started) == 2
    assert (there[0]["revision"], there[0]["alike"]) == (3, False)


def test_a_source_that_is_larger_than_a_pipe_is_sent_whole(
    snapshot: Path, started: list[subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    # The process reads late, so that the pipe is full before.
    monkeypatch.setattr(comparison_worker, "ARGUMENTS", ("-c", "import time; time.sleep(0.5)\n" + LATE))
    known = SnapshotSource(str(snapshot)).read()
    assert known.files is not None
    explorer = Explorer(ReadSource("snapshot", replace(known, label="shop" * 100_000)))
    assert _answered(explorer, NFTABLES)["sides"][0]["label"] == "shop" * 100_000
    assert len(started) == 1


def test_manifests_with_a_configuration_are_sent_as_they_are(
    snapshot: Path, tmp_path: Path, started: list[subprocess.Popen[bytes]]
) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(f"{CONFIGURATION}featureGates: {{AllAlpha: true}}\n")
    objects = [str(path) for path in sorted((snapshot / "objects").iterdir())]
    source = ManifestSource(objects, str(config), None, Features(), allocate=[ipaddress.ip_network("10.97.0.0/16")])
    explorer = Explorer(source, against=source)
    for body in (NFTABLES, Compare("diff", b=Side("against", NFTABLES.edits))):
        assert _answered(explorer, body)["alike"] is False
    assert len(started) == 2


def test_the_audit_of_a_large_cluster_is_made_apart_and_kept(
    snapshot: Path, started: list[subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def asked() -> Any:
        explorer = Explorer(SnapshotSource(str(snapshot)))
        found = [json.loads(comparison_worker.audited(explorer, Work(60))) for _ in range(2)]
        assert found[0] == found[1]
        return found[0]

    there = asked()
    assert len(started) == 1
    monkeypatch.setattr(comparison_worker, "AUDITED_HERE", 100)
    assert asked() == there
    assert len(started) == 1
    assert there["findings"]


def test_the_audit_runs_by_itself_and_says_how_far_it_is(
    snapshot: Path, started: list[subprocess.Popen[bytes]]
) -> None:
    explorer = Explorer(SnapshotSource(str(snapshot)))
    first = explorer.check(comparison_worker.audited)
    assert (first.known, first.done, first.of) == (False, 0, len(explorer.model.nodes))
    eventually(lambda: explorer.check(comparison_worker.audited).known)
    last = explorer.check(comparison_worker.audited)
    assert (last.done, last.failed) == (last.of, "")
    assert len(started) == 1
    assert explorer.model.judging.endswith(f"({last.of} of {last.of})")


LATE = "from kproxy.explorer import comparison_worker\ncomparison_worker.main()"


def test_what_a_process_refuses_is_refused(explorer: Explorer, started: list[subprocess.Popen[bytes]]) -> None:
    with pytest.raises(Refusal, match="edits") as found:
        _answered(explorer, WhatIf((*NFTABLES.edits, Edit("drop-node", node="gone"))))
    assert len(started) == 1
    assert (found.value.status, found.value.field) == (404, "edits[1].node")


def test_edits_of_a_few_services_are_compared_at_once(
    explorer: Explorer, started: list[subprocess.Popen[bytes]]
) -> None:
    assert not _answered(explorer, WhatIf((Edit("delete", service="shop/web"),)))["alike"]
    assert not started


def test_a_process_that_nobody_waits_for_is_ended(
    explorer: Explorer, started: list[subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.executable", "/bin/sh")
    monkeypatch.setattr(comparison_worker, "ARGUMENTS", ("-c", "exec sleep 600"))
    work = Work(60)
    looks = itertools.count()
    monkeypatch.setattr(work, "check", lambda: work.cancel() if next(looks) == 1 else Work.check(work))
    with pytest.raises(Refusal):
        comparison_worker.compared(explorer, NFTABLES, work)
    assert started[0].returncode == -9


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


SLOW_SOURCE = """
import signal
from kproxy.explorer import comparison_worker

read = comparison_worker._Said.read

def slow(self):
    signal.setitimer(signal.ITIMER_REAL, 0.01)
    signal.pause()
    return read(self)

comparison_worker._Said.read = slow
comparison_worker.main()
"""


def test_a_source_that_is_read_until_the_time_is_over_is_answered_for(
    snapshot: Path, started: list[subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparison_worker, "ARGUMENTS", ("-c", SLOW_SOURCE))
    found = _answered(Explorer(SnapshotSource(str(snapshot))), NFTABLES)
    assert [(each["node"], each["reason"]) for each in found["undecided"]] == [("n1", TIME_OVER), ("n2", TIME_OVER)]
    assert found["map"]["edges"]
    assert started[0].returncode == 0


ENDLESS = """
import itertools, signal
from kproxy.explorer import comparison_worker
from kproxy.explorer.compare import compare as comparisons

def analyse(*given, **named):
    assert 0 < signal.setitimer(signal.ITIMER_REAL, 0.01)[0] <= 45
    for _ in itertools.repeat(0):
        pass

comparisons.analyse = analyse
comparison_worker.main()
"""


def test_a_step_that_takes_longer_than_there_is_time_is_ended_midway(
    explorer: Explorer, started: list[subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparison_worker, "ARGUMENTS", ("-c", ENDLESS))
    found = _answered(explorer, NFTABLES)
    assert [(each["node"], each["reason"]) for each in found["undecided"]] == [("n1", TIME_OVER), ("n2", TIME_OVER)]
    assert started[0].returncode == 0
