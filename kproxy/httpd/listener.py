"""The ports and the thread of a small HTTP server: health, metrics, debug pages.

One thread with one event loop serves every port, however many health-check node ports there are, and sleeps in the
kernel while there is no request. A slow client costs a socket and a timer (`protocol`), and a port that has
`MAX_CONNECTIONS` drops the oldest that is not being answered for a new one. Handlers that only look at memory run in
the loop, `slow` ones in two threads.

Listening sockets are made inside a network namespace, and stay in it whichever thread uses them (socket(7)).
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import socket
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from kproxy.errors import KproxyError
from kproxy.family import join_host_port
from kproxy.httpd.protocol import Connection, Handler, Request, Response, Router, log, run_handler

MAX_CONNECTIONS: Final = 64
ACCEPT_PAUSE: Final = 1.0
MAX_SLOW: Final = 8
"""Requests for slow handlers that wait or run; more get 503."""

Result = TypeVar("Result")


class ListenError(KproxyError):
    """A port cannot be listened on."""


class Listener:
    """An address and port that are served. `close` from any thread but the loop's own."""

    def __init__(self, servers: HttpServers, address: str, port: int, router: Router) -> None:
        self.address = address
        self.port = port
        self.router = router
        self._servers = servers
        self._listening: socket.socket | None = None
        self._connections: dict[Connection, None] = {}
        self._accepted: set[asyncio.Task[object]] = set()

    def close(self) -> None:
        """Stops listening and ends every connection. After `HttpServers.close` there is nothing left to do."""
        with contextlib.suppress(ListenError):
            self._servers.in_loop(self.shut)

    async def open(self, listening: socket.socket) -> None:
        """In the loop: starts to serve."""
        self._listening = listening
        asyncio.get_running_loop().add_reader(listening, self._accept)

    def _accept(self) -> None:
        # Not asyncio.Server: one that is closed forgets clients that it has just accepted (until garbage collection).
        loop, listening = asyncio.get_running_loop(), self._listening
        for _ in range(MAX_CONNECTIONS):
            if listening is None:
                return
            try:
                client, _address = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                # No more descriptors, say: without a pause this would be tried again at once, for ever.
                log.error("cannot accept a connection", extra={"fields": {"port": self.port, "error": str(error)}})
                loop.remove_reader(listening)
                loop.call_later(ACCEPT_PAUSE, self._resume)
                return
            client.setblocking(False)
            task: asyncio.Task[object] = loop.create_task(
                loop.connect_accepted_socket(lambda: Connection(self), client)
            )
            self._accepted.add(task)
            task.add_done_callback(self._accepted.discard)

    def _resume(self) -> None:
        if self._listening is not None:
            asyncio.get_running_loop().add_reader(self._listening, self._accept)

    async def shut(self) -> None:
        """Closes the listener; called in the loop."""
        if self._listening is not None:
            asyncio.get_running_loop().remove_reader(self._listening)
            self._listening.close()
            self._listening = None
        if self._accepted:
            await asyncio.wait(self._accepted)
        for connection in list(self._connections):
            connection.abort()
        self._servers.closed(self)

    def admit(self, connection: Connection) -> None:
        """In the loop: a client is there."""
        if self._listening is None:  # it had been accepted before `shut`, and comes after it
            connection.abort()
            return
        if len(self._connections) >= MAX_CONNECTIONS:
            oldest = next((each for each in self._connections if not each.busy), None)
            if oldest is not None:
                self.forget(oldest)
                oldest.abort()
        self._connections[connection] = None

    def forget(self, connection: Connection) -> None:
        """In the loop: a client has gone."""
        self._connections.pop(connection, None)

    def run_slow(self, handler: Handler, request: Request) -> asyncio.Future[Response] | None:
        """In the loop: runs a slow handler; None if too many are waiting."""
        return self._servers.run_slow(handler, request)


