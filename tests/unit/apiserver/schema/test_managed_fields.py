"""metadata.managedFields that clients write: kubectl's move from client-side to server-side apply, resets, bad ones."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.apiserver.server import Api

MAPS = "/api/v1/namespaces/default/configmaps"
JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
FIELDS: dict[str, Any] = {"f:data": {"f:b": {}}}
ENTRY = {
    "manager": "someone", "operation": "Update", "apiVersion": "v1", "time": "2026-01-02T03:04:05Z",
    "fieldsType": "FieldsV1", "fieldsV1": FIELDS,
}  # fmt: skip


def _config(name: str, **data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}, "data": data}


def _make(api: Api, name: str, manager: str = "maker", **data: str) -> Any:
    return api.ok("POST", f"{MAPS}?fieldManager={manager}", _config(name, **data))


def _owners(value: Any) -> dict[str, Any]:
    """Manager -> what it owns."""
    return {each["manager"]: each["fieldsV1"] for each in value["metadata"].get("managedFields", [])}


def _apply(api: Api, name: str, manager: str = "kubectl", force: str = "", **data: str) -> tuple[int, Any]:
    path = f"{MAPS}/{name}?fieldManager={manager}{force}"
    return api("PATCH", path, _config(name, **data), APPLY_PATCH)


def _applied_by_client(api: Api, name: str, **data: str) -> Any:
    """An object as `kubectl apply` creates it."""
    config = _config(name, **data)
    config["metadata"]["annotations"] = {LAST_APPLIED: json.dumps({**config, "metadata": {"name": name}}) + "\n"}
    return api.ok("POST", f"{MAPS}?fieldManager=kubectl-client-side-apply", config)


def test_what_was_applied_on_the_client_side_is_no_conflict_for_kubectl(shared: Api) -> None:
    """lastappliedmanager.go: only kubectl, only what still is as the annotation says."""
    _applied_by_client(shared, "upgraded", a="1", b="1")
    status, answer = _apply(shared, "upgraded", "somebody", a="2")
    assert status == 409
    assert answer["details"]["causes"][0]["field"] == ".data.a"
    status, value = _apply(shared, "upgraded", a="2")
    assert status == 200
    assert value["data"] == {"a": "2", "b": "1"}
    # lastappliedupdater.go: the annotation says what has been applied now.
    annotation = value["metadata"]["annotations"][LAST_APPLIED]
    assert annotation == (
        '{"apiVersion":"v1","data":{"a":"2"},"kind":"ConfigMap","metadata":{"name":"upgraded","namespace":"default"}}\n'
    )
    _applied_by_client(shared, "drifted", a="1", b="1")
    shared.ok("PATCH", f"{MAPS}/drifted?fieldManager=hand", {"data": {"a": "9"}}, MERGE_PATCH)
    status, answer = _apply(shared, "drifted", a="2", b="2")
    assert status == 409
    assert [(each["field"], each["message"][:20]) for each in answer["details"]["causes"]] == [
        (".data.a", 'conflict with "hand"')
    ]
    assert _apply(shared, "drifted", force="&force=true", a="<2>")[0] == 200
    again = shared("GET", f"{MAPS}/drifted")[1]["metadata"]["annotations"][LAST_APPLIED]
    assert '"a":"\\u003c2\\u003e"' in again


def _written(api: Api, how: str, name: str, entries: Any) -> tuple[int, Any]:
    """Writes managedFields by one of the ways there are, as the manager `writer`."""
    path = f"{MAPS}/{name}?fieldManager=writer"
    if how == "put":
        value = api("GET", f"{MAPS}/{name}")[1]
        value["metadata"]["managedFields"] = entries
        return api("PUT", path, value)
    if how == "json":
        return api("PATCH", path, [{"op": "add", "path": "/metadata/managedFields", "value": entries}], JSON_PATCH)
    media = {"merge": MERGE_PATCH, "strategic": STRATEGIC_PATCH}[how]
    return api("PATCH", path, {"metadata": {"managedFields": entries}}, media)


@pytest.mark.parametrize("how", ["put", "json", "merge", "strategic"])
def test_every_way_to_write_them(shared: Api, how: str) -> None:
    name = f"written-{how}"
    before = _make(shared, name, a="1", b="1")
    status, value = _written(shared, how, name, [ENTRY])
    assert status == 200
    assert value["metadata"]["managedFields"] == [ENTRY]
    assert value["metadata"]["resourceVersion"] != before["metadata"]["resourceVersion"]
    assert shared("GET", f"{MAPS}/{name}")[1] == value
    nothings: list[Any] = [[], [{}]]
    for nothing in nothings:
        _written(shared, how, name, [ENTRY])
        status, value = _written(shared, how, name, nothing)
        assert status == 200
        assert "managedFields" not in value["metadata"], nothing


@pytest.mark.parametrize(
    "entries",
    [
        None,
        [{**ENTRY, "operation": "Own"}],
        [{**ENTRY, "apiVersion": ""}],
        [{**ENTRY, "fieldsType": "FieldsV2"}],
        [{key: item for key, item in ENTRY.items() if key != "fieldsType"}],
        [{**ENTRY, "fieldsV1": {"data": {}}}],
        [{**ENTRY, "fieldsV1": {"f:data": "x"}}],
        [{**ENTRY, "fieldsV1": {"k:[1]": {}}}],
        [{**ENTRY, "fieldsV1": {"v:{": {}}}],
        [{**ENTRY, "fieldsV1": {"i:x": {}}}],
        [ENTRY, {}],
    ],
)
def test_what_cannot_be_decoded_leaves_the_owners_alone(shared: Api, entries: Any) -> None:
    """decodeLiveOrNew of managedfields/internal/fieldmanager.go: the write counts, its managedFields do not."""
    shared("DELETE", f"{MAPS}/kept")
    before = _make(shared, "kept", a="1")
    before["metadata"]["managedFields"] = entries
    before["data"]["b"] = "1"
    status, value = shared("PUT", f"{MAPS}/kept?fieldManager=writer", before)
    assert status == 200
    assert _owners(value) == {"maker": {"f:data": {".": {}, "f:a": {}}}, "writer": {"f:data": {"f:b": {}}}}


def test_a_write_still_takes_what_it_changes(shared: Api) -> None:
    """The managers sent are what the write starts from: who changes a field owns it, nobody else does."""
    value = _make(shared, "taken", a="1", b="1")
    value["metadata"]["managedFields"] = [{**ENTRY, "fieldsV1": {"f:data": {"f:a": {}, "f:b": {}}}}]
    value["data"] = {"a": "2", "b": "1"}
    value = shared.ok("PUT", f"{MAPS}/taken?fieldManager=writer", value)
    assert _owners(value) == {"someone": {"f:data": {"f:b": {}}}, "writer": {"f:data": {"f:a": {}}}}


def test_as_they_are_kept(shared: Api) -> None:
    """Keys of list items in our order, unknown elements dropped, versions that are not served dropped, one entry per
    manager, operation, version and subresource."""
    path = "/api/v1/namespaces/default/services/kept"
    spec = {"ports": [{"port": 80}]}
    value = shared.ok("POST", "/api/v1/namespaces/default/services", {"metadata": {"name": "kept"}, "spec": spec})
    ports: dict[str, Any] = {".": {}, 'k:{"protocol":"TCP","port":80}': {".": {}, "f:port": {}}, "z:1": {}}
    applied = {**ENTRY, "operation": "Apply", "fieldsV1": {"f:spec": {"f:ports": ports, "f:sel": None}}}
    entries = [{**ENTRY, "apiVersion": "v1beta3"}, {**ENTRY, "fieldsV1": {"f:a": {}}}, ENTRY, applied]
    value["metadata"]["managedFields"] = entries
    value = shared.ok("PUT", path, value)
    kept = value["metadata"]["managedFields"]
    assert [(each["operation"], each["apiVersion"]) for each in kept] == [("Apply", "v1"), ("Update", "v1")]
    ports = {".": {}, 'k:{"port":80,"protocol":"TCP"}': {".": {}, "f:port": {}}}
    assert kept[0]["fieldsV1"] == {"f:spec": {"f:ports": ports, "f:sel": {}}}
    assert kept[1] == ENTRY
    # The list item is known by its keys, so the applier's change of it is its own.
    config = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "kept"}, "spec": {"ports": []}}
    status, answer = shared("PATCH", f"{path}?fieldManager=someone", config, APPLY_PATCH)
    assert status == 422
    assert "spec.ports: Required value" in answer["message"]


def test_names_of_managers_are_checked(shared: Api) -> None:
    value = _make(shared, "named", a="1")
    for entry, why in [
        (
            {**ENTRY, "manager": "m" * 129},
            "managedFields[0].manager: Too long: may not be more than 128 bytes",
        ),
        ({**ENTRY, "manager": "a\tb"}, "invalid character U+0009 (at position 1)"),
        ({**ENTRY, "subresource": "s" * 257}, "managedFields[0].subresource: Too long: may not be more than 256 bytes"),
    ]:
        value["metadata"]["managedFields"] = [entry]
        status, answer = shared("PUT", f"{MAPS}/named", value)
        assert status == 422
        assert why in answer["message"]


def test_not_through_a_subresource(shared: Api) -> None:
    """A status write that brings managedFields changes nobody's but its own manager's."""
    path = "/api/v1/namespaces/default/services"
    body = {"metadata": {"name": "sub"}, "spec": {"ports": [{"port": 80}]}}
    value = shared.ok("POST", f"{path}?fieldManager=maker", body)
    value["metadata"]["managedFields"] = [ENTRY]
    value["status"] = {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}
    value = shared.ok("PUT", f"{path}/sub/status?fieldManager=writer", value)
    assert set(_owners(value)) == {"maker", "writer"}
    value["metadata"]["managedFields"] = []
    value = shared.ok("PUT", f"{path}/sub/status?fieldManager=writer", value)
    assert set(_owners(value)) == {"maker", "writer"}


def test_a_create_keeps_what_others_own_that_is_not_there(shared: Api) -> None:
    """The creator takes every field there is; an entry for another field stays, as in a restored backup."""
    config = _config("restored", a="1")
    config["metadata"]["managedFields"] = [{**ENTRY, "fieldsV1": {"f:data": {"f:a": {}, "f:gone": {}}}}]
    value = shared.ok("POST", f"{MAPS}?fieldManager=maker", config)
    assert _owners(value) == {"maker": {"f:data": {".": {}, "f:a": {}}}, "someone": {"f:data": {"f:gone": {}}}}


def test_custom_resources(shared: Api) -> None:
    """The owner in any version of the definition stays; a merge patch writes them too."""
    version = {
        "name": "v1", "served": True, "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
    }  # fmt: skip
    crd = {
        "metadata": {"name": "plums.example.org"},
        "spec": {
            "group": "example.org", "scope": "Cluster", "names": {"plural": "plums", "kind": "Plum"},
            "versions": [version, {**version, "name": "v2", "storage": False}],
        },
    }  # fmt: skip
    shared.ok("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd)
    plum = {"apiVersion": "example.org/v1", "kind": "Plum", "metadata": {"name": "p"}, "spec": {"a": 1, "b": 2}}
    shared.ok("POST", "/apis/example.org/v1/plums", plum)
    path = "/apis/example.org/v1/plums/p"
    entries = [
        {**ENTRY, "apiVersion": f"example.org/{version}", "fieldsV1": {"f:spec": {"f:a": {}}}}
        for version in ("v1", "v2", "v3")
    ]
    value = shared.ok("PATCH", path, {"metadata": {"managedFields": entries}}, MERGE_PATCH)
    assert value["metadata"]["managedFields"] == entries[:2]
    # An empty list is lost when the metadata of a custom resource is read: only a list of an empty entry resets.
    value = shared.ok("PATCH", path, {"metadata": {"managedFields": []}}, MERGE_PATCH)
    assert value["metadata"]["managedFields"] == entries[:2]
    value = shared.ok("PATCH", path, {"metadata": {"managedFields": [{}]}}, MERGE_PATCH)
    assert "managedFields" not in value["metadata"]


def test_apply_of_what_is_not_there(shared: Api) -> None:
    """patch.go of k8s.io/apiserver: a uid must be somebody's, a resourceVersion counts for nothing."""
    config = _config("new", a="1")
    config["metadata"]["uid"] = "11111111-2222-3333-4444-555555555555"
    status, answer = shared("PATCH", f"{MAPS}/new?fieldManager=m", config, APPLY_PATCH)
    why = "uid mismatch: the provided object specified uid 11111111-2222-3333-4444-555555555555, and no existing object"
    assert status == 409
    assert f'Operation cannot be fulfilled on configmaps "new": {why} was found' == answer["message"]
    config = _config("new", a="1")
    config["metadata"]["resourceVersion"] = "1"
    status, value = shared("PATCH", f"{MAPS}/new?fieldManager=m", config, APPLY_PATCH)
    assert (status, value["data"]) == (201, {"a": "1"})
    assert value["metadata"]["resourceVersion"] != "1"
    status, answer = shared("PATCH", f"{MAPS}/new?fieldManager=m", config, APPLY_PATCH)
    assert (status, answer["reason"]) == (409, "Conflict")


