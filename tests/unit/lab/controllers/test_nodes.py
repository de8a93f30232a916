"""The node lifecycle controller."""

from __future__ import annotations

from typing import Any

from kproxy.lab.controllers.nodes import eviction_seconds


def pod(owner: str = "", **spec: Any) -> dict[str, Any]:
    references = [{"uid": owner, "controller": True, "kind": "ReplicaSet", "name": owner}] if owner else []
    return {"metadata": {"name": "p", "namespace": "default", "uid": "u", "ownerReferences": references}, "spec": spec}


def test_how_long_a_pod_stays_on_an_unreachable_node() -> None:
    unreachable = {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute"}
    assert eviction_seconds(pod("a")) == 300
    assert eviction_seconds(pod("a", tolerations=[{**unreachable, "tolerationSeconds": 5}])) == 5
    assert eviction_seconds(pod("a", tolerations=[unreachable])) is None
    assert eviction_seconds(pod("a", tolerations=[{"operator": "Exists"}])) is None
    assert eviction_seconds(pod("a", tolerations=[{**unreachable, "key": "other"}])) == 300
    assert eviction_seconds(pod("a", tolerations=[{**unreachable, "effect": "NoSchedule"}])) == 300
    daemon = pod("a")
    daemon["metadata"]["ownerReferences"][0]["kind"] = "DaemonSet"
    assert eviction_seconds(daemon) is None
