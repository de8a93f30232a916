"""Health-check node ports: for each Service with externalTrafficPolicy Local, load balancers ask here whether this node
has endpoints of its own.

The answer is kube-proxy's (pkg/proxy/healthcheck/service_health.go, v1.36): 200 if there is a ready local endpoint and
the proxy is healthy, else 503; the body says which Service, how many local endpoints, and whether the proxy is healthy;
a header tells their number as a weight. Whatever the path.

Each family has its own server and counts its own endpoints, as kube-proxy's proxiers do (on tcp4 and tcp6): a load
balancer that sends IPv4 asks over IPv4. A port that another process has is logged once, and tried again until it works
or is wanted no longer.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from kproxy.agent.log import event
from kproxy.agent.status.ports import RETRY_SECONDS, start_timer
from kproxy.httpd.server import JSON, HttpServers, Listener, ListenError, Request, Response, Route
from kproxy.services import IPFamily

EVERYWHERE: Final = {IPFamily.IPV4: ("0.0.0.0",), IPFamily.IPV6: ("::",)}
"""Every address of a family."""

_Port = tuple[str, int]


class ServiceHealthServer:
    """Serves the ports that one family's syncs ask for. Thread-safe.

    Invariant: `_open` holds what is served, by address and port of `_ports`, `_failed` what should be and cannot.

    Args:
        servers: where to listen; they have the network namespace.
        healthy: whether the proxy is; the node does not count.
        addresses: the family's node-port addresses as kube-proxy chooses them. Asked when ports change.
    """

    def __init__(
        self,
        servers: HttpServers,
        healthy: Callable[[], bool],
        addresses: Callable[[], Iterable[str]],
        retry_seconds: float = RETRY_SECONDS,
    ) -> None:
        self._servers = servers
        self._healthy = healthy
        self._addresses = addresses
        self._retry_seconds = retry_seconds
        self._lock = threading.Lock()
        self._ports: Mapping[str, int] = {}
        self._counts: Mapping[str, int] = {}
        self._open: dict[_Port, tuple[str, Listener]] = {}
        self._failed: dict[_Port, str] = {}
        self._retrying: threading.Timer | None = None
        self._closed = False

    @property
    def open_ports(self) -> frozenset[int]:
        """The ports that are served, at least on one address."""
        with self._lock:
            return frozenset(port for _, port in self._open)

    @property
    def failed_ports(self) -> frozenset[int]:
        """The ports that should be served and are not, on at least one address."""
        with self._lock:
            return frozenset(port for _, port in self._failed)

    def sync(self, ports: Mapping[str, int], local_endpoints: Mapping[str, int]) -> None:
        """What a sync found, by `namespace/name`: the ports, and how many ready endpoints are on this node."""
        with self._lock:
            self._counts = local_endpoints
            if ports != self._ports:
                self._ports = ports
                self._reconcile()

    def retry(self) -> None:
        """Tries again what failed, on the addresses that there are now."""
        with self._lock:
            self._retrying = None
            if not self._closed:
                self._reconcile()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._ports = {}
            self._reconcile()

    def _reconcile(self) -> None:
        desired = self._desired() if self._ports else {}
        for port_at, (service, listener) in list(self._open.items()):
            if desired.get(port_at) != service:
                del self._open[port_at]
                listener.close()
                event("health-check node port closed", service=service, port=port_at[1], address=port_at[0])
        self._failed = dict(self._failed.items() & desired.items())
        for port_at, service in desired.items():
            if port_at not in self._open:
                self._listen(port_at, service)
        self._plan_retry()

    def _desired(self) -> dict[_Port, str]:
        """Which Service each address and port belongs to; of two that want one port, the first by name."""
        addresses = tuple(self._addresses())
        owners: dict[_Port, str] = {}
        for service, port in sorted(self._ports.items()):
            for address in addresses:
                owner = owners.setdefault((address, port), service)
                if owner != service:
                    event(
                        "two Services want one health-check node port",
                        level=logging.WARNING,
                        service=service,
                        port=port,
                        servedFor=owner,
                    )
        return owners

    def _listen(self, port_at: _Port, service: str) -> None:
        address, port = port_at
        route = Route(lambda request: self._answer(service, request))
        try:
            listener = self._servers.listen(address, port, lambda _path: route, dual_stack=False)
        except ListenError as error:
            if self._failed.get(port_at) != service:
                event(
                    "health-check node port failed, will be tried again",
                    level=logging.WARNING,
                    service=service,
                    error=str(error),
                )
            self._failed[port_at] = service
            return
        self._failed.pop(port_at, None)
        self._open[port_at] = (service, listener)
        event("health-check node port open", service=service, port=port, address=address)

    def _plan_retry(self) -> None:
        if self._failed and self._retrying is None and not self._closed:
            self._retrying = start_timer(self._retry_seconds, self.retry)
        elif not self._failed and self._retrying is not None:
            self._retrying.cancel()
            self._retrying = None

    def _answer(self, service: str, _request: Request) -> Response:
        # Without the lock: its holder may be waiting for the loop that this runs in.
        count = self._counts.get(service, 0)
        healthy = self._healthy()
        return Response(
            health_body(service, count, healthy).encode(),
            200 if count and healthy else 503,
            JSON,
            {"X-Load-Balancing-Endpoint-Weight": str(count)},
        )


def health_body(service: str, local_endpoints: int, healthy: bool) -> str:
    """kube-proxy's body, byte for byte."""
    namespace, _, name = service.partition("/")
    body = {
        "service": {"namespace": namespace, "name": name},
        "localEndpoints": local_endpoints,
        "serviceProxyHealthy": healthy,
    }
    return json.dumps(body, indent="\t")