class HttpServers:
    """The ports that this process serves in one network namespace. Thread-safe; the thread starts when needed."""

    def __init__(self, bind: Callable[[str, int, bool], socket.socket] | None = None) -> None:
        """Args: bind: makes the listening sockets, in another network namespace say; by default `open_socket`."""
        self._bind = bind or open_socket
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._pool: concurrent.futures.ThreadPoolExecutor | None = None
        self._slow = 0
        self._closed = False
        self._listeners: set[Listener] = set()

    def listen(self, address: str, port: int, router: Router, *, dual_stack: bool = True) -> Listener:
        """Serves a port; 0 is any free one, which `Listener.port` then is.

        Args:
            address: an IP address; an unspecified one, or "", is every address of both families, as in Go.
            dual_stack: false: an unspecified one is every address of its own family, as for Go's "tcp4" and "tcp6".

        Raises:
            ListenError: it cannot.
        """
        try:
            listening = self._bind(address, port, dual_stack)
        except OSError as error:
            shown = join_host_port(address, port)
            raise ListenError(f"cannot listen on {shown}: {error.strerror or error}") from error
        listener = Listener(self, address, listening.getsockname()[1], router)
        with self._lock:
            self._listeners.add(listener)
        try:
            self.in_loop(lambda: listener.open(listening))
        except ListenError:
            listening.close()
            raise
        return listener

    def call_later(self, seconds: float, function: Callable[[], None]) -> Callable[[], None]:
        """Calls a function, which may block, in some seconds; returns a function that cancels the call."""
        try:
            loop = self._running_loop()
        except ListenError:
            return lambda: None
        handles: list[asyncio.TimerHandle] = []

        def later() -> None:
            if self._pool is not None:
                self._pool.submit(_logged, function)

        loop.call_soon_threadsafe(lambda: handles.append(loop.call_later(seconds, later)))

        def call_off() -> None:
            for handle in handles:
                handle.cancel()

        return lambda: _call_threadsafe(loop, call_off)

    def close(self) -> None:
        """Ends every port and the thread. Twice does no harm."""
        with self._lock:
            loop, thread, pool = self._loop, self._thread, self._pool
            listeners = list(self._listeners)
            self._closed = self._closed or loop is None
        if loop is None or thread is None:
            return
        for listener in listeners:
            listener.close()
        with self._lock:
            self._closed = True
            self._loop = self._thread = self._pool = None
        _call_threadsafe(loop, loop.stop)
        thread.join()
        if pool is not None:
            pool.shutdown(wait=False, cancel_futures=True)

    def __enter__(self) -> HttpServers:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def closed(self, listener: Listener) -> None:
        """Called when a listener has ended."""
        with self._lock:
            self._listeners.discard(listener)

    def run_slow(self, handler: Handler, request: Request) -> asyncio.Future[Response] | None:
        """In the loop: see Listener."""
        if self._slow >= MAX_SLOW or self._pool is None:
            return None
        self._slow += 1
        future = asyncio.get_running_loop().run_in_executor(self._pool, run_handler, handler, request)
        future.add_done_callback(lambda _done: self._one_less())
        return future

    def _one_less(self) -> None:
        self._slow -= 1

    def in_loop(self, work: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
        """Runs something in the loop and waits for it. Raises ListenError if all is closed."""
        loop = self._running_loop()
        return asyncio.run_coroutine_threadsafe(work(), loop).result()

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._closed:
                raise ListenError("the servers are closed")
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._pool = concurrent.futures.ThreadPoolExecutor(2, thread_name_prefix="http-slow")
                self._thread = threading.Thread(target=_serve, args=(self._loop,), name="http", daemon=True)
                self._thread.start()
            return self._loop


def open_socket(address: str, port: int, dual_stack: bool = True) -> socket.socket:
    """A listening socket. Raises OSError.

    With `dual_stack` an unspecified address stands for all addresses of both families where the host has IPv6, as in
    Go's net.Listen.
    """
    if dual_stack and address in ("", "0.0.0.0", "::"):
        try:
            return _bound(socket.AF_INET6, "::", port, only=False)
        except OSError as error:
            if address == "::" or error.errno not in _NO_IPV6:
                raise
            address = "0.0.0.0"
    return _bound(socket.AF_INET6 if ":" in address else socket.AF_INET, address, port)


_NO_IPV6: Final = (97, 99)  # EAFNOSUPPORT, EADDRNOTAVAIL


def _bound(family: int, address: str, port: int, *, only: bool = True) -> socket.socket:
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, only)
        listening.bind((address, port))
        listening.listen(128)
        listening.setblocking(False)
    except BaseException:
        listening.close()
        raise
    return listening


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
        loop.run_until_complete(asyncio.sleep(0))  # lets dropped connections go
    finally:
        loop.close()


def _call_threadsafe(loop: asyncio.AbstractEventLoop, function: Callable[[], object]) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(function)


def _logged(function: Callable[[], None]) -> None:
    try:
        function()
    except Exception as error:
        log.error("a timer's work failed", exc_info=error)
