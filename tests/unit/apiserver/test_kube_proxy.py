"""What a real kube-proxy asks for, with its own user and its own headers.

From public sources of v1.36: cmd/kube-proxy/app (label selectors of its informers, `clientConnection`, whose content
type is protobuf unless configured), client-go rest/request.go (how Accept comes of it), tools/cache (streaming lists),
and tools/events (its recorder writes to events.k8s.io).
"""

from __future__ import annotations

import base64
import http.client
import json
import socket
import ssl
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
import yaml

from kproxy.apiserver.schema.protobuf import MEDIA_TYPE, decode_envelope, encode_envelope
from tests.support.apiserver.server import Api
from tests.support.waiting import PATIENCE

ACCEPTS = [f"{MEDIA_TYPE}, */*", f"{MEDIA_TYPE},application/json", MEDIA_TYPE]
"""contentType alone; what typed clients prefer; and acceptContentTypes set to protobuf."""
PROXIED = "!service.kubernetes.io/service-proxy-name"
WITH_IP = "spec.clusterIP!=None"
NOT_HEADLESS = "!service.kubernetes.io/headless"
STREAMED = {
    "allowWatchBookmarks": "true",
    "resourceVersionMatch": "NotOlderThan",
    "sendInitialEvents": "true",
    "timeoutSeconds": "1",
    "watch": "true",
}


class Proxy:
    """Requests as system:kube-proxy, by client certificate."""

    def __init__(self, api: Api, directory: Path, accept: str) -> None:
        user = yaml.safe_load(api.server.kubeconfig_for("system:kube-proxy", "system:nodes"))["users"][0]["user"]
        pem = directory / "client.pem"
        pem.write_bytes(base64.b64decode(user["client-certificate-data"]) + base64.b64decode(user["client-key-data"]))
        self._context = ssl.create_default_context(cafile=str(api.server.ca))
        self._context.load_cert_chain(pem)
        self._port, self._accept = api.server.port, accept

    def __call__(self, method: str, path: str, body: bytes = b"", media: str = MEDIA_TYPE) -> tuple[int, str, bytes]:
        connection = http.client.HTTPSConnection("127.0.0.1", self._port, context=self._context, timeout=PATIENCE)
        try:
            connection.request(method, path, body or None, {"Accept": self._accept, "Content-Type": media})
            response = connection.getresponse()
            return response.status, response.headers["Content-Type"], response.read()
        finally:
            connection.close()

    def stream(self, path: str, **query: str) -> list[tuple[str, Any]]:
        """Type and object of what a streaming list shows in a second."""
        status, media, data = self("GET", f"{path}?{urlencode({**STREAMED, **query})}")
        assert status == 200, data
        if media == "application/json":
            return [(event["type"], event["object"]) for event in map(json.loads, data.splitlines())]
        assert media == f"{MEDIA_TYPE};stream=watch"
        return list(_framed(data))


def _framed(data: bytes) -> Iterator[tuple[str, Any]]:
    while data:
        (length,) = struct.unpack(">I", data[:4])
        frame, data = data[4 : 4 + length], data[4 + length :]
        yield frame[2 : 2 + frame[1]].decode(), decode_envelope(frame[frame.index(b"k8s\0") :])


@pytest.fixture(params=ACCEPTS)
def proxy(shared: Api, tmp_path: Path, request: pytest.FixtureRequest) -> Proxy:
    shared("POST", "/api/v1/nodes", {"metadata": {"name": "n1"}, "spec": {"podCIDRs": ["10.1.0.0/24"]}})
    shared("POST", "/api/v1/nodes", {"metadata": {"name": "n2"}})
    body: dict[str, Any]
    for name, labels in (
        ("plain", {}), ("labelled", {"service.kubernetes.io/headless": ""}), ("without", {}),
        ("other", {"service.kubernetes.io/service-proxy-name": "x"}),
    ):  # fmt: skip
        spec: dict[str, Any] = {"ports": [{"port": 80}]} | ({"clusterIP": "None"} if name == "without" else {})
        body = {"metadata": {"name": name, "labels": labels}, "spec": spec}
        shared("POST", "/api/v1/namespaces/default/services", body)
        labels = {**labels, "kubernetes.io/service-name": name}
        endpoints = [{"addresses": ["10.1.0.5"], "nodeName": "n1", "conditions": {"ready": True}}]
        body = {"metadata": {"name": name, "labels": labels}, "addressType": "IPv4", "endpoints": endpoints}
        shared("POST", "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices", {**body, "ports": [{"port": 80}]})
    return Proxy(shared, tmp_path, request.param)


