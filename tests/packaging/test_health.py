"""deploy/health.py, the image's health check: which question belongs to which command, and what it says."""

from __future__ import annotations

import importlib.util
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from kproxy.apiserver import running_apiserver
from tests.support import paths

FILE = paths.ROOT / "deploy" / "health.py"


@pytest.fixture(scope="module")
def health() -> Any:
    spec = importlib.util.spec_from_file_location("image_health", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Agent(BaseHTTPRequestHandler):
    """As the agent's health port: /livez is green, everything else red."""

    def do_GET(self) -> None:  # the base class's name
        body = b"no sync for 5 minutes"
        self.send_response(200 if self.path == "/livez" else 503)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None: ...


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with HTTPServer(("127.0.0.1", 0), Agent) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("kproxy run --config=/c", "http://127.0.0.1:10256/livez"),
        ("kproxy run --healthz-bind-address [::]:1", "http://[::1]:1/livez"),
        ("kproxy run --healthz-bind-address=192.0.2.1:1", "http://192.0.2.1:1/livez"),
        ("kproxy apiserver --data /data", "https://127.0.0.1:6443/readyz"),
        ("kproxy apiserver --data /data --listen=0.0.0.0:443", "https://127.0.0.1:443/readyz"),
        ("kproxy overlay run --node=n", ""),
        ("kproxy trace -f run", ""),
        ("sleep 1", ""),
        ("", ""),
    ],
)
def test_what_is_asked(health: Any, words: str, expected: str) -> None:
    found = ["/opt/kproxy/bin/python", *words.split()]
    assert health.url(found, {}) == expected
    assert health.url(found, {"KPROXY_HEALTH": "http://192.0.2.1/"}) == "http://192.0.2.1/"


def test_the_agents_answer_is_told(health: Any, port: int) -> None:
    words = ["kproxy", "run", f"--healthz-bind-address=127.0.0.1:{port}"]
    assert health.problem(words, {}) == ""
    red = f"http://127.0.0.1:{port}/healthz"
    assert health.problem(words, {"KPROXY_HEALTH": red}) == f"{red}: 503: no sync for 5 minutes"
    assert "nothing" in health.problem(words, {"KPROXY_HEALTH": "nothing"})


def test_nobody_listens(health: Any) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        assert "refused" in health.problem(["kproxy", "run", "--healthz-bind-address", address], {})


def test_the_api_server_is_asked_without_credentials(health: Any, tmp_path: Path) -> None:
    with running_apiserver(tmp_path) as server:
        assert health.problem(["kproxy", "apiserver", "--listen", f"127.0.0.1:{server.port}"], {}) == ""


def test_the_overlays_ready_file(health: Any, tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    words = ["kproxy", "overlay", "run", f"--ready-file={ready}"]
    assert health.problem(words, {}) == f"{ready} is not there yet"
    ready.touch()
    assert health.problem(words, {}) == ""


def test_the_program_asks_about_process_1(port: int) -> None:
    """Whatever process 1 is on this machine: the variable decides."""
    for path, code in (("livez", 0), ("healthz", 1)):
        done = subprocess.run(
            [sys.executable, "-I", str(FILE)],
            env={"KPROXY_HEALTH": f"http://127.0.0.1:{port}/{path}"},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (code, "", code), done.stderr
