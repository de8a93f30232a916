"""Discovery."""

from __future__ import annotations

import pytest

from kproxy.client import DiscoveryError, RestClient, discover
from kproxy.informer.objects import WireError
from tests.support.fakeapi.server import FakeApiServer, Handler


def test_two_documents_tell_all(client: RestClient, api: FakeApiServer) -> None:
    found = discover(client)
    assert [request for request in api.requests if "/api" in request] == ["GET /api", "GET /apis"]
    assert found[0].group == ""
    assert {(each.group, each.plural, each.kind) for each in found} >= {
        ("", "services", "Service"), ("example.org", "fruits", "Fruit"),
    }  # fmt: skip


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
