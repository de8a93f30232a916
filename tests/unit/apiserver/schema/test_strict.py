"""Field validation: keys that stand twice and unknown fields, in every way to write an object.

[sig-api-machinery] FieldValidation should detect unknown and duplicate fields of a typed object; should detect
duplicates in a CR when preserving unknown fields; should detect unknown metadata fields in both the root and embedded
object of a CR; should create/apply an invalid CR with extra properties for CRD with validation schema.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from kproxy.apiserver.schema.decode import read_yaml
from kproxy.apiserver.schema.strict import json_patch_errors, merged, pairs_of, strict_errors
from tests.support.apiserver.server import Api

SERVICES = "/api/v1/namespaces/default/services"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
CUSTOM = "/apis/example.org/v1/namespaces/default/strictones"
MERGE, STRATEGIC = "application/merge-patch+json", "application/strategic-merge-patch+json"
JSON_PATCH, APPLY, YAML = "application/json-patch+json", "application/apply-patch+yaml", "application/yaml"


@pytest.mark.parametrize(
    ("text", "unknown", "errors"),
    [
        ('{"a":1,"b":{"a":2}}', [], []),
        ('{"a":1,"a":2,"a":3}', [], ['duplicate field "a"']),
        ('{"a":{"b":1,"b":2},"c":[{"d":1,"d":2}]}', [], ['duplicate field "a.b"', 'duplicate field "c[0].d"']),
        ('{"a":"\\"a\\":","b":1}', [], []),
        ('{"a":"\\u0022:","b":1,"b":2}', [], ['duplicate field "b"']),
        ('{"a\\\\":1,"a\\\\":2}', [], ['duplicate field "a\\"']),
        ('{"a":1,"x":{"b":1,"b":2},"x":1,"a":2}', ["x"], ['unknown field "x"', 'duplicate field "a"']),
        ('{"a":[1,2],"z":0}', ["z"], ['unknown field "z"']),
    ],
)
def test_json(text: str, unknown: list[str], errors: list[str]) -> None:
    assert strict_errors(pairs_of(text.encode(), json.loads(text)), unknown) == errors


def test_objects_under_one_key_are_merged() -> None:
    """As Go decodes into a struct that is there already."""
    text = '{"a":{"b":1,"c":{"d":1}},"e":[1],"a":{"c":{"f":2}},"e":[2]}'
    pairs = pairs_of(text.encode(), json.loads(text))
    assert merged(pairs) == {"a": {"b": 1, "c": {"d": 1, "f": 2}}, "e": [2]}


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("a: 1\nb:\n  a: 2\n", []),
        ("a: 1\na: 2\n", ['line 2: key "a" already set in map']),
        ("a:\n  b: 1\n  b:\n    c: 1\n    c: 2\na: 1\n",
         ['line 5: key "c" already set in map', 'line 4: key "b" already set in map',
          'line 6: key "a" already set in map']),
        ('{"a": [{"b": 1, "b": 2}]}', ['line 1: key "b" already set in map']),
        ("1: a\n1: b\n", ["line 2: key 1 already set in map"]),
        ("x: &x {a: 1}\ny: *x\nz:\n  <<: *x\n  a: 2\n", []),
    ],
)  # fmt: skip
def test_yaml(text: str, lines: list[str]) -> None:
    expected = "yaml: unmarshal errors:\n" + "\n".join(f"  {line}" for line in lines)
    assert read_yaml(text.encode()).twice == (expected if lines else "")


def test_json_patches() -> None:
    text = '[{"op":"add","path":"/a","value":{"x":1,"x":2},"foo":1},{"op":"add","path":"/a","path":"/b","value":1}]'
    assert json_patch_errors(text.encode(), json.loads(text)) == [
        'json patch duplicate field "[0].value.x"',
        'json patch unknown field "[0].foo"',
        'json patch duplicate field "[1].path"',
    ]


def _sent(api: Api, method: str, path: str, text: str, media: str, mode: str) -> tuple[int, Any, list[str]]:
    """Status, answer and warnings of a write with a field validation."""
    query = f"fieldValidation={mode}&fieldManager=m&dryRun=All" + ("&force=true" if media == APPLY else "")
    answer = api.raw(method, f"{path}?{query}", text.encode(), Content_Type=media)
    warnings = [
        each.removeprefix('299 - "').removesuffix('"').replace('\\"', '"').replace("\\\\", "\\")
        for each in answer.headers.get_all("Warning") or ()
    ]
    return answer.status, json.loads(answer.read()), warnings


SERVICE = (
    '{"apiVersion":"v1","kind":"Service","metadata":{"name":"%s","namespace":"default","name":"%s"},'
    '"spec":{"bogus":{"a":1,"a":2},"ports":[{"port":80,"port":81,"nope":1}],"type":"ClusterIP","type":"NodePort"}}'
)
SERVICE_ERRORS = [
    'duplicate field "metadata.name"', 'unknown field "spec.bogus"', 'duplicate field "spec.ports[0].port"',
    'unknown field "spec.ports[0].nope"', 'duplicate field "spec.type"',
]  # fmt: skip
SERVICE_YAML = """\
apiVersion: v1
kind: Service
metadata: {name: fresh, namespace: default}
spec:
  zeta: 1
  type: ClusterIP
  type: NodePort
  bogus: 1
  ports:
  - port: 80
    port: 81
