"""The local server: listens on a loopback address, and prints its URL with a new token."""

from __future__ import annotations

import asyncio
import gc
import ipaddress
import os
import secrets
import signal
import socket
from collections.abc import Callable
from typing import Final

import uvicorn
from uvicorn.server import ServerState

from kproxy.apiserver.http.protocol import Http, Refusing, end_connections
from kproxy.errors import InputError, KproxyError
from kproxy.explorer.server.app import Api
from kproxy.explorer.server.security import Guard
from kproxy.explorer.state import Explorer
from kproxy.family import join_host_port

MAX_CONNECTIONS: Final = 64
_KEEP_ALIVE: Final = 30
_STOPPING: Final = 2.0


class ExplorerError(KproxyError):
    """The explorer cannot listen."""


class ExplorerServer:
    """Serves an explorer.

    Attributes:
        token: in every URL; made anew at each start.
        url: of the page, once `start` has returned.
    """

    def __init__(self, explorer: Explorer, host: str, port: int) -> None:
        """Raises InputError: the address is not one of the loopback."""
        if not ipaddress.ip_address(host).is_loopback:
            raise InputError(f"--listen {host}: the explorer listens on a loopback address only, as 127.0.0.1 or [::1]")
        self.explorer = explorer
        self.token = secrets.token_urlsafe(24)
        self.url = ""
        self._address = (host, port)
        self._state = ServerState()
        self._server: asyncio.Server | None = None
        self._api = Api(explorer)

    async def start(self) -> None:
        """Listens. Raises ExplorerError."""
        host, port = self._address
        listening = _bind(host, port)
        port = listening.getsockname()[1]
        named = join_host_port(host, port)
        hosts = frozenset({named, f"localhost:{port}"})
        guard = Guard(self._api.app(), self.token, hosts)
        configuration = uvicorn.Config(
            guard, http=Http, ws="none", lifespan="off", log_config=None, access_log=False, server_header=False,
            timeout_keep_alive=_KEEP_ALIVE, proxy_headers=False,
        )  # fmt: skip
        configuration.load()
        loop, state = asyncio.get_running_loop(), self._state

        def make() -> asyncio.Protocol:
            if len(state.connections) >= MAX_CONNECTIONS:
                return Refusing()
            return Http(config=configuration, server_state=state, app_state={}, _loop=loop)

        self._server = await loop.create_server(make, sock=listening, backlog=128)
        self.url = f"http://{named}/{self.token}/"

    async def stop(self) -> None:
        """Stops listening and ends every connection."""
        if self._server is not None:
            self._server.close()
        self._api.close()
        await end_connections(self._state, _STOPPING)


def _bind(host: str, port: int) -> socket.socket:
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        raise ExplorerError(f"cannot listen on {host}:{port}: {os.strerror(error.errno or 0)}") from error


def settle_garbage() -> None:
    """What is known of a cluster lives long: it is not looked through again and again, which takes half a second of a
    large one, in which nobody is answered."""
    gc.unfreeze()
    gc.collect()
    gc.freeze()


async def serve(explorer: Explorer, host: str, port: int, ready: Callable[[str], None]) -> None:
    """Serves until SIGINT or SIGTERM.

    Args:
        ready: gets the page's URL.

    Raises:
        InputError, ExplorerError: it cannot listen there.
    """
    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    server = ExplorerServer(explorer, host, port)
    await server.start()
    explorer.start(settle_garbage)
    try:
        ready(server.url)
        await stopped.wait()
    finally:
        await server.stop()
        await asyncio.to_thread(explorer.stop)
