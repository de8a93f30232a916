"""A pod's status."""

from __future__ import annotations

from typing import Any

from kproxy.lab.kubelet.status import pod_status, same_status


def pod(owner: str = "", **spec: Any) -> dict[str, Any]:
    references = [{"uid": owner, "controller": True, "kind": "ReplicaSet", "name": owner}] if owner else []
    return {"metadata": {"name": "p", "namespace": "default", "uid": "u", "ownerReferences": references}, "spec": spec}


def test_a_status_is_written_again_only_if_it_says_something_else() -> None:
    subject = pod(containers=[{"name": "echo", "image": "echo"}])

    def status(**changes: Any) -> dict[str, Any]:
        values: dict[str, Any] = {
            "hosts": ["172.30.0.11"], "addresses": ["10.244.1.2"], "running": True, "probed": {}, "started": "t",
            "restarts": 0, "problem": "", **changes,
        }  # fmt: skip
        return pod_status(subject, **values)

    assert same_status(status(), status())
    assert not same_status(status(), status(probed={"echo": False}))
    assert same_status(status(), status(probed={"echo": True}))
    assert not same_status(status(), status(running=False))
    assert status()["podIPs"] == [{"ip": "10.244.1.2"}]
    waiting = status(addresses=[], running=False, started="", problem="no room")
    assert waiting["phase"] == "Pending"
    assert waiting["containerStatuses"][0]["state"]["waiting"]["message"] == "no room"
