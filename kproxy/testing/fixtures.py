"""Fixtures for pytest: `apiserver`, a server for each test that asks, `session_apiserver`, one for the session."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from kproxy.extras import MissingExtraError
from kproxy.testing.server import Server, api_server


@contextlib.contextmanager
def _default_server() -> Iterator[Server]:
    with contextlib.ExitStack() as stack:
        try:
            server = stack.enter_context(api_server())
        except MissingExtraError as error:
            pytest.fail(str(error), pytrace=False)
        yield stack.enter_context(server.as_default())


@pytest.fixture
def apiserver() -> Iterator[Server]:
    """An API server of this test's own, empty at first, gone after it.

    For as long as the test runs, clients that are told of no other cluster use it (`Server.as_default`).
    """
    with _default_server() as server:
        yield server


@pytest.fixture(scope="session")
def session_apiserver() -> Iterator[Server]:
    """One API server for all tests of the session that ask for it; what one writes the next one sees.

    With pytest-xdist each worker has its own. Give each test a namespace.
    """
    with _default_server() as server:
        yield server