def _names(events: list[tuple[str, Any]]) -> list[str]:
    """The names of the initial objects; the end of them must be marked."""
    assert {kind for kind, _ in events[:-1]} == {"ADDED"}
    kind, mark = events[-1]
    assert kind == "BOOKMARK"
    assert mark["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    assert int(mark["metadata"]["resourceVersion"]) > 0
    return [value["metadata"]["name"] for _, value in events[:-1]]


def test_its_informers_fill(proxy: Proxy) -> None:
    nodes = proxy.stream("/api/v1/nodes", fieldSelector="metadata.name=n1")
    assert _names(nodes) == ["n1"]
    assert nodes[0][1]["spec"]["podCIDRs"] == ["10.1.0.0/24"]
    services = proxy.stream("/api/v1/services", labelSelector=PROXIED, fieldSelector=WITH_IP)
    assert _names(services) == ["kubernetes", "labelled", "plain"]
    assert all(value["apiVersion"] == "v1" and value["kind"] == "Service" for _, value in services)
    slices = proxy.stream("/apis/discovery.k8s.io/v1/endpointslices", labelSelector=NOT_HEADLESS)
    assert set(_names(slices)) - {"kubernetes"} == {"other", "plain", "without"}
    assert slices[-2][1]["endpoints"][0]["conditions"] == {"ready": True}
    assert _names(proxy.stream("/apis/networking.k8s.io/v1/servicecidrs")) == ["kubernetes"]


def test_without_streaming_lists(proxy: Proxy) -> None:
    """A list at version 0 in one piece, then a watch from its version."""
    query = urlencode({"labelSelector": PROXIED, "fieldSelector": WITH_IP, "limit": "500", "resourceVersion": "0"})
    status, media, data = proxy("GET", f"/api/v1/services?{query}")
    assert status == 200
    found = decode_envelope(data) if media == MEDIA_TYPE else json.loads(data)
    assert found["kind"] == "ServiceList"
    assert [each["metadata"]["name"] for each in found["items"]] == ["kubernetes", "labelled", "plain"]
    version = found["metadata"]["resourceVersion"]
    query = urlencode({"watch": "true", "resourceVersion": version, "timeoutSeconds": "1", "labelSelector": PROXIED})
    status, _, data = proxy("GET", f"/api/v1/services?{query}")
    assert (status, data) == (200, b"")


def test_it_writes_events_and_nothing_else(proxy: Proxy, shared: Api) -> None:
    event = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"generateName": "n1.", "namespace": "default"},
        "eventTime": "2026-01-02T03:04:05.000006Z",
        "reportingController": "kube-proxy",
        "reportingInstance": "kube-proxy-n1",
        "action": "StartKubeProxy",
        "reason": "Starting",
        "regarding": {"kind": "Node", "name": "n1", "uid": "n1"},
        "type": "Normal",
    }
    status, media, data = proxy("POST", "/apis/events.k8s.io/v1/namespaces/default/events", encode_envelope(event))
    assert status == 201, data
    made = decode_envelope(data) if media == MEDIA_TYPE else json.loads(data)
    stored = shared.ok("GET", f"/api/v1/namespaces/default/events/{made['metadata']['name']}")
    assert stored["involvedObject"] == event["regarding"]
    body = encode_envelope({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "x"}})
    status, media, data = proxy("POST", "/api/v1/namespaces/default/services", body)
    refused = decode_envelope(data) if media == MEDIA_TYPE else json.loads(data)
    assert (status, refused["kind"], refused["reason"]) == (403, "Status", "Forbidden")


def test_go_offers_http2_and_gets_http1(shared: Api) -> None:
    context = ssl.create_default_context(cafile=str(shared.server.ca))
    context.set_alpn_protocols(["h2", "http/1.1"])
    with (
        socket.create_connection(("127.0.0.1", shared.server.port), timeout=PATIENCE) as raw,
        context.wrap_socket(raw, server_hostname="127.0.0.1") as connection,
    ):
        assert connection.selected_alpn_protocol() == "http/1.1"


def test_a_client_that_prefers_cbor_gets_json_and_one_that_insists_is_refused(shared: Api) -> None:
    path = "/api/v1/namespaces/default"
    response = shared.raw("GET", path, Accept="application/cbor, application/json;q=0.9")
    assert (response.status, response.headers["Content-Type"]) == (200, "application/json")
    assert shared.raw("GET", path, Accept="application/cbor").status == 406
    response = shared.raw("GET", f"{path}?watch=1&timeoutSeconds=1", Accept="application/cbor-seq")
    assert response.status == 406
    maps = "/api/v1/namespaces/default/configmaps"
    assert shared.raw("POST", maps, b"\xd9\xd9\xf7\xa0", Content_Type="application/cbor").status == 415
    patch = shared.raw("PATCH", f"{maps}/x", b"\xd9\xd9\xf7\xa0", Content_Type="application/apply-patch+cbor")
    assert patch.status == 415


@pytest.mark.parametrize("part", ["attach", "portforward"])
def test_a_stream_of_a_pod_that_is_not_there_is_not_found(shared: Api, part: str) -> None:
    path = f"/api/v1/namespaces/default/pods/p/{part}"
    for method, headers in (
        ("POST", {"Connection": "Upgrade", "Upgrade": "SPDY/3.1"}),
        ("GET", {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13"}),
        ("GET", {}),
    ):
        response = shared.raw(method, path, None, **headers)
        assert (response.status, json.loads(response.read())["reason"]) == (404, "NotFound")
