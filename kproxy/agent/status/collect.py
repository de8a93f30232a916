"""/debug/collect: this node as `kproxy collect` reads it, a `.tar.gz` of `nodes/NAME/` (docs/snapshot.md).

It executes the collection script in the namespace that is programmed, and takes what the script prints file by file,
so that this process holds one of them, and the others compressed. One collection at a time: others are told to come
again. Who may read it, `access` says.
"""

from __future__ import annotations

import secrets
import threading
import time
from typing import Final

import msgspec

from kproxy.agent.config.options import Settings
from kproxy.agent.proxy.host import open_namespace
from kproxy.agent.status.ports import parse_address
from kproxy.cluster.snapshot.script import MAX_OCTETS, SECONDS, pack_stream, stream_script
from kproxy.errors import KproxyError
from kproxy.family import join_host_port
from kproxy.httpd.protocol import Request, Response, text_response
from kproxy.linux.process import stream

_GZIP: Final = "application/gzip"
_BUSY: Final = "this node is being read for somebody else: try again\n"
_LOOPBACK: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}


class NodeCollection:
    """Reads this node, while nobody else holds the lock `running`."""

    def __init__(
        self, settings: Settings, running: threading.Lock, *, seconds: float = SECONDS, max_octets: int = MAX_OCTETS
    ) -> None:
        self._settings = settings
        self._seconds = seconds
        self._max_octets = max_octets
        self._running = running

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


def _reachable(address: str) -> str:
    """Where a port that is bound to an address answers clients on this host; "" if there is none."""
    if not address:
        return ""
    host, port = parse_address(address)
    return join_host_port(_LOOPBACK.get(host, host), port)
