"""A small HTTP/1.1 server for short answers on many ports: health, metrics, a node's files (docs/decisions/0011).

One thread with one event loop serves every port, however many health-check node ports there are, and sleeps in the
kernel while there is no request. A slow client costs a socket and a timer: requests must be complete within
`REQUEST_SECONDS` and `MAX_BYTES`, answers read within `RESPONSE_SECONDS`, and a port that has `MAX_CONNECTIONS` drops
the one that has been idle for longest. Handlers that only look at memory run in the loop, `slow` ones in two threads.

Listening sockets are made inside a network namespace, and stay in it whichever thread uses them (socket(7)).
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import email.utils
import errno
import http
import ipaddress
import logging
import os
import re
import socket
import threading
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final, TypeVar
from urllib.parse import parse_qsl, unquote

import msgspec

from kproxy.errors import KproxyError
from kproxy.family import join_host_port

log: Final = logging.getLogger("kproxy.httpd")
"""A message's fields are in its `extra`, under `fields`, which the agent's formatters write."""

REQUEST_SECONDS: Final = 10.0
IDLE_SECONDS: Final = 60.0
RESPONSE_SECONDS: Final = 30.0
MAX_BYTES: Final = 64 * 1024
"""Of a request's head, and of its body: no handler here reads a body."""
MAX_CONNECTIONS: Final = 64
ACCEPT_PAUSE: Final = 1.0
MAX_SLOW: Final = 8
"""Requests for slow handlers that wait or run; more get 503."""

TEXT: Final = "text/plain; charset=utf-8"
JSON: Final = "application/json"

_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_BACKLOG: Final = 128

Result = TypeVar("Result")


class ListenError(KproxyError):
    """A port cannot be listened on."""


class Request(msgspec.Struct, frozen=True):
    """A request: `path` and `query` decoded, of a repeated query field or header the last; `peer` is an IP address.

    Names of `headers` are in lower case.
    """

    method: str
    path: str
    query: Mapping[str, str] = {}
    peer: str = ""
    headers: Mapping[str, str] = {}

    @property
    def is_from_loopback(self) -> bool:
        """Whether it comes from this host."""
        address = ipaddress.ip_address(self.peer.partition("%")[0] or "::")
        mapped = getattr(address, "ipv4_mapped", None)
        return (mapped or address).is_loopback

    @property
    def is_asked_of_loopback(self) -> bool:
        """Whether it names a loopback address of this host, and no page of another origin sent it.

        A page that a browser on this host shows can have it send requests to 127.0.0.1, and with a name of its own that
        leads there even read the answers (DNS rebinding).
        """
        host = self.headers.get("host", "").lower()
        if host and not _is_loopback(host):  # every browser names one
            return False
        if self.headers.get("origin", f"http://{host}").lower() != f"http://{host}":
            return False
        return self.headers.get("sec-fetch-site", "none") in ("none", "same-origin")


def _is_loopback(host: str) -> bool:
    """Whether a Host header is `localhost` or a loopback address, with or without a port."""
    name = host.partition("]")[0].removeprefix("[") if host.startswith("[") else host.partition(":")[0]
    try:
        return name == "localhost" or ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


class Response(msgspec.Struct, frozen=True):
    body: bytes
    status: int = 200
    content_type: str = TEXT
    headers: Mapping[str, str] = {}


Handler = Callable[[Request], Response]


class Route(msgspec.Struct, frozen=True):
    """A handler; `slow` ones may block, others must not."""

    handler: Handler
    slow: bool = False


Router = Callable[[str], Route | None]
"""Finds the handler of a path; None is 404."""


def text_response(text: str, status: int = 200) -> Response:
    return Response(text.encode(), status)


