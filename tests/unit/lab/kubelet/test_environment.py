"""What a container's command finds in its environment."""

from __future__ import annotations

from typing import Any

from kproxy.lab.kubelet.environment import environment, expand, field_of, not_given

POD: dict[str, Any] = {
    "metadata": {"name": "p", "namespace": "n", "uid": "u", "labels": {"a/b": "c"}, "annotations": {"x": "y"}},
    "spec": {"nodeName": "node-1", "hostname": "p-0", "containers": [{"name": "a", "env": []}, {"name": "b"}]},
    "status": {"podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}], "hostIP": "172.30.0.11"},
}


def test_fields_of_the_pod() -> None:
    wanted = {
        "metadata.name": "p", "metadata.namespace": "n", "metadata.uid": "u", "metadata.labels['a/b']": "c",
        "metadata.annotations['x']": "y", "metadata.annotations['z']": "", "spec.nodeName": "node-1",
        "status.podIP": "10.0.0.1", "status.podIPs": "10.0.0.1,fd00::1", "status.hostIP": "172.30.0.11",
        "spec.containers": "", "status": "",
    }  # fmt: skip
    assert {path: field_of(POD, path) for path in wanted} == wanted


def test_what_no_command_gets_is_named() -> None:
    own = [
        {"name": "A", "value": "1"},
        {"name": "PASSWORD", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
        {"name": "ME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
    ]
    containers = [{"name": "a", "envFrom": [{"configMapRef": {"name": "c"}}], "env": own}, {"name": "b", "env": own}]
    assert not_given({**POD, "spec": {"containers": containers}}) == [
        "envFrom (configMapRef)",
        "PASSWORD (secretKeyRef)",
    ]
    assert not_given(POD) == []


def test_values_and_references() -> None:
    own = [
        {"name": "WHO", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "URL", "value": "http://$(WHO):80/$(OTHER)"},
        {"name": "SECRET", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
    ]
    pod = {**POD, "spec": {**POD["spec"], "containers": [{"name": "a", "env": own}]}}
    values = environment(pod, "a")
    assert {name: values.get(name) for name in ("WHO", "URL", "SECRET", "HOSTNAME", "TERM")} == {
        "WHO": "p", "URL": "http://p:80/$(OTHER)", "SECRET": None, "HOSTNAME": "p-0", "TERM": None,
    }  # fmt: skip
    assert environment(pod, "a", terminal=True)["TERM"] == "xterm"
    assert "WHO" not in environment(pod, "b")
    assert expand("$$(A) $(A) $A", {"A": "1"}) == "$(A) 1 $A"
