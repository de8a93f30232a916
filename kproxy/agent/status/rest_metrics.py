"""The HTTP client with client-go's rest_client_ metrics: one for each answer, with its size and how long it took.

As in client-go a watch counts when its headers are there; its latency and size mean nothing and are not observed.

The cluster is listed while the metrics are still being imported, so what happens until then is kept and counted later.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import msgspec

from kproxy.client.config import ClientConfig
from kproxy.client.http import HttpClient, Response, Stream

if TYPE_CHECKING:
    from kproxy.agent.status.metrics import Metrics

MAX_KEPT: Final = 10_000
"""Requests kept for metrics that do not come; the oldest go first."""


class RequestResult(msgspec.Struct, frozen=True):
    """A request that was answered, or not: `code` is the status, or client-go's "<error>" for no answer at all."""

    code: str
    method: str
    host: str


class RequestLatency(msgspec.Struct, frozen=True):
    """A whole answer: seconds it took, bytes sent and received."""

    method: str
    host: str
    seconds: float
    sent: int
    received: int


class RequestLog:
    """What was asked of API servers. Thread-safe. Invariant: nothing is kept once metrics are there."""

    def __init__(self, metrics: Metrics | None = None) -> None:
        self._lock = threading.Lock()
        self._metrics = metrics
        self._kept: deque[RequestResult | RequestLatency] = deque(maxlen=MAX_KEPT)

    def attach(self, metrics: Metrics) -> None:
        """Counts there from now on, and what was kept first."""
        with self._lock:
            self._metrics = metrics
            for each in self._kept:
                _count(metrics, each)
            self._kept.clear()

    def add(self, happened: RequestResult | RequestLatency) -> None:
        """Counts a request, or keeps it until metrics are attached."""
        with self._lock:
            if self._metrics is None:
                self._kept.append(happened)
                return
        _count(self._metrics, happened)


def _count(metrics: Metrics, happened: RequestResult | RequestLatency) -> None:
    if isinstance(happened, RequestResult):
        metrics.requests.labels(happened.code, happened.method, happened.host).inc()
        return
    labels = (happened.method, happened.host)
    metrics.request_duration.labels(*labels).observe(happened.seconds)
    metrics.request_size.labels(*labels).observe(happened.sent)
    metrics.response_size.labels(*labels).observe(happened.received)


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
        size = len(options.get("body") or b"")
        self._log.add(RequestLatency(method, self._host, self._clock() - start, size, len(answer.data)))
        return answer

    def stream(self, method: str, target: str, **options: Any) -> Stream:
        """See HttpClient."""
        code = "<error>"
        try:
            stream = super().stream(method, target, **options)
            code = str(stream.status)
            return stream
        finally:
            self._log.add(RequestResult(code, method, self._host))
