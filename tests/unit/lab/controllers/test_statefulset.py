"""StatefulSets with the API server: identities, claims, revisions, status, Events."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kproxy.client import dynamic_resource
from kproxy.lab.controllers.statefulset import CONTROLLER
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
