"""What client-go asks for by default: CustomResourceDefinitions and metadata in protobuf, streaming lists of them."""

from __future__ import annotations

import struct
from copy import deepcopy
from typing import Any

from kproxy.apiserver.schema.protobuf import (
    APIEXTENSIONS,
    MEDIA_TYPE,
    decode_envelope,
    decode_message,
    encode_envelope,
    encode_message,
)
from tests.support.apiserver.server import Api

ACCEPT = f"{MEDIA_TYPE},application/json"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
FIGS_PATH = "/apis/example.org/v1/figs"
SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["spec"],
    "properties": {
        "spec": {
            "type": "object",
            "properties": {
                "size": {"type": "integer", "format": "int32", "minimum": 1, "maximum": 10, "default": 3},
                "ratio": {"type": "number", "multipleOf": 0.5, "exclusiveMinimum": True, "minimum": 0},
                "kind": {"type": "string", "enum": ["a", "b"], "pattern": "^.$", "minLength": 1, "maxLength": 4},
                "nothing": {"type": "string", "nullable": True, "enum": ["x", None]},
                "either": {"x-kubernetes-int-or-string": True, "anyOf": [{"type": "integer"}, {"type": "string"}]},
                "open": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                "labels": {
                    "type": "object", "additionalProperties": {"type": "string"}, "x-kubernetes-map-type": "atomic",
                },
                "seeds": {
                    "type": "array",
                    "maxItems": 9,
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["name"],
                    "items": {
                        "type": "object", "required": ["name"],
                        "properties": {"name": {"type": "string"}, "n": {"type": "integer", "default": 0}},
                    },
                    "default": [{"name": "one", "n": 1}],
                },
            },
            "x-kubernetes-validations": [
                {
                    "rule": "self.size > 0 || oldSelf.hasValue()", "message": "small", "reason": "FieldValueInvalid",
                    "optionalOldSelf": True,
                },
            ],
        },
    },
}  # fmt: skip
FIGS: dict[str, Any] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "figs.example.org"},
    "spec": {
        "group": "example.org",
        "scope": "Cluster",
        "names": {"plural": "figs", "kind": "Fig", "shortNames": ["fg"], "categories": ["all"]},
        "versions": [
            {
                "name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": SCHEMA},
                "subresources": {
                    "status": {}, "scale": {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.n"},
                },
                "additionalPrinterColumns": [
                    {"name": "size", "type": "integer", "jsonPath": ".spec.size", "priority": 1},
                ],
                "selectableFields": [{"jsonPath": ".spec.kind"}],
            },
            {
                "name": "v2", "served": False, "storage": False, "deprecated": True,
                "schema": {"openAPIV3Schema": {"type": "object"}},
            },
        ],
    },
}  # fmt: skip


def _make_figs(api: Api) -> None:
    """A definition, sent in protobuf, and one object of it; they may be there."""
    api.raw("POST", CRDS, encode_envelope(FIGS), Content_Type=MEDIA_TYPE, Accept=ACCEPT)
    api("POST", FIGS_PATH, {"apiVersion": "example.org/v1", "kind": "Fig", "metadata": {"name": "f"}, "spec": {}})


def _frames(data: bytes) -> list[tuple[str, dict[str, Any]]]:
    """Type and object of each event of a protobuf watch, taken apart without the code that makes them."""
    found = []
    while data:
        (length,) = struct.unpack(">I", data[:4])
        frame, data = data[4 : 4 + length], data[4 + length :]
        kind = frame[2 : 2 + frame[1]]
        found.append((kind.decode(), decode_envelope(frame[frame.index(b"k8s\0") :])))
    return found


