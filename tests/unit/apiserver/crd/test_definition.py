"""Custom resources: served at once, validated, pruned, defaulted, scaled, in several versions."""

from __future__ import annotations

import http.client
import json
import ssl
from typing import Any

import pytest

from tests.support.apiserver.definitions import definition
from tests.support.apiserver.server import Api
from tests.support.waiting import PATIENCE

MERGE = "application/merge-patch+json"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


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
    shared.ok("DELETE", f"{CRDS}/kiwis.example.org")
    shared.eventually(f"{CRDS}/kiwis.example.org", lambda found: found["kind"] == "Status")
    assert shared("GET", path)[0] == 404
    make(shared, "kiwis")
    assert shared.ok("GET", path)["items"] == []


def test_a_definition_waits_for_objects_that_are_held(shared: Api) -> None:
    path = make(shared, "guavas")
    held = {"name": "held", "finalizers": ["example.org/hold"]}
    shared.ok("POST", path, {"metadata": held, "spec": {"size": 1}})
    shared.ok("POST", path, {"metadata": {"name": "free"}, "spec": {"size": 1}})
    gone = shared.ok("DELETE", f"{CRDS}/guavas.example.org")
    assert gone["metadata"]["finalizers"] == ["customresourcecleanup.apiextensions.k8s.io"]
    assert gone["status"]["conditions"][-1]["type"] == "Terminating"
    shared.eventually(path, lambda found: [each["metadata"]["name"] for each in found["items"]] == ["held"])
    assert "deletionTimestamp" in shared.ok("GET", f"{path}/held")["metadata"]
    assert shared("POST", path, {"metadata": {"name": "late"}, "spec": {"size": 1}})[0] == 405
    assert shared("GET", f"{CRDS}/guavas.example.org")[0] == 200
    held_path = f"{path}/held"
    assert shared("PATCH", held_path, {"metadata": {"finalizers": None}}, MERGE)[0] == 200
    shared.eventually(f"{CRDS}/guavas.example.org", lambda found: found["kind"] == "Status")
    assert shared("GET", path)[0] == 404


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


def _with_spec(plural: str, **properties: Any) -> Any:
    body = definition(plural)
    spec = {"type": "object", "properties": properties}
    for version in body["spec"]["versions"]:
        version["schema"] = {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}
        for part in ("subresources", "additionalPrinterColumns"):
            version.pop(part)
    return body


