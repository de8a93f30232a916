"""The worker: what questions need is made ready before they come, and long work does not hold them up, nor forever."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from kproxy.explorer.errors import Refusal
from kproxy.explorer.model.model import Model, Work
from kproxy.explorer.state import Explorer
from kproxy.explorer.worker import steps
from kproxy.netfilter import Family
from tests.support.cluster.snapshots import vxlan_cluster, write_files
from tests.support.explorer.client import serving
from tests.support.explorer.sources import source_of
from tests.support.waiting import eventually

PORT = "svc/shop/web"


@pytest.fixture
def manifests(tmp_path: Path) -> Path:
    """The cluster's objects alone."""
    directory = tmp_path / "manifests"
    directory.mkdir()
    for path, data in vxlan_cluster().items():
        if path.startswith("objects/"):
            (directory / path.removeprefix("objects/")).write_bytes(data)
    return directory


def test_after_all_steps_nothing_is_left_to_do_for_a_question(snapshot: Path) -> None:
    model = Model(source_of(snapshot).read(), 1)
    for _ in steps(model, Work(float("inf"))):
        assert not model.lock._is_owned()  # type: ignore[attr-defined]
    asked = model.rule_chances.of("n1", Family.IPV4, (), 0.0)
    assert [sorted(each.chances) for each in asked.values()] == [["10.244.1.5:8080", "10.244.2.5:8080"]]
    assert {name for name, host in model.cluster.hosts.items() if host._indexes} == {"n1", "n2"}


def test_a_dump_is_asked_ahead_too(snapshot: Path) -> None:
    model = Model(source_of(snapshot / "nodes/n1/iptables-save").read(), 1)
    for _ in steps(model, Work(float("inf"))):
        pass
    assert [door.service for door in model.told if door.kind == "clusterIP"] == ["shop/web"]
    assert len(model.rule_chances.of("outside", Family.IPV4, (), 0.0)) == 1


def test_nodes_with_the_same_rules_share_them(manifests: Path) -> None:
    hosts = Model(source_of(manifests).read(), 1).cluster.hosts
    assert hosts["n1"].rules(Family.IPV4) is hosts["n2"].rules(Family.IPV4)
    # With other rules they do not: of a policy Local each node has its own endpoint.
    path = manifests / "Service.json"
    path.write_text(
        path.read_text().replace('"type": "NodePort"', '"type": "NodePort", "internalTrafficPolicy": "Local"')
    )
    hosts = Model(source_of(manifests).read(), 1).cluster.hosts
    assert hosts["n1"].rules(Family.IPV4) is not hosts["n2"].rules(Family.IPV4)


def test_every_revision_is_made_ready(tmp_path: Path) -> None:
    directory = write_files(tmp_path / "shop", vxlan_cluster())
    explorer = Explorer(source_of(directory))
    ready = threading.Semaphore(0)
    explorer.start(ready.release)
    try:
        for revision in (1, 2):
            assert ready.acquire(timeout=60)
            assert explorer.model.revision == revision
            assert explorer.model.rule_chances.of("n1", Family.IPV4, (), 0.0)
            explorer.changed(["everything"])
    finally:
        explorer.stop()


def test_questions_are_answered_during_an_audit(snapshot: Path) -> None:
    explorer = Explorer(source_of(snapshot))
    ended = threading.Event()
    with serving(explorer) as page:
        explorer.worker.submit(lambda: ended.wait(60))  # as if one were under way
        assert len(page.post("api/ask", {"from": "pod/shop/cart-0", "to": PORT})["journeys"]) == 2
        assert page.get("api/services/shop/web")["matrix"]["cells"]
        assert page.get("api/map")["edges"]
        ended.set()
        assert page.get("api/audit")["findings"]


def test_the_audit_runs_by_itself_and_says_how_far_it_is(snapshot: Path) -> None:
    explorer = Explorer(source_of(snapshot))
    go = threading.Event()
    explorer.worker.submit(lambda: go.wait(60))
    first = explorer.check()
    assert (first.known, first.done, first.of) == (False, 0, len(explorer.model.nodes))
    go.set()
    eventually(lambda: explorer.check().known)
    last = explorer.check()
    assert (last.done, last.failed) == (last.of, "")
    assert explorer.model.judging.endswith(f"({last.of} of {last.of})")
    explorer.stop()


def test_an_audit_of_what_has_changed_since_is_given_up(snapshot: Path) -> None:
    explorer = Explorer(source_of(snapshot))
    go = threading.Event()
    explorer.worker.submit(lambda: go.wait(60))
    explorer.check()
    before = explorer.model
    explorer.changed(["everything"])
    go.set()
    eventually(lambda: explorer.check().known)
    assert before.audited is None
    assert explorer.model.audited is not None
    explorer.stop()


def test_work_that_nobody_waits_for_ends() -> None:
    late, left = Work(0.0), Work(60.0)
    left.check()
    left.cancel()
    for work in (late, left):
        with pytest.raises(Refusal, match="too long"):
            work.check()
