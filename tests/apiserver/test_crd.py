"""Custom resources: served at once, validated, pruned, defaulted, scaled, in several versions."""

from __future__ import annotations

from typing import Any

from tests.apiserver.conftest import Api

MERGE = "application/merge-patch+json"
SCHEMA: Any = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "required": ["size"],
            "properties": {
                "size": {"type": "integer", "minimum": 1, "maximum": 9},
                "colour": {"type": "string", "default": "red", "enum": ["red", "blue"]},
                "replicas": {"type": "integer"},
                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                "ports": {
                    "type": "array",
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["name"],
                    "items": {"type": "object", "properties": {"name": {"type": "string"}, "n": {"type": "integer"}}},
                },
            },
        },
        "status": {"type": "object", "properties": {"replicas": {"type": "integer"}, "phase": {"type": "string"}}},
    },
}


def definition(plural: str) -> Any:
    version: Any = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": SCHEMA},
        "subresources": {
            "status": {},
            "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"},
        },
        "additionalPrinterColumns": [
            {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
            {"name": "Phase", "type": "string", "jsonPath": ".status.phase", "priority": 1},
        ],
    }
    return {
        "metadata": {"name": f"{plural}.example.org"},
        "spec": {
            "group": "example.org",
            "scope": "Namespaced",
            "names": {"plural": plural, "kind": plural.title()[:-1]},
            "versions": [version, {**version, "name": "v2", "storage": False}],
        },
    }


def make(api: Api, plural: str) -> str:
    api.ok("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition(plural))
    return f"/apis/example.org/v1/namespaces/default/{plural}"


def test_served_at_once_in_both_versions(shared: Api) -> None:
    path = make(shared, "pears")
    made = shared.ok("POST", path, {"metadata": {"name": "a"}, "spec": {"size": 3}})
    assert (made["kind"], made["apiVersion"], made["spec"]["colour"]) == ("Pear", "example.org/v1", "red")
    other = shared.ok("GET", path.replace("v1", "v2") + "/a")
    assert other["apiVersion"] == "example.org/v2"
    assert other["metadata"]["uid"] == made["metadata"]["uid"]
    listed = shared.ok("GET", path)
    assert (listed["kind"], listed["items"][0]["kind"]) == ("PearList", "Pear")
    groups = shared.ok("GET", "/apis/example.org")
    assert [each["version"] for each in groups["versions"]] == ["v2", "v1"]
    crd = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/pears.example.org"
    found = shared.eventually(crd, lambda each: each["status"].get("conditions"))
    assert {c["type"]: c["status"] for c in found["status"]["conditions"]}["Established"] == "True"


def test_validation_pruning_and_field_validation(shared: Api) -> None:
    path = make(shared, "plums")
    status, answer = shared("POST", path, {"metadata": {"name": "a"}, "spec": {"size": 30, "colour": "green"}})
    assert status == 422
    assert {cause["field"] for cause in answer["details"]["causes"]} == {"spec.size", "spec.colour"}
    status, answer = shared("POST", path, {"metadata": {"name": "a"}, "spec": {}})
    assert (status, answer["details"]["causes"][0]["field"]) == (422, "spec.size")
    body = {"metadata": {"name": "a"}, "spec": {"size": 1, "bogus": 1, "free": {"any": [1]}}}
    status, answer = shared("POST", f"{path}?fieldValidation=Strict", body)
    assert status == 400
    assert 'unknown field "spec.bogus"' in answer["message"]
    made = shared.ok("POST", path, body)
    assert made["spec"] == {"size": 1, "colour": "red", "free": {"any": [1]}}


def test_status_scale_generation_and_table(shared: Api) -> None:
    path = make(shared, "figs")
    made = shared.ok("POST", path, {"metadata": {"name": "a"}, "spec": {"size": 1}, "status": {"phase": "x"}})
    assert "status" not in made
    shared.ok("PATCH", f"{path}/a/status", {"status": {"phase": "Ripe"}, "spec": {"size": 2}}, MERGE)
    found = shared.ok("GET", f"{path}/a")
    assert (found["status"], found["spec"]["size"], found["metadata"]["generation"]) == ({"phase": "Ripe"}, 1, 1)
    scale = shared.ok("PATCH", f"{path}/a/scale", {"spec": {"replicas": 4}}, MERGE)
    assert scale["spec"] == {"replicas": 4}
    assert shared.ok("GET", f"{path}/a")["metadata"]["generation"] == 2
    accept = "application/json;as=Table;v=v1;g=meta.k8s.io"
    _, table = shared("GET", path, Accept=accept)
    assert [c["name"] for c in table["columnDefinitions"]] == ["Name", "Size", "Phase"]
    assert table["rows"][0]["cells"] == ["a", 1, "Ripe"]


def test_apply_owns_list_items_by_key(shared: Api) -> None:
    path = make(shared, "limes")
    kind = {"apiVersion": "example.org/v1", "kind": "Lime", "metadata": {"name": "a"}}
    apply = "application/apply-patch+yaml"
    one = {**kind, "spec": {"size": 1, "ports": [{"name": "x", "n": 1}]}}
    two = {**kind, "spec": {"ports": [{"name": "y", "n": 2}]}}
    shared.ok("PATCH", f"{path}/a?fieldManager=one", one, apply)
    found = shared.ok("PATCH", f"{path}/a?fieldManager=two", two, apply)
    assert [port["name"] for port in found["spec"]["ports"]] == ["x", "y"]
    status, answer = shared("PATCH", f"{path}/a?fieldManager=two", {**kind, "spec": {"size": 2}}, apply)
    assert (status, answer["details"]["causes"][0]["field"]) == (409, ".spec.size")
    found = shared.ok("PATCH", f"{path}/a?fieldManager=two", {**kind, "spec": {}}, apply)
    assert [port["name"] for port in found["spec"]["ports"]] == ["x"]
    assert shared("PATCH", f"{path}/a", {"spec": {}}, "application/strategic-merge-patch+json")[0] == 415


def test_deleting_the_definition_deletes_its_objects(shared: Api) -> None:
    path = make(shared, "kiwis")
    shared.ok("POST", path, {"metadata": {"name": "a"}, "spec": {"size": 1}})
    crd = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/kiwis.example.org"
    shared.ok("DELETE", crd)
    assert shared("GET", path)[0] == 404
    shared.server.call(lambda _server: None)
    make(shared, "kiwis")
    shared.eventually(path, lambda found: found.get("items") == [])


def test_bad_definitions_are_refused(shared: Api) -> None:
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    changes: list[Any] = [{"group": "nodots"}, {"scope": "Everywhere"}, {"versions": []}, {"group": "example.com"}]
    for change in changes:
        body = definition("nuts")
        body["spec"] |= change
        assert shared("POST", path, body)[0] == 422, change
    untyped = definition("nuts")
    untyped["spec"]["versions"][0]["schema"] = {"openAPIV3Schema": {"type": "object", "properties": {"a": {}}}}
    assert shared("POST", path, untyped)[0] == 422
