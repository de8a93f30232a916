"""Protobuf: what is encoded decodes to the same value; who accepts nothing else gets what JSON clients get."""

from __future__ import annotations

import json
import string
from base64 import b64encode
from datetime import datetime
from functools import cache
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kproxy.apiserver.kinds.resources import built_in
from kproxy.apiserver.schema.protobuf import (
    APIEXTENSIONS,
    META,
    RENAMED,
    decode_envelope,
    decode_message,
    encode_envelope,
    encode_message,
    has_message,
    is_inlined,
    messages,
)
from kproxy.apiserver.schema.types import definitions
from tests.support import paths
from tests.support.apiserver.server import Api

ACCEPT = "application/vnd.kubernetes.protobuf"
WORD = st.text(string.printable, max_size=6)
MOMENT = st.datetimes(min_value=datetime(1, 1, 2))
INT = st.integers(-(1 << 63), (1 << 63) - 1)


def _value(kind: str, depth: int) -> st.SearchStrategy[Any]:
    """Values of one field type, as JSON has them."""
    short = kind.rpartition(".")[2]
    schema = st.deferred(lambda: _message(APIEXTENSIONS + "JSONSchemaProps", depth + 4))
    simple: dict[str, st.SearchStrategy[Any]] = {
        "string": WORD,
        "int": INT,
        "bool": st.booleans(),
        "double": st.floats(allow_nan=False),
        "bytes": st.binary(max_size=8).map(lambda data: b64encode(data).decode()),
        "Time": MOMENT.map(lambda moment: f"{moment.replace(microsecond=0).isoformat()}Z"),
        "MicroTime": MOMENT.map(lambda moment: f"{moment.isoformat(timespec='microseconds')}Z"),
        "Quantity": WORD,
        "IntOrString": st.integers(-(1 << 31), (1 << 31) - 1) | WORD,
        "FieldsV1": st.dictionaries(WORD, st.none() | WORD, min_size=1),
        "RawExtension": st.dictionaries(WORD, WORD, min_size=1),
        "ExtraValue": st.lists(WORD, min_size=1, max_size=2),
        "JSON": WORD | INT | st.booleans() | st.lists(st.none() | WORD) | st.dictionaries(WORD, WORD),
        "JSONSchemaPropsOrArray": schema | st.lists(schema, min_size=1, max_size=2),
        "JSONSchemaPropsOrBool": schema | st.booleans(),
        "JSONSchemaPropsOrStringArray": schema | st.lists(WORD, min_size=1, max_size=2),
    }
    if short in simple:
        return simple[short]
    return _message(kind, depth + (4 if short == "JSONSchemaProps" else 1))


@cache  # building one takes longer than drawing from it
def _message(name: str, depth: int = 0) -> st.SearchStrategy[dict[str, Any]]:
    """Objects of one message; empty lists and maps are left out, since protobuf does not tell them from none."""
    if depth > 3:
        return st.just({})
    fields: dict[str, st.SearchStrategy[Any]] = {}
    for field, shape, kind in messages()[name].values():
        if is_inlined(field, kind):
            continue
        value = _value(kind, depth)
        if shape == "list":
            value = st.lists(value, min_size=1, max_size=2)
        elif shape == "map":
            value = st.dictionaries(WORD, value, min_size=1, max_size=2)
        fields[RENAMED.get(field, field)] = value
    return st.fixed_dictionaries({}, optional=fields)


@pytest.mark.parametrize(
    "name",
    [
        "k8s.io.api.core.v1.Service",
        "k8s.io.api.discovery.v1.EndpointSlice",
        "k8s.io.api.core.v1.Node",
        "k8s.io.api.core.v1.Pod",
        "k8s.io.api.events.v1.Event",
        APIEXTENSIONS + "CustomResourceDefinition",
        APIEXTENSIONS + "JSONSchemaProps",
        "k8s.io.api.core.v1.PersistentVolume",
        "k8s.io.api.storage.v1.CSINode",
        "k8s.io.api.node.v1.RuntimeClass",
    ],
)
@given(data=st.data())
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
def test_encoding_is_the_inverse_of_decoding(name: str, data: st.DataObject) -> None:
    value = data.draw(_message(name))
    assert decode_message(encode_message(value, name), name) == value


def test_the_wire_format() -> None:
    """Bytes worked out by hand from the protobuf encoding and generated.proto of k8s.io/api."""
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"}, "spec": {"ports": [{"port": 300}]}}
    type_meta = b"\x0a\x02v1" + b"\x12\x07Service"
    port = b"\x18\xac\x02"
    raw = b"\x0a\x03\x0a\x01a" + b"\x12\x05\x0a\x03" + port
    assert encode_envelope(service) == (
        b"k8s\0" + b"\x0a\x0d" + type_meta + b"\x12" + bytes((len(raw),)) + raw + b"\x1a\x00\x22\x00"
    )
    time = encode_message({"creationTimestamp": "1970-01-01T00:05:00Z"}, META + "ObjectMeta")
    assert time == b"\x42\x05" + b"\x08\xac\x02" + b"\x10\x00"


def test_every_built_in_kind_has_messages() -> None:
    assert [each.kind for each in built_in() if not has_message(each.api_version, each.kind)] == []
    stored = [each for each in built_in() if each.stored]
    assert [each.list_kind for each in stored if not has_message(each.api_version, each.list_kind)] == []
    subs = [(f"{sub.group}/{sub.version}", sub.kind) for each in stored for sub in each.subresources if sub.group]
    assert [each for each in subs if not has_message(*each)] == []


