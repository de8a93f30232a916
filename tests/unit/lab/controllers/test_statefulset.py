"""StatefulSets: what is done next; and with the API server: identities, claims, revisions, status, Events."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kproxy.client import dynamic_resource
from kproxy.lab.controllers.statefulset import (
    CONTROLLER,
    ordinal_of,
    ordinals_of,
    plan,
    seconds_to_available,
    wants_present,
)
from kproxy.lab.resources import CONTROLLER_REVISIONS, PODS, STATEFUL_SETS, Json, Object
from tests.support.lab.controlled import Controlled, controlled, running
from tests.support.waiting import eventually


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Controlled]:
    with controlled(tmp_path, CONTROLLER) as found:
        yield found


def stateful_set(replicas: int, **spec: Any) -> Json:
    template = {
        "metadata": {"labels": {"app": "db"}},
        "spec": {"containers": [{"name": "db", "image": "x:1"}], "volumes": [{"name": "other", "emptyDir": {}}]},
    }
    named = {"serviceName": "peers", "selector": {"matchLabels": {"app": "db"}}, "template": template}
    return {
        "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "db", "namespace": "default"},
        "spec": {"replicas": replicas, **named, **spec},
    }  # fmt: skip


def complete(item: Json) -> bool:
    status = item["status"]
    return bool(
        status.get("observedGeneration") == item["metadata"]["generation"]
        and status.get("availableReplicas") == status.get("updatedReplicas") == item["spec"]["replicas"]
        and status["replicas"] == item["spec"]["replicas"]
        and status["currentRevision"] == status["updateRevision"]
    )


def images(cluster: Controlled) -> dict[str, str]:
    return {name: pod["spec"]["containers"][0]["image"] for name, pod in sorted(cluster.pods().items())}


def set_image(cluster: Controlled, image: str, **strategy: Any) -> None:
    template = {"spec": {"containers": [{"name": "db", "image": image}]}}
    patch = {"spec": {"template": template, "updateStrategy": {"rollingUpdate": {"partition": 0, **strategy}}}}
    cluster.client.patch(STATEFUL_SETS, "db", patch, "default")


def test_pods_have_stable_names_and_no_claims(cluster: Controlled) -> None:
    cluster.become(lambda pod: running(pod) if pod["metadata"]["name"] == "db-0" else None)
    data = {"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"]}}
    data["spec"]["resources"] = {"requests": {"storage": "1Gi"}}  # type: ignore[index]
    cluster.client.create(STATEFUL_SETS, stateful_set(3, volumeClaimTemplates=[data]))
    eventually(lambda: set(cluster.pods()) == {"db-0", "db-1"})
    cluster.wait(STATEFUL_SETS, "db", lambda item: item["status"].get("readyReplicas") == 1)
    cluster.become(running)
    status = cluster.wait(STATEFUL_SETS, "db", complete)["status"]
    pod = cluster.pods()["db-2"]
    assert (pod["spec"]["hostname"], pod["spec"]["subdomain"]) == ("db-2", "peers")
    assert pod["metadata"]["labels"] == {
        "app": "db", "statefulset.kubernetes.io/pod-name": "db-2", "apps.kubernetes.io/pod-index": "2",
        "controller-revision-hash": status["currentRevision"],
    }  # fmt: skip
    assert pod["spec"]["volumes"] == [{"name": "other", "emptyDir": {}}]
    cluster.client.patch(STATEFUL_SETS, "db", {"spec": {"replicas": 1}}, "default")
    cluster.wait(STATEFUL_SETS, "db", complete)
    assert set(cluster.pods()) == {"db-0"}
    claims = dynamic_resource("", "v1", "persistentvolumeclaims", True)
    assert not cluster.client.list(claims, "default").items
    eventually(
        lambda: ("SuccessfulDelete", "delete Pod db-1 in StatefulSet db successful") in cluster.said("StatefulSet")
    )
    assert cluster.said("StatefulSet") >= {
        ("SuccessfulCreate", "create Pod db-1 in StatefulSet db successful"),
        ("VolumesNotProvided", "a lab has no volumes: no claims of data are made, and the pods run without them"),
    }


def test_an_update_is_rolled_out_by_parts_and_undone(cluster: Controlled) -> None:
    cluster.client.create(STATEFUL_SETS, stateful_set(3, podManagementPolicy="Parallel", revisionHistoryLimit=1))
    first = cluster.wait(STATEFUL_SETS, "db", complete)["status"]["currentRevision"]
    set_image(cluster, "x:2", partition=2)
    counts = ("availableReplicas", "currentReplicas", "updatedReplicas")
    found = cluster.wait(STATEFUL_SETS, "db", lambda item: [item["status"].get(n) for n in counts] == [3, 2, 1])
    assert images(cluster) == {"db-0": "x:1", "db-1": "x:1", "db-2": "x:2"}
    assert found["status"]["currentRevision"] == first != found["status"]["updateRevision"]
    was = cluster.pods()["db-0"]
    cluster.client.delete(PODS, "db-0", "default")
    # Below the partition a pod comes back as it was.
    eventually(lambda: cluster.pods().get("db-0", was)["metadata"]["uid"] != was["metadata"]["uid"])
    assert images(cluster)["db-0"] == "x:1"
    set_image(cluster, "x:2")
    second = cluster.wait(STATEFUL_SETS, "db", complete)["status"]["currentRevision"]
    assert set(images(cluster).values()) == {"x:2"}
    kept = [item.raw for item in cluster.client.list(CONTROLLER_REVISIONS, "default").items]
    assert {item["metadata"]["name"]: item["revision"] for item in kept} == {first: 1, second: 2}
    # As `kubectl rollout undo` does.
    undo = next(item["data"] for item in kept if item["metadata"]["name"] == first)
    cluster.client.patch(STATEFUL_SETS, "db", undo, "default")
    assert cluster.wait(STATEFUL_SETS, "db", complete)["status"]["currentRevision"] == first
    assert set(images(cluster).values()) == {"x:1"}
    kept = [item.raw for item in cluster.client.list(CONTROLLER_REVISIONS, "default").items]
    assert {item["metadata"]["name"]: item["revision"] for item in kept} == {first: 3, second: 2}
    set_image(cluster, "x:3")
    cluster.wait(STATEFUL_SETS, "db", complete)
    eventually(lambda: len(cluster.client.list(CONTROLLER_REVISIONS, "default").items) == 2)  # one that is not used


def test_a_pod_that_failed_is_made_anew(cluster: Controlled) -> None:
    cluster.client.create(STATEFUL_SETS, stateful_set(1))
    cluster.wait(STATEFUL_SETS, "db", complete)
    was = cluster.pods()["db-0"]["metadata"]["uid"]

    def failed(pod: Object) -> Json:
        return {"phase": "Failed"} if pod["metadata"]["uid"] == was else running(pod)

    cluster.become(failed)
    eventually(lambda: {"db-0"} == {name for name, pod in cluster.pods().items() if pod["metadata"]["uid"] != was})
    cluster.wait(STATEFUL_SETS, "db", complete)
    text = "StatefulSet default/db is recreating failed Pod db-0"
    eventually(lambda: ("RecreatingFailedPod", text) in cluster.said("StatefulSet"))


def test_a_pod_that_cannot_be_made_is_told(cluster: Controlled) -> None:
    quota = dynamic_resource("", "v1", "pods", True)
    other = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "db-0", "namespace": "default"}}
    other["spec"] = {"containers": [{"name": "a", "image": "x"}]}
    cluster.client.create(quota, other)
    cluster.client.create(STATEFUL_SETS, stateful_set(1))
    text = 'create Pod db-0 in StatefulSet db failed error: pods "db-0" already exists'
    eventually(lambda: ("FailedCreate", text) in cluster.said("StatefulSet"))
    cluster.client.delete(PODS, "db-0", "default")
    cluster.wait(STATEFUL_SETS, "db", complete)


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
