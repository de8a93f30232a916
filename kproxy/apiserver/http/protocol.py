"""HTTP/1.1: uvicorn's protocol over httptools, with limits on the size of headers and on the time they take."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final

import msgspec
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.websockets.wsproto_impl import WSProtocol
from uvicorn.server import ServerState

from kproxy.apiserver.errors import StatusError, bad_request

log = logging.getLogger(__name__)
log.setLevel(logging.ERROR)  # a client that does not send HTTP is not worth a log line

MAX_HEADERS: Final = 256 * 1024
"""Bytes of a request line and headers."""
_HEADER_TIME: Final = 20.0
_LINGER: Final = 0.5
"""Seconds for which a refused client may go on sending: closed at once, it could lose its answer. As Go's net/http."""


class Http(HttpToolsProtocol):
    """uvicorn's protocol with limits on the size of headers and on the time until they are there."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._header_bytes = 0
        self._in_headers = True
        self._refused = False
        self._timer: asyncio.TimerHandle | None = None
        super().connection_made(transport)
        self.logger = log
        tls = transport.get_extra_info("ssl_object")  # the explorer's page comes without
        certificate = None if tls is None else tls.getpeercert(binary_form=True)
        self.app_state = {**self.app_state, "peer_certificate": certificate, "abort": transport.abort}
        self._start_timer()

    def _start_timer(self) -> None:
        self._timer = self.loop.call_later(_HEADER_TIME, self._too_slow)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _too_slow(self) -> None:
        if not self.transport.is_closing():
            self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.parser is None or self._refused or self.transport.is_closing():
            return
        if self._in_headers:
            self._header_bytes += len(data)
        super().data_received(data)
        if self._in_headers and self._header_bytes > MAX_HEADERS and not self._refused:
            self._refuse_headers()

    def _refuse_headers(self) -> None:
        text = f"the request line and headers are larger than {MAX_HEADERS} bytes"
        self._refuse("Request Header Fields Too Large", StatusError(431, "RequestHeaderFieldsTooLarge", text))

    def send_400_response(self, msg: str) -> None:
        """Refuses what is not HTTP."""
        self._refuse("Bad Request", bad_request("malformed HTTP request"))

    def _refuse(self, phrase: str, error: StatusError) -> None:
        """Answers before there is a request, and closes once the client has had time to read that."""
        self._refused = True
        body = msgspec.json.encode(error.status)
        head = (
            f"HTTP/1.1 {error.code} {phrase}\r\ncontent-type: application/json\r\nconnection: close\r\n"
            f"content-length: {len(body)}\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self._stop_timer()
        self._timer = self.loop.call_later(_LINGER, self.transport.close)

    def _should_upgrade(self) -> bool:
        """Whether it is a WebSocket that the app knows; what else asks for one is answered as it stands."""
        asked = dict(self.headers)
        wanted = self.url.partition(b"?")[0].endswith(b"/exec") and self.scope["method"] == "GET"
        return wanted and b"sec-websocket-key" in asked and super()._should_upgrade()

    def _unsupported_upgrade_warning(self) -> None:
        """SPDY, and WebSockets for what has none: the answer says enough."""

    def on_message_begin(self) -> None:
        super().on_message_begin()
        if self._timer is None:
            self._start_timer()

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_headers:  # a trailer is no header: it would come after the request was looked at, in any number
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._in_headers = False
        self._header_bytes = 0
        self._stop_timer()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._in_headers = True
        super().on_message_complete()


class WebSocket(WSProtocol):
    """uvicorn's protocol over wsproto, for pods/exec, which says nothing of each connection."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.logger = log


async def end_connections(state: ServerState, seconds: float) -> None:
    """Ends every connection of a server that listens no more: requests have so long to end by themselves."""
    for connection in list(state.connections):
        connection.shutdown()
    deadline = asyncio.get_running_loop().time() + seconds
    while state.tasks and asyncio.get_running_loop().time() < deadline:
        await asyncio.sleep(0.02)
    for connection in list(state.connections):
        connection.transport.abort()


class Refusing(asyncio.Protocol):
    """Too many connections: closes at once."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()
