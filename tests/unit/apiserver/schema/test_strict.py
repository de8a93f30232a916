"""Field validation: unknown fields, in every way to write an object.

[sig-api-machinery] FieldValidation should detect unknown fields of a typed object; should detect unknown metadata
fields in both the root and embedded object of a CR; should create/apply an invalid CR with extra properties for CRD
with validation schema.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.apiserver.server import Api

SERVICES = "/api/v1/namespaces/default/services"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
CUSTOM = "/apis/example.org/v1/namespaces/default/strictones"
MERGE, STRATEGIC = "application/merge-patch+json", "application/strategic-merge-patch+json"
JSON_PATCH, YAML = "application/json-patch+json", "application/yaml"


def _sent(api: Api, method: str, path: str, text: str, media: str, mode: str) -> tuple[int, Any, list[str]]:
    """Status, answer and warnings of a write with a field validation."""
    query = f"fieldValidation={mode}&fieldManager=m&dryRun=All"
    answer = api.raw(method, f"{path}?{query}", text.encode(), Content_Type=media)
    warnings = [
        each.removeprefix('299 - "').removesuffix('"').replace('\\"', '"').replace("\\\\", "\\")
        for each in answer.headers.get_all("Warning") or ()
    ]
    return answer.status, json.loads(answer.read()), warnings


SERVICE = (
    '{"apiVersion":"v1","kind":"Service","metadata":{"name":"%s","namespace":"default"},'
    '"spec":{"bogus":{"a":1},"ports":[{"port":80,"nope":1}],"type":"NodePort"}}'
)
SERVICE_ERRORS = ['unknown field "spec.bogus"', 'unknown field "spec.ports[0].nope"']
SERVICE_YAML = """\
apiVersion: v1
kind: Service
metadata: {name: fresh, namespace: default}
spec:
  zeta: 1
  bogus: 1
  ports:
  - port: 80
"""
BOGUS = 'unknown field "spec.bogus"'
CASES = [
    ("POST", SERVICES, SERVICE % "fresh", "application/json", 400,
     'Service in version "v1" cannot be handled as a Service: strict decoding error: ' + ", ".join(SERVICE_ERRORS),
     SERVICE_ERRORS),
    ("PUT", f"{SERVICES}/kept", SERVICE % "kept", "application/json", 400,
     'Service in version "v1" cannot be handled as a Service: strict decoding error: ' + ", ".join(SERVICE_ERRORS),
     SERVICE_ERRORS),
    ("POST", SERVICES, SERVICE_YAML, YAML, 400, f'strict decoding error: {BOGUS}, unknown field "spec.zeta"',
     [BOGUS, 'unknown field "spec.zeta"']),
    ("PATCH", f"{SERVICES}/kept", '{"spec":{"type":"NodePort","bogus":1}}', MERGE, 422,
     f"strict decoding error: {BOGUS}", [BOGUS]),
    ("PATCH", f"{SERVICES}/kept", '{"spec":{"type":"NodePort","bogus":1}}', STRATEGIC, 422,
     f'patch: Invalid value: "map[spec:map[bogus:1 type:NodePort]]": strict decoding error: {BOGUS}', [BOGUS]),
    ("PATCH", f"{SERVICES}/kept", '[{"op":"add","path":"/spec/bogus","value":1,"extra":1}]', JSON_PATCH, 422,
     f'strict decoding error: json patch unknown field "[0].extra", {BOGUS}',
     ['json patch unknown field "[0].extra"', BOGUS]),
    ("POST", CUSTOM,
     '{"apiVersion":"example.org/v1","kind":"StrictOne","metadata":{"name":"a","odd":1},'
     '"spec":{"zeta":1,"known":"a","bogus":{"x":1}}}', "application/json", 400,
     'StrictOne in version "v1" cannot be handled as a StrictOne: strict decoding error: unknown field "metadata.odd", '
     f'{BOGUS}, unknown field "spec.zeta"',
     ['unknown field "metadata.odd"', BOGUS, 'unknown field "spec.zeta"']),
    ("POST", CUSTOM,
     '{"apiVersion":"example.org/v1","kind":"StrictOne","metadata":{"name":"b"},"spec":{"inner":{"apiVersion":"v1",'
     '"kind":"Pod","metadata":{"name":"a","odd":1}}}}', "application/json", 400,
     'strict decoding error: unknown field "spec.inner.metadata.odd"', ['unknown field "spec.inner.metadata.odd"']),
    ("PATCH", f"{CUSTOM}/one", '{"spec":{"known":"b","bogus":1}}', MERGE, 422,
     f"strict decoding error: {BOGUS}", [BOGUS]),
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