def test_definitions_in_protobuf(shared: Api) -> None:
    """Sent and received, they say the same as in JSON, and are checked alike."""
    limes = deepcopy(FIGS)
    limes["metadata"]["name"] = "limes.example.org"
    limes["spec"]["names"] = {"plural": "limes", "kind": "Lime", "shortNames": ["lm"]}
    response = shared.raw("POST", CRDS, encode_envelope(limes), Content_Type=MEDIA_TYPE, Accept=ACCEPT)
    text = response.read()
    assert response.status == 201, text
    assert response.headers["Content-Type"] == MEDIA_TYPE
    assert decode_envelope(text)["spec"]["versions"] == limes["spec"]["versions"]
    path = f"{CRDS}/limes.example.org"
    value = shared.eventually(
        path, lambda value: any(each["type"] == "Established" for each in value["status"]["conditions"] or ())
    )
    assert value["spec"]["versions"] == limes["spec"]["versions"]
    response = shared.raw("GET", path, Accept=ACCEPT)
    assert response.headers["Content-Type"] == MEDIA_TYPE
    assert decode_envelope(response.read()) == value
    listed = decode_envelope(shared.raw("GET", CRDS, Accept=ACCEPT).read())
    assert listed["kind"] == "CustomResourceDefinitionList"
    assert value["spec"] in [each["spec"] for each in listed["items"]]
    properties = value["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    properties["more"] = {"type": "array", "items": {"type": "string"}}
    response = shared.raw("PUT", path, encode_envelope(value), Content_Type=MEDIA_TYPE, Accept=MEDIA_TYPE)
    assert decode_envelope(response.read())["spec"] == value["spec"]
    del value["metadata"]["resourceVersion"]
    properties["more"] = {"type": "x"}
    response = shared.raw("PUT", path, encode_envelope(value), Content_Type=MEDIA_TYPE, Accept=MEDIA_TYPE)
    refusal = decode_envelope(response.read())
    assert response.status == 422
    assert 'properties[more].type: Unsupported value: "x"' in refusal["message"]


def test_the_wire_format_of_schemas() -> None:
    """Worked out by hand from generated.proto of k8s.io/apiextensions-apiserver and what its Go types do with JSON."""
    name = APIEXTENSIONS + "JSONSchemaProps"
    cases: list[tuple[dict[str, Any], bytes]] = [
        ({"additionalProperties": True}, b"\xf2\x01\x02\x08\x01"),
        ({"additionalProperties": False}, b"\xf2\x01\x02\x08\x00"),
        ({"additionalProperties": {"type": "a"}}, b"\xf2\x01\x07\x08\x01\x12\x03\x2a\x01a"),
        ({"items": {"type": "a"}}, b"\xc2\x01\x05\x0a\x03\x2a\x01a"),
        ({"items": [{"type": "a"}, {}]}, b"\xc2\x01\x07\x12\x03\x2a\x01a\x12\x00"),
        ({"default": {"a": [1, None]}}, b'\x42\x10\x0a\x0e{"a":[1,null]}'),
        ({"enum": ["a", None]}, b'\xa2\x01\x05\x0a\x03"a"\xa2\x01\x00'),
        ({"maximum": 10}, b"\x49" + struct.pack("<d", 10.0)),
        ({"dependencies": {"a": ["b"]}}, b"\x82\x02\x08\x0a\x01a\x12\x03\x12\x01b"),
        ({"properties": {"a": {}}}, b"\xea\x01\x05\x0a\x01a\x12\x00"),
        ({"x-kubernetes-preserve-unknown-fields": True}, b"\xb0\x02\x01"),
    ]
    for value, data in cases:
        assert encode_message(value, name) == data, value
        assert decode_message(data, name) == value
    # A map's entry without a value has the empty one; a whole number has no fraction, as Go prints it.
    assert decode_message(b"\xea\x01\x03\x0a\x01a", name) == {"properties": {"a": {}}}
    assert str(decode_message(b"\x49" + struct.pack("<d", 1e20), name)["maximum"]) == "1" + 20 * "0"


def test_metadata_clients(shared: Api) -> None:
    """client-go's metadata client: objects, lists, a streaming list and refusals, of built-in kinds and custom ones."""
    _make_figs(shared)
    streaming = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"

    def accept(shape: str) -> str:
        suffix = f"as={shape};g=meta.k8s.io;v=v1"
        return f"{MEDIA_TYPE};{suffix},application/json;{suffix},application/json"

    for path, name in [("/api/v1/namespaces", "default"), (FIGS_PATH, "f"), (CRDS, "figs.example.org")]:
        whole = shared.ok("GET", f"{path}/{name}")["metadata"]
        response = shared.raw("GET", f"{path}/{name}", Accept=accept("PartialObjectMetadata"))
        assert response.headers["Content-Type"] == MEDIA_TYPE
        value = decode_envelope(response.read())
        assert value == {"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": whole}
        response = shared.raw("GET", path, Accept=accept("PartialObjectMetadataList"))
        listed = decode_envelope(response.read())
        assert whole in [each["metadata"] for each in listed["items"]]
        response = shared.raw("GET", f"{path}?{streaming}&timeoutSeconds=1", Accept=accept("PartialObjectMetadata"))
        assert response.headers["Content-Type"] == f"{MEDIA_TYPE};stream=watch"
        events = _frames(response.read())
        assert {value["kind"] for _, value in events} == {"PartialObjectMetadata"}
        assert whole in [value["metadata"] for kind, value in events if kind == "ADDED"]
        marks = [value["metadata"]["annotations"] for kind, value in events if kind == "BOOKMARK"]
        assert marks == [{"k8s.io/initial-events-end": "true"}]
        # What is wanted as something else does not count for a refusal.
        response = shared.raw("GET", f"{path}/none", Accept=accept("PartialObjectMetadata"))
        assert (response.status, response.headers["Content-Type"]) == (404, "application/json")


def test_custom_resources_have_no_protobuf(shared: Api) -> None:
    """Who takes JSON too gets JSON; who does not gets 406, in protobuf."""
    _make_figs(shared)
    response = shared.raw("GET", f"{FIGS_PATH}/f", Accept=ACCEPT)
    assert (response.status, response.headers["Content-Type"]) == (200, "application/json")
    response = shared.raw("GET", f"{FIGS_PATH}/f", Accept=MEDIA_TYPE)
    assert response.status == 406
    assert decode_envelope(response.read())["reason"] == "NotAcceptable"
    # Its scale is a built-in kind.
    response = shared.raw("GET", f"{FIGS_PATH}/f/scale", Accept=MEDIA_TYPE)
    assert decode_envelope(response.read())["spec"] == {"replicas": 3}


def test_streaming_lists_of_definitions(shared: Api) -> None:
    _make_figs(shared)
    query = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&timeoutSeconds=1"
    events = _frames(shared.raw("GET", f"{CRDS}?{query}", Accept=ACCEPT).read())
    whole = shared.ok("GET", f"{CRDS}/figs.example.org")
    assert ("ADDED", whole) in events
    end = [value for kind, value in events if kind == "BOOKMARK"]
    assert [(value["kind"], value["metadata"]["annotations"]) for value in end] == [
        ("CustomResourceDefinition", {"k8s.io/initial-events-end": "true"})
    ]


def test_kept_messages_are_those_of_the_version_that_is_asked_for(shared: Api) -> None:
    """An Event has other field names, and numbers, in events.k8s.io than in core; a change makes a new message."""
    body = {
        "metadata": {"name": "two.1"}, "involvedObject": {"kind": "Pod", "name": "two", "namespace": "default"},
        "reason": "Twice", "type": "Normal",
    }  # fmt: skip
    shared.ok("POST", "/api/v1/namespaces/default/events", body)
    for group, field in 2 * [("/api/v1", "involvedObject"), ("/apis/events.k8s.io/v1", "regarding")]:
        path = f"{group}/namespaces/default/events"
        assert decode_envelope(shared.raw("GET", f"{path}/two.1", Accept=ACCEPT).read())[field]["name"] == "two"
        items = decode_envelope(shared.raw("GET", path, Accept=ACCEPT).read())["items"]
        assert [each[field]["name"] for each in items if each["metadata"]["name"] == "two.1"] == ["two"]
    path = "/api/v1/namespaces/default/events/two.1"
    shared.ok("PATCH", path, {"reason": "Thrice"}, "application/merge-patch+json")
    assert decode_envelope(shared.raw("GET", path, Accept=ACCEPT).read())["reason"] == "Thrice"


def test_reviews_have_no_columns(shared: Api) -> None:
    """Who wants a table of one gets 406, or the JSON that comes next; its metadata alone is there."""
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    review = {"spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}}
    table = "application/json;as=Table;g=meta.k8s.io;v=v1"
    status, answer = shared("POST", path, review, Accept=table)
    assert (status, answer["reason"]) == (406, "NotAcceptable")
    status, answer = shared("POST", path, review, Accept=f"{table},application/json")
    assert (status, answer["status"]["allowed"]) == (201, True)
    status, answer = shared("POST", path, review, Accept="application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1")
    assert (status, answer["kind"]) == (201, "PartialObjectMetadata")
    response = shared.raw(
        "POST", path, encode_envelope({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
                                       **review}), Content_Type=MEDIA_TYPE, Accept=ACCEPT,
    )  # fmt: skip
    assert decode_envelope(response.read())["status"]["allowed"] is True
