"""Discovery, aggregated and plain, and which words mean what."""

from __future__ import annotations

import pytest

from kproxy.client import ApiResource, Discovered, DiscoveryError, RestClient, discover
from kproxy.informer import WireError
from tests.support.fakeapi.server import FakeApiServer, Handler
from tests.support.fakeapi.storage import StatusError


def test_both_kinds_of_discovery_say_the_same(client: RestClient, api: FakeApiServer) -> None:
    aggregated = discover(client)
    assert [request for request in api.requests if "/api" in request] == ["GET /api", "GET /apis"]
    api.aggregated = False
    plain = discover(client)
    assert set(plain.resources) == set(aggregated.resources)
    assert plain.resolve("svc").qualified == "services"


def test_a_group_that_is_away_hides_only_itself(client: RestClient, api: FakeApiServer) -> None:
    def away(handler: Handler) -> bool:
        if handler.path == "/apis/apps/v1":
            handler.send_json(StatusError(503, "ServiceUnavailable", "away").body, 503)
            return True
        return False

    api.aggregated, api.intercept = False, away
    found = discover(client)
    assert found.resolve("fruits").group == "example.org"
    with pytest.raises(DiscoveryError):
        found.resolve("deployments")


def test_garbage(client: RestClient, api: FakeApiServer) -> None:
    def garbage(handler: Handler) -> bool:
        handler.send_json({"kind": "APIGroupDiscoveryList", "items": 7})
        return True

    api.intercept = garbage
    with pytest.raises(WireError, match="no discovery document"):
        discover(client)


def test_words() -> None:
    def item(group: str, version: str, plural: str, kind: str, *short: str) -> ApiResource:
        return ApiResource(group, version, plural, kind.lower(), kind, True, short, ("all",), frozenset({"list"}))

    events, other = item("", "v1", "events", "Event", "ev"), item("events.k8s.io", "v1", "events", "Event", "ev")
    new, old = (
        item("apps", "v1", "deployments", "Deployment", "deploy"),
        item("apps", "v1beta1", "deployments", "Deployment"),
    )
    ev = item("example.org", "v1", "ev", "Ev")
    found = Discovered((events, other, new, old, ev))
    assert found.resolve("events") is found.resolve("Event") is events
    assert found.resolve("ev") is ev, "a name goes before a short name"
    assert found.resolve("events.events.k8s.io") is other
    assert found.resolve("events.v1.events.k8s.io") is other
    assert found.resolve("events.v1.") is events
    assert found.resolve("deploy") is found.resolve("deployments.apps") is found.resolve("deploy.v1.apps") is new
    assert found.resolve("deployments.v1beta1.apps") is old
    assert found.category("all") == [events, other, new, ev]
    assert found.category("none") == []
    for word in ("nosuch", "events.nosuch", "deployments.v2.apps", ""):
        with pytest.raises(DiscoveryError, match="doesn't have a resource type"):
            found.resolve(word)
