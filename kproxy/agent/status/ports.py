"""The two ports of kube-proxy: health (10256) and, for this host alone, metrics, configuration and debug pages (10249).

Paths, bodies and headers are those that kube-proxy v1.36.2 was recorded with
(tests/reference/kube-proxy-http/responses.txt); like Go's handlers, they answer every method alike. Those below
/debug are kproxy's own (`debug`, `collect`).

A port on one family's loopback address answers on the other's too: `curl http://localhost:10249/proxyMode`, as in
Kubernetes' tests and documentation, may mean either, and on a node without IPv4 it means ::1.

A port that cannot be bound is tried again every five seconds, or with bindAddressHardFail ends the start, as in
kube-proxy. Whatever is given here is a value or a function; nothing here knows how a proxy works.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from kproxy.agent.log import event
from kproxy.agent.status.health import ProxyHealth
from kproxy.agent.status.metrics import CONTENT_TYPE, STARTED, Metrics
from kproxy.errors import InputError
from kproxy.httpd.server import (
    JSON,
    Handler,
    HttpServers,
    Listener,
    ListenError,
    Request,
    Response,
    Route,
    Router,
    text_response,
)

RETRY_SECONDS: Final = 5.0

_OTHER_LOOPBACK: Final = {"127.0.0.1": "::1", "::1": "127.0.0.1"}


class Pages(msgspec.Struct, frozen=True):
    """What the ports answer.

    Attributes:
        proxy_mode: for GET /proxyMode.
        configz: the body of GET /configz.
        debug: handlers that may block, by path.
    """

    health: ProxyHealth
    metrics: Metrics
    proxy_mode: str
    configz: Callable[[], str]
    debug: Mapping[str, Handler] = {}


class StatusPort:
    """A port that is served, or tried again until it is. `close` ends it."""

    def __init__(self, servers: HttpServers, name: str, address: tuple[str, int], router: Router, retry: float) -> None:
        self._servers = servers
        self._name = name
        self._address = address
        self._router = router
        self._retry = retry
        self._lock = threading.Lock()
        self._listener: Listener | None = None
        self._twin: Listener | None = None
        self._timer: threading.Timer | None = None
        self._closed = False
        self._reported = ""

    @property
    def port(self) -> int:
        """The port that is listened on; 0 if none is yet."""
        listener = self._listener
        return listener.port if listener is not None else 0

    def open(self, hard_fail: bool) -> None:
        """Listens now, or later. Raises ListenError if it must be now."""
        with self._lock:
            if self._closed:
                return
            try:
                self._listener = self._servers.listen(*self._address, self._router)
            except ListenError as error:
                if hard_fail:
                    raise ListenError(f"{self._name}: {error}") from error
                if str(error) != self._reported:
                    self._reported = str(error)
                    event("port failed, will be tried again", level=logging.ERROR, port=self._name, error=str(error))
                self._timer = start_timer(self._retry, lambda: self.open(False))
                return
            other = _OTHER_LOOPBACK.get(self._address[0])
            if other is not None:
                # Not configured, so a missing family or a port in use is no error.
                with contextlib.suppress(ListenError):
                    self._twin = self._servers.listen(other, self._listener.port, self._router)
        event("listening", port=self._name, address=self._address[0], number=self.port)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            if self._timer is not None:
                self._timer.cancel()
            listeners, self._listener, self._twin = (self._listener, self._twin), None, None
        for listener in listeners:
            if listener is not None:
                listener.close()


def serve(
    servers: HttpServers,
    pages: Pages,
    healthz_address: str,
    metrics_address: str,
    *,
    hard_fail: bool = False,
    retry: float = RETRY_SECONDS,
) -> tuple[StatusPort | None, StatusPort | None]:
    """Serves both ports; of an address that is "", none.

    Args:
        healthz_address, metrics_address: `IP:port` as in the configuration.
        hard_fail: bindAddressHardFail.

    Raises:
        ListenError: with `hard_fail`, a port cannot be bound.
        InputError: an invalid address.
    """
    served: list[StatusPort | None] = []
    for name, address, router in (
        ("healthz", healthz_address, health_router(pages)),
        ("metrics", metrics_address, metrics_router(pages)),
    ):
        port = StatusPort(servers, name, parse_address(address), router, retry) if address else None
        if port is not None:
            port.open(hard_fail)
        served.append(port)
    return served[0], served[1]


def parse_address(address: str) -> tuple[str, int]:
    """`0.0.0.0:10256` or `[::]:10256` as address and port. Raises InputError."""
    host, _, port = address.rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise InputError(f"{address!r} is no IP:port")
    return host.removeprefix("[").removesuffix("]"), int(port)


def health_router(pages: Pages) -> Router:
    """What port 10256 answers."""

    def healthz(_request: Request) -> Response:
        status, body = pages.health.healthz()
        pages.metrics.count("healthz", str(status))
        return Response(body.encode(), status, JSON)

    def livez(_request: Request) -> Response:
        status, body = pages.health.livez()
        pages.metrics.count("livez", str(status))
        return Response(body.encode(), status, JSON)

    return {"/healthz": Route(healthz), "/livez": Route(livez)}.get


def metrics_router(pages: Pages) -> Router:
    """What port 10249 answers."""

    def metrics(_request: Request) -> Response:
        headers = {"Process-Start-Time-Unix": str(STARTED)}
        return Response(pages.metrics.text().encode(), 200, CONTENT_TYPE, headers)

    routes = {
        "/healthz": Route(lambda _request: text_response("ok")),
        "/proxyMode": Route(lambda _request: text_response(pages.proxy_mode)),
        "/configz": Route(lambda _request: Response(pages.configz().encode(), 200, JSON)),
        "/metrics": Route(metrics, slow=True),
        **{path: Route(handler, slow=True) for path, handler in pages.debug.items()},
    }
    return routes.get


def start_timer(seconds: float, work: Callable[[], None]) -> threading.Timer:
    """Does something in some seconds, unless it is cancelled before."""
    timer = threading.Timer(seconds, work)
    timer.daemon = True
    timer.start()
    return timer
