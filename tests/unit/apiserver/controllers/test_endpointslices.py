"""The EndpointSlice controller: as functions, and running."""

from __future__ import annotations

import functools
import itertools
import time
from typing import Any

import pytest

from kproxy.apiserver.controllers.endpointslices import MAX_ENDPOINTS, Changes, desired_endpoints, reconcile
from tests.support.apiserver.server import Api

SLICES = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
NUMBERS = itertools.count()
MERGE = "application/merge-patch+json"
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
        (False, True, True, {"ready": True, "serving": False, "terminating": True}),
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
    assert {key[1]: len(each) for key, each in wanted.items()} == {
        b'[{"name":"h","port":8080,"protocol":"TCP"}]': 1,
        b'[{"name":"h","port":9090,"protocol":"TCP"}]': 1,
        b"[]": 1,  # it has no such port, so its slice has none
    }


def test_pods_in_a_nodes_network_share_its_address() -> None:
    old, new = pod(1, deleted=True), pod(2)
    new["status"]["podIPs"] = old["status"]["podIPs"]
    wanted = desired_endpoints(SERVICE, [old, new], lambda _node: None)
    slices = apply([], reconcile(SERVICE, wanted, []), itertools.count())
    assert [(e["targetRef"]["name"], e["conditions"]["ready"]) for e in slices[0]["endpoints"]] == [
        ("p0001", False),
        ("p0002", True),
    ]
    again = reconcile(SERVICE, wanted, slices)
    assert again.create == again.update == again.delete == []


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
    assert all(len(each["endpoints"]) <= MAX_ENDPOINTS for each in slices)
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


def test_fields_in_another_order_are_the_same_ports() -> None:
    """A port without a name is stored with its default last; that must not make a slice look like another's."""
    service = {**SERVICE, "spec": {**SERVICE["spec"], "ports": [{"port": 80, "protocol": "TCP", "targetPort": 8080}]}}
    wanted = desired_endpoints(service, [pod(1)], lambda _node: None)
    slices = apply([], reconcile(service, wanted, []), itertools.count())
    slices[0]["ports"] = [{"port": 8080, "protocol": "TCP", "name": ""}]
    changes = reconcile(service, wanted, slices)
    assert not (changes.create)
    assert not (changes.update)
    assert not (changes.delete)


@pytest.mark.parametrize(
    "ports",
    [
        [{"port": 80}],
        [{"port": 80, "targetPort": "http"}],
        [{"name": "b", "port": 81, "appProtocol": "x/y"}, {"name": "a", "port": 80, "protocol": "UDP"}],
        [{"name": "a", "port": 80, "targetPort": 1}, {"name": "b", "port": 81, "targetPort": "http"}],
    ],
)
@pytest.mark.parametrize("extra", [{}, {"clusterIP": "None"}, {"ipFamilyPolicy": "PreferDualStack"}])
def test_the_controller_comes_to_rest(shared: Api, ports: Any, extra: Any) -> None:
    """Once the slices are right, nothing is written any more: what is stored compares equal to what is wanted."""
    name = f"rest-{next(NUMBERS)}"
    item = pod(1, port=8080)
    item["metadata"] = {"name": name, "labels": {"app": name}}
    status = item.pop("status")
    shared.ok("POST", "/api/v1/namespaces/default/pods", item)
    shared.ok("PATCH", f"/api/v1/namespaces/default/pods/{name}/status", {"status": status}, MERGE)
    body = {"metadata": {"name": name}, "spec": {"selector": {"app": name}, "ports": ports, **extra}}
    made = shared.ok("POST", "/api/v1/namespaces/default/services", body)
    path = f"{SLICES}?labelSelector=kubernetes.io/service-name={name}"
    families = len(made["spec"]["ipFamilies"])
    shared.eventually(path, lambda found: sum(len(each["endpoints"]) for each in found["items"]) == families)
    before = shared.ok("GET", path)
    # One more event for the controller, which it must answer with nothing.
    shared.ok("PATCH", f"/api/v1/namespaces/default/pods/{name}", {"metadata": {"annotations": {"a": "b"}}}, MERGE)
    time.sleep(0.1)
    assert shared.ok("GET", path)["items"] == before["items"]


def test_an_emptied_slice_says_that_it_is_empty(shared: Api) -> None:
    """`endpoints` has no omitempty, and an empty list does not survive kube-apiserver's storage: null."""
    name = f"emptied-{next(NUMBERS)}"
    item = pod(1, port=8080)
    item["metadata"] = {"name": name, "labels": {"app": name}}
    status = item.pop("status")
    shared.ok("POST", "/api/v1/namespaces/default/pods", item)
    shared.ok("PATCH", f"/api/v1/namespaces/default/pods/{name}/status", {"status": status}, MERGE)
    body = {"metadata": {"name": name}, "spec": {"selector": {"app": name}, "ports": [{"port": 80}]}}
    shared.ok("POST", "/api/v1/namespaces/default/services", body)
    path = f"{SLICES}?labelSelector=kubernetes.io/service-name={name}"
    shared.eventually(path, lambda found: found["items"] and found["items"][0]["endpoints"])
    shared.ok("DELETE", f"/api/v1/namespaces/default/pods/{name}", {"gracePeriodSeconds": 0})
    found = shared.eventually(path, lambda found: not found["items"][0]["endpoints"])
    assert found["items"][0]["endpoints"] is None
    given = {"metadata": {"name": name}, "addressType": "IPv4", "endpoints": [], "ports": []}
    made = shared.ok("POST", SLICES, given)
    assert (made["endpoints"], made["ports"]) == (None, None)


def test_a_slice_that_is_moved_to_another_service_is_missed_by_the_first(shared: Api) -> None:
    """Both Services have the endpoints of their own Pods again, the one in a new slice."""
    names = [f"moved{next(NUMBERS)}" for _ in range(2)]
    for number, name in enumerate(names):
        spec = {"selector": {"app": name}, "ports": [{"port": 80}]}
        shared.ok("POST", "/api/v1/namespaces/default/services", {"metadata": {"name": name}, "spec": spec})
        value = pod(number)
        value["metadata"] = {"name": f"{name}-pod", "labels": {"app": name}}
        shared.ok("POST", "/api/v1/namespaces/default/pods", value)
        value["status"]["podIPs"] = [{"ip": f"10.9.0.{number + 1}"}]
        status = {"status": {**value["status"], "podIP": f"10.9.0.{number + 1}"}}
        shared.ok("PATCH", f"/api/v1/namespaces/default/pods/{name}-pod/status", status, MERGE)

    paths = [f"{SLICES}?labelSelector=kubernetes.io/service-name={name}" for name in names]

    def each_has_its_own() -> None:
        for number, path in enumerate(paths):
            shared.eventually(path, functools.partial(holds, f"10.9.0.{number + 1}"))

    def holds(ip: str, found: Any) -> bool:
        return {endpoint["addresses"][0] for each in found["items"] for endpoint in each["endpoints"] or ()} == {ip}

    each_has_its_own()
    (first,) = shared.ok("GET", paths[0])["items"]
    body = {"metadata": {"labels": {"kubernetes.io/service-name": names[1]}}}
    shared.ok("PATCH", f"{SLICES}/{first['metadata']['name']}", body, MERGE)
    each_has_its_own()
