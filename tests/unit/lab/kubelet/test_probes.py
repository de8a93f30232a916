"""Probes of containers."""

from __future__ import annotations

import asyncio
import socket
import threading
from typing import Any

import pytest

from kproxy.lab.kubelet.probes import Count, Probe, read_probe, run_probe


def run(probe: Probe, address: str) -> str:
    return asyncio.run(run_probe(probe, address))


def test_probes_count_in_a_row() -> None:
    container = {
        "name": "c",
        "ports": [{"name": "http", "containerPort": 8080}],
        "readinessProbe": {"httpGet": {"port": "http", "path": "x"}, "successThreshold": 2, "failureThreshold": 3},
    }
    probe = read_probe(container)
    assert probe is not None
    assert (probe.kind, probe.port, probe.period, probe.timeout) == ("httpGet", 8080, 10.0, 1.0)
    assert read_probe({"name": "c", "startupProbe": container["readinessProbe"]}) is None
    count, seen = Count(probe), []
    for result in (True, False, True, True, False, False, True, False, False, False, True):
        count.note(result)
        seen.append(count.passed)
    assert seen == [False, False, False, True, True, True, True, True, True, False, False]


@pytest.mark.parametrize("probe", [{"tcpSocket": {"port": "none"}}, {"httpGet": {"port": 1, "host": "\udcff\n"}}])
def test_a_probe_that_cannot_succeed_says_why(probe: dict[str, Any]) -> None:
    found = read_probe({"name": "c", "readinessProbe": probe})
    assert found is not None
    assert run(found, "127.0.0.1")


@pytest.mark.parametrize(
    ("answer", "good"),
    [
        (b"HTTP/1.1 200 OK\r\n\r\n", True),
        (b"HTTP/1.0 302 Found\r\n", True),
        (b"HTTP/1.1 404 Not Found\r\n", False),
        (b"HTTP/1.1 500 x\r\n", False),
        (b"SSH-2.0-x\r\n", False),
        (b"", False),
    ],
)
@pytest.mark.parametrize(("family", "host"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")])
def test_an_http_probe_goes_by_the_status(family: socket.AddressFamily, host: str, answer: bytes, good: bool) -> None:
    with socket.create_server((host, 0), family=family) as server:
        asked: list[bytes] = []

        def serve() -> None:
            with server.accept()[0] as connection:
                asked.append(connection.recv(4096))
                connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        port = server.getsockname()[1]
        probe = Probe("httpGet", port=port, path="healthz", headers=(("X-Probe", "yes"),))
        assert (run(probe, host) == "") is good
        thread.join()
    lines = asked[0].decode().split("\r\n")
    assert lines[0] == "GET /healthz HTTP/1.1"
    assert f"Host: {'[::1]' if ':' in host else host}:{port}" in lines
    assert "X-Probe: yes" in lines
    assert run(Probe("httpGet", port=port, path="/a\r\nb"), host)


def test_what_fails_is_said_as_a_kubelet_says_it() -> None:
    """The words of Kubernetes v1.36's Events, which are those of Go's net and net/http."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        mute = Probe("httpGet", port=port, path="x", timeout=0.05)
        assert run(mute, "127.0.0.1") == (
            f'Get "http://127.0.0.1:{port}/x": context deadline exceeded '
            "(Client.Timeout exceeded while awaiting headers)"
        )
    for family, host, shown in ((socket.AF_INET, "127.0.0.1", "127.0.0.1"), (socket.AF_INET6, "::1", "[::1]")):
        # Nobody listens on a port that is bound, and nobody else gets it.
        with socket.socket(family) as closed:
            closed.bind((host, 0))
            port = closed.getsockname()[1]
            refused = f"dial tcp {shown}:{port}: connect: connection refused"
            assert run(Probe("tcpSocket", port=port), host) == refused
            found = run(Probe("httpGet", port=port, tls=True), host)
            assert found == f'Get "https://{shown}:{port}/": {refused}'
