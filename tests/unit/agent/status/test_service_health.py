"""Health-check node ports: kube-proxy's answer, and servers that come and go with Services."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from itertools import count

import pytest

from kproxy.agent.status.service_health import EVERYWHERE, ServiceHealthServer, health_body
from kproxy.httpd.server import HttpServers, open_socket
from kproxy.linux.namespace import Namespace
from kproxy.services import IPFamily
from tests.support.agent.recorded_http import ask, recorded_node_port, recorded_reply
from tests.support.waiting import PATIENCE, eventually

V4, V6 = IPFamily.IPV4, IPFamily.IPV6


@pytest.fixture
def servers() -> Iterator[HttpServers]:
    with HttpServers() as found:
        yield found


# Below what Linux hands out (ip_local_port_range), so that no other test's connection takes one of them in between; and
# another block for each process of a test run.
_ports = count(16_000 + os.getpid() % 64 * 250)


def free_port() -> int:
    """A port of loopback that is free, and that nobody is given meanwhile."""
    while True:
        port = next(_ports)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
            return port


def local_server(servers: HttpServers, healthy: Callable[[], bool] = lambda: True) -> ServiceHealthServer:
    return ServiceHealthServer(servers, healthy, lambda: ("127.0.0.1",), retry_seconds=0.05)


def refused(port: int) -> bool:
    try:
        ask(port, "/")
    except ConnectionRefusedError:
        return True
    return False


@pytest.mark.parametrize("path", ["/healthz", "/", "/any/thing?x=1"])
def test_the_answer_is_the_recorded_one(servers: HttpServers, path: str) -> None:
    recorded, port = recorded_node_port(), free_port()
    local_server(servers).sync({"default/lb": port}, {"default/lb": 1})
    answer = ask(port, path)
    assert (answer.status, answer.lasting_headers) == (recorded.status, recorded.lasting_headers)
    assert answer.body == recorded.body == recorded_reply("GET :32001/healthz").body
    assert answer.headers["Content-Length"] == recorded.headers["Content-Length"]


def test_503_without_local_endpoints_or_with_a_sick_proxy(servers: HttpServers) -> None:
    sick: list[bool] = []
    server, port = local_server(servers, lambda: not sick), free_port()
    server.sync({"default/lb": port}, {"default/lb": 3})
    answer = ask(port, "/")
    assert (answer.status, answer.headers["X-Load-Balancing-Endpoint-Weight"]) == (200, "3")
    server.sync({"default/lb": port}, {})
    answer = ask(port, "/")
    assert (answer.status, answer.headers["X-Load-Balancing-Endpoint-Weight"]) == (503, "0")
    assert answer.body == health_body("default/lb", 0, True)
    server.sync({"default/lb": port}, {"default/lb": 2})
    sick.append(True)
    answer = ask(port, "/")
    assert (answer.status, answer.headers["X-Load-Balancing-Endpoint-Weight"]) == (503, "2")
    assert '"serviceProxyHealthy": false' in answer.body


def test_servers_come_and_go_with_services(servers: HttpServers) -> None:
    server, one, two = local_server(servers), free_port(), free_port()
    server.sync({"a/one": one}, {"a/one": 1})
    server.sync({"a/one": one, "a/two": two}, {"a/one": 1, "a/two": 1})
    assert ask(one, "/").status == ask(two, "/").status == 200
    assert len(server.open_ports) == 2
    server.sync({"a/two": one}, {"a/two": 1})  # one goes, two moves to its port
    assert refused(two)
    assert '"name": "two"' in ask(one, "/").body
    server.sync({}, {})
    assert refused(one)
    assert len(server.open_ports) == 0


def test_connections_that_are_open_end_with_the_server(servers: HttpServers) -> None:
    server, port = local_server(servers), free_port()
    server.sync({"a/one": port}, {})
    with socket.create_connection(("127.0.0.1", port), 5) as client:
        client.settimeout(PATIENCE)
        server.sync({}, {})
        with contextlib.suppress(ConnectionResetError):
            assert client.recv(1) == b""


@pytest.mark.root
def test_each_family_answers_for_itself() -> None:
    """A dual-stack Service whose only local endpoint is of IPv6: IPv4 is sent elsewhere. kube-proxy v1.36.2 listens on
    tcp4 and tcp6 of their own."""
    with (
        Namespace.scratch() as namespace,
        HttpServers(lambda *at: namespace.call(open_socket, *at)) as servers,
    ):
        namespace.call(subprocess.run, ["ip", "link", "set", "lo", "up"], check=True)
        four = ServiceHealthServer(servers, lambda: True, lambda: EVERYWHERE[V4])
        six = ServiceHealthServer(servers, lambda: True, lambda: EVERYWHERE[V6])
        four.sync({"a/one": 32001}, {})
        six.sync({"a/one": 32001}, {"a/one": 1})
        assert namespace.call(ask, 32001, "/", "GET", "127.0.0.1").status == 503
        assert namespace.call(ask, 32001, "/", "GET", "::1").status == 200
        assert four.open_ports == six.open_ports == {32001}
        six.sync({}, {})
        assert namespace.call(ask, 32001, "/", "GET", "127.0.0.1").status == 503
        with pytest.raises(ConnectionRefusedError):
            namespace.call(ask, 32001, "/", "GET", "::1")


def test_a_taken_port_is_reported_once_and_tried_again(servers: HttpServers, caplog: pytest.LogCaptureFixture) -> None:
    server = local_server(servers)
    with socket.socket() as other, caplog.at_level(logging.WARNING, "kproxy.agent"):
        other.bind(("127.0.0.1", free_port()))
        other.listen()
        port = int(other.getsockname()[1])
        server.sync({"a/one": port}, {"a/one": 1})
        assert (len(server.open_ports), len(server.failed_ports)) == (0, 1)
        time.sleep(0.3)
        server.sync({"a/one": port}, {"a/one": 2})
        told = [record for record in caplog.records if "failed" in record.getMessage()]
        assert len(told) == 1
        fields = told[0].__dict__["fields"]
        assert (fields["service"], fields["error"]) == (
            "a/one",
            f"cannot listen on 127.0.0.1:{port}: Address already in use",
        )
    eventually(lambda: len(server.open_ports) == 1)
    assert len(server.failed_ports) == 0
    assert ask(port, "/").headers["X-Load-Balancing-Endpoint-Weight"] == "2"


def test_two_services_with_one_port(servers: HttpServers, caplog: pytest.LogCaptureFixture) -> None:
    """An API server does not hand one port out twice; files may. The first by name is served, the other is told."""
    server, port = local_server(servers), free_port()
    with caplog.at_level(logging.WARNING, "kproxy.agent"):
        server.sync({"b/two": port, "a/one": port}, {"a/one": 1})
    assert '"name": "one"' in ask(port, "/").body
    assert [record.getMessage() for record in caplog.records] == ["two Services want one health-check node port"]
    server.sync({"b/two": port}, {"b/two": 1})
    assert '"name": "two"' in ask(port, "/").body


@pytest.mark.root
def test_node_port_addresses_of_a_namespace() -> None:
    """Only the chosen addresses answer, inside the namespace; everywhere is the family's."""
    with (
        Namespace.scratch() as namespace,
        HttpServers(lambda *at: namespace.call(open_socket, *at)) as servers,
    ):
        for command in ("ip link set lo up", "ip addr add 192.0.2.1/32 dev lo", "ip addr add 192.0.2.2/32 dev lo"):
            namespace.call(subprocess.run, command.split(), check=True)
        chosen: list[tuple[str, ...]] = [("192.0.2.1",)]
        server = ServiceHealthServer(servers, lambda: True, lambda: chosen[0])
        server.sync({"a/one": 32001}, {"a/one": 1})
        assert namespace.call(ask, 32001, "/", "GET", "192.0.2.1").status == 200
        with pytest.raises(ConnectionRefusedError):
            namespace.call(ask, 32001, "/", "GET", "192.0.2.2")
        chosen[0] = EVERYWHERE[V4]
        server.retry()
        for address in ("192.0.2.2", "127.0.0.1"):
            assert namespace.call(ask, 32001, "/", "GET", address).status == 200
        with pytest.raises(ConnectionRefusedError):
            namespace.call(ask, 32001, "/", "GET", "::1")
        assert refused(32001)