def test_not_in_an_applied_configuration(shared: Api) -> None:
    for given in ([], [ENTRY]):
        config = _config("applied", a="1")
        config["metadata"]["managedFields"] = given
        status, answer = shared("PATCH", f"{MAPS}/applied?fieldManager=m", config, APPLY_PATCH)
        assert (status, answer["message"]) == (400, "metadata.managedFields must be nil")


def test_long_lists_of_owners_are_applied_item_by_item(shared: Api) -> None:
    """Tens of thousands of items, of which each would be compared with all others."""
    path = "/api/v1/namespaces/default/configmaps/owned?fieldManager=a"
    owners = [{"apiVersion": "v1", "kind": "K", "name": "n", "uid": str(number)} for number in range(10_000)]
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "owned", "ownerReferences": owners}}
    for _ in range(2):
        found = shared.ok("PATCH", path, body, "application/apply-patch+yaml")
        assert [each["uid"] for each in found["metadata"]["ownerReferences"]] == [each["uid"] for each in owners]
    shared.ok("DELETE", path.partition("?")[0])


@pytest.mark.slow
def test_an_object_does_not_grow_with_each_client_that_applies_it(shared: Api) -> None:
    path = "/api/v1/namespaces/default/configmaps/grows"
    data = {f"k{number}": "v" for number in range(20_000)}
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "grows"}, "data": data}
    answers = [
        shared("PATCH", f"{path}?fieldManager=m{each}", body, "application/apply-patch+yaml") for each in range(15)
    ]
    assert (answers[0][0], answers[-1][0], answers[-1][1]["reason"]) == (201, 413, "RequestEntityTooLarge")
    # What it holds may still be changed as long as it does not grow.
    change: Any = {"metadata": {"managedFields": [{}]}}
    assert shared("PATCH", path, change, "application/merge-patch+json")[0] == 200
    shared.ok("DELETE", path)