class Listener:
    """An address and port that are served. `close` from any thread but the loop's own."""

    def __init__(self, servers: HttpServers, listening: socket.socket, router: Router) -> None:
        self.port: int = listening.getsockname()[1]
        self._servers = servers
        self._listening = listening
        self._router = router
        # The clients, the one that has been idle for longest first; True: it is being answered.
        self._busy: dict[asyncio.Task[None], bool] = {}

    def close(self) -> None:
        """Stops listening and ends every connection. After `HttpServers.close` there is nothing left to do."""
        with contextlib.suppress(ListenError):
            self._servers.in_loop(self.shut())

    async def start(self) -> None:
        """In the loop: starts to serve."""
        self._listening.setblocking(False)
        self._servers.listeners.add(self)
        self._resume()

    async def shut(self) -> None:
        """The same as `close`, in the loop."""
        if self in self._servers.listeners:
            self._servers.listeners.discard(self)
            asyncio.get_running_loop().remove_reader(self._listening)
            self._listening.close()
        for task in self._busy:
            task.cancel()

    def _resume(self) -> None:
        if self in self._servers.listeners:
            asyncio.get_running_loop().add_reader(self._listening, self._accept)

    def _accept(self) -> None:
        # Not asyncio.Server: one that is closed forgets clients that it has just accepted (CPython 3.11).
        loop = asyncio.get_running_loop()
        try:
            client, _address = self._listening.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return
        except OSError as error:
            # No more descriptors, say: without a pause this would be tried again at once, for ever.
            log.error("cannot accept a connection", extra={"fields": {"port": self.port, "error": str(error)}})
            loop.remove_reader(self._listening)
            loop.call_later(ACCEPT_PAUSE, self._resume)
            return
        idle = next((task for task, busy in self._busy.items() if not busy), None)
        if len(self._busy) >= MAX_CONNECTIONS and idle is not None:
            del self._busy[idle]
            idle.cancel()
        task = loop.create_task(self._serve(client))
        self._busy[task] = False
        task.add_done_callback(lambda _task: client.close())

    async def _serve(self, client: socket.socket) -> None:
        """One client: its requests are answered one after the other."""
        task = asyncio.current_task()
        assert task is not None
        client.setblocking(False)
        reader, writer = await asyncio.open_connection(sock=client, limit=MAX_BYTES)
        writer.transport.set_write_buffer_limits(high=0)  # so that `drain` waits until all of it is sent
        peer = writer.get_extra_info("peername")
        try:
            keep, seconds = True, REQUEST_SECONDS
            while keep:
                request, keep = await _read_request(reader, str(peer[0]) if peer else "", seconds)
                self._busy[task] = True
                await _send(writer, await self._answer(request), keep, request.method == "HEAD")
                del self._busy[task]  # the next time it is the last of those that are idle
                self._busy[task], seconds = False, IDLE_SECONDS
        except _RefusedError as error:  # as Go's server: a short text, and the connection ends
            text = f"{error.status} {error.status.phrase}"
            with contextlib.suppress(OSError):
                await _send(writer, text_response(text, error.status), False, False)
        except (OSError, EOFError):
            pass  # it is gone, or too slow
        finally:
            self._busy.pop(task, None)
            writer.transport.abort()

    async def _answer(self, request: Request) -> Response:
        route = self._router(request.path)
        if route is None:  # as Go's net/http answers it
            return text_response("404 page not found\n", 404)
        if not route.slow:
            return _run_handler(route.handler, request)
        return await self._servers.run_slow(route.handler, request)


