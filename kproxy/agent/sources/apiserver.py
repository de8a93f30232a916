"""Where the cluster comes from: an API server's Services, EndpointSlices (or Endpoints) and this node's Node.

A source puts objects into a `Sink` and says once, with `on_synced`, that everything there was at the start is in.
As kube-proxy does, Services and slices that are labelled as another proxy's, or as headless, are not even listed.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final, Generic, Protocol
from urllib.parse import urlsplit

from kproxy.api.load.mirror import mirror_endpoints
from kproxy.api.types.core import Endpoints, Node, Service
from kproxy.api.types.discovery import EndpointSlice
from kproxy.api.types.networking import ServiceCIDR
from kproxy.client import (
    ENDPOINT_SLICES,
    ENDPOINTS,
    NODES,
    SERVICE_CIDRS,
    SERVICES,
    Informer,
    Registration,
    RestClient,
)
from kproxy.client.config import ClientConfig
from kproxy.client.http import HttpClient, Response, Stream
from kproxy.informer.objects import DeletedFinalStateUnknown, T
from kproxy.services.names import LABEL_HEADLESS, LABEL_SERVICE_PROXY_NAME

OURS: Final = f"!{LABEL_SERVICE_PROXY_NAME}"
"""Services, which must have a cluster IP as well."""
WITH_CLUSTER_IP: Final = "spec.clusterIP!=None"
NOT_HEADLESS: Final = f"!{LABEL_HEADLESS}"
"""EndpointSlices, and the Endpoints that stand for them."""


class Sink(Protocol):
    """Takes objects, from any thread; each object's changes come in order."""

    def put_service(self, key: str, service: Service | None) -> None:
        """Added or changed; None: deleted."""

    def put_slice(self, key: str, endpoint_slice: EndpointSlice | None) -> None:
        """Added or changed; None: deleted."""

    def put_service_cidr(self, key: str, service_cidr: ServiceCIDR | None) -> None:
        """Added or changed; None: deleted."""

    def put_node(self, node: Node | None) -> None:
        """This node's Node as it is now; None if it does not exist."""


class Source(Protocol):
    """Puts a cluster into a sink, and keeps it up."""

    def start(self) -> None:
        """Begins to list and watch; returns at once."""

    def stop(self) -> None:
        """Ends all threads of the source."""

    def describe_waiting(self) -> str:
        """What has not been seen yet and why, for people; "" when everything has."""


class KeyedHandler(Generic[T]):
    """An informer's handler that puts objects by key."""

    def __init__(self, put: Callable[[str, T | None], None]) -> None:
        self._put = put

    def on_add(self, item: T, is_in_initial_list: bool) -> None:
        self._put(item.metadata.key, item)

    def on_update(self, old: T, new: T) -> None:
        self._put(new.metadata.key, new)

    def on_delete(self, item: T | DeletedFinalStateUnknown[T]) -> None:
        self._put(item.key if isinstance(item, DeletedFinalStateUnknown) else item.metadata.key, None)


class EndpointsMirror:
    """Endpoints as the slices that mirror them, one Service at a time.

    Every address counts, as it did in kube-proxy when it read Endpoints. The mirroring controller takes only the first
    1000 of a subset; it may, because what it leaves out is left out for everybody.

    Thread-safe. Invariant: `_put` holds the keys of the slices that the sink was given for each Endpoints.
    """

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._lock = threading.Lock()
        self._services: dict[str, Service] = {}
        self._endpoints: dict[str, Endpoints] = {}
        self._put: dict[str, frozenset[str]] = {}

    def put_service(self, key: str, service: Service | None) -> None:
        """Whether there is a Service decides whether its Endpoints are mirrored."""
        with self._lock:
            if service is None:
                self._services.pop(key, None)
            else:
                self._services[key] = service
            self._mirror(key)
        self._sink.put_service(key, service)

    def put_endpoints(self, key: str, endpoints: Endpoints | None) -> None:
        """Added or changed; None: deleted."""
        with self._lock:
            if endpoints is None:
                self._endpoints.pop(key, None)
            else:
                self._endpoints[key] = endpoints
            self._mirror(key)

    def _mirror(self, key: str) -> None:
        service, endpoints = self._services.get(key), self._endpoints.get(key)
        slices: tuple[EndpointSlice, ...] = ()
        if service and endpoints:
            slices = mirror_endpoints((service,), (), (endpoints,), honour_skip_mirror=False, max_per_subset=None)
        keys = frozenset(each.metadata.key for each in slices)
        for gone in self._put.pop(key, frozenset()) - keys:
            self._sink.put_slice(gone, None)
        for each in slices:
            self._sink.put_slice(each.metadata.key, each)
        if keys:
            self._put[key] = keys


