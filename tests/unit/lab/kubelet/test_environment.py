"""What a container's command finds in its environment."""

from __future__ import annotations

from typing import Any

import pytest

from kproxy.lab.kubelet.environment import MissingError, environment, expand, field_of, with_values

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


def test_values_of_config_maps_and_secrets() -> None:
    """As the kubelet reads them: envFrom first, a prefix, no references in what comes from elsewhere."""
    there = {("ConfigMap", "c"): {"A": "1", "B": "$(A)"}, ("Secret", "s"): {"k": "geheim", "A": "2"}}
    container = {
        "name": "a", "envFrom": [
            {"configMapRef": {"name": "c"}, "prefix": "P_"}, {"secretRef": {"name": "s"}},
            {"configMapRef": {"name": "gone", "optional": True}},
        ],
        "env": [
            {"name": "A", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "B"}}},
            {"name": "URL", "value": "db:$(k)"},
            {"name": "NO", "valueFrom": {"secretKeyRef": {"name": "s", "key": "x", "optional": True}}},
        ],
    }  # fmt: skip
    pod = {**POD, "spec": {"containers": [container]}}
    found = environment(with_values(pod, lambda kind, name: there.get((kind, name))), "a")
    wanted = {"P_A": "1", "P_B": "$(A)", "k": "geheim", "A": "$(A)", "URL": "db:geheim"}
    assert {name: found.get(name) for name in (*wanted, "NO")} == {**wanted, "NO": None}


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ({"configMapKeyRef": {"name": "c", "key": "x"}}, 'configmap "c" not found'),
        ({"secretKeyRef": {"name": "s", "key": "x"}}, "couldn't find key x in Secret n/s"),
    ],
)
def test_a_value_that_is_missing(source: dict[str, Any], message: str) -> None:
    pod = {**POD, "spec": {"containers": [{"name": "a", "env": [{"name": "V", "valueFrom": source}]}]}}

    def read(kind: str, _name: str) -> dict[str, str] | None:
        return {} if kind == "Secret" else None

    with pytest.raises(MissingError) as raised:
        with_values(pod, read)
    assert str(raised.value) == message
    assert "V" not in environment(with_values(pod, read, strict=False), "a")


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
