"""The two ports: what they answer beside what kube-proxy was recorded to, and what bad clients can do to them."""

from __future__ import annotations

import contextlib
import http.client
import re
import socket
import threading
import time
from collections.abc import Iterator

import msgspec
import pytest

from kproxy.agent.status.health import ProxyHealth
from kproxy.agent.status.metrics import Metrics
from kproxy.agent.status.ports import Pages, StatusPort, serve
from kproxy.api.kubeproxyconfig.configz import configz_json
from kproxy.api.kubeproxyconfig.decode import decode_config
from kproxy.api.kubeproxyconfig.types import KubeProxyConfiguration
from kproxy.httpd import server
from kproxy.httpd.server import HttpServers, ListenError, Request, Response, Route, open_socket, text_response
from kproxy.linux.namespace import Namespace
from tests.support.agent.recorded_http import ask, parse_metrics, recorded_reply
from tests.support.waiting import PATIENCE, eventually

LOOPBACK = "127.0.0.1:0"


class Ports:
    """A proxy's two ports on loopback, with what is behind them."""

    def __init__(self, servers: HttpServers) -> None:
        self.health = ProxyHealth(60.0)
        self.metrics = Metrics()
        self.config = recorded_config()
        self.collected: list[Request] = []
        pages = Pages(
            self.health, self.metrics, "iptables", lambda: configz_json(self.config), {"/debug/collect": self.collect}
        )
        served = serve(servers, pages, LOOPBACK, LOOPBACK)
        assert served[0] is not None
        assert served[1] is not None
        self.healthz, self.loopback = served[0].port, served[1].port

    def collect(self, request: Request) -> Response:
        self.collected.append(request)
        return text_response("collected")

    def port_of(self, number: str) -> int:
        return {"10256": self.healthz, "10249": self.loopback}[number]


def recorded_config() -> KubeProxyConfiguration:
    body = msgspec.json.decode(recorded_reply("GET :10249/configz").body)["kubeproxy.config.k8s.io"]
    return decode_config(msgspec.json.encode(body)).config


@pytest.fixture
def servers() -> Iterator[HttpServers]:
    with HttpServers() as found:
        yield found


@pytest.fixture
def ports(servers: HttpServers) -> Ports:
    return Ports(servers)


@pytest.mark.parametrize(
    "request_line",
    [f"GET :{where}" for where in ("10249/healthz", "10249/proxyMode", "10249/configz", "10249/nosuch")],
)
def test_answers_are_the_recorded_ones(ports: Ports, request_line: str) -> None:
    recorded = recorded_reply(request_line)
    number, _, path = request_line.removeprefix("GET :").partition("/")
    answer = ask(ports.port_of(number), f"/{path}")
    assert (answer.status, answer.lasting_headers) == (recorded.status, recorded.lasting_headers)
    assert answer.body == recorded.body
    assert answer.headers["Content-Length"] == str(len(recorded.body))


def test_metrics_page(ports: Ports) -> None:
    recorded = recorded_reply("GET :10249/metrics")
    answer = ask(ports.loopback, "/metrics")
    assert answer.status == 200
    assert answer.headers["Content-Type"] == recorded.headers["Content-Type"]
    assert answer.lasting_headers.keys() == recorded.lasting_headers.keys() | {"X-Content-Type-Options"}
    assert parse_metrics(answer.body)["kubernetes_build_info"].kind == "gauge"


def test_other_paths_and_methods(ports: Ports) -> None:
    """Go's handlers answer every method alike; HEAD has no body."""
    assert ask(ports.healthz, "/metrics").status == 404
    assert ask(ports.loopback, "/healthz/").status == 404
    assert ask(ports.loopback, "/healthz?verbose=1").body == "ok"
    assert ask(ports.loopback, "/proxyMode", "POST").body == "iptables"
    head = ask(ports.loopback, "/proxyMode", "HEAD")
    assert (head.status, head.body, head.headers["Content-Length"]) == (200, "", "8")