class ApiSource:
    """An API server, watched by one informer for each resource.

    Args:
        on_synced: called once, from a thread of the source, when everything there was has been put.
        service_cidrs: whether ServiceCIDRs are watched too. They are not waited for: an API server before v1.33 has
            none.
    """

    def __init__(
        self,
        client: RestClient,
        node_name: str,
        sink: Sink,
        on_synced: Callable[[], None],
        *,
        use_endpoints: bool = False,
        service_cidrs: bool = False,
    ) -> None:
        self._on_synced = on_synced
        self._watched: list[tuple[Informer[Any], Registration[Any]]] = []
        self._extra: Informer[Any] | None = None
        self._thread: threading.Thread | None = None
        put_service = sink.put_service
        if use_endpoints:
            mirror = EndpointsMirror(sink)
            put_service = mirror.put_service
            endpoints = Informer(client, ENDPOINTS, label_selector=NOT_HEADLESS)
            self._watch(endpoints, mirror.put_endpoints)
        else:
            slices = Informer(client, ENDPOINT_SLICES, label_selector=NOT_HEADLESS)
            self._watch(slices, sink.put_slice)
        services = Informer(client, SERVICES, label_selector=OURS, field_selector=WITH_CLUSTER_IP)
        self._watch(services, put_service)
        node = Informer(client, NODES, field_selector=f"metadata.name={node_name}")
        self._watch(node, lambda _key, found: sink.put_node(found))

        if service_cidrs:
            self._extra = Informer(client, SERVICE_CIDRS)
            self._extra.add_event_handler(KeyedHandler(sink.put_service_cidr))

    def _watch(self, informer: Informer[T], put: Callable[[str, T | None], None]) -> None:
        registration = informer.add_event_handler(KeyedHandler(put))
        self._watched.append((informer, registration))

    def start(self) -> None:
        for informer in self._informers():
            informer.start()
        self._thread = threading.Thread(target=self._wait, name="sources", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        for informer in self._informers():
            informer.stop(timeout=2.0)

    def _informers(self) -> list[Informer[Any]]:
        return [informer for informer, _ in self._watched] + ([self._extra] if self._extra is not None else [])

    def describe_waiting(self) -> str:
        waiting = []
        for informer, registration in self._watched:
            if not registration.has_synced:
                failure, name = informer.last_failure, informer.resource.qualified
                waiting.append(f"{name} ({failure})" if failure else name)
        return ", ".join(waiting)

    def _wait(self) -> None:
        # Without a time-out: each returns when it has synced, or is stopped.
        if all(registration.wait_for_sync() for _, registration in self._watched):
            self._on_synced()


# --- the HTTP client with client-go's rest_client_ metrics: one for each answer, with its size and how long it took ---
#
# As in client-go a watch counts when its headers are there; its latency and size mean nothing and are not observed. The
# cluster is listed while the metrics are still being imported, so what happens until then is kept and counted later.

MAX_KEPT: Final = 10_000
"""Requests kept for metrics that do not come; the oldest go first."""


class RequestMetrics(Protocol):
    """What counts requests: `kproxy.agent.status.metrics.Metrics`."""

    def count(self, name: str, *labels: str) -> None: ...

    def observe(self, name: str, value: float, *labels: str) -> None: ...


Counted = Callable[[RequestMetrics], None]
"""Counts something of a request."""


class RequestLog:
    """What was asked of API servers. Thread-safe. Invariant: nothing is kept once metrics are there."""

    def __init__(self, metrics: RequestMetrics | None = None) -> None:
        self._lock = threading.Lock()
        self._metrics = metrics
        self._kept: deque[Counted] = deque(maxlen=MAX_KEPT)

    def attach(self, metrics: RequestMetrics) -> None:
        """Counts there from now on, and what was kept first."""
        with self._lock:
            self._metrics = metrics
            for count in self._kept:
                count(metrics)
            self._kept.clear()

    def add(self, count: Counted) -> None:
        """Counts a request, or keeps it until metrics are attached."""
        with self._lock:
            if self._metrics is None:
                self._kept.append(count)
                return
        count(self._metrics)


class MeteredHttpClient(HttpClient):
    """An HttpClient that counts its requests."""

    def __init__(self, config: ClientConfig, log: RequestLog, clock: Callable[[], float] = time.perf_counter) -> None:
        super().__init__(config)
        self._log = log
        self._clock = clock
        self._host = urlsplit(config.server).netloc

    # What they take and mean is HttpClient's, which declares the options.

    def request(self, method: str, target: str, **options: Any) -> Response:
        """See HttpClient."""
        start = self._clock()
        answer = super().request(method, target, **options)
        seconds, sent, received = self._clock() - start, len(options.get("body") or b""), len(answer.data)

        def count(metrics: RequestMetrics) -> None:
            metrics.observe("request", seconds, method, self._host)
            metrics.observe("request size", sent, method, self._host)
            metrics.observe("response size", received, method, self._host)

        self._log.add(count)
        return answer

    def stream(self, method: str, target: str, **options: Any) -> Stream:
        """See HttpClient."""
        code = "<error>"  # client-go's, for no answer at all
        try:
            stream = super().stream(method, target, **options)
            code = str(stream.status)
            return stream
        finally:
            self._log.add(lambda metrics: metrics.count("requests", code, method, self._host))
