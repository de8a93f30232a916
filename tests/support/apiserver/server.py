"""A server for a test, and the HTTP that tests speak to it."""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kproxy.apiserver import RunningServer, running_apiserver
from kproxy.client import RestClient, load_client_config

TOKENS = 'admin-token,admin,uid1,"system:masters"\nbob-token,bob,uid2\ncarol-token,carol,uid3\n'


@contextmanager
def rest_client(kubeconfig: Path) -> Iterator[RestClient]:
    """Our own client of the cluster that a kubeconfig names."""
    client = RestClient(load_client_config(str(kubeconfig)))
    try:
        yield client
    finally:
        client.close()


class Api:
    """Plain requests with a bearer token ("": none); the status and the decoded answer."""

    def __init__(self, server: RunningServer, token: str = "admin-token") -> None:
        self.server = server
        self._token = token

    def as_user(self, token: str) -> Api:
        """The same server with another token."""
        return Api(self.server, token)

    def raw(self, method: str, path: str, body: bytes | None = None, **headers: str) -> http.client.HTTPResponse:
        """A response, read."""
        context = ssl.create_default_context(cafile=str(self.server.ca))
        connection = http.client.HTTPSConnection("127.0.0.1", self.server.port, context=context, timeout=60)
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if self._token:
            sent.setdefault("Authorization", f"Bearer {self._token}")
        try:
            connection.request(method, path, body, sent)
            response = connection.getresponse()
            text = response.read()
        finally:
            connection.close()
        response.read = lambda *_: text  # type: ignore[method-assign]
        return response

    def __call__(
        self, method: str, path: str, body: Any = None, media: str = "application/json", **headers: str
    ) -> tuple[int, Any]:
        """Status and decoded JSON (text if it is none)."""
        data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        response = self.raw(method, path, data, Content_Type=media, **headers)
        text = response.read()
        try:
            return response.status, json.loads(text)
        except ValueError:
            return response.status, text.decode()

    def ok(self, method: str, path: str, body: Any = None, media: str = "application/json") -> Any:
        """The decoded answer of a request that must succeed."""
        status, answer = self(method, path, body, media)
        assert status < 300, answer
        return answer

    def eventually(self, path: str, reached: Callable[[Any], bool]) -> Any:
        """Reads a path until its answer is as wanted, for at most a minute."""
        import time

        answer: Any = None
        for _ in range(1200):
            answer = self("GET", path)[1]
            if reached(answer):
                return answer
            time.sleep(0.05)
        raise AssertionError(f"{path} stays {json.dumps(answer)[:1000]}")


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    """A fresh server."""
    (tmp_path / "tokens.csv").write_text(TOKENS)
    with running_apiserver(tmp_path, token_file=tmp_path / "tokens.csv") as server:
        yield Api(server)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """One server for a module's tests."""
    directory = tmp_path_factory.mktemp("apiserver")
    (directory / "tokens.csv").write_text(TOKENS)
    with running_apiserver(directory, token_file=directory / "tokens.csv") as server:
        yield Api(server)
