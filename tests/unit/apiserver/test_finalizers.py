"""Names of finalizers: which kinds want a slash in them, what none may have."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.apiserver.server import Api

MERGE_PATCH = "application/merge-patch+json"
BARE = "resources-finalizer.argocd.argoproj.io"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def _crd(plural: str) -> dict[str, Any]:
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    version = {"name": "v1", "served": True, "storage": True, "schema": schema}
    spec = {"group": "example.org", "scope": "Cluster", "names": {"plural": plural, "kind": plural.title()}}
    return {"metadata": {"name": f"{plural}.example.org"}, "spec": {**spec, "versions": [version]}}


INVOLVED = {"kind": "Pod", "name": "p", "namespace": "default"}
UNCHECKED: list[tuple[str, dict[str, Any]]] = [
    ("/apis/coordination.k8s.io/v1/namespaces/default/leases", {}),
    ("/api/v1/namespaces/default/events", {"involvedObject": INVOLVED}),
    ("/apis/node.k8s.io/v1/runtimeclasses", {"handler": "runc"}),
    ("/apis/policy/v1/namespaces/default/poddisruptionbudgets", {"spec": {"minAvailable": 1}}),
    (CRDS, _crd("limes")),
]
CHECKED: list[tuple[str, dict[str, Any]]] = [
    ("/api/v1/namespaces/default/configmaps", {}),
    ("/api/v1/namespaces", {}),
    (
        "/apis/events.k8s.io/v1/namespaces/default/events",
        {
            "regarding": INVOLVED, "eventTime": "2026-01-02T03:04:05.000000Z", "reportingController": "a/b",
            "reportingInstance": "c", "action": "d", "reason": "e", "type": "Normal",
        },
    ),
    ("/apis/rbac.authorization.k8s.io/v1/clusterroles", {}),
    ("/apis/discovery.k8s.io/v1/namespaces/default/endpointslices", {"addressType": "IPv4", "endpoints": []}),
    (
        "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies",
        {"spec": {"podSelector": {}}},
    ),
]  # fmt: skip


def _named(body: dict[str, Any], *finalizers: str) -> dict[str, Any]:
    metadata = {"name": "held", **body.get("metadata", {}), "finalizers": list(finalizers)}
    return {**body, "metadata": metadata}


@pytest.mark.parametrize(("path", "body"), UNCHECKED)
def test_kinds_that_take_any_name(shared: Api, path: str, body: dict[str, Any]) -> None:
    value = shared.ok("POST", path, _named(body, BARE))
    assert value["metadata"]["finalizers"] == [BARE]
    name = value["metadata"]["name"]
    status, answer = shared("DELETE", f"{path}/{name}")
    assert status == 200
    assert answer["metadata"]["deletionTimestamp"]
    shared.ok("PATCH", f"{path}/{name}", {"metadata": {"finalizers": None}}, MERGE_PATCH)
    shared.eventually(f"{path}/{name}", lambda answer: answer.get("code") == 404)
    status, answer = shared("POST", path, _named(body, "no good"))
    assert status == 422
    assert 'metadata.finalizers: Invalid value: "no good"' in answer["message"]


@pytest.mark.parametrize(("path", "body"), CHECKED)
def test_kinds_that_want_a_slash(shared: Api, path: str, body: dict[str, Any]) -> None:
    """kubernetes/kubernetes pkg/apis/core/validation (ValidateObjectMeta) is what these kinds are checked with."""
    status, answer = shared("POST", path, _named(body, BARE))
    why = "name is neither a standard finalizer name nor is it fully qualified"
    assert status == 422
    assert f'metadata.finalizers[0]: Invalid value: "{BARE}": {why}' in answer["message"]
    assert shared("POST", f"{path}?dryRun=All", _named(body, "example.org/a", "foregroundDeletion"))[0] == 201
    status, answer = shared("POST", path, _named(body, "orphan", "foregroundDeletion"))
    assert status == 422
    assert "finalizer orphan and foregroundDeletion cannot be both set" in answer["message"]