SPEC = "spec.versions[0].schema.openAPIV3Schema.properties[spec].properties[x]"
BAD_SCHEMAS: list[tuple[Any, str]] = [
    ({"type": "integer", "default": "many"},
     f'{SPEC}.default: Invalid value: "string": {SPEC}.default in body must be of type integer: "string"'),
    ({"type": "string", "enum": ["a"], "default": "b"},
     f'{SPEC}.default: Unsupported value: "b": supported values: "a"'),
    ({"type": "object", "properties": {"a": {"type": "string"}}, "default": {"b": 1}},
     f'{SPEC}.default: Invalid value: {{"b":1}}: must not have unknown fields'),
    ({"type": "object", "required": ["a"], "properties": {"a": {"type": "string"}}, "default": {}},
     f"{SPEC}.default.a: Required value"),
    ({"type": "array", "items": {"type": "integer"}, "default": ["a"]},
     f'{SPEC}.default[0]: Invalid value: "string": {SPEC}.default[0] in body must be of type integer: "string"'),
    ({"type": "number", "multipleOf": 0.1, "default": 0.25},
     f"{SPEC}.default: Invalid value: 0.25: {SPEC}.default in body should be a multiple of 0.1"),
    ({"type": "array"}, f"{SPEC}.items: Required value: must be specified"),
    ({}, f"{SPEC}.type: Required value: must not be empty for specified object fields"),
    ({"type": "array", "items": {}},
     f"{SPEC}.items.type: Required value: must not be empty for specified array items"),
    ({"type": "list"}, f'{SPEC}.type: Unsupported value: "list": supported values: "array", "boolean", "integer", '
     '"number", "object", "string"'),
    ({"type": "string", "oneOf": [{"type": "string"}]},
     f"{SPEC}.oneOf[0].type: Forbidden: must be empty to be structural"),
    ({"type": "object", "anyOf": [{"properties": {"a": {"maxLength": 1}}}]},
     f"{SPEC}.properties[a]: Required value: because it is defined in {SPEC}.anyOf[0].properties[a]"),
    ({"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": {"type": "string"}},
     f"{SPEC}.additionalProperties: Forbidden: additionalProperties and properties are mutual exclusive"),
    ({"type": "array", "uniqueItems": True, "items": {"type": "string"}},
     f"{SPEC}.uniqueItems: Forbidden: uniqueItems cannot be set to true since the runtime complexity becomes "
     "quadratic"),
    ({"type": "object", "$ref": "#/x"}, f"{SPEC}.$ref: Forbidden: $ref is not supported"),
    ({"type": "array", "items": [{"type": "string"}]},
     f"{SPEC}.items: Forbidden: items must be a schema object and not an array"),
    ({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
      "items": {"type": "object", "properties": {"k": {"type": "string"}}}},
     f"{SPEC}.items.properties[k].default: Required value: this property is in x-kubernetes-list-map-keys, so it must "
     "have a default or be a required property"),
    ({"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "object"}},
     f"{SPEC}.items.x-kubernetes-map-type: Invalid value: null: must be atomic as item of a list with "
     "x-kubernetes-list-type=set"),
    ({"type": "string", "pattern": "("}, f'{SPEC}.pattern: Invalid value: "(": must be a valid regular expression'),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "message"), BAD_SCHEMAS)
def test_schemas_that_are_not_structural_or_whose_defaults_do_not_fit(shared: Api, schema: Any, message: str) -> None:
    status, answer = shared("POST", CRDS, _with_spec("nuts", x=schema))
    assert status == 422, answer
    assert message in [f"{cause['field']}: {cause['message']}" for cause in answer["details"]["causes"]], answer


@pytest.mark.parametrize("inner", [5, "x", [5], True])
@pytest.mark.parametrize("keyword", ["items", "additionalProperties", "not", "properties", "allOf"])
def test_malformed_schemas_are_bad_requests(shared: Api, keyword: str, inner: Any) -> None:
    if keyword == "additionalProperties" and inner is True:
        return
    schema = {"type": "array", "items": {"type": "object", keyword: inner}}
    assert shared("POST", CRDS, _with_spec("nuts", x=schema))[0] == 400


def test_every_version_is_reported_by_its_index_when_they_differ(shared: Api) -> None:
    body = _with_spec("nuts", x={"type": "string"})
    body["spec"]["versions"][1]["schema"] = {"openAPIV3Schema": {"type": "object", "properties": {"y": {}}}}
    status, answer = shared("POST", CRDS, body)
    assert status == 422
    assert [cause["field"] for cause in answer["details"]["causes"]] == [
        "spec.versions[1].schema.openAPIV3Schema.properties[y].type"
    ]


def test_multiples_of_fractions(shared: Api) -> None:
    shared.ok("POST", CRDS, _with_spec("grapes", n={"type": "number", "multipleOf": 0.1}))
    path = "/apis/example.org/v1/namespaces/default/grapes"
    for number in (0.3, 0.7, 1, 1e3, -4.9, 123456789.1):
        status, answer = shared("POST", f"{path}?dryRun=All", {"metadata": {"name": "a"}, "spec": {"n": number}})
        assert status == 201, (number, answer)
    for number in (0.25, 1.01):
        status, answer = shared("POST", path, {"metadata": {"name": "a"}, "spec": {"n": number}})
        assert (status, "spec.n in body should be a multiple of 0.1" in answer["message"]) == (422, True)


