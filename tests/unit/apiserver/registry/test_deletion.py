"""Deletion, step by step."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from kproxy.apiserver.errors import StatusError
from kproxy.apiserver.kinds.resources import Resource, built_in
from kproxy.apiserver.registry import deletion
from kproxy.apiserver.registry.writes import DeleteOptions

NOW = datetime(2026, 1, 2, 3, 4, 5, 999, tzinfo=UTC)
KINDS: dict[str, Resource] = {each.kind: each for each in built_in() if each.group in ("", "apps")}


@pytest.mark.parametrize(
    ("before", "propagation", "orphans", "after"),
    [
        (["x"], "", False, ["x"]),
        ([], "Background", False, None),
        ([], "Orphan", False, ["orphan"]),
        (["x"], "Foreground", False, ["x", "foregroundDeletion"]),
        (["foregroundDeletion"], "Orphan", False, ["orphan"]),
        (["orphan", "foregroundDeletion"], "Background", False, None),
        (["foregroundDeletion"], "Foreground", False, ["foregroundDeletion"]),
        ([], "", True, ["orphan"]),
        (["foregroundDeletion"], "", True, ["foregroundDeletion"]),
        ([], "Background", True, None),
    ],
)
def test_finalizers_of_a_propagation(
    before: list[str], propagation: str, orphans: bool, after: list[str] | None
) -> None:
    meta: Any = {"finalizers": before}
    deletion.set_finalizers(meta, propagation, orphans=orphans)
    assert meta.get("finalizers") == after


@pytest.mark.parametrize(
    ("kind", "spec", "phase", "asked", "grace"),
    [
        ("Service", {}, "", 5, 0),
        ("Pod", {}, "Pending", 5, 0),
        ("Pod", {"nodeName": "n"}, "Running", None, 30),
        ("Pod", {"nodeName": "n", "terminationGracePeriodSeconds": 7}, "Running", None, 7),
        ("Pod", {"nodeName": "n"}, "Running", 2, 2),
        ("Pod", {"nodeName": "n"}, "Running", 0, 0),
        ("Pod", {"nodeName": "n"}, "Running", -1, 0),
        ("Pod", {"nodeName": "n"}, "Failed", None, 0),
    ],
)
def test_grace(kind: str, spec: Any, phase: str, asked: int | None, grace: int) -> None:
    value = {"metadata": {"name": "a"}, "spec": spec, "status": {"phase": phase}}
    assert KINDS[kind].strategy.grace_period(value, asked) == grace


def test_marks_only_shorten_the_grace() -> None:
    value: Any = {"metadata": {"name": "a", "generation": 3}, "spec": {}}
    deletion.mark(KINDS["Pod"], value, 30, NOW)
    assert value["metadata"]["deletionTimestamp"] == "2026-01-02T03:04:35Z"
    assert (value["metadata"]["deletionGracePeriodSeconds"], value["metadata"]["generation"]) == (30, 4)
    deletion.mark(KINDS["Pod"], value, 60, NOW)
    assert value["metadata"]["deletionGracePeriodSeconds"] == 30
    deletion.mark(KINDS["Pod"], value, 5, NOW)
    assert value["metadata"]["deletionTimestamp"] == "2026-01-02T03:04:10Z"
    namespace: Any = {"metadata": {"name": "a"}, "spec": {}}
    deletion.mark(KINDS["Namespace"], namespace, 0, NOW)
    assert namespace["status"] == {"phase": "Terminating"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (DeleteOptions(uid="other"), "the UID in the precondition"),
        (DeleteOptions(resource_version="9"), "the ResourceVersion in the precondition"),
    ],
)
def test_preconditions(options: DeleteOptions, message: str) -> None:
    live = {"metadata": {"name": "a", "uid": "u", "resourceVersion": "5"}}
    deletion.check_preconditions(KINDS["Service"], "a", live, DeleteOptions(uid="u", resource_version="5"))
    with pytest.raises(StatusError, match=message) as caught:
        deletion.check_preconditions(KINDS["Service"], "a", live, options)
    assert caught.value.code == 409


def test_what_holds_an_object() -> None:
    pod, namespace = KINDS["Pod"], KINDS["Namespace"]
    assert pod.strategy.has_finalizers({"metadata": {"finalizers": ["x"]}})
    assert not pod.strategy.has_finalizers({"metadata": {}})
    assert namespace.strategy.has_finalizers({"metadata": {}, "spec": {"finalizers": ["kubernetes"]}})
    assert deletion.finished(pod, {"metadata": {"deletionGracePeriodSeconds": 0}})
    assert not deletion.finished(pod, {"metadata": {"deletionGracePeriodSeconds": 1}})
    assert not deletion.finished(namespace, {"metadata": {}, "spec": {"finalizers": ["kubernetes"]}})


def test_the_status_of_success() -> None:
    answer = deletion.success(KINDS["Deployment"], "a", "u")
    assert answer["details"] == {"name": "a", "group": "apps", "kind": "deployments", "uid": "u"}
    assert "group" not in deletion.success(KINDS["ConfigMap"], "a", "u")["details"]
