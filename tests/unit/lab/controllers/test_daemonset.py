"""DaemonSets: rolling update."""

from __future__ import annotations

from typing import Any

from kproxy.lab.controllers.daemonset import outdated, wants_node


def test_a_daemon_set_replaces_as_many_as_may_be_unavailable() -> None:
    def made(name: str, digest: str, ready: bool) -> dict[str, Any]:
        condition = {"type": "Ready", "status": str(ready)}
        meta = {"name": name, "namespace": "x", "labels": {"controller-revision-hash": digest}}
        return {"metadata": meta, "status": {"conditions": [condition]}}

    def names(pods: list[dict[str, Any]], most: int) -> list[str]:
        return [item["metadata"]["name"] for item in outdated(pods, "new", 3, most)]

    assert names([made("a", "old", True), made("b", "old", True), made("c", "old", True)], 1) == ["a"]
    assert names([made("a", "new", False), made("b", "old", True), made("c", "old", True)], 1) == []
    assert names([made("a", "new", True), made("b", "old", False), made("c", "old", True)], 1) == ["b"]
    assert names([made("a", "old", True), made("b", "old", True), made("c", "old", True)], 2) == ["a", "b"]
    assert names([made("a", "new", True), made("b", "new", True), made("c", "new", True)], 3) == []


def test_taints_and_the_pods_of_a_daemon_set() -> None:
    def wants(key: str, effect: str, *effects: str, **spec: Any) -> bool:
        node = {"metadata": {"name": "n"}, "spec": {"taints": [{"key": key, "effect": effect}]}}
        return wants_node({"spec": spec}, node, *effects)

    assert not wants("gpu", "NoSchedule", "NoSchedule", "NoExecute")
    assert wants("gpu", "NoSchedule", "NoExecute"), "what is there stays"
    assert not wants("gpu", "NoExecute", "NoExecute")
    assert wants("gpu", "NoExecute", "NoExecute", tolerations=[{"operator": "Exists"}])
    assert wants("node.kubernetes.io/unreachable", "NoExecute", "NoSchedule", "NoExecute")
    assert wants("gpu", "PreferNoSchedule", "NoSchedule", "NoExecute")
