"""Discovery and OpenAPI: what is listed is there, and what is free is not described."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.apiserver.server import Api

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
MERGE = "application/merge-patch+json"
METHODS = {"get": "GET", "update": "PUT", "patch": "PATCH", "delete": "DELETE"}


def _definition(plural: str, schema: Any) -> Any:
    kind = plural.capitalize()
    version = {
        "name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.n", "statusReplicasPath": ".status.n"}},
    }  # fmt: skip
    names = {"plural": plural, "singular": plural[:-1], "kind": kind, "listKind": f"{kind}List"}
    spec = {"group": "walk.example.org", "scope": "Namespaced", "names": names, "versions": [version]}
    return {"metadata": {"name": f"{plural}.walk.example.org"}, "spec": spec}


SCHEMA = {"type": "object", "properties": {
    "spec": {"type": "object", "properties": {"n": {"type": "integer"}}},
    "status": {"type": "object", "properties": {"n": {"type": "integer"}}},
}}  # fmt: skip


def _missing(answer: Any) -> bool:
    """Whether a 404 says that there is no such path, rather than no such object."""
    text = answer if isinstance(answer, str) else answer.get("message", "")
    return "could not find the requested resource" in text or "page not found" in text


def test_discovery_lists_nothing_that_is_not_there(shared: Api) -> None:
    """[sig-api-machinery] Discovery should validate PreferredVersion for each APIGroup; should locate the groupVersion
    and a resource within each APIGroup."""
    shared.ok("POST", CRDS, _definition("walked", SCHEMA))
    places = ["/api/v1"]
    for group in shared.ok("GET", "/apis")["groups"]:
        alone = shared.ok("GET", f"/apis/{group['name']}")
        assert alone["preferredVersion"] == group["preferredVersion"]
        places += [f"/apis/{each['groupVersion']}" for each in group["versions"]]
    assert "/apis/walk.example.org/v1" in places
    wrong = [path for path in shared.ok("GET", "/")["paths"] if shared("GET", path)[0] == 404]
    for place in places:
        assert shared.ok("GET", f"/openapi/v3{place}")["paths"], place
        for row in shared.ok("GET", place)["resources"]:
            plural, _, subresource = row["name"].partition("/")
            path = f"{place}/namespaces/default/{plural}" if row["namespaced"] else f"{place}/{plural}"
            asked = [("POST", f"{path}/zzz/{subresource}" if subresource else path)] if "create" in row["verbs"] else []
            if "list" in row["verbs"]:
                asked += [("GET", path), ("GET", f"{place}/{plural}")]
            end = f"zzz/{subresource}".rstrip("/")
            asked += [(METHODS[verb], f"{path}/{end}") for verb in row["verbs"] if verb in METHODS]
            for method, target in asked:
                media = MERGE if method == "PATCH" else "application/json"
                body: Any = None if method in ("GET", "DELETE") else {}
                status, answer = shared(method, target, body, media)
                if status == 405 or (status == 404 and _missing(answer)):
                    wrong.append(f"{method} {target}: {status}")
    assert wrong == []


def test_a_free_root_is_a_bare_object_in_openapi_v2(shared: Api) -> None:
    """[sig-api-machinery] CustomResourcePublishOpenAPI works for CRD preserving unknown fields at the schema root."""
    free = {**SCHEMA, "x-kubernetes-preserve-unknown-fields": True}
    plural = "freeones"
    shared.ok("POST", CRDS, _definition(plural, free))
    kind = plural.capitalize()
    name = f"org.example.walk.v1.{kind}"
    described = [{"group": "walk.example.org", "version": "v1", "kind": kind}]
    found = shared.ok("GET", "/openapi/v2")["definitions"][name]
    assert found == {"type": "object", "x-kubernetes-group-version-kind": described}
    three = shared.ok("GET", "/openapi/v3/apis/walk.example.org/v1")["components"]["schemas"][name]
    assert {"metadata", "spec", "status"} <= set(three["properties"])


def test_pods_of_a_namespace_go_first(shared: Api) -> None:
    """[sig-api-machinery] OrderedNamespaceDeletion namespace deletion should delete pod first."""
    shared.ok("POST", "/api/v1/namespaces", {"metadata": {"name": "ordered"}})
    base = "/api/v1/namespaces/ordered"
    meta = {"name": "p", "finalizers": ["example.org/held"]}
    spec = {"containers": [{"name": "c", "image": "i"}]}
    shared.ok("POST", f"{base}/pods", {"metadata": meta, "spec": spec})
    shared.ok("POST", f"{base}/configmaps", {"metadata": {"name": "needed"}})
    uid = shared.ok("GET", f"{base}/configmaps/needed")["metadata"]["uid"]
    shared.ok("DELETE", base)
    shared.eventually(f"{base}/pods/p", lambda pod: bool(pod["metadata"].get("deletionTimestamp")))
    # The pod is marked by the same pass that would have deleted the ConfigMap.
    assert shared.ok("GET", f"{base}/configmaps/needed")["metadata"]["uid"] == uid
    shared.ok("PATCH", f"{base}/pods/p", {"metadata": {"finalizers": None}}, MERGE)
    shared.eventually(base, lambda answer: answer.get("code") == 404)


@pytest.mark.parametrize(
    ("base", "names"),
    [
        ("healthz", ["ping", "log", "etcd"]),
        ("livez", ["ping", "log", "etcd"]),
        ("readyz", ["ping", "log", "etcd", "etcd-readiness", "informer-sync", "shutdown"]),
    ],
)
def test_health_names_its_checks(shared: Api, base: str, names: list[str]) -> None:
    def ask(query: str) -> list[str]:
        response = shared.raw("GET", f"/{base}{query}")
        assert response.status == 200
        return response.read().decode().splitlines()

    assert ask("") == ["ok"]
    assert ask("?verbose") == [*(f"[+]{name} ok" for name in names), f"{base} check passed"]
    assert [ask(f"/{name}") for name in names] == [["ok"]] * len(names)