@pytest.mark.parametrize("configured", ["127.0.0.1:0", "[::1]:0"])
def test_localhost_answers_whichever_family_it_means(ports: Ports, servers: HttpServers, configured: str) -> None:
    """As Kubernetes' own tests ask a node: `curl http://localhost:10249/proxyMode` (test/e2e/framework)."""
    pages = Pages(ports.health, ports.metrics, "iptables", str)
    _, metrics = serve(servers, pages, "", configured)
    assert metrics is not None
    for address in ("127.0.0.1", "::1"):
        connection = http.client.HTTPConnection(address, metrics.port, timeout=5)
        connection.request("GET", "/proxyMode")
        assert connection.getresponse().read() == b"iptables"
        connection.close()
    metrics.close()
    for address in ("127.0.0.1", "::1"):
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((address, metrics.port), 5)


def test_a_request_as_a_handler_gets_it(ports: Ports) -> None:
    assert ask(ports.loopback, "/debug/%63ollect?src=10.0.0.1%3A80&o=json&o=text").body == "collected"
    request = ports.collected[0]
    assert (request.method, request.path, request.peer) == ("GET", "/debug/collect", "127.0.0.1")
    assert request.query == {"src": "10.0.0.1:80", "o": "text"}
    assert request.headers["host"] == f"127.0.0.1:{ports.loopback}"


@pytest.mark.parametrize(
    ("sent", "statuses"),
    [
        (b"POST /healthz HTTP/1.1\r\nContent-Length: 4\r\n\r\nGET GET / HTTP/1.0\r\n\r\n", ["200", "404"]),
        (b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\nGET / HTTP/1.1\r\nConnection: close\r\n\r\n", ["404"] * 2),
        (b"POST /healthz HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", ["411"]),
    ],
)
def test_bodies_are_passed_over_and_connections_end_when_asked_to(
    ports: Ports, sent: bytes, statuses: list[str]
) -> None:
    with socket.create_connection(("127.0.0.1", ports.loopback), 5) as client:
        client.sendall(sent)
        assert re.findall(r"HTTP/1.1 (\d+)", _read_all(client)) == statuses


def test_keep_alive_and_pipelining(ports: Ports) -> None:
    with socket.create_connection(("127.0.0.1", ports.loopback), 5) as client:
        client.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\nGET /proxyMode HTTP/1.1\r\nHost: x\r\n\r\n")
        client.sendall(b"GET /nosuch HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        text = _read_all(client)
    assert re.findall(r"HTTP/1.1 (\d+)", text) == ["200", "200", "404"]
    assert text.index("ok") < text.index("iptables") < text.index("404 page")


def _read_all(client: socket.socket) -> str:
    client.settimeout(PATIENCE)
    pieces = []
    with contextlib.suppress(ConnectionResetError):
        while piece := client.recv(65536):
            pieces.append(piece)
    return b"".join(pieces).decode("latin-1")


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "400"),
        (b"GARBAGE\r\n\r\n", "400"),
        (b"GET /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: ten\r\n\r\n", "400"),
        (b"GET /\xff\xfe HTTP/1.1\r\nHost: x\r\n\r\n", "400"),
        (b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n", "413"),
        (b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 20_000, "413"),
        (b"POST /healthz HTTP/1.1\r\nContent-Length: 1000000\r\n\r\n" + b"x" * 200_000, "413"),
    ],
)
def test_bad_requests_end_and_do_no_harm(ports: Ports, sent: bytes, status: str) -> None:
    with socket.create_connection(("127.0.0.1", ports.loopback), 5) as client:
        with contextlib.suppress(ConnectionError):
            client.sendall(sent)
        with contextlib.suppress(ConnectionError):
            text = _read_all(client)
            assert text == "" or text.split()[1] == status
    assert ask(ports.loopback, "/healthz").body == "ok"


