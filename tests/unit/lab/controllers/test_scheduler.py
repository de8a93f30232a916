"""The scheduler: where a pod goes."""

from __future__ import annotations

from typing import Any

from kproxy.lab.controllers.scheduler import choose_node, why_not


def node(name: str, *, ready: bool = True, labels: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    condition = {"type": "Ready", "status": "True" if ready else "Unknown"}
    return {"metadata": {"name": name, "labels": labels or {}}, "spec": spec, "status": {"conditions": [condition]}}


def pod(owner: str = "", **spec: Any) -> dict[str, Any]:
    references = [{"uid": owner, "controller": True, "kind": "ReplicaSet", "name": owner}] if owner else []
    return {"metadata": {"name": "p", "namespace": "default", "uid": "u", "ownerReferences": references}, "spec": spec}


def test_pods_of_one_owner_are_spread_before_nodes_are_filled() -> None:
    nodes = [node("node-1"), node("node-2"), node("node-10")]
    assert choose_node(pod("a"), nodes, {}) == "node-1"
    assert choose_node(pod("a"), nodes, {("a", "node-1"): 1, ("", "node-1"): 1, ("", "node-2"): 5}) == "node-10"
    assert choose_node(pod("a"), nodes, {("", "node-1"): 2, ("", "node-2"): 1, ("", "node-10"): 1}) == "node-2"


def test_nodes_that_will_not_do() -> None:
    nodes = [node("node-1", ready=False), node("node-2", unschedulable=True), node("node-3", labels={"disk": "ssd"})]
    assert choose_node(pod("a"), nodes, {}) == "node-3"
    assert choose_node(pod("a", nodeSelector={"disk": "ssd"}), nodes, {}) == "node-3"
    assert choose_node(pod("a", nodeSelector={"disk": "hdd"}), nodes, {}) is None


def test_taints_keep_pods_away_that_do_not_tolerate_them() -> None:
    gpu = {"key": "gpu", "value": "yes", "effect": "NoSchedule"}
    nodes = [node("node-1", taints=[gpu]), node("node-2", taints=[{"key": "old", "effect": "PreferNoSchedule"}])]
    assert choose_node(pod("a"), nodes, {("a", "node-2"): 9}) == "node-2"
    assert choose_node(pod("a"), nodes[:1], {}) is None
    assert "1 node(s) had untolerated taint(s)" in why_not(pod("a"), nodes[:1])
    for toleration in (
        {"key": "gpu", "operator": "Exists"},
        {"operator": "Exists"},
        {"key": "gpu", "value": "yes"},
        {"key": "gpu", "operator": "Equal", "value": "yes", "effect": "NoSchedule"},
    ):
        assert choose_node(pod("a", tolerations=[toleration]), nodes, {}) == "node-1", toleration
    for toleration in (
        {"key": "gpu", "value": "no"},
        {"key": "gpu"},
        {"key": "cpu", "operator": "Exists"},
        {"operator": "Exists", "effect": "NoExecute"},
    ):
        assert choose_node(pod("a", tolerations=[toleration]), nodes, {}) == "node-2", toleration
    assert choose_node(pod("a"), [node("node-3", taints=[{"key": "x", "effect": "NoExecute"}])], {}) is None


def test_why_no_node_will_do() -> None:
    """The words of kube-scheduler v1.36."""
    picky = pod(nodeSelector={"disk": "ssd"})
    assert why_not(picky, []) == "no nodes available to schedule pods"
    assert why_not(picky, [node("a"), node("b"), node("c", ready=False), node("d", unschedulable=True)]) == (
        "0/4 nodes are available: 1 node(s) had untolerated taint(s), 1 node(s) were unschedulable, "
        "2 node(s) didn't match Pod's node affinity/selector. no new claims to deallocate, "
        "preemption: 0/4 nodes are available: 4 Preemption is not helpful for scheduling."
    )
