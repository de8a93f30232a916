"""Discovery."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kproxy.client import DiscoveryError, RestClient, discover
from kproxy.informer.objects import WireError
from tests.support.client.recorded import body
from tests.support.fakeapi.server import FakeApiServer, Handler


def answered(api: FakeApiServer, document: Any = None) -> None:
    """The server answers with a document, or as kube-apiserver was recorded to."""

    def answer(handler: Handler) -> bool:
        handler.send_json(document or json.loads(body(f"kubectl api-versions: GET {handler.path}?")))
        return True

    api.intercept = answer


def test_two_documents_tell_all(client: RestClient, api: FakeApiServer) -> None:
    answered(api)
    found = discover(client)
    assert api.requests == ["GET /api", "GET /apis"]
    assert found[0].group == ""
    assert {(each.group, each.plural, each.kind) for each in found} >= {
        ("", "services", "Service"), ("discovery.k8s.io", "endpointslices", "EndpointSlice"),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("document", "error", "message"),
    [
        ({"kind": "APIVersions", "versions": ["v1"]}, DiscoveryError, "the server has no aggregated discovery"),
        ({"kind": "APIGroupDiscoveryList", "items": 7}, WireError, "no discovery document"),
    ],
)
def test_what_is_no_discovery(
    client: RestClient, api: FakeApiServer, document: Any, error: type[Exception], message: str
) -> None:
    answered(api, document)
    with pytest.raises(error, match=message):
        discover(client)
