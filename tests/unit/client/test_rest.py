"""REST calls, watches and their ends over real sockets."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from kproxy.client import (
    ENDPOINT_SLICES,
    NODES,
    SERVICES,
    ApiError,
    Call,
    CancelledError,
    RestClient,
    TransportError,
    dynamic_resource,
    rest,
)
from kproxy.informer.objects import EventType, WireError
from tests.support.fakeapi.server import FakeApiServer, Handler
from tests.support.fakeapi.storage import StatusError

FRUITS = dynamic_resource("example.org", "v1", "fruits", True)
WEB = {"metadata": {"name": "web"}, "spec": {"clusterIP": "10.0.0.1", "ports": [{"port": 80}]}}


def test_create_get_patch_delete(client: RestClient) -> None:
    made = client.create(SERVICES, WEB, "shop")
    assert (made.metadata.key, made.spec.ports[0].port) == ("shop/web", 80)
    assert client.get(SERVICES, "web", "shop") == made
    patched = client.patch(SERVICES, "web", {"metadata": {"labels": {"a": "b"}}}, "shop")
    assert dict(patched.metadata.labels) == {"a": "b"}
    client.delete(SERVICES, "web", "shop")
    with pytest.raises(ApiError, match='services "web" not found') as missing:
        client.get(SERVICES, "web", "shop")
    assert (missing.value.code, missing.value.reason) == (404, "NotFound")
    assert missing.value.request == "GET /api/v1/namespaces/shop/services/web"
    assert missing.value.message == 'services "web" not found'


def test_any_other_resource(client: RestClient, api: FakeApiServer) -> None:
    made = client.create(FRUITS, {"metadata": {"name": "apple"}, "spec": {"sweet": False}})
    assert (made.kind, made.api_version, made.metadata.key) == ("Fruit", "example.org/v1", "default/apple")
    assert [item.metadata.name for item in client.list(FRUITS).items] == ["apple"]
    api.put("nodes", {"metadata": {"name": "n1"}, "spec": {"podCIDR": "10.0.0.0/24"}})
    assert client.get(NODES, "n1").pod_cidrs == ("10.0.0.0/24",)
    assert client.list(ENDPOINT_SLICES).items == ()
    with pytest.raises(ApiError, match="could not find the requested resource"):
        client.list(dynamic_resource("no.such", "v1", "x", True))


def test_lists_are_fetched_in_pages_at_one_version(
    client: RestClient, api: FakeApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rest, "PAGE", 3)
    for number in range(7):
        api.put("services", {"metadata": {"name": f"s{number}", "labels": {"odd": str(number % 2)}}, "spec": {}})
    page = client.list(SERVICES)
    assert [item.metadata.name for item in page.items] == [f"s{number}" for number in range(7)]
    assert page.resource_version == str(api.storage.version)
    assert sum("limit=3" in request for request in api.requests) == 3
    odd = client.list(SERVICES, "default", label_selector="odd=1")
    assert [item.metadata.name for item in odd.items] == ["s1", "s3", "s5"]
    with pytest.raises(ApiError, match="is not a known field selector"):
        client.list(SERVICES, field_selector="spec.x=1")


def test_an_expired_continue_token_leads_to_the_whole_list(
    client: RestClient, api: FakeApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rest, "PAGE", 2)
    for number in range(5):
        api.put("services", {"metadata": {"name": f"s{number}"}, "spec": {}})

    def forget(handler: Handler) -> bool:
        if "continue=" in handler.path:
            api.storage.compact()
        return False

    api.intercept = forget
    assert len(client.list(SERVICES).items) == 5


def test_a_watch_sees_every_change(client: RestClient, api: FakeApiServer) -> None:
    api.put("services", WEB)
    stream = client.watch(SERVICES, resource_version=str(api.storage.version), timeout_seconds=1)
    api.put("services", WEB)
    api.put("services", {"metadata": {"name": "b", "namespace": "shop"}, "spec": {}})
    api.delete("services", "default/web")
    seen = [(str(event.type), event.object.metadata.name if event.object else "") for event in stream]
    assert seen == [("MODIFIED", "web"), ("ADDED", "b"), ("DELETED", "web"), ("BOOKMARK", "")]


def test_a_watch_from_a_forgotten_version(client: RestClient, api: FakeApiServer) -> None:
    for _ in range(3):
        api.put("services", WEB)
    api.storage.compact()
    with client.watch(SERVICES, resource_version="101") as stream:
        (event,) = list(stream)
    assert event.type is EventType.ERROR
    assert event.status is not None
    assert event.status.is_expired
    api.gone_as_status = True
    with pytest.raises(ApiError) as gone:
        client.watch(SERVICES, resource_version="101")
    assert gone.value.status.is_expired


def test_cancel_ends_a_watch_that_waits(client: RestClient, api: FakeApiServer) -> None:
    call = Call()
    stream = client.watch(SERVICES, resource_version=str(api.storage.version), call=call)
    timer = threading.Timer(0.2, call.cancel)
    timer.start()
    begun = time.monotonic()
    with pytest.raises(CancelledError):
        list(stream)
    assert time.monotonic() - begun < 30
    timer.join()


def test_cancel_ends_a_call_that_has_no_answer_yet(client: RestClient, api: FakeApiServer) -> None:
    release = threading.Event()

    def hang(handler: Handler) -> bool:
        release.wait(10)
        handler.hang_up()
        return True

    api.intercept = hang
    call = Call()
    threading.Timer(0.2, call.cancel).start()
    with pytest.raises(CancelledError):
        client.list_page(SERVICES, call=call)
    with pytest.raises(CancelledError):
        client.list_page(SERVICES, call=call)
    release.set()


def half(handler: Handler) -> None:
    handler.begin_stream()
    handler.send_piece(b'{"type":"ADDED","object":{"kind":"Serv')


def half_then_end(handler: Handler) -> bool:
    half(handler)
    handler.end_stream()
    return True


def half_then_cut(handler: Handler) -> bool:
    half(handler)
    handler.hang_up()
    return True


def garbage(handler: Handler) -> bool:
    handler.begin_stream()
    handler.send_piece(b"\x00\xffnonsense\n")
    handler.end_stream()
    return True


def no_http(handler: Handler) -> bool:
    handler.wfile.write(b"hello\r\n\r\n")
    handler.hang_up()
    return True


def bad_chunks(handler: Handler) -> bool:
    handler.begin_stream()
    handler.wfile.write(b"zz\r\n")
    handler.hang_up()
    return True


def cut(handler: Handler) -> bool:
    handler.hang_up()
    return True


def silence(handler: Handler) -> bool:
    half(handler)
    time.sleep(2)
    handler.hang_up()
    return True


@pytest.mark.parametrize(
    ("fault", "error", "why"),
    [
        (half_then_end, WireError, ""),
        (half_then_cut, TransportError, "the connection was lost in the middle of an answer"),
        (garbage, WireError, ""),
        (no_http, TransportError, "the answer is no HTTP"),
        (bad_chunks, TransportError, ""),
        (cut, TransportError, "the server closed the connection without an answer"),
        (silence, TransportError, ""),
    ],
)
def test_what_breaks_is_an_error_and_never_hangs(
    client: RestClient, api: FakeApiServer, fault: Callable[[Handler], bool], error: type[Exception], why: str
) -> None:
    api.intercept = fault
    begun = time.monotonic()
    with pytest.raises(error, match=why or None):
        list(client.watch(SERVICES, idle_timeout=0.5))
    assert time.monotonic() - begun < 30
    api.intercept = None
    assert client.list(SERVICES).items == (), "the next call is none the worse"


def test_a_trickle_does_not_last_for_ever(client: RestClient, api: FakeApiServer) -> None:
    def trickle(handler: Handler) -> bool:
        handler.begin_stream()
        for _ in range(100):
            handler.send_piece(b" ")
            time.sleep(0.05)
        return True

    api.intercept = trickle
    with pytest.raises(TransportError, match="longer than"):
        list(client.watch(SERVICES, total_timeout=0.3))


def test_error_answers_of_others_than_the_server(client: RestClient, api: FakeApiServer) -> None:
    def gateway(handler: Handler) -> bool:
        handler.send_response(502)
        handler.send_header("Content-Length", "3")
        handler.end_headers()
        handler.wfile.write(b"bad")
        return True

    def busy(handler: Handler) -> bool:
        handler.send_json(StatusError(429, "TooManyRequests", "slow down").body, 429, {"Retry-After": "3"})
        return True

    api.intercept = gateway
    with pytest.raises(ApiError, match="bad") as error:
        client.get(SERVICES, "a")
    assert (error.value.code, error.value.reason) == (502, "")
    api.intercept = busy
    with pytest.raises(ApiError) as error:
        client.get(SERVICES, "a")
    assert error.value.status.retry_after == 3.0
