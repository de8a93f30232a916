"""Bad input: a Status with the right code, no fault, and nobody else hurt."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from kproxy.apiserver.http import app
from tests.support.apiserver.server import Api
from tests.support.waiting import PATIENCE, eventually

MAPS = "/api/v1/namespaces/default/configmaps"
APPLY = "application/apply-patch+yaml"


@pytest.fixture(autouse=True)
def unharmed(shared: Api) -> Any:
    """After each test the server answers, and has had no unexpected error."""
    before = shared.server.call(lambda server: server.health.faults)
    yield
    assert shared("GET", "/readyz") == (200, "ok")
    assert shared.server.call(lambda server: server.health.faults) == before


BODIES = [
    (b"", 400),
    (b"{", 400),
    (b"null", 400),
    (b"[]", 400),
    (b'"x"', 400),
    (b"\xff\xfe", 400),
    (b'{"metadata":[]}', 400),
    (b'{"metadata":{"name":5}}', 400),
    (b'{"metadata":{"labels":{"a":1}}}', 400),
    (b"{}", 422),
    (b'{"metadata":{"name":"A_B"}}', 422),
    (b'{"metadata":{"name":"' + b"a" * 300 + b'"}}', 422),
    (b'{"metadata":{"name":"x","labels":{"a b":"c"}}}', 422),
    (b'{"metadata":{"name":"x","finalizers":["plain"]}}', 422),
    (b'{"apiVersion":"v2","metadata":{"name":"x"}}', 400),
    (b'{"kind":"Nonsense","metadata":{"name":"x"}}', 400),
    (b"[" * 100_000, 400),
    (b'{"a":' * 50_000 + b"1" + b"}" * 50_000, 400),
    (b'{"metadata":{"name":"../x"}}', 422),
    (b'{"metadata":{"name":"x","namespace":"other"}}', 400),
    (b'{"metadata":{"name":"x","resourceVersion":"1"}}', 400),
    (b'{"data":{"a":1e999},"metadata":{"name":"x"}}', 400),
    (b'{"metadata":{"name":"\\ud800"}}', 400),
]


@pytest.mark.parametrize(("body", "code"), BODIES)
def test_bodies(shared: Api, body: bytes, code: int) -> None:
    status, answer = shared("POST", MAPS, body)
    assert (status, answer["kind"], answer["code"]) == (code, "Status", code), answer


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("labelSelector=a%20b", 400),
        ("labelSelector=a in b", 400),
        ("labelSelector=(", 400),
        ("fieldSelector=x=y", 400),
        ("fieldSelector=metadata.name", 400),
        ("limit=x", 400),
        ("timeoutSeconds=x", 400),
        ("timeout=5", 400),
        ("continue=%00", 400),
        ("resourceVersion=-1", 400),
        ("watch=maybe", 400),
        ("watch=1&resourceVersion=x", 400),
        ("watch=1&timeoutSeconds=x", 400),
        ("resourceVersion=5&resourceVersionMatch=Odd", 422),
        ("continue=e30", 400),
        ("continue=" + "A" * 5000, 400),
    ],
)
def test_queries(shared: Api, query: str, code: int) -> None:
    status, answer = shared("GET", f"{MAPS}?{query.replace(' ', '%20')}")
    assert (status, answer["kind"]) == (code, "Status"), answer


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("/api/v1/namespaces/default/configmaps/a%2fb", 404),
        ("/api/v1/namespaces/../secrets", 404),
        ("/api/v1//x", 404),
        ("/api/v1/namespaces/default/configmaps/%00", 404),
        ("/api/v1/namespaces/default/configmaps/%ff", 400),
        ("/api/v1/configmaps/x", 404),
        ("/api/v1/namespaces/default/namespaces", 404),
        ("/apis/apps/v2/deployments", 404),
        ("/api/v1/namespaces/default/configmaps/x/status", 404),
        ("/api/v1/nodes/x/proxy/y", 404),
        ("/etc/passwd", 404),
        ("/api/v1/namespaces/default/pods/x/log", 404),
        ("/openapi/v3/../../x", 404),
    ],
)
def test_paths(shared: Api, path: str, code: int) -> None:
    assert shared.raw("GET", path).status == code


@pytest.mark.parametrize(
    ("media", "patch", "code"),
    [
        ("application/json-patch+json", {"op": "add"}, 400),
        ("application/json-patch+json", [5], 400),
        ("application/json-patch+json", [{"op": "remove", "path": "/x/y"}], 422),
        ("application/json-patch+json", [{"op": "add", "path": "/data/a", "value": 5}], 422),
        ("application/json-patch+json", [{"op": "replace", "path": "", "value": 5}], 400),
        ("application/json-patch+json", [{"op": "move", "from": "/data", "path": "/data/a"}], 422),
        ("application/merge-patch+json", [], 400),
        ("application/merge-patch+json", {"metadata": {"name": "y"}}, 400),
        ("application/merge-patch+json", {"metadata": {"uid": "y"}}, 422),
        ("application/merge-patch+json", {"data": 5}, 422),
        ("application/strategic-merge-patch+json", {"data": {"$patch": "odd"}}, 400),
        ("application/strategic-merge-patch+json", 5, 400),
        ("application/json", {}, 415),
        ("text/plain", {}, 415),
        (APPLY, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "other"}}, 400),
        (APPLY, [], 400),
        (APPLY, b"a: &a [*a]", 400),
        (APPLY, b"\t- x: [", 400),
    ],
)
def test_patches(shared: Api, media: str, patch: Any, code: int) -> None:
    shared("POST", MAPS, {"metadata": {"name": "target"}, "data": {"a": "b"}})
    status, answer = shared("PATCH", f"{MAPS}/target?fieldManager=x", patch, media)
    assert (status, answer["kind"]) == (code, "Status"), answer
    assert shared.ok("GET", f"{MAPS}/target")["data"] == {"a": "b"}


def test_yaml_bombs_are_refused(shared: Api) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    assert shared("POST", MAPS, "\n".join(lines).encode(), "application/yaml")[0] == 400


def test_a_long_yaml_text_holds_nobody_up(shared: Api) -> None:
    """While a megabyte of YAML is read, others are answered."""
    text = b"data: {" + b"".join(b"k%d: v, " % number for number in range(90_000)) + b"]"
    answered = 0
    with ThreadPoolExecutor(1) as pool:
        refused = pool.submit(shared, "POST", MAPS, text, "application/yaml")
        while not refused.done():
            assert shared("GET", MAPS)[0] == 200
            answered += 1
    assert refused.result()[0] == 400
    assert answered > 3


def test_defaults_of_many_items_are_bounded(shared: Api) -> None:
    """100,000 empty items with 200 kB of defaults each would take 20 GB."""
    item = {"type": "object", "properties": {f"p{n}": {"type": "string", "default": "x" * 1000} for n in range(200)}}
    schema = {"type": "object", "properties": {"spec": {"type": "array", "items": item}}}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"plural": "manies", "kind": "Many"}
    spec = {"group": "example.org", "scope": "Namespaced", "names": names, "versions": [version]}
    definition = {"metadata": {"name": "manies.example.org"}, "spec": spec}
    shared.ok("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
    path = "/apis/example.org/v1/namespaces/default/manies"
    shared.eventually(path, lambda answer: answer.get("kind") == "ManyList")
    body: Any = {"apiVersion": "example.org/v1", "kind": "Many", "metadata": {"name": "a"}}
    assert shared("POST", path, body | {"spec": [{}] * 10})[0] == 201
    body["metadata"]["name"] = "b"
    status, answer = shared("POST", path, body | {"spec": [{}] * 5000})
    assert (status, "its defaults add more than" in answer["message"]) == (413, True)


def test_many_errors_make_no_large_answer(shared: Api) -> None:
    """100,000 labels that are none, 1.4 MB, were answered with 62 MB."""
    labels = {f"!{number}": "" for number in range(20_000)}
    status, answer = shared("POST", MAPS, {"metadata": {"name": "x", "labels": labels}})
    assert (status, answer["message"][-6:]) == (422, " more]")
    assert len(json.dumps(answer)) < 4 << 20


def test_trailers_are_no_headers(shared: Api) -> None:
    connection = _connect(shared)
    head = "POST /api/v1/namespaces/default/configmaps HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer admin-token\r\n"
    body = '{"metadata":{"generateName":"trailer-"}}'
    chunks = f"{len(body):x}\r\n{body}\r\n0\r\nAuthorization: Bearer other\r\nImpersonate-User: bob\r\n\r\n"
    connection.sendall(f"{head}Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n{chunks}".encode())
    response = http.client.HTTPResponse(connection)
    response.begin()
    assert response.status == 201
    connection.close()


def _padded(size: int) -> bytes:
    return json.dumps({"metadata": {"name": "big"}, "data": {"a": "x" * size}}).encode()


@pytest.mark.parametrize("size", [3_200_000, 4_000_000, 7_900_000])
@pytest.mark.parametrize("chunked", [False, True])
def test_a_client_that_sends_too_much_gets_the_refusal(shared: Api, size: int, chunked: bool) -> None:
    """Clients that send everything before they read, as http.client and urllib3 do, must find the answer."""
    context = ssl.create_default_context(cafile=str(shared.server.ca))
    connection = http.client.HTTPSConnection("127.0.0.1", shared.server.port, context=context, timeout=PATIENCE)
    body = _padded(size)
    parts = (body[start : start + 65536] for start in range(0, len(body), 65536))
    headers = {"Authorization": "Bearer admin-token", "Content-Type": "application/json"}
    connection.request("POST", MAPS, parts if chunked else body, headers, encode_chunked=chunked)
    response = connection.getresponse()
    answer = json.loads(response.read())
    assert (response.status, answer["kind"], answer["code"]) == (413, "Status", 413)
    connection.close()


def test_a_refused_writer_gets_the_refusal(shared: Api) -> None:
    """The body of a refused request is not wanted, and its sender finds out all the same."""
    status, answer = shared.as_user("bob-token")("POST", MAPS, _padded(2_000_000))
    assert (status, answer["reason"]) == (403, "Forbidden")
    status, answer = shared.as_user("wrong")("PUT", f"{MAPS}/x", _padded(2_000_000))
    assert (status, answer["reason"]) == (401, "Unauthorized")


def test_a_client_that_expects_100_continue_is_refused_at_once(shared: Api) -> None:
    request = b"POST " + MAPS.encode() + b" HTTP/1.1\r\nContent-Length: 9000000\r\nExpect: 100-continue\r\n" + _auth()
    assert _exchange(shared, request)[:12] == b"HTTP/1.1 413"


def test_oversized_requests(shared: Api) -> None:
    assert shared("POST", MAPS, _padded(1_100_000))[0] == 422
    for request, code in ((b"GET / HTTP/1.1\r\nx: " + b"y" * 3_000_000, 431), (b"nonsense\r\n\r\n", 400)):
        head, _, body = _exchange(shared, request).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 %d" % code)
        answer = json.loads(body)
        assert (answer["kind"], answer["code"]) == ("Status", code)


def _auth() -> bytes:
    return b"Host: x\r\nContent-Type: application/json\r\nAuthorization: Bearer admin-token\r\n\r\n"


def _connect(api: Api) -> ssl.SSLSocket:
    context = ssl.create_default_context(cafile=str(api.server.ca))
    raw = socket.create_connection(("127.0.0.1", api.server.port), timeout=PATIENCE)
    return context.wrap_socket(raw, server_hostname="127.0.0.1")


def _exchange(api: Api, data: bytes) -> bytes:
    with _connect(api) as connection:
        connection.sendall(data)
        return connection.recv(4096)


def test_slow_and_rude_clients_do_no_harm(shared: Api) -> None:
    idle = [socket.create_connection(("127.0.0.1", shared.server.port)) for _ in range(50)]
    slow = [_connect(shared) for _ in range(20)]
    for connection in slow:
        connection.sendall(b"POST " + MAPS.encode() + b" HTTP/1.1\r\nContent-Le")
    watching = _connect(shared)
    watching.sendall(b"GET " + MAPS.encode() + b"?watch=1 HTTP/1.1\r\n" + _auth())
    for number in range(50):
        shared.ok("POST", MAPS, {"metadata": {"name": f"n{number}"}, "data": {"a": "x" * 50_000}})
    for each in (*idle, *slow, watching):
        each.close()


def test_a_client_that_does_not_read_is_dropped(
    shared: Api, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A watcher and a lister that leave their buffers full are dropped; uvicorn must not take that for a fault."""
    monkeypatch.setattr(app, "_SEND_TIME", 0.3)
    path = "/api/v1/namespaces/kube-public/configmaps"
    watching, listing = _connect(shared), _connect(shared)
    dropped = shared.server.call(lambda server: server.health.dropped)
    watching.sendall(b"GET " + path.encode() + b"?watch=1 HTTP/1.1\r\n" + _auth())
    assert watching.recv(64)
    for number in range(12):
        shared.ok("POST", path, {"metadata": {"name": f"n{number}"}, "data": {"a": "x" * 900_000}})
    eventually(lambda: shared.server.call(lambda server: server.health.dropped) > dropped)
    listing.sendall(b"GET " + path.encode() + b" HTTP/1.1\r\n" + _auth())
    assert listing.recv(64)
    # uvicorn finds fault with a request when its task ends.
    eventually(lambda: not shared.server.call(lambda server: server._state.tasks))
    assert shared.server.call(lambda server: server.health.dropped) == dropped + 1
    assert [record.message for record in caplog.records if record.levelname == "ERROR"] == []
    assert sum(map(len, iter(lambda: listing.recv(1 << 16), b""))) < 12 * 900_000
    for each in (watching, listing):
        each.close()
    shared.ok("DELETE", path)


