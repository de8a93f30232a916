"""The EndpointSlice controller: as functions, and running."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from kproxy.apiserver.endpointslices import MOST_ENDPOINTS, Changes, desired_endpoints, reconcile
from tests.apiserver.conftest import Api

SERVICE: Any = {
    "metadata": {"name": "web", "namespace": "default", "uid": "u1", "labels": {"team": "a"}},
    "spec": {
        "selector": {"app": "web"},
        "ipFamilies": ["IPv4"],
        "ports": [{"name": "http", "port": 80, "targetPort": 8080}],
    },
}


def pod(number: int, *, ready: bool = True, node: str = "n1", deleted: bool = False, port: int | None = None) -> Any:
    value: Any = {
        "metadata": {"name": f"p{number:04}", "namespace": "default", "uid": f"p-{number}", "labels": {"app": "web"}},
        "spec": {"nodeName": node, "containers": [{"name": "c", "image": "x"}]},
        "status": {
            "phase": "Running",
            "podIPs": [{"ip": f"10.1.{number // 250}.{number % 250 + 1}"}, {"ip": f"fd00::{number + 1:x}"}],
            "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
        },
    }
    if deleted:
        value["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    if port is not None:
        value["spec"]["containers"][0]["ports"] = [{"name": "http", "containerPort": port, "protocol": "TCP"}]
    return value


def endpoints(service: Any, *pods: Any) -> list[Any]:
    wanted = desired_endpoints(service, pods, {"n1": "z1", "n2": "z2"}.get)
    return [endpoint for each in wanted.values() for endpoint in each]


def apply(existing: list[Any], changes: Changes, numbers: Any) -> list[Any]:
    """The slices after changes."""
    updated = {each["metadata"]["name"]: each for each in changes.update}
    gone = {each["metadata"]["name"] for each in changes.delete}
    kept = [updated.get(e["metadata"]["name"], e) for e in existing if e["metadata"]["name"] not in gone]
    for each in changes.create:
        each["metadata"]["name"] = f"s{next(numbers)}"
        kept.append(each)
    return kept


@pytest.mark.parametrize(
    ("ready", "deleted", "published", "conditions"),
    [
        (True, False, False, {"ready": True, "serving": True, "terminating": False}),
        (False, False, False, {"ready": False, "serving": False, "terminating": False}),
        (True, True, False, {"ready": False, "serving": True, "terminating": True}),
        (False, True, True, {"ready": True, "serving": True, "terminating": True}),
    ],
)
def test_conditions(ready: bool, deleted: bool, published: bool, conditions: dict[str, bool]) -> None:
    service = {**SERVICE, "spec": {**SERVICE["spec"], "publishNotReadyAddresses": published}}
    assert endpoints(service, pod(1, ready=ready, deleted=deleted))[0]["conditions"] == conditions


@pytest.mark.parametrize(
    ("distribution", "hints"),
    [
        ("", None),
        ("PreferClose", {"forZones": [{"name": "z1"}]}),
        ("PreferSameZone", {"forZones": [{"name": "z1"}]}),
        ("PreferSameNode", {"forNodes": [{"name": "n1"}], "forZones": [{"name": "z1"}]}),
    ],
)
def test_hints(distribution: str, hints: Any) -> None:
    service = {**SERVICE, "spec": {**SERVICE["spec"], "trafficDistribution": distribution}}
    assert endpoints(service, pod(1))[0].get("hints") == hints
    assert "hints" not in endpoints(service, pod(1, ready=False))[0]


def test_named_ports_divide_pods() -> None:
    service = {**SERVICE, "spec": {**SERVICE["spec"], "ports": [{"name": "h", "port": 80, "targetPort": "http"}]}}
    wanted = desired_endpoints(service, [pod(1, port=8080), pod(2, port=9090), pod(3)], lambda _node: None)
    assert sorted(len(each) for each in wanted.values()) == [1, 1]


def test_slices_hold_at_most_a_hundred_and_move_little() -> None:
    numbers = itertools.count()
    pods = [pod(number) for number in range(250)]

    def step(existing: list[Any], some: list[Any]) -> tuple[list[Any], Changes]:
        changes = reconcile(SERVICE, desired_endpoints(SERVICE, some, lambda _node: None), existing)
        return apply(existing, changes, numbers), changes

    slices, changes = step([], pods)
    assert [len(each["endpoints"]) for each in slices] == [100, 100, 50]
    slices, changes = step(slices, pods)
    assert changes.create == changes.update == changes.delete == []
    slices, changes = step(slices, pods[1:])
    assert (len(changes.create), len(changes.update), len(changes.delete)) == (0, 1, 0)
    slices, changes = step(slices, [*pods[1:], pod(900)])
    assert all(len(each["endpoints"]) <= MOST_ENDPOINTS for each in slices)
    assert sum(len(each["endpoints"]) for each in slices) == 250
    slices, changes = step(slices, [])
    assert [each["endpoints"] for each in slices] == [[]]


def test_running_controller(shared: Api) -> None:
    node = {"metadata": {"name": "n1", "labels": {"topology.kubernetes.io/zone": "z1"}}}
    shared.ok("POST", "/api/v1/nodes", node)
    spec = {
        "selector": {"app": "web"},
        "ports": [{"port": 80, "targetPort": 8080}],
        "trafficDistribution": "PreferClose",
    }
    spec |= {"ipFamilyPolicy": "PreferDualStack"}
    shared.ok("POST", "/api/v1/namespaces/default/services", {"metadata": {"name": "web"}, "spec": spec})
    base = "/api/v1/namespaces/default/pods"
    for number in (1, 2):
        value = pod(number)
        status = value.pop("status")
        value["metadata"] = {"name": value["metadata"]["name"], "labels": value["metadata"]["labels"]}
        shared.ok("POST", base, value)
        name = value["metadata"]["name"]
        shared.ok("PATCH", f"{base}/{name}/status", {"status": status}, "application/merge-patch+json")
    path = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices?labelSelector=kubernetes.io/service-name=web"
    full = shared.eventually(path, lambda found: sum(len(s["endpoints"] or ()) for s in found["items"]) == 4)
    assert {each["addressType"] for each in full["items"]} == {"IPv4", "IPv6"}
    first = full["items"][0]["endpoints"][0]
    assert (first["zone"], first["hints"]) == ("z1", {"forZones": [{"name": "z1"}]})
    shared.ok("DELETE", f"{base}/p0001")  # it has a node, so it terminates first
    shared.eventually(
        path, lambda found: any(e["conditions"]["terminating"] for s in found["items"] for e in s["endpoints"])
    )
    shared.ok("DELETE", f"{base}/p0001?gracePeriodSeconds=0")
    shared.eventually(path, lambda found: sum(len(s["endpoints"] or ()) for s in found["items"]) == 2)
    shared.ok("DELETE", "/api/v1/namespaces/default/services/web")
    shared.eventually(path, lambda found: not found["items"])
