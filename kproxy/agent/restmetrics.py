"""The HTTP client with client-go's rest_client_ metrics: one for each answer, with its size and how long it took.

As in client-go a watch counts when its headers are there; its latency and size mean nothing and are not observed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from urllib.parse import urlsplit

from kproxy.agent.metrics import Metrics
from kproxy.client.config import ClientConfig
from kproxy.client.http import Call, HttpClient, Response, Stream


class MeteredHttpClient(HttpClient):
    """See the module."""

    def __init__(self, config: ClientConfig, metrics: Metrics, clock: Callable[[], float] = time.perf_counter) -> None:
        super().__init__(config)
        self._metrics = metrics
        self._clock = clock
        self._host = urlsplit(config.server).netloc

    def request(
        self,
        method: str,
        target: str,
        *,
        accept: str = "application/json",
        body: bytes | None = None,
        content_type: str = "application/json",
        timeout: float = 60.0,
        call: Call | None = None,
    ) -> Response:
        """See HttpClient."""
        start = self._clock()
        answer = super().request(
            method, target, accept=accept, body=body, content_type=content_type, timeout=timeout, call=call
        )
        metrics = self._metrics
        metrics.request_duration.labels(method, self._host).observe(self._clock() - start)
        metrics.request_size.labels(method, self._host).observe(len(body or b""))
        metrics.response_size.labels(method, self._host).observe(len(answer.data))
        return answer

    def stream(
        self,
        method: str,
        target: str,
        *,
        accept: str = "application/json",
        body: bytes | None = None,
        content_type: str = "application/json",
        timeout: float = 60.0,
        call: Call | None = None,
    ) -> Stream:
        """See HttpClient."""
        code = "<error>"  # client-go's word for no answer at all
        try:
            stream = super().stream(
                method, target, accept=accept, body=body, content_type=content_type, timeout=timeout, call=call
            )
            code = str(stream.status)
            return stream
        finally:
            self._metrics.requests.labels(code, method, self._host).inc()