@pytest.mark.parametrize("metadata", [[], [None], 5, "x", {"name": 5}, {"labels": []}])
def test_server_side_apply_of_odd_metadata(shared: Api, metadata: Any) -> None:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
    status, answer = shared("PATCH", f"{MAPS}/odd?fieldManager=x", body, APPLY)
    assert (status, answer["kind"]) == (400, "Status"), answer


def test_a_pod_update_without_containers(shared: Api) -> None:
    path = "/api/v1/namespaces/default/pods"
    shared.ok("POST", path, {"metadata": {"name": "bare"}, "spec": {"containers": [{"name": "c", "image": "i"}]}})
    specs: list[Any] = [{}, {"containers": []}, {"containers": None}, {"containers": [None]}]
    for spec in specs:
        status, answer = shared("PUT", f"{path}/bare", {"metadata": {"name": "bare"}, "spec": spec})
        assert (status, answer["kind"]) == (422, "Status"), answer


def test_two_ways_to_say_what_becomes_of_dependents(shared: Api) -> None:
    shared.ok("POST", MAPS, {"metadata": {"name": "two-ways"}})
    query = "orphanDependents=true&propagationPolicy=Background"
    for path, body in (
        (f"{MAPS}/two-ways?{query}", None),
        (f"{MAPS}/two-ways", {"orphanDependents": False, "propagationPolicy": "Foreground"}),
    ):
        status, answer = shared("DELETE", path, body)
        assert (status, answer["reason"]) == (422, "Invalid"), answer
        assert "orphanDependents and deletionPropagation cannot be both set" in answer["message"]
    shared.ok("DELETE", f"{MAPS}/two-ways", {"orphanDependents": True, "propagationPolicy": None})