"""
YAML_LINES = ['line 11: key "port" already set in map', 'line 7: key "type" already set in map']
CASES = [
    ("POST", SERVICES, SERVICE % ("fresh", "fresh"), "application/json", 400,
     'Service in version "v1" cannot be handled as a Service: strict decoding error: ' + ", ".join(SERVICE_ERRORS),
     SERVICE_ERRORS),
    ("PUT", f"{SERVICES}/kept", SERVICE % ("kept", "kept"), "application/json", 400,
     'Service in version "v1" cannot be handled as a Service: strict decoding error: ' + ", ".join(SERVICE_ERRORS),
     SERVICE_ERRORS),
    ("POST", SERVICES, SERVICE_YAML, YAML, 400,
     'Service in version "v1" cannot be handled as a Service: strict decoding error: yaml: unmarshal errors:\n  '
     + "\n  ".join(sorted(YAML_LINES, reverse=True)) + ', unknown field "spec.bogus", unknown field "spec.zeta"',
     [*sorted(YAML_LINES, reverse=True), 'unknown field "spec.bogus"', 'unknown field "spec.zeta"']),
    ("PATCH", f"{SERVICES}/kept", '{"spec":{"type":"ClusterIP","type":"NodePort","bogus":1}}', MERGE, 422,
     'strict decoding error: duplicate field "spec.type", unknown field "spec.bogus"',
     ['duplicate field "spec.type"', 'unknown field "spec.bogus"']),
    ("PATCH", f"{SERVICES}/kept", '{"metadata":{"labels":{"a":"b","a":"c"}}}', MERGE, 422,
     ' "" is invalid: patch: Invalid value: "{', ['duplicate field "metadata.labels.a"']),
    ("PATCH", f"{SERVICES}/kept", '{"spec":{"type":"ClusterIP","type":"NodePort","bogus":1}}', STRATEGIC, 422,
     'patch: Invalid value: "map[spec:map[bogus:1 type:NodePort]]": strict decoding error: duplicate field '
     '"spec.type", unknown field "spec.bogus"',
     ['duplicate field "spec.type"', 'unknown field "spec.bogus"']),
    ("PATCH", f"{SERVICES}/kept",
     '[{"op":"add","path":"/spec/bogus","value":1,"extra":1},{"op":"add","path":"/x","path":"/spec/type","value":'
     '"NodePort"}]', JSON_PATCH, 422,
     'strict decoding error: json patch unknown field "[0].extra", json patch duplicate field "[1].path", unknown '
     'field "spec.bogus"',
     ['json patch unknown field "[0].extra"', 'json patch duplicate field "[1].path"', 'unknown field "spec.bogus"']),
    ("PATCH", f"{SERVICES}/kept",
     "apiVersion: v1\nkind: Service\nspec:\n  type: ClusterIP\n  type: NodePort\n", APPLY, 400,
     "error strict decoding YAML: error converting YAML to JSON: yaml: unmarshal errors:\n  "
     'line 5: key "type" already set in map',
     ['line 5: key "type" already set in map']),
    ("PATCH", f"{SERVICES}/fresh",
     '{"apiVersion":"v1","kind":"Service","spec":{"ports":[{"port":80,"port":81}]}}', APPLY, 400,
     'line 1: key "port" already set in map', ['line 1: key "port" already set in map']),
    ("POST", CUSTOM,
     '{"apiVersion":"example.org/v1","kind":"StrictOne","metadata":{"name":"a","odd":1,"name":"b"},'
     '"spec":{"zeta":1,"known":"a","known":"b","bogus":{"x":1,"x":2}}}', "application/json", 400,
     'StrictOne in version "v1" cannot be handled as a StrictOne: strict decoding error: duplicate field '
     '"metadata.name", duplicate field "spec.known", duplicate field "spec.bogus.x", unknown field "metadata.odd", '
     'unknown field "spec.bogus", unknown field "spec.zeta"',
     ['duplicate field "metadata.name"', 'duplicate field "spec.known"', 'duplicate field "spec.bogus.x"',
      'unknown field "metadata.odd"', 'unknown field "spec.bogus"', 'unknown field "spec.zeta"']),
    ("POST", CUSTOM,
     '{"apiVersion":"example.org/v1","kind":"StrictOne","metadata":{"name":"b"},"spec":{"inner":{"apiVersion":"v1",'
     '"kind":"Pod","metadata":{"name":"a","odd":1,"name":"b"}}}}', "application/json", 400,
     'strict decoding error: duplicate field "spec.inner.metadata.name", unknown field "spec.inner.metadata.odd"',
     ['duplicate field "spec.inner.metadata.name"', 'unknown field "spec.inner.metadata.odd"']),
    ("PATCH", f"{CUSTOM}/one", '{"spec":{"known":"a","known":"b","bogus":1}}', MERGE, 422,
     'strict decoding error: duplicate field "spec.known", unknown field "spec.bogus"',
     ['duplicate field "spec.known"', 'unknown field "spec.bogus"']),
    ("PATCH", f"{CUSTOM}/one", "apiVersion: example.org/v1\nkind: StrictOne\nspec:\n  known: a\n  known: b\n", APPLY,
     400, 'error strict decoding YAML: error converting YAML to JSON: yaml: unmarshal errors:\n  line 5: key "known"',
     ['line 5: key "known" already set in map']),
]  # fmt: skip


@pytest.fixture(scope="module")
def written(shared: Api) -> Api:
    """A server with something to change, and a kind that prunes and embeds objects."""
    shared.ok("POST", SERVICES, {"metadata": {"name": "kept"}, "spec": {"ports": [{"port": 80}]}})
    inner = {"type": "object", "x-kubernetes-embedded-resource": True, "x-kubernetes-preserve-unknown-fields": True}
    spec = {"type": "object", "properties": {"known": {"type": "string"}, "inner": inner}}
    version = {
        "name": "v1", "served": True, "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}},
    }  # fmt: skip
    names = {"plural": "strictones", "singular": "strictone", "kind": "StrictOne", "listKind": "StrictOneList"}
    definition = {"group": "example.org", "scope": "Namespaced", "names": names, "versions": [version]}
    shared.ok("POST", CRDS, {"metadata": {"name": "strictones.example.org"}, "spec": definition})
    one = {"apiVersion": "example.org/v1", "kind": "StrictOne", "metadata": {"name": "one"}, "spec": {"known": "x"}}
    shared.ok("POST", CUSTOM, one)
    return shared


@pytest.mark.parametrize(("method", "path", "text", "media", "code", "message", "warnings"), CASES)
def test_field_validation(
    written: Api, method: str, path: str, text: str, media: str, code: int, message: str, warnings: list[str]
) -> None:
    status, answer, _ = _sent(written, method, path, text, media, "Strict")
    assert status == code
    assert message in answer["message"]
    status, answer, warned = _sent(written, method, path, text, media, "Warn")
    assert (status < 300, warned) == (True, warnings), answer
    status, answer, warned = _sent(written, method, path, text, media, "Ignore")
    assert (status < 300, warned) == (True, []), answer


def test_a_refusal_says_what_an_acceptance_would_warn_of_before_it(written: Api) -> None:
    """Unknown fields are found before the object is looked at (k8s.io/apiserver pkg/endpoints/handlers)."""
    text, patch = '{"metadata":{"name":"Bad_Name"},"bogus":1}', '{"metadata":{"uid":"x"},"bogus":1}'
    for method, path, body, media in (
        ("POST", SERVICES, text, "application/json"), ("PATCH", f"{SERVICES}/kept", patch, MERGE),
    ):  # fmt: skip
        status, _, warned = _sent(written, method, path, body, media, "Warn")
        assert (status, warned) == (422, ['unknown field "bogus"'])
