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

from kproxy.client.config import ClientConfig
from kproxy.client.http import HttpClient, Response, Stream

if TYPE_CHECKING:
    from kproxy.agent.status.metrics import Metrics

MAX_KEPT: Final = 10_000
"""Requests kept for metrics that do not come; the oldest go first."""


Counted = Callable[["Metrics"], None]
"""Counts something of a request."""


class RequestLog:
    """What was asked of API servers. Thread-safe. Invariant: nothing is kept once metrics are there."""

    def __init__(self, metrics: Metrics | None = None) -> None:
        self._lock = threading.Lock()
        self._metrics = metrics
        self._kept: deque[Counted] = deque(maxlen=MAX_KEPT)

    def attach(self, metrics: Metrics) -> None:
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

        def count(metrics: Metrics) -> None:
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
