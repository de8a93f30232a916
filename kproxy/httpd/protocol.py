"""HTTP/1.1 on one connection: requests in, responses out, and limits for bad clients.

Requests must be complete within `REQUEST_SECONDS` and `MAX_BYTES`, responses read within `RESPONSE_SECONDS`. Parsing is
httptools' (llhttp); responses are short and whole, so writing them takes a few lines.
"""

from __future__ import annotations

import asyncio
import email.utils
import http
import ipaddress
import logging
from collections.abc import Callable, Mapping
from typing import Final, Protocol
from urllib.parse import parse_qsl, unquote

import httptools
import msgspec

log: Final = logging.getLogger("kproxy.httpd")
"""A message's fields are in its `extra`, under `fields`, which the agent's formatters write."""

REQUEST_SECONDS: Final = 10.0
IDLE_SECONDS: Final = 60.0
RESPONSE_SECONDS: Final = 30.0
MAX_BYTES: Final = 64 * 1024
"""Of one request, its body included: no handler here reads a body."""

TEXT: Final = "text/plain; charset=utf-8"
JSON: Final = "application/json"


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


def by_path(routes: Mapping[str, Route]) -> Router:
    """A router of exact paths."""
    return routes.get


def not_found(_request: Request) -> Response:
    """404, as Go's net/http answers it."""
    return text_response("404 page not found\n", 404)


_NOT_FOUND: Final = Route(not_found)


class Owner(Protocol):
    """What accepts connections; called in the loop."""

    @property
    def router(self) -> Router: ...

    def admit(self, connection: Connection) -> None:
        """Called when a client has connected."""

    def forget(self, connection: Connection) -> None:
        """Called when a client has disconnected."""

    def run_slow(self, handler: Handler, request: Request) -> asyncio.Future[Response] | None:
        """Runs a slow handler; None if too many are waiting."""


class Connection(asyncio.Protocol):
    """One client. Requests are answered one after the other; reading stops while one is."""

    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._peer = ""
        self._url = b""
        self._headers: dict[str, str] = {}
        self._bytes = 0
        self._pending: list[tuple[Request, bool]] = []
        self._closing = False
        self.busy = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.set_write_buffer_limits(high=0)
        peer = transport.get_extra_info("peername")
        self._peer = str(peer[0]) if peer else ""
        self._owner.admit(self)
        self._arm(REQUEST_SECONDS)

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self._disarm()
        self._owner.forget(self)

    def data_received(self, data: bytes) -> None:
        if self._closing:
            return
        if self._bytes == 0 and not self._pending:
            self._arm(REQUEST_SECONDS)  # the first byte after an idle time
        self._bytes += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade, UnicodeDecodeError, ValueError):
            self._refuse(400)
            return
        if self._bytes > MAX_BYTES:
            self._refuse(413)
            return
        self._next()

    def on_message_begin(self) -> None:
        self._url = b""
        self._headers = {}

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_message_complete(self) -> None:
        path, _, query = self._url.decode("ascii").partition("?")
        method = self._parser.get_method().decode("ascii")
        fields = dict(parse_qsl(query, keep_blank_values=True, max_num_fields=100))
        request = Request(method, unquote(path), fields, self._peer, self._headers)
        self._pending.append((request, self._parser.should_keep_alive()))

    def pause_writing(self) -> None:
        self._arm(RESPONSE_SECONDS)

    def resume_writing(self) -> None:
        if not self._closing:
            self._arm(IDLE_SECONDS)

    def abort(self) -> None:
        """Drops the client without an answer."""
        if self._transport is not None:
            self._transport.abort()

    def _next(self) -> None:
        transport = self._transport
        if self.busy or self._closing or transport is None or not self._pending:
            return
        self.busy = True
        transport.pause_reading()
        self._disarm()
        request, keep = self._pending.pop(0)
        route = self._owner.router(request.path) or _NOT_FOUND
        if not route.slow:
            self._reply(request, keep, run_handler(route.handler, request))
            return
        future = self._owner.run_slow(route.handler, request)
        if future is None:
            self._reply(request, keep, text_response("busy: try again\n", 503))
            return
        future.add_done_callback(lambda done: self._reply(request, keep, done.result()))

    def _reply(self, request: Request, keep: bool, response: Response) -> None:
        transport = self._transport
        self.busy = False
        self._bytes = 0
        if transport is None:
            return
        self._closing = not keep
        transport.write(_encode(response, keep, request.method == "HEAD"))
        if self._closing:
            self._arm(RESPONSE_SECONDS)
            transport.close()
            return
        if transport.get_write_buffer_size() == 0:
            self._arm(IDLE_SECONDS)
        transport.resume_reading()
        if self._pending:
            self._loop.call_soon(self._next)

    def _refuse(self, status: int) -> None:
        """As Go's server: a short text, and the connection ends."""
        self._closing = True
        if self._transport is not None:
            self._transport.write(_encode(text_response(f"{status} {_phrase(status)}", status), False, False))
            self._arm(RESPONSE_SECONDS)
            self._transport.close()

    def _arm(self, seconds: float) -> None:
        self._disarm()
        self._timer = self._loop.call_later(seconds, self.abort)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def run_handler(handler: Handler, request: Request) -> Response:
    """The handler's response; 500 if it raises."""
    try:
        return handler(request)
    except Exception as error:
        fields = {"method": request.method, "path": request.path}
        log.error("request failed", exc_info=error, extra={"fields": fields})
        return text_response("internal error; the log has more\n", 500)


def _encode(response: Response, keep: bool, head: bool) -> bytes:
    lines = [
        f"HTTP/1.1 {response.status} {_phrase(response.status)}",
        f"Content-Type: {response.content_type}",
        "X-Content-Type-Options: nosniff",
        *(f"{name}: {value}" for name, value in response.headers.items()),
        f"Date: {email.utils.formatdate(usegmt=True)}",
        f"Content-Length: {len(response.body)}",
    ]
    if not keep:
        lines.append("Connection: close")
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + (b"" if head else response.body)


def _phrase(status: int) -> str:
    return http.HTTPStatus(status).phrase
