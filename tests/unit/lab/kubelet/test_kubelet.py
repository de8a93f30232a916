"""The kubelet: which ports a pod serves."""

from __future__ import annotations

from typing import Any

from kproxy.lab.kubelet.podspec import DEFAULT_PORTS, pod_ports
from kproxy.lab.kubelet.servers import Port


def pod(owner: str = "", **spec: Any) -> dict[str, Any]:
    references = [{"uid": owner, "controller": True, "kind": "ReplicaSet", "name": owner}] if owner else []
    return {"metadata": {"name": "p", "namespace": "default", "uid": "u", "ownerReferences": references}, "spec": spec}


def test_ports_that_a_pod_serves() -> None:
    assert pod_ports(pod(containers=[{"name": "a"}])) == DEFAULT_PORTS
    found = pod_ports(pod(containers=[{"ports": [{"containerPort": 53, "protocol": "UDP"}, {"containerPort": 53}]}]))
    assert [(port.number, port.protocol) for port in found] == [(53, "UDP"), (53, "TCP")]


def test_what_is_asked_by_a_liveness_probe_is_served() -> None:
    """As a manager of kubebuilder: 8081 is in its probes only."""
    manager = {"livenessProbe": {"httpGet": {"port": 8081}}, "readinessProbe": {"httpGet": {"port": 9}}}
    assert pod_ports(pod(containers=[manager])) == (*DEFAULT_PORTS, Port(8081))
    named = {"ports": [{"name": "http", "containerPort": 80}], "livenessProbe": {"httpGet": {"port": "http"}}}
    other = {"livenessProbe": {"tcpSocket": {"port": 80}}}
    assert pod_ports(pod(containers=[named, other])) == (Port(80),)