def test_embedded_resources_keep_known_metadata(shared: Api) -> None:
    embedded = {
        "type": "object",
        "x-kubernetes-embedded-resource": True,
        "x-kubernetes-preserve-unknown-fields": True,
    }
    shared.ok("POST", CRDS, _with_spec("dates", inner=embedded))
    path = "/apis/example.org/v1/namespaces/default/dates"
    good = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x", "bogus": 1}, "spec": {"any": 1}}
    made = shared.ok("POST", path, {"metadata": {"name": "a"}, "spec": {"inner": good}})
    assert made["spec"]["inner"] == {**good, "metadata": {"name": "x"}}
    for number, odd in enumerate(({}, {"apiVersion": 5}, {"metadata": 5}, {"metadata": {"labels": 5}})):
        made = shared.ok("POST", path, {"metadata": {"name": f"b{number}"}, "spec": {"inner": odd}})
        assert made["spec"]["inner"] == odd, "what is embedded is not validated"
        shared.ok("PATCH", f"{path}/b{number}", {"spec": {"inner": {"x": 1}}}, MERGE)


def test_deprecated_versions_warn_on_each_request(shared: Api) -> None:
    body = _with_spec("prunes", x={"type": "string"})
    body["spec"]["versions"][0]["deprecated"] = True
    body["spec"]["versions"][1] |= {"deprecated": True, "deprecationWarning": 'take "plums"'}
    shared.ok("POST", CRDS, body)
    path = "/apis/example.org/v1/namespaces/default/prunes"

    def warned(method: str, path: str, body: Any = None, media: str = "application/json") -> str | None:
        data = None if body is None else json.dumps(body).encode()
        return shared.raw(method, path, data, Content_Type=media).headers["Warning"]

    plain = '299 - "example.org/v1 Prune is deprecated"'
    assert warned("POST", path, {"metadata": {"name": "a"}}) == plain
    assert warned("GET", path) == plain
    assert warned("GET", f"{path}/a") == plain
    assert warned("GET", f"{path}/nope") == plain
    assert warned("GET", f"{path}?watch=1&timeoutSeconds=1") == plain
    assert warned("PATCH", f"{path}/a", {"spec": {}}, MERGE) == plain
    assert warned("DELETE", f"{path}/a") == plain
    assert warned("GET", path.replace("v1", "v2")) == '299 - "take \\"plums\\""'


def test_rules_that_nobody_evaluates_are_warned_of(shared: Api) -> None:
    def warned(method: str, path: str, body: Any, content_type: str = "application/json") -> list[str]:
        answer = shared.raw(method, path, json.dumps(body).encode(), Content_Type=content_type)
        text = answer.read()
        assert answer.status in (200, 201), text
        return [line.removeprefix("299 - ") for line in answer.headers.get_all("Warning") or ()]

    rule = [{"rule": "self.startsWith('a')"}]
    assert warned("POST", CRDS, _with_spec("medlars", x={"type": "string"})) == []
    path = f"{CRDS}/medlars.example.org"

    def replaced(**properties: Any) -> list[str]:
        # A patch, since a PUT would race with the controller that writes the definition's status.
        body = {"spec": {"versions": _with_spec("medlars", **properties)["spec"]["versions"]}}
        return warned("PATCH", path, body, "application/merge-patch+json")

    other = {"type": "object", "additionalProperties": {"type": "string", "x-kubernetes-validations": rule}}
    at = "spec.versions[0].schema.openAPIV3Schema.properties[spec].properties[m].additionalProperties"
    why = "x-kubernetes-validations are stored, but kproxy's API server does not evaluate them"
    text = f"{why}: {at}.x-kubernetes-validations[0]"
    assert replaced(m=other) == [f'"{text} and 1 more"']
    assert replaced(m=other) == [], "the same schemas again"
    assert shared.raw("GET", path).headers["Warning"] is None


