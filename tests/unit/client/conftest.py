"""A small API server, and a client of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kproxy.client import ClientConfig, RestClient
from tests.support.fakeapi.server import FakeApiServer


@pytest.fixture
def api() -> Iterator[FakeApiServer]:
    with FakeApiServer() as server:
        yield server


@pytest.fixture
def client(api: FakeApiServer) -> Iterator[RestClient]:
    made = RestClient(ClientConfig(server=api.url))
    yield made
    made.close()
