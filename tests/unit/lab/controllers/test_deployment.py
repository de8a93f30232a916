"""Deployments: when a template is another one, and with the API server: sets, revisions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kproxy.lab.controllers.deployment import CONTROLLER, SETS, rank, same_template
from kproxy.lab.controllers.workload import template_hash
from kproxy.lab.resources import DEPLOYMENTS, REPLICA_SETS, Json
from tests.support.lab.controlled import Controlled, controlled
from tests.support.waiting import eventually


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Controlled]:
    with controlled(tmp_path, CONTROLLER, SETS) as found:
        yield found


def web(replicas: int, image: str = "x:1", **spec: Any) -> Json:
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "a", "image": image}]}}
    return {
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "default"},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "template": template, **spec},
    }  # fmt: skip


def complete(item: Json) -> bool:
    status, wanted = item["status"], item["spec"]["replicas"]
    counts = [status.get(name, 0) for name in ("replicas", "updatedReplicas", "availableReplicas")]
    return status.get("observedGeneration") == item["metadata"]["generation"] and counts == [wanted] * 3


def sets(cluster: Controlled) -> dict[str, int]:
    """Replicas of the ReplicaSets by their image."""
    found = [item.raw["spec"] for item in cluster.client.list(REPLICA_SETS, "default").items]
    return {each["template"]["spec"]["containers"][0]["image"]: each["replicas"] for each in found}


def test_templates_are_compared_without_their_hash() -> None:
    one = {"metadata": {"labels": {"app": "a"}, "creationTimestamp": None}, "spec": {"containers": []}}
    other = {"metadata": {"labels": {"app": "a", "pod-template-hash": "x"}}, "spec": {"containers": []}}
    assert same_template(one, other)
    assert not same_template(one, {**other, "spec": {"containers": [1]}})
    assert template_hash(one) == template_hash(dict(reversed(list(one.items()))))


def test_an_update_is_rolled_out_and_undone(cluster: Controlled) -> None:
    cluster.client.create(DEPLOYMENTS, web(3))
    first = cluster.wait(DEPLOYMENTS, "web", complete)
    assert first["metadata"]["annotations"]["deployment.kubernetes.io/revision"] == "1"
    for image, revision in (("x:2", "2"), ("x:1", "3")):
        cluster.client.patch(DEPLOYMENTS, "web", {"spec": web(3, image)["spec"]}, "default")
        found = cluster.wait(DEPLOYMENTS, "web", complete)
        assert found["metadata"]["annotations"]["deployment.kubernetes.io/revision"] == revision
        assert sets(cluster) == {"x:1": 0, "x:2": 0} | {image: 3}
        assert {pod["spec"]["containers"][0]["image"] for pod in cluster.pods().values()} == {image}
    reasons = {reason for reason, _ in cluster.said("Deployment")}
    assert reasons == {"ScalingReplicaSet"}


def test_sets_without_an_owner_are_not_taken_in(cluster: Controlled) -> None:
    """As `kubectl delete --cascade=orphan` leaves them: an Event says that their name is taken."""
    cluster.client.create(DEPLOYMENTS, web(2))
    cluster.wait(DEPLOYMENTS, "web", complete)
    cluster.client.raw("DELETE", DEPLOYMENTS.path("default", "web"), body=b'{"propagationPolicy":"Orphan"}')
    eventually(lambda: not cluster.client.list(DEPLOYMENTS, "default").items)
    cluster.client.create(DEPLOYMENTS, web(2))
    eventually(lambda: "ReplicaSetCreateError" in {reason for reason, _ in cluster.said("Deployment")})
    assert len(cluster.pods()) == 2


def test_a_recreated_deployment_has_no_pods_of_both(cluster: Controlled) -> None:
    cluster.client.create(DEPLOYMENTS, web(2, strategy={"type": "Recreate"}))
    cluster.wait(DEPLOYMENTS, "web", complete)
    cluster.client.patch(DEPLOYMENTS, "web", {"spec": web(2, "x:2")["spec"]}, "default")
    cluster.wait(DEPLOYMENTS, "web", complete)
    assert sets(cluster) == {"x:1": 0, "x:2": 2}


def test_surplus_pods_go_in_the_order_of_their_worth() -> None:
    def made(name: str, node_name: str, phase: str, ready: bool, created: str) -> dict[str, Any]:
        status = {"phase": phase, "conditions": [{"type": "Ready", "status": str(ready)}]}
        meta = {"name": name, "creationTimestamp": created}
        return {"metadata": meta, "spec": {"nodeName": node_name}, "status": status}

    pods = [
        made("old", "n", "Running", True, "2026-01-01T00:00:00Z"),
        made("young", "n", "Running", True, "2026-01-02T00:00:00Z"),
        made("unready", "n", "Running", False, "2025-01-01T00:00:00Z"),
        made("pending", "n", "Pending", False, "2025-01-01T00:00:00Z"),
        made("unassigned", "", "Pending", False, "2025-01-01T00:00:00Z"),
    ]
    ordered = [item["metadata"]["name"] for item in sorted(pods, key=rank)]
    assert ordered == ["unassigned", "pending", "unready", "young", "old"]
