"""Requests to the API server, counted as client-go does, whenever the metrics come."""

from __future__ import annotations

import pytest

from kproxy.agent.sources.apiserver import MeteredHttpClient, RequestLog
from kproxy.agent.status.metrics import Metrics
from kproxy.client import SERVICES, ClientConfig, RestClient, TransportError
from tests.support.agent.recorded_http import parse_metrics
from tests.support.fakeapi.server import FakeApiServer


def client(url: str, log: RequestLog) -> RestClient:
    made = RestClient(ClientConfig(server=url))
    made.http = MeteredHttpClient(made.config, log)
    return made


def counted(metrics: Metrics) -> dict[tuple[str, str], float]:
    """How many requests had which code, and how many answers were measured."""
    families = parse_metrics(metrics.text())
    found = {}
    for (name, labels), value in families["rest_client_requests_total"].samples.items():
        found[name, dict(labels)["code"]] = float(value)
    for (name, _labels), value in families["rest_client_response_size_bytes"].samples.items():
        if name.endswith("_count"):
            found[name, ""] = float(value)
    return found


def test_what_was_asked_before_there_are_metrics_counts_too() -> None:
    log, metrics = RequestLog(), Metrics()
    with FakeApiServer() as server:
        asks = client(server.url, log)
        asks.list(SERVICES)
        log.attach(metrics)
        asks.list(SERVICES)
        stream = asks.watch(SERVICES)
        stream.close()
    with pytest.raises(TransportError):
        client("http://127.0.0.1:9", log).list(SERVICES)
    assert counted(metrics) == {
        ("rest_client_requests_total", "200"): 3,
        ("rest_client_requests_total", "<error>"): 1,
        ("rest_client_response_size_bytes_count", ""): 2,
    }


def test_requests_that_are_never_counted_do_not_take_more_and_more_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kproxy.agent.sources.apiserver.MAX_KEPT", 5)
    log, metrics = RequestLog(), Metrics()
    with FakeApiServer() as server:
        asks = client(server.url, log)
        for _ in range(9):
            asks.list(SERVICES)
    log.attach(metrics)
    assert sum(value for (name, _), value in counted(metrics).items() if name == "rest_client_requests_total") < 9