def test_timeouts_in_the_url(shared: Api) -> None:
    """[sig-api-machinery] Server request timeout: should return HTTP status code 400 if the user specifies an invalid
    timeout in the request URL; the request should be served with a default timeout if the specified timeout in the
    request URL exceeds maximum allowed; default timeout should be used if the specified timeout in the request URL is
    0s."""
    status, answer = shared("GET", "/version?timeout=invalid")
    assert status == 400
    assert "invalid timeout specified in the request URL" in answer["message"]
    for allowed in ("3m", "0s", ""):
        assert shared("GET", f"/version?timeout={allowed}")[0] == 200


def test_what_a_patch_cannot_change(shared: Api) -> None:
    """Another name is another object (400), another UID an immutable field (422), but of an update a precondition
    (409): k8s.io/apiserver pkg/endpoints/handlers patch.go (applyPatch), pkg/registry/rest update.go."""
    merge = "application/merge-patch+json"
    held = shared.ok("POST", MAPS, {"metadata": {"name": "whole"}})
    for change, code, text in (
        ({"name": "other"}, 400, "the name of the object (other) does not match the name on the URL (whole)"),
        ({"uid": "x"}, 422, 'metadata.uid: Invalid value: "x": field is immutable'),
        ({"namespace": "x"}, 400, "does not match the namespace sent on the request"),
        ({"resourceVersion": "1"}, 409, "the object has been modified"),
    ):
        status, answer = shared("PATCH", f"{MAPS}/whole", {"metadata": change}, merge)
        assert (status, text in answer["message"]) == (code, True), answer
    held["metadata"]["uid"] = "x"
    assert shared("PUT", f"{MAPS}/whole", held)[0] == 409
