"""Discovery, and which words mean what."""

from __future__ import annotations

import pytest

from kproxy.client import ApiResource, Discovered, DiscoveryError, RestClient, discover
from kproxy.informer import WireError
from tests.support.fakeapi.server import FakeApiServer, Handler


def test_two_documents_tell_all(client: RestClient, api: FakeApiServer) -> None:
    found = discover(client)
    assert [request for request in api.requests if "/api" in request] == ["GET /api", "GET /apis"]
    assert found.resolve("svc").qualified == "services"
    assert found.resolve("fruits").group == "example.org"
    assert found.resources[0].group == ""


def test_a_server_before_aggregated_discovery_is_told_to_be_one(client: RestClient, api: FakeApiServer) -> None:
    api.aggregated = False
    with pytest.raises(DiscoveryError, match="the server has no aggregated discovery"):
        discover(client)


def test_garbage(client: RestClient, api: FakeApiServer) -> None:
    def garbage(handler: Handler) -> bool:
        handler.send_json({"kind": "APIGroupDiscoveryList", "items": 7})
        return True

    api.intercept = garbage
    with pytest.raises(WireError, match="no discovery document"):
        discover(client)


def test_words() -> None:
    def item(group: str, version: str, plural: str, kind: str, *short: str) -> ApiResource:
        return ApiResource(group, version, plural, kind.lower(), kind, True, short)

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
    for word in ("nosuch", "events.nosuch", "deployments.v2.apps", ""):
        with pytest.raises(DiscoveryError, match="doesn't have a resource type"):
            found.resolve(word)