class HttpServers:
    """The ports that this process serves in one network namespace. Thread-safe; the thread starts when needed.

    Attributes:
        listeners: those that are open; only the loop uses it.
    """

    def __init__(self, bind: Callable[[str, int, bool], socket.socket] | None = None) -> None:
        """Args: bind: makes the listening sockets, in another network namespace say; by default `open_socket`."""
        self._bind = bind or open_socket
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping = asyncio.Event()
        self._pool = concurrent.futures.ThreadPoolExecutor(2, thread_name_prefix="http-slow")
        self._slow = 0
        self._closed = False
        self.listeners: set[Listener] = set()

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
            raise ListenError(f"cannot listen on {shown}: {os.strerror(error.errno or 0)}") from error
        listener = Listener(self, listening, router)
        try:
            self.in_loop(listener.start())
        except ListenError:
            listening.close()
            raise
        return listener

    def close(self) -> None:
        """Ends every port and the thread. Twice does no harm."""
        with self._lock:
            self._closed = True
            loop, thread, self._thread = self._loop, self._thread, None
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(self._stopping.set)
            thread.join()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def __enter__(self) -> HttpServers:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    async def run_slow(self, handler: Handler, request: Request) -> Response:
        """In the loop: runs a handler that may block."""
        if self._slow >= MAX_SLOW:
            return text_response("busy: try again\n", 503)
        self._slow += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, _run_handler, handler, request)
        finally:
            self._slow -= 1

    def in_loop(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Runs something in the loop and waits for it. Raises ListenError if all is closed."""
        try:
            # With the lock: what is begun here ends before the thread does.
            with self._lock:
                done = asyncio.run_coroutine_threadsafe(work, self._running_loop())
            return done.result()
        except concurrent.futures.CancelledError as error:
            raise ListenError("the servers are closed") from error
        finally:
            work.close()

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        if self._closed:
            raise ListenError("the servers are closed")
        if self._loop is None:
            started: concurrent.futures.Future[asyncio.AbstractEventLoop] = concurrent.futures.Future()
            self._thread = threading.Thread(target=asyncio.run, args=(self._run(started),), name="http", daemon=True)
            self._thread.start()
            self._loop = started.result()
        return self._loop

    async def _run(self, started: concurrent.futures.Future[asyncio.AbstractEventLoop]) -> None:
        started.set_result(asyncio.get_running_loop())
        await self._stopping.wait()
        for listener in list(self.listeners):
            await listener.shut()


def open_socket(address: str, port: int, dual_stack: bool = True) -> socket.socket:
    """A listening socket. Raises OSError.

    With `dual_stack` an unspecified address stands for all addresses of both families where the host has IPv6, as in
    Go's net.Listen.
    """
    if dual_stack and address in ("", "0.0.0.0", "::"):
        try:
            if socket.has_dualstack_ipv6():
                return socket.create_server(("::", port), family=socket.AF_INET6, backlog=_BACKLOG, dualstack_ipv6=True)
        except OSError as error:
            if address == "::" or error.errno != errno.EADDRNOTAVAIL:
                raise
        address = address if address == "::" else "0.0.0.0"
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return socket.create_server((address, port), family=family, backlog=_BACKLOG)


class _RefusedError(Exception):
    """What came is no request that is answered here."""

    def __init__(self, status: http.HTTPStatus) -> None:
        super().__init__(status)
        self.status = status


async def _read_request(reader: asyncio.StreamReader, peer: str, seconds: float) -> tuple[Request, bool]:
    """The next request, its body read and dropped, and whether the connection stays open after it.

    Args:
        seconds: until it begins.

    Raises:
        _RefusedError: it is too large, or none.
        OSError, EOFError: the client is gone, or too slow.
    """
    async with asyncio.timeout(seconds):
        first = await reader.readexactly(1)
    if not first.isalpha():
        raise _RefusedError(http.HTTPStatus.BAD_REQUEST)
    async with asyncio.timeout(REQUEST_SECONDS):
        try:
            head = first + await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError as error:
            raise _RefusedError(http.HTTPStatus.REQUEST_ENTITY_TOO_LARGE) from error
        try:
            request, version = _parse_head(head[:-4], peer)
            size = _body_size(request.headers)
        except ValueError as error:
            raise _RefusedError(http.HTTPStatus.BAD_REQUEST) from error
        await reader.readexactly(size)
    connection = request.headers.get("connection", "").lower()
    return request, "close" not in connection and (version == "HTTP/1.1" or "keep-alive" in connection)


def _parse_head(head: bytes, peer: str) -> tuple[Request, str]:
    """The request and the protocol's version. Raises ValueError."""
    line, *lines = head.decode("latin-1").split("\r\n")
    method, target, version = line.split(" ")
    if not _TOKEN.fullmatch(method) or not target.isascii() or version not in ("HTTP/1.0", "HTTP/1.1"):
        raise ValueError(line)
    headers = {}
    for each in lines:
        name, colon, value = each.partition(":")
        if not colon or not _TOKEN.fullmatch(name):
            raise ValueError(each)
        headers[name.lower()] = value.strip(" \t")
    path, _, query = target.partition("?")
    fields = dict(parse_qsl(query, keep_blank_values=True, max_num_fields=100))
    return Request(method, unquote(path), fields, peer, headers), version


def _body_size(headers: Mapping[str, str]) -> int:
    """Bytes of the body. Raises ValueError, _RefusedError."""
    if "transfer-encoding" in headers:
        raise _RefusedError(http.HTTPStatus.LENGTH_REQUIRED)
    size = headers.get("content-length", "0")
    if not size.isascii() or not size.isdigit():
        raise ValueError(size)
    if len(size) > len(str(MAX_BYTES)) or int(size) > MAX_BYTES:
        raise _RefusedError(http.HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
    return int(size)


def _run_handler(handler: Handler, request: Request) -> Response:
    """The handler's response; 500 if it raises."""
    try:
        return handler(request)
    except Exception as error:
        fields = {"method": request.method, "path": request.path}
        log.error("request failed", exc_info=error, extra={"fields": fields})
        return text_response("internal error; the log has more\n", 500)


async def _send(writer: asyncio.StreamWriter, response: Response, keep: bool, head: bool) -> None:
    """Writes a response, without its body for HEAD. Raises OSError: the client is gone, or too slow."""
    lines = [
        f"HTTP/1.1 {response.status:d} {http.HTTPStatus(response.status).phrase}",
        f"Content-Type: {response.content_type}",
        "X-Content-Type-Options: nosniff",
        *(f"{name}: {value}" for name, value in response.headers.items()),
        f"Date: {email.utils.formatdate(usegmt=True)}",
        f"Content-Length: {len(response.body)}",
        *(() if keep else ("Connection: close",)),
    ]
    writer.write("\r\n".join([*lines, "", ""]).encode("latin-1") + (b"" if head else response.body))
    async with asyncio.timeout(RESPONSE_SECONDS):
        await writer.drain()
