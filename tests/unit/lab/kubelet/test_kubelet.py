"""The kubelet: which ports a pod serves."""

from __future__ import annotations

from typing import Any

from kproxy.lab.kubelet.podspec import DEFAULT_PORTS, pod_ports


def pod(owner: str = "", **spec: Any) -> dict[str, Any]:
    references = [{"uid": owner, "controller": True, "kind": "ReplicaSet", "name": owner}] if owner else []
    return {"metadata": {"name": "p", "namespace": "default", "uid": "u", "ownerReferences": references}, "spec": spec}


def test_ports_that_a_pod_serves() -> None:
    assert pod_ports(pod(containers=[{"name": "a"}])) == DEFAULT_PORTS
    found = pod_ports(pod(containers=[{"ports": [{"containerPort": 53, "protocol": "UDP"}, {"containerPort": 53}]}]))
    assert [(port.number, port.protocol) for port in found] == [(53, "UDP"), (53, "TCP")]
