"""Endpoints that are written by hand become EndpointSlices."""

from __future__ import annotations

from typing import Any

from tests.support.apiserver.server import Api

ENDPOINTS = "/api/v1/namespaces/default/endpoints"
SERVICES = "/api/v1/namespaces/default/services"
SLICES = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices?labelSelector=kubernetes.io/service-name="
MERGE = "application/merge-patch+json"


def endpoints(name: str, *addresses: str, port: int = 80) -> Any:
    subset = {"addresses": [{"ip": each} for each in addresses], "ports": [{"name": "web", "port": port}]}
    return {"metadata": {"name": name}, "subsets": [subset]}


def seen(answer: Any) -> list[tuple[str, list[str], int]]:
    """Type, addresses and port of each slice of an answer."""
    return sorted(
        (each["addressType"], sorted(e["addresses"][0] for e in each["endpoints"]), each["ports"][0]["port"])
        for each in answer["items"]
    )


def test_the_life_of_endpoints(shared: Api) -> None:
    """Spec: EndpointSliceMirroring should mirror a custom Endpoints resource through create update and delete."""
    shared.ok("POST", SERVICES, {"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}})
    shared.ok("POST", ENDPOINTS, endpoints("s", "10.1.2.3"))
    (made,) = shared.eventually(SLICES + "s", lambda got: got["items"])["items"]
    assert made["metadata"]["labels"]["endpointslice.kubernetes.io/managed-by"] == (
        "endpointslicemirroring-controller.k8s.io"
    )
    assert made["endpoints"] == [{"addresses": ["10.1.2.3"], "conditions": {"ready": True}}]
    assert made["ports"] == [{"name": "web", "port": 80, "protocol": "TCP"}]
    shared.ok("PUT", ENDPOINTS + "/s", endpoints("s", "10.2.3.4", "fd00::1", port=8080))
    wanted = [("IPv4", ["10.2.3.4"], 8080), ("IPv6", ["fd00::1"], 8080)]
    shared.eventually(SLICES + "s", lambda got: seen(got) == wanted)
    shared.ok("PUT", ENDPOINTS + "/s", endpoints("s", "10.2.3.5", port=8080))
    (kept,) = shared.eventually(SLICES + "s", lambda got: seen(got) == [("IPv4", ["10.2.3.5"], 8080)])["items"]
    shared.ok("DELETE", f"{SLICES.partition('?')[0]}/{kept['metadata']['name']}")
    shared.eventually(
        SLICES + "s", lambda got: got["items"] and got["items"][0]["metadata"]["uid"] != kept["metadata"]["uid"]
    )
    shared.ok("DELETE", ENDPOINTS + "/s")
    shared.eventually(SLICES + "s", lambda got: got["items"] == [])


def test_what_is_not_mirrored(shared: Api) -> None:
    """Endpoints whose Service has a selector, has gone or was never there; those that say so."""
    shared.ok(
        "POST", SERVICES, {"metadata": {"name": "own"}, "spec": {"selector": {"a": "b"}, "ports": [{"port": 80}]}}
    )
    shared.ok("POST", SERVICES, {"metadata": {"name": "skip"}, "spec": {"ports": [{"port": 80}]}})
    shared.ok("POST", SERVICES, {"metadata": {"name": "last"}, "spec": {"ports": [{"port": 80}]}})
    labelled = endpoints("skip", "10.1.2.3")
    labelled["metadata"]["labels"] = {"endpointslice.kubernetes.io/skip-mirror": "true"}
    for body in (endpoints("own", "10.1.2.3"), endpoints("alone", "10.1.2.3"), labelled, endpoints("last", "10.1.2.3")):
        shared.ok("POST", ENDPOINTS, body)
    shared.eventually(SLICES + "last", lambda got: len(got["items"]) == 1)  # one worker: the others came before
    assert [shared.ok("GET", SLICES + each)["items"] for each in ("own", "alone", "skip")] == [[], [], []]
    shared.ok("PATCH", SERVICES + "/own", {"spec": {"selector": None}}, MERGE)
    shared.eventually(SLICES + "own", lambda got: len(got["items"]) == 1)
    shared.ok("DELETE", SERVICES + "/last")
    shared.eventually(SLICES + "last", lambda got: got["items"] == [])
