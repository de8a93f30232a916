"""ReplicaSets: which pods go first."""

from __future__ import annotations

from typing import Any

from kproxy.lab.controllers.replicaset import rank


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
