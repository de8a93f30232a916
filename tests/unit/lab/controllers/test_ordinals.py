"""StatefulSets: what is done next, and in which order."""

from __future__ import annotations

import datetime
from typing import Any

from kproxy.lab.controllers.statefulset import ordinal_of, ordinals_of, plan, seconds_to_available, wants_present

NOW = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


def made(replicas: int = 3, policy: str = "OrderedReady", **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "db"}, "spec": {"replicas": replicas, "podManagementPolicy": policy, **spec}}


def pod(state: str = "ready", revision: str = "new") -> dict[str, Any]:
    """A pod that is `ready`, `unready`, `going` (being deleted) or `failed`."""
    meta: dict[str, Any] = {"labels": {"controller-revision-hash": revision}}
    if state == "going":
        meta["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    condition = {"type": "Ready", "status": str(state == "ready"), "lastTransitionTime": "2025-12-31T23:59:50Z"}
    return {
        "metadata": meta,
        "status": {"phase": "Failed" if state == "failed" else "Running", "conditions": [condition]},
    }


def steps(item: dict[str, Any], **pods: dict[str, Any]) -> list[tuple[str, int]]:
    return [(step.what, step.ordinal) for step in plan(item, {int(n[1:]): p for n, p in pods.items()}, "new", NOW)]


def test_one_after_another_is_made_when_those_before_it_are_ready() -> None:
    assert steps(made()) == [("create", 0)]
    assert steps(made(), _0=pod("unready")) == []
    assert steps(made(), _0=pod()) == [("create", 1)]
    assert steps(made(), _0=pod(), _2=pod()) == [("create", 1)]
    assert steps(made(), _0=pod("going"), _1=pod(), _2=pod()) == []
    assert steps(made(), _0=pod(), _1=pod("failed"), _2=pod()) == [("replace", 1)]
    assert steps(made(minReadySeconds=30), _0=pod()) == []
    assert seconds_to_available(made(minReadySeconds=30), pod(), NOW) == 20


def test_surplus_pods_go_from_the_highest_one_by_one() -> None:
    there = {"_0": pod(), "_1": pod(), "_2": pod()}
    assert steps(made(1), **there) == [("delete", 2)]
    assert steps(made(1), **{**there, "_2": pod("going")}) == []
    assert steps(made(1), **{**there, "_0": pod("unready")}) == [], "first the others must be ready"
    assert steps(made(2, ordinals={"start": 1}), **there) == [("delete", 0)]


def test_in_parallel_nothing_waits_for_another() -> None:
    assert steps(made(3, "Parallel"), _0=pod("unready")) == [("create", 1), ("create", 2)]
    assert steps(made(0, "Parallel"), _0=pod(), _1=pod("going")) == [("delete", 0)]
    assert steps(made(2, "Parallel"), _0=pod("ready", "old"), _1=pod("ready", "old")) == [("delete", 1)]


def test_an_update_goes_from_the_highest_down_to_the_partition() -> None:
    def rolling(**more: Any) -> dict[str, Any]:
        return made(updateStrategy={"type": "RollingUpdate", "rollingUpdate": more})

    old = {"_0": pod(revision="old"), "_1": pod(revision="old"), "_2": pod(revision="old")}
    assert steps(rolling(), **old) == [("delete", 2)]
    assert steps(rolling(), **{**old, "_2": pod()}) == [("delete", 1)]
    assert steps(rolling(partition=1), **{**old, "_1": pod(), "_2": pod()}) == []
    assert steps(rolling(partition=9), **old) == []
    assert steps(rolling(maxUnavailable=2), **old) == [("delete", 2), ("delete", 1)]
    assert steps(rolling(maxUnavailable="50%"), **old) == [("delete", 2), ("delete", 1)]
    assert steps(made(updateStrategy={"type": "OnDelete"}), **old) == []
    assert [wants_present(rolling(partition=2), ordinal) for ordinal in range(3)] == [False, False, True]
    assert wants_present(made(updateStrategy={"type": "OnDelete"}), 0)


def test_ordinals_and_names() -> None:
    assert list(ordinals_of(made(2, ordinals={"start": 3}))) == [3, 4]
    names = {"db-0": 0, "db-12": 12, "db-01": None, "db": None, "db-x": None, "other-0": None, "db-a-1": None}
    assert {name: ordinal_of(made(), {"metadata": {"name": name}}) for name in names} == names