def test_slow_clients_are_dropped(servers: HttpServers, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that sends a byte now and then, and one that does not read."""
    monkeypatch.setattr(server, "REQUEST_SECONDS", 0.3)
    monkeypatch.setattr(server, "RESPONSE_SECONDS", 0.3)
    answered: list[Request] = []

    def answer(request: Request) -> Response:
        answered.append(request)
        return Response(b"x" * 20_000_000)

    big = Route(answer)
    listener = servers.listen("127.0.0.1", 0, {"/big": big}.get)
    with socket.create_connection(("127.0.0.1", listener.port), 5) as slow:
        with contextlib.suppress(ConnectionError):
            for byte in b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-Long: ":
                slow.sendall(bytes([byte]))
                time.sleep(0.02)
        assert _read_all(slow) == ""
    with socket.create_connection(("127.0.0.1", listener.port), 5) as deaf:
        deaf.sendall(b"GET /big HTTP/1.1\r\nHost: x\r\n\r\n")
        eventually(lambda: answered and not listener._busy)
        assert len(_read_all(deaf)) < 20_000_000


def test_many_idle_connections_do_not_lock_others_out(ports: Ports) -> None:
    idle = [socket.create_connection(("127.0.0.1", ports.healthz), 5) for _ in range(server.MAX_CONNECTIONS + 10)]
    try:
        assert ask(ports.healthz, "/livez").status == 200
        idle[0].settimeout(PATIENCE)
        with contextlib.suppress(ConnectionResetError):
            assert idle[0].recv(1) == b""  # the oldest one had to go
    finally:
        for client in idle:
            client.close()


def test_slow_pages_hold_back_only_themselves(servers: HttpServers) -> None:
    """Health answers while every slow handler hangs; more than a few of those are told to come back."""
    hanging = threading.Event()

    def hang(_request: Request) -> Response:
        hanging.wait(PATIENCE)
        return text_response("at last")

    routes = {"/slow": Route(hang, slow=True), "/fast": Route(lambda _request: text_response("fast"))}
    port = servers.listen("127.0.0.1", 0, routes.get).port
    clients = [socket.create_connection(("127.0.0.1", port), 5) for _ in range(server.MAX_SLOW + 2)]
    try:
        for client in clients:
            client.sendall(b"GET /slow HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert ask(port, "/fast").body == "fast"
    finally:
        hanging.set()
    statuses = sorted(_read_all(client).split()[1] for client in clients)
    assert statuses == ["200"] * server.MAX_SLOW + ["503"] * 2


def test_a_handler_that_raises_is_500(servers: HttpServers) -> None:
    def broken(_request: Request) -> Response:
        raise RuntimeError("a bug")

    port = servers.listen("127.0.0.1", 0, {"/": Route(broken), "/s": Route(broken, slow=True)}.get).port
    assert [ask(port, path).status for path in ("/", "/s", "/")] == [500, 500, 500]


def test_closing_ends_threads_and_frees_ports() -> None:
    before = set(threading.enumerate())
    servers = HttpServers()
    ports = Ports(servers)
    assert ask(ports.loopback, "/metrics").status == 200
    idle = socket.create_connection(("127.0.0.1", ports.loopback), 5)
    servers.close()
    servers.close()
    assert _read_all(idle) == ""
    idle.close()
    eventually(lambda: not set(threading.enumerate()) - before)
    with HttpServers() as again:
        assert again.listen("127.0.0.1", ports.loopback, lambda _path: None).port == ports.loopback


def test_a_taken_port_is_tried_again(servers: HttpServers) -> None:
    health, metrics = ProxyHealth(60.0), Metrics()
    pages = Pages(health, metrics, "iptables", str)
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        address = f"127.0.0.1:{other.getsockname()[1]}"
        with pytest.raises(ListenError, match=f"healthz: cannot listen on {address}: Address already in use"):
            serve(servers, pages, address, "", hard_fail=True)
        served, nothing = serve(servers, pages, address, "", retry=0.05)
        assert nothing is None
        assert isinstance(served, StatusPort)
        assert served.port == 0
    eventually(lambda: served.port)
    assert ask(served.port, "/livez").status == 200
    served.close()
    with pytest.raises(ConnectionRefusedError):
        ask(int(address.rpartition(":")[2]), "/livez")


@pytest.mark.root
def test_ports_are_in_the_namespace() -> None:
    """The unspecified address is both families, and nothing is open outside."""
    with (
        Namespace.scratch() as namespace,
        HttpServers(lambda *at: namespace.call(open_socket, *at)) as servers,
    ):
        namespace.call(_loopback_up)
        port = servers.listen("0.0.0.0", 0, {"/": Route(lambda request: text_response(request.peer))}.get).port
        assert namespace.call(ask, port, "/").body == "::ffff:127.0.0.1"
        assert namespace.call(ask, port, "/", "GET", "::1").body == "::1"
        with pytest.raises(ConnectionRefusedError):
            ask(port, "/")


def _loopback_up() -> None:
    import subprocess

    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
