"""What a real kube-apiserver was recorded to answer, decoded."""

from __future__ import annotations

from kproxy.client.discovery import decode_discovery
from kproxy.client.resources import SERVICES
from kproxy.informer.codec import LineReader, UnstructuredCodec, decode_status
from kproxy.informer.objects import EventType
from tests.support.client.recorded import answers, body


def test_statuses() -> None:
    for what, row in answers().items():
        if row["status"] >= 400:
            status = decode_status(str(row["body"]).encode(), row["status"])
            assert status.code == row["status"], what
            assert status.message, what
    assert decode_status(body("list at a version of the future"), 504).is_too_large_resource_version
    assert decode_status(body("list at a version of the future"), 504).retry_after == 1.0
    assert decode_status(body("many invalid fields at once"), 422).is_refused_request
    assert decode_status(body("unknown group"), 404).message == "404 page not found"


def test_watches() -> None:
    for start, kinds in (
        ("watch from nothing", ["ADDED"]),
        ("watch seeing modify", ["ADDED", "DELETED"]),
        ("watch with streaming list", ["ERROR"]),
    ):
        codec, reader = UnstructuredCodec(), LineReader()
        events = [codec.decode_event(line) for line in reader.feed(body(start))]
        reader.close()
        assert [event.type for event in events] == kinds
        if kinds == ["ERROR"]:
            assert events[0].status is not None
            assert (events[0].status.code, events[0].status.reason) == (500, "InternalError")
    assert EventType.ADDED in [
        UnstructuredCodec().decode_event(line).type for line in LineReader().feed(body("watch from version 1"))
    ]


def test_objects_and_pages() -> None:
    service = SERVICES.codec.decode(body("create with defaults"))
    assert (service.metadata.key, service.spec.internal_traffic_policy) == ("default/a", "Cluster")
    page = UnstructuredCodec().decode_list(body("list, limit 2"))
    assert (len(page.items), page.resource_version) == (2, "245")
    assert page.continue_token
    assert page.items[0].kind == "ConfigMap"


def test_discovery() -> None:
    core = decode_discovery(body("kubectl api-versions: GET /api?"), "/api")
    named = decode_discovery(body("kubectl api-versions: GET /apis?"), "/apis")
    services = next(item for item in core if item.plural == "services")
    assert (services.group, services.namespaced) == ("", True)
    slices = next(item for item in named if item.plural == "endpointslices")
    assert (slices.group, slices.version, slices.kind) == ("discovery.k8s.io", "v1", "EndpointSlice")
