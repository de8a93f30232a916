"""DaemonSets: rolling update."""

from __future__ import annotations

from typing import Any

from kproxy.lab.controllers.daemonset import outdated


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