def test_each_version_shows_its_own_fields(shared: Api) -> None:
    """Conversion None changes apiVersion only, but each version prunes, and the storage version keeps only its own."""
    text = {"type": "string"}
    body = _with_spec("mangoes", colour=text, size=text)
    body["spec"]["names"]["kind"] = "Mango"
    other = {"type": "object", "properties": {"colour": text, "shape": text}}
    body["spec"]["versions"][1]["schema"] = {"openAPIV3Schema": {"type": "object", "properties": {"spec": other}}}
    shared.ok("POST", CRDS, body)
    first = "/apis/example.org/v1/namespaces/default/mangoes"
    second = first.replace("v1", "v2")
    shared.ok("POST", first, {"metadata": {"name": "a"}, "spec": {"colour": "red", "size": "big"}})
    made = shared.ok("POST", second, {"metadata": {"name": "b"}, "spec": {"colour": "red", "shape": "round"}})
    assert made["spec"] == {"colour": "red"}
    for path, spec in ((first, {"colour": "red", "size": "big"}), (second, {"colour": "red"})):
        assert shared.ok("GET", f"{path}/a")["spec"] == spec
        assert shared.ok("GET", path)["items"][0]["spec"] == spec
        event = json.loads(shared.raw("GET", f"{path}?watch=1&timeoutSeconds=1").read().splitlines()[0])
        assert event["object"]["spec"] == spec
    shared.ok("PATCH", f"{second}/a", {"spec": {"colour": "blue"}}, MERGE)
    assert shared.ok("GET", f"{first}/a")["spec"]["colour"] == "blue"


def test_a_default_added_later_shows_in_what_is_stored(shared: Api) -> None:
    shared.ok("POST", CRDS, _with_spec("currants", colour={"type": "string"}))
    path = "/apis/example.org/v1/namespaces/default/currants"
    shared.ok("POST", path, {"metadata": {"name": "a"}, "spec": {}})
    assert shared.ok("GET", f"{path}/a")["spec"] == {}
    spec = "schema/openAPIV3Schema/properties/spec/properties"
    operations = [
        {"op": "add", "path": f"/spec/versions/{index}/{spec}/colour/default", "value": "red"} for index in (0, 1)
    ]
    shared.ok("PATCH", f"{CRDS}/currants.example.org", operations, "application/json-patch+json")
    assert shared.ok("GET", f"{path}/a")["spec"] == {"colour": "red"}
    assert shared.ok("GET", path)["items"][0]["spec"] == {"colour": "red"}


def _watch(shared: Api, path: str) -> http.client.HTTPResponse:
    context = ssl.create_default_context(cafile=str(shared.server.ca))
    connection = http.client.HTTPSConnection("127.0.0.1", shared.server.port, context=context, timeout=PATIENCE)
    connection.request("GET", f"{path}?watch=1", headers={"Authorization": "Bearer admin-token"})
    return connection.getresponse()


def test_watches_end_with_what_they_watch(shared: Api) -> None:
    """After the last DELETED; a version that is served no more ends its own watches only."""
    shared.ok("POST", CRDS, _with_spec("sloes", colour={"type": "string"}))
    first = "/apis/example.org/v1/namespaces/default/sloes"
    shared.ok("POST", first, {"metadata": {"name": "a"}})
    with _watch(shared, first) as one, _watch(shared, first.replace("v1", "v2")) as other:
        assert [json.loads(watch.readline())["type"] for watch in (one, other)] == ["ADDED", "ADDED"]
        unserved = [{"op": "replace", "path": "/spec/versions/1/served", "value": False}]
        shared.ok("PATCH", f"{CRDS}/sloes.example.org", unserved, "application/json-patch+json")
        assert other.read() == b""
        shared.ok("POST", first, {"metadata": {"name": "b"}})
        shared.ok("DELETE", f"{CRDS}/sloes.example.org")
        events = [json.loads(line) for line in one.read().splitlines()]
    assert [(event["type"], event["object"]["metadata"]["name"]) for event in events] == [
        ("ADDED", "b"), ("DELETED", "a"), ("DELETED", "b"),
    ]  # fmt: skip
