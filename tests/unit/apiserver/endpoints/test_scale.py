"""The scale subresource, by every way that clients have of writing it."""

from __future__ import annotations

from typing import Any

import pytest

from kproxy.apiserver.schema.protobuf import MEDIA_TYPE, decode_envelope, encode_envelope
from tests.support.apiserver.server import Api

PATH = "/apis/apps/v1/namespaces/default/deployments"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"


@pytest.fixture(scope="module")
def scale(shared: Api) -> str:
    """The path of a Deployment's scale."""
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    spec = {"replicas": 2, "selector": {"matchLabels": {"a": "b"}}, "template": template}
    shared.ok("POST", PATH, {"metadata": {"name": "d"}, "spec": spec})
    return f"{PATH}/d/scale"


def body(replicas: Any, **meta: str) -> Any:
    metadata = {"name": "d", "namespace": "default"} | meta
    return {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": metadata, "spec": {"replicas": replicas}}


def test_it_shows_and_takes_replicas(shared: Api, scale: str) -> None:
    found = shared.ok("GET", scale)
    assert (found["kind"], found["apiVersion"]) == ("Scale", "autoscaling/v1")
    assert found["status"] == {"replicas": 0, "selector": "a=b"}
    assert shared.ok("PUT", scale, body(5))["spec"] == {"replicas": 5}
    assert shared.ok("PATCH", scale, {"spec": {"replicas": 6}}, MERGE)["spec"] == {"replicas": 6}
    assert shared.ok("PATCH", scale, {"spec": {"replicas": 7}}, STRATEGIC)["spec"] == {"replicas": 7}
    patch = [{"op": "replace", "path": "/spec/replicas", "value": 8}]
    assert shared.ok("PATCH", scale, patch, JSON_PATCH)["spec"] == {"replicas": 8}
    assert shared.ok("GET", f"{PATH}/d")["spec"]["replicas"] == 8
    assert shared.ok("PUT", scale, body(0))["spec"] == {}
    assert shared.ok("GET", f"{PATH}/d")["spec"]["replicas"] == 0


def test_it_is_shown_as_a_table(shared: Api, scale: str) -> None:
    """[sig-cli] kubectl get --subresource=scale; printScale in pkg/printers/internalversion."""
    table = shared("GET", scale, Accept="application/json;as=Table;v=v1;g=meta.k8s.io")[1]
    assert [each["name"] for each in table["columnDefinitions"]] == ["Name", "Desired", "Available", "Age"]
    assert table["rows"][0]["cells"][:3] == ["d", shared.ok("GET", scale)["spec"].get("replicas", 0), 0]


@pytest.mark.parametrize("accept", [MEDIA_TYPE, f"{MEDIA_TYPE},application/json"])
def test_in_protobuf(shared: Api, scale: str, accept: str) -> None:
    """kubectl scale, built with a client-go since v1.32, sends and prefers protobuf."""
    response = shared.raw("PUT", scale, encode_envelope(body(4)), Content_Type=MEDIA_TYPE, Accept=accept)
    text = response.read()
    assert response.status == 200, text
    if accept == MEDIA_TYPE:
        assert decode_envelope(text)["spec"] == {"replicas": 4}
    assert shared.ok("GET", f"{PATH}/d")["spec"]["replicas"] == 4


@pytest.mark.parametrize(
    ("method", "media", "given", "code"),
    [
        ("PUT", "application/json", body(-1), 422),
        ("PUT", "application/json", body("x"), 400),
        ("PUT", "application/json", body(True), 400),
        ("PUT", "application/json", body(3, resourceVersion="1"), 409),
        ("PUT", "application/json", body(3, name="other"), 400),
        ("PUT", "application/json", [], 400),
        ("PUT", "application/json", {"spec": []}, 400),
        ("PATCH", MERGE, {"spec": 5}, 400),
        ("PATCH", MERGE, [], 400),
        ("PATCH", JSON_PATCH, [{"op": "remove", "path": "/nope"}], 422),
        ("PATCH", "text/plain", {}, 415),
        ("POST", "application/json", body(1), 405),
        ("DELETE", "application/json", None, 405),
    ],
)
def test_refusals(shared: Api, scale: str, method: str, media: str, given: Any, code: int) -> None:
    before = shared.ok("GET", f"{PATH}/d")
    status, answer = shared(method, scale, given, media)
    assert (status, answer["kind"]) == (code, "Status"), answer
    assert shared.ok("GET", f"{PATH}/d") == before


def test_what_has_no_scale(shared: Api) -> None:
    assert shared("GET", f"{PATH}/nope/scale")[0] == 404
    assert shared("GET", "/api/v1/namespaces/default/services/kubernetes/scale")[0] == 404
