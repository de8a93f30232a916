"""Who is answered, with which headers, and what junk gets."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings

from kproxy.errors import InputError
from kproxy.explorer.server.listener import ExplorerServer
from kproxy.explorer.server.security import Guard
from kproxy.explorer.state import Explorer
from tests.support.cluster.snapshots import vxlan_cluster, write_files
from tests.support.explorer.client import Page, serving
from tests.support.explorer.junk import JUNK, POSTS
from tests.support.explorer.sources import source_of


def test_without_the_token_nothing_is_answered(page: Page) -> None:
    for token in ("", "x", page.token[:-1], f"{page.token}x", "%00", "%C3%A9"):
        for path in ("", "api/source", "static/app.js"):
            answered = page.ask("GET", path, token=token)
            assert answered.status in (403, 400)
            assert page.token.encode() not in answered.body


def test_other_hosts_and_origins_are_refused(page: Page) -> None:
    host = page.host
    assert page.ask("GET", "api/source", headers={"Origin": f"http://{host}"}).status == 200
    assert page.ask("GET", "api/source", headers={"Sec-Fetch-Site": "same-origin"}).status == 200
    for headers in (
        {"Host": "evil.example"},
        {"Host": f"evil.example:{host.rpartition(':')[2]}"},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": f"https://{host}"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ):
        answered = page.ask("GET", "api/source", headers=headers)
        assert answered.status == 403, headers
        assert "evil" not in answered.body.decode()


def test_every_answer_has_the_headers(page: Page) -> None:
    for path in ("api/source", "api/nothing", "static/nothing"):
        headers = page.ask("GET", path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert headers["cache-control"] == "no-store"
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"


@pytest.mark.parametrize(
    ("method", "path", "raw", "headers", "status"),
    [
        ("POST", "api/source", b"{}", {}, 405),
        ("GET", "api/ask", None, {}, 405),
        ("GET", "api/nothing", None, {}, 404),
        ("GET", "static/../app.py", None, {}, 404),
        ("GET", "static/%2e%2e%2fapp.py", None, {}, 404),
        ("GET", "api/map?node=n9", None, {}, 404),
        ("GET", "api/map?what=1", None, {}, 400),
        ("GET", "api/map?than=n9&revision=1", None, {}, 404),
        ("GET", "api/map?than=n1&revision=-1", None, {}, 400),
        ("GET", "api/map?than=n1&revision=%D9%A1", None, {}, 400),
        ("GET", "api/map?source=b", None, {}, 400),
        ("GET", "api/map?source=against", None, {}, 409),
        ("GET", "api/services?source=%3Cscript%3E", None, {}, 400),
        ("POST", "api/ask", b'{"from": "a", "to": "b", "source": "against"}', {}, 409),
        ("POST", "api/compare", b'{"kind": "drift", "a": {"source": "objects"}}', {}, 400),
        ("GET", "api/services/shop/none", None, {}, 404),
        ("POST", "api/ask", b"{", {}, 400),
        ("POST", "api/ask", b"\xff", {}, 400),
        ("POST", "api/ask", b"[" * 100_000, {}, 400),
        ("POST", "api/ask", b'{"from": "a"}', {}, 400),
        ("POST", "api/ask", b'{"from": "a", "to": "b", "sport": -1}', {}, 400),
        ("POST", "api/ask", b"{}", {"Content-Type": "text/plain"}, 415),
        ("POST", "api/ask", b" " * ((4 << 20) + 1), {}, 413),
        ("POST", "api/ask", b"{}", {"Content-Length": "99999999999"}, 413),
        ("GET", "api/source/", None, {}, 404),
        ("POST", "api/lab/fail", b'{"kind": "node", "name": "n1"}', {}, 409),
        ("GET", "api/counters", None, {}, 409),
        ("GET", "api/lab/broken", None, {}, 409),
    ],
)
def test_what_is_wrong_is_refused_in_one_line(
    page: Page, method: str, path: str, raw: bytes | None, headers: dict[str, str], status: int
) -> None:
    answered = page.ask(method, path, raw=raw, headers=headers)
    assert answered.status == status, answered.body
    assert answered.headers["content-type"] == "application/json"
    assert "\n" not in answered.json["error"]["message"]


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        ({"from": "pod/shop/none", "to": "svc/shop/web"}, "from"),
        ({"from": "pod/shop/cart-0", "to": "svc/shop/none"}, "to"),
        ({"from": "pod/shop/cart-0", "to": "10.96.0.7"}, "to"),
        ({"from": "pod/shop/cart-0", "to": ""}, "to"),
        ({"from": "pod/shop/cart-0", "to": "10.96.0.7:80", "sport": 70000}, "sport"),
        ({"from": "pod/shop/cart-0", "to": "10.96.0.7", "port": 0}, "port"),
        ({"from": "pod/shop/cart-0", "to": "svc/shop/web", "family": "IPv6"}, "family"),
        ({"from": "pod/shop/cart-0", "to": "svc/shop/web", "family": "IPX"}, "family"),
        ({"from": "pod/shop/cart-0", "to": "svc/shop/web", "unknown": 1}, "unknown"),
        ({"from": "pod/shop/cart-0", "to": "svc/shop/web", "assume": {"x": 1}}, "assume[...]"),
    ],
)
def test_the_field_that_is_wrong_is_named(page: Page, asked: dict[str, object], field: str) -> None:
    answered = page.ask("POST", "api/ask", asked)
    assert answered.status == 400
    assert answered.json["error"]["field"] == field


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(path=st.sampled_from(POSTS), body=JUNK)
def test_junk_is_answered_as_junk(page: Page, path: str, body: Any) -> None:
    answered = page.ask("POST", f"api/{path}", raw=json.dumps(body).encode())
    assert answered.status in (200, 400, 404, 409), (body, answered.body)
    if answered.status != 200:
        assert set(answered.json["error"]) <= {"message", "field", "away"}


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=200))
def test_octets_that_are_no_http_leave_the_server_alive(page: Page, data: bytes) -> None:
    host, _, port = page.host.partition(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(data)
    assert page.get("api/source")["revision"] == 1


def test_what_is_computed_when_the_server_stops_ends_in_an_answer() -> None:
    """And in no exception, of which the HTTP server would print a traceback."""
    sent: list[MutableMapping[str, Any]] = []
    computing = asyncio.Event()

    async def app(_scope: object, _receive: object, _send: object) -> None:
        computing.set()
        await asyncio.Event().wait()

    async def receive() -> MutableMapping[str, Any]:
        return {"type": "http.request"}

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    async def stopped() -> None:
        headers = [(b"host", b"127.0.0.1:1")]
        guard = Guard(app, "token", frozenset({"127.0.0.1:1"}))
        scope = {"type": "http", "path": "/token/api/audit", "headers": headers}
        task = asyncio.ensure_future(guard(scope, receive, send))
        await computing.wait()
        task.cancel()
        await task

    asyncio.run(stopped())
    assert sent[0]["status"] == 503
    assert b"stopped" in sent[1]["body"]


def test_it_listens_on_loopback_addresses_only(snapshot: Path) -> None:
    explorer = Explorer(source_of(snapshot))
    for host in ("0.0.0.0", "192.0.2.1", "::"):
        with pytest.raises(InputError, match="loopback"):
            ExplorerServer(explorer, host, 0)


def test_a_source_that_vanishes_is_told_and_the_rest_goes_on(tmp_path: Path) -> None:
    directory = write_files(tmp_path / "shop", vxlan_cluster())
    with serving(Explorer(source_of(directory))) as page:
        page.post("api/ask", {"from": "pod/shop/cart-0", "to": "svc/shop/web"})
        directory.rename(tmp_path / "elsewhere")
        assert page.get("api/source")["away"] == f"{directory}: it is no longer there"
        assert len(page.post("api/ask", {"from": "pod/shop/cart-0", "to": "svc/shop/web"})["journeys"]) == 2
        assert len(page.get("api/map")["pods"]) == 3


def test_a_dump_alone_can_be_asked_and_has_no_services(tmp_path: Path) -> None:
    dump = tmp_path / "n1.save"
    dump.write_bytes(vxlan_cluster()["nodes/n1/iptables-save"])
    with serving(Explorer(source_of(dump))) as page:
        assert page.get("api/source")["can"]["services"] is False
        found = page.post("api/ask", {"from": "10.244.1.9", "to": "10.96.0.7:80"})
        assert sorted(way["target"] for way in found["journeys"]) == ["10.244.1.5:8080", "10.244.2.5:8080"]
        assert all(way["back"] for way in found["journeys"])
        rules = page.post("api/rules", {"from": "10.244.1.9", "to": "10.96.0.7:80"})
        assert rules["host"] == "host"
        assert page.ask("GET", "api/services/a/b").status == 409
        assert page.ask("POST", "api/whatif", {"edits": []}).status == 409
