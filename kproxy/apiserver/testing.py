"""An API server in a thread, of any configuration, with its data in a directory of the caller's.

kproxy's own tests use it, and `kproxy.testing` does: that is for the tests of controllers, in other
projects too, where the data go with the server and clients are made.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import inspect
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kproxy.apiserver.auth import certs
from kproxy.apiserver.auth.authentication import load_token_file
from kproxy.apiserver.server import ApiServer, Configuration, new_event_loop


@dataclass(frozen=True, slots=True)
class RunningServer:
    """A server in a thread: its address, its admin kubeconfig, and how to get others."""

    url: str
    kubeconfig: Path
    port: int
    ca: Path
    _server: ApiServer
    _loop: asyncio.AbstractEventLoop

    def kubeconfig_for(self, user: str, *groups: str) -> str:
        """A kubeconfig for another user."""
        return self._server.kubeconfig(user, groups)

    def call(self, function: Callable[[ApiServer], Any]) -> Any:
        """Runs a function of the server, which may be a coroutine function, on its event loop."""

        async def run() -> Any:
            found = function(self._server)
            return await found if inspect.isawaitable(found) else found

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(30)


@contextlib.contextmanager
def running_apiserver(
    directory: Path, *, port: int = 0, token_file: Path | None = None, **options: Any
) -> Iterator[RunningServer]:
    """Runs a server on the loopback in a thread, with its data and its kubeconfig in `directory`.

    >>> with running_apiserver(tmp_path) as server:  # doctest: +SKIP
    ...     subprocess.run(["kubectl", "--kubeconfig", server.kubeconfig, "get", "svc"])
    """
    tokens = load_token_file(token_file) if token_file is not None else {}
    configuration = Configuration(directory / "data", port=port, tokens=tokens, **options)
    loop = new_event_loop()
    started: concurrent.futures.Future[ApiServer] = concurrent.futures.Future()
    stop = asyncio.Event()

    async def serve() -> None:
        server = ApiServer(configuration)
        try:
            await server.start()
        except BaseException as error:
            started.set_exception(error)
            return
        started.set_result(server)
        await stop.wait()
        await server.stop()

    def run() -> None:
        asyncio.set_event_loop(loop)
        try:
            loop.run_until_complete(serve())
        finally:
            loop.close()

    thread = threading.Thread(target=run, name="apiserver", daemon=True)
    thread.start()
    server = started.result(30)
    path = directory / "kubeconfig"
    certs.write_private(path, server.kubeconfig().encode())
    authority = configuration.data / "ca.crt"
    try:
        yield RunningServer(server.url, path, server.port, authority, server, loop)
    finally:
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(stop.set)
        thread.join(15)