def _as_go_decodes(value: Any) -> Any:
    """A value without what Go's zero values stand for: null, empty lists, maps and structs."""
    if isinstance(value, dict):
        found = {key: _as_go_decodes(item) for key, item in value.items()}
        return {key: item for key, item in found.items() if item not in (None, [], {})}
    return [_as_go_decodes(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize(
    ("path", "accept", "media"),
    [
        ("/api/v1/services", f"{ACCEPT}, */*", ACCEPT),
        ("/api/v1/services", f"{ACCEPT},application/json", ACCEPT),
        ("/api/v1/services", f"application/json,{ACCEPT}", "application/json"),
        ("/api/v1/services", f"{ACCEPT};q=0.5,application/json;q=0.9", "application/json"),
        ("/api/v1/services", f"{ACCEPT};as=Table;g=meta.k8s.io;v=v1,application/json", "application/json"),
        ("/api/v1/services", f"{ACCEPT};as=PartialObjectMetadata;g=meta.k8s.io;v=v1", ""),
        ("/api/v1/services", "application/yaml;q=0.5, application/json;q=0.9", "application/json"),
        ("/api/v1/services", f"{ACCEPT};as=PartialObjectMetadataList;g=meta.k8s.io;v=v1", ACCEPT),
        ("/api/v1/services", f"{ACCEPT};as=Table;g=meta.k8s.io;v=v1", ""),
        ("/api/v1/services?watch=1&timeoutSeconds=1", "application/yaml", ""),
        ("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", ACCEPT, ACCEPT),
        ("/api/v1/services", "text/html", ""),
    ],
)
def test_negotiation(shared: Api, path: str, accept: str, media: str) -> None:
    """The first clause that can be answered counts (k8s.io/apiserver pkg/endpoints/handlers/negotiation)."""
    response = shared.raw("GET", path, Accept=accept)
    assert response.status == (200 if media else 406)
    if media:
        assert response.headers["Content-Type"] == media
    else:
        text = response.read()
        assert b"NotAcceptable" in text


def test_curl_gets_indented_json(shared: Api) -> None:
    for page in ("/", "/api", "/apis", "/apis/apps", "/apis/apps/v1", "/version"):
        assert shared.raw("GET", page, User_Agent="curl/8.0").read().startswith(b'{\n  "'), page
    path = "/api/v1/namespaces/default/services/kubernetes"
    assert shared.raw("GET", path, User_Agent="curl/8.0").read().startswith(b'{\n  "kind": "Service",\n  "apiVersion"')
    assert shared.raw("GET", path + "?pretty=true").read().startswith(b'{\n  "kind"')
    text = shared.raw("GET", path + "?pretty=false", User_Agent="curl/8.0").read()
    assert text.startswith(b'{"kind"')
    assert json.loads(text)["metadata"]["name"] == "kubernetes"
    assert shared.raw("GET", path + "x", User_Agent="curl/8.0").read().startswith(b'{\n  "kind": "Status"')


LOST = {
    "core.v1.NodeStatus": {"declaredFeatures"},
    "core.v1.PodSpec": {"schedulingGroup"},
    "core.v1.PodStatus": {
        "allocatedResources", "extendedResourceClaimStatus", "nodeAllocatableResourceClaimStatuses", "resources",
    },
    "core.v1.ResourceHealth": {"message"},
    "core.v1.VolumeMountStatus": {"volumeStatus"},
    "core.v1.VolumeProjection": {"podCertificate"},
    "resource.v1.Device": {"nodeAllocatableResourceMappings"},
    "resource.v1.DeviceAttribute": {"bools", "ints", "strings", "versions"},
    "apiextensions_apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinitionCondition": {"observedGeneration"},
    "apiextensions_apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinitionStatus": {"observedGeneration"},
    "storage.v1.CSIDriverSpec": {"serviceAccountTokenInSecrets", "preventPodSchedulingIfMissing"},
    "apimachinery.pkg.apis.meta.v1.ListMeta": {"shardInfo"},
}  # fmt: skip


def test_the_fields_without_a_number_are_those_that_the_docs_name() -> None:
    """Of every message that is known; docs/limits.md lists the same."""

    def numbered(message: str) -> set[str]:
        found = set()
        for name, _, kind in messages()[message].values():
            found.add(RENAMED.get(name, name))
            found |= numbered(kind) if is_inlined(name, kind) else set()
        return found

    lost = {}
    for name, schema in definitions().items():
        short = name.removeprefix("io.k8s.").removeprefix("api.").replace("extensions-api", "extensions_api")
        message = ("k8s.io.api." if ".api." in name else "k8s.io.") + short
        if message in messages():
            missing = set(schema.get("properties") or ()) - {"apiVersion", "kind"} - numbered(message)
            if missing:
                lost[short] = missing
    assert lost == LOST
    text = (paths.ROOT / "docs" / "limits.md").read_text()
    assert [field for fields in lost.values() for field in fields if f"{field}`" not in text] == []


def test_later_fields_survive_the_way_there_and_back() -> None:
    rule = {"action": "Restart", "exitCodes": {"operator": "In", "values": [1, 42]}}
    key = {"volumeName": "v", "path": "p", "key": "k", "optional": True}
    container = {"name": "c", "env": [{"name": "A", "valueFrom": {"fileKeyRef": key}}], "restartPolicyRules": [rule]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}}
    pod["spec"] = {"hostnameOverride": "h", "containers": [container]}
    assert decode_envelope(encode_envelope(pod))["spec"] == pod["spec"]
