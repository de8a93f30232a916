"""Who may see what is below /debug, and /debug/collect: this node as `kproxy collect` reads it, a `.tar.gz` of
`nodes/NAME/` (docs/snapshot.md).

It executes the collection script in the namespace that is programmed, and takes what the script prints file by file,
so that this process holds one of them, and the others compressed. One collection at a time: others are told to come
again.

Rules, routes and connections of a node are what only root may see, so clients on this host are answered, and no pages
of other origins in their browsers: the metrics port may have been opened to others. With a token file it answers
whoever sends the token, and nobody else (docs/decisions/0004).
"""

from __future__ import annotations

import hmac
import secrets
import threading
import time
from typing import Final

import msgspec

from kproxy.agent.config.options import Settings
from kproxy.agent.proxy.host import open_namespace
from kproxy.agent.status.ports import parse_address
from kproxy.cluster.snapshot.script import (
    MAX_OCTETS,
    SECONDS,
    TOKEN_HEADER,
    pack_stream,
    read_token,
    stream_script,
)
from kproxy.errors import InputError, KproxyError
from kproxy.family import join_host_port
from kproxy.httpd.server import Handler, Request, Response, text_response
from kproxy.linux.process import stream

_GZIP: Final = "application/gzip"
_BUSY: Final = "this node is being read for somebody else: try again\n"
_LOOPBACK: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}


class NodeCollection:
    """Reads this node."""

    def __init__(self, settings: Settings, *, seconds: float = SECONDS, max_octets: int = MAX_OCTETS) -> None:
        self._settings = settings
        self._seconds = seconds
        self._max_octets = max_octets
        self._running = threading.Lock()

    def answer(self, _request: Request) -> Response:
        """The handler of the page, which may block."""
        if not self._running.acquire(blocking=False):
            return msgspec.structs.replace(text_response(_BUSY, 503), headers={"Retry-After": "10"})
        try:
            name = f'attachment; filename="{self._settings.node_name}.tar.gz"'
            return Response(self._collect(), 200, _GZIP, {"Content-Disposition": name})
        except KproxyError as error:
            return text_response(f"error: {error}\n", 503)
        finally:
            self._running.release()

    def _collect(self) -> bytes:
        boundary = f"@@kproxy-{secrets.token_hex(12)}"
        config = self._settings.config
        asked = {
            "KPROXY_METRICS": _reachable(config.metrics_bind_address),
            "KPROXY_HEALTHZ": _reachable(config.healthz_bind_address),
        }
        with open_namespace(self._settings.netns) as namespace:
            printed = stream(
                namespace,
                ["sh", "-c", stream_script(boundary)],
                timeout=self._seconds,
                max_octets=self._max_octets,
                environment={name: value for name, value in asked.items() if value},
            )
            return pack_stream(printed, boundary, self._settings.node_name, int(time.time()))


def guarded(handler: Handler, token_file: str = "") -> Handler:
    """The handler for those who may ask, by GET and HEAD; see `objection`."""

    def answer(request: Request) -> Response:
        refused = objection(request, token_file)
        if refused:
            return text_response(f"{refused}\n", 403)
        if request.method not in ("GET", "HEAD"):
            return msgspec.structs.replace(text_response("GET only\n", 405), headers={"Allow": "GET, HEAD"})
        return handler(request)

    return answer


def objection(request: Request, token_file: str) -> str:
    """Why a request for this node may not be answered, or "".

    Args:
        token_file: read at each request, since who mounts it may replace it; "" for none.
    """
    if not token_file:
        if not request.is_from_loopback:
            return "only this host may see this"
        asked = request.is_asked_of_loopback
        return "" if asked else "this is asked by localhost or a loopback address, and by no other page"
    try:
        expected = read_token(token_file)
    except InputError as error:
        return f"nobody may see this: {error}"
    given = request.headers.get(TOKEN_HEADER, "")
    if hmac.compare_digest(given.encode(), expected.encode()):
        return ""
    return f"the token in {TOKEN_HEADER.title()} is {'wrong' if given else 'missing'}"


def _reachable(address: str) -> str:
    """Where a port that is bound to an address answers clients on this host; "" if there is none."""
    if not address:
        return ""
    host, port = parse_address(address)
    return join_host_port(_LOOPBACK.get(host, host), port)
