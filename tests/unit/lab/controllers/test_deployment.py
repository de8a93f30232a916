"""Deployments: templates and rolling updates as arithmetic; and with the API server: sets, revisions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kproxy.lab.controllers.deployment import CONTROLLER, SETS, Replicas, fenceposts, plan_rolling, rank, same_template
from kproxy.lab.controllers.workload import resolve, template_hash
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


@pytest.mark.parametrize(
    ("value", "replicas", "up", "wanted"),
    [("25%", 4, True, 1), ("25%", 5, True, 2), ("25%", 5, False, 1), (3, 10, True, 3), ("100%", 7, False, 7),
     ("x", 4, True, 0)],
)  # fmt: skip
def test_int_or_percent(value: object, replicas: int, up: bool, wanted: int) -> None:
    assert resolve(value, replicas, up=up) == wanted


def test_both_zero_would_never_end() -> None:
    assert fenceposts(0, 0, 3) == (0, 1)
    assert fenceposts("25%", "25%", 4) == (1, 1)


def test_the_first_steps_of_a_rollout_of_three() -> None:
    """maxSurge 1, maxUnavailable 0: one new pod, then one old one less, and so on."""
    new, old = Replicas("new", 0, 0, 0), Replicas("old", 3, 3, 3)
    assert plan_rolling(new, [old], 3, 1, 0) == {"new": 1}
    assert plan_rolling(Replicas("new", 1, 1, 0), [old], 3, 1, 0) == {}
    assert plan_rolling(Replicas("new", 1, 1, 1), [old], 3, 1, 0) == {"old": 2}


def test_pods_that_do_not_work_go_first() -> None:
    broken, fine = Replicas("a", 2, 2, 0), Replicas("b", 2, 2, 2)
    assert plan_rolling(Replicas("new", 0, 0, 0), [broken, fine], 3, 1, 1)["a"] == 0


@given(
    replicas=st.integers(0, 12),
    surge=st.integers(0, 5),
    unavailable=st.integers(0, 5),
    old=st.lists(st.integers(0, 6), max_size=3),
    ready=st.randoms(use_true_random=False),
)
def test_every_rollout_ends_and_keeps_its_promises(
    replicas: int, surge: int, unavailable: int, old: list[int], ready: object
) -> None:
    """Pods become available one round after they are asked for; at every moment enough are, and not too many exist."""
    max_surge, max_unavailable = fenceposts(surge, min(unavailable, replicas), replicas)
    wanted = {"new": 0, **{f"old-{number}": count for number, count in enumerate(old)}}
    available = dict(wanted)
    start_total, start_available = sum(wanted.values()), sum(available.values())
    for _ in range(200):
        sets = {key: Replicas(key, wanted[key], wanted[key], available[key]) for key in wanted}
        changes = plan_rolling(sets["new"], [s for key, s in sets.items() if key != "new"], replicas, max_surge,
                               max_unavailable)  # fmt: skip
        if not changes and available == wanted:
            break
        wanted.update(changes)
        available = {key: min(count, available[key]) for key, count in wanted.items()}
        assert sum(wanted.values()) <= max(start_total, replicas + max_surge)
        assert sum(available.values()) >= min(start_available, replicas - max_unavailable)
        available = dict(wanted)
    assert wanted == {key: replicas if key == "new" else 0 for key in wanted}
