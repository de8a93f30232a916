"""Content to objects and problems: every format, every place in it."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from kproxy.api import ManifestError, Manifests, parse_manifests

SERVICE: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": "web"},
    "spec": {"clusterIP": "10.96.0.7", "ports": [{"port": 80}]},
}
SLICE: dict[str, Any] = {
    "apiVersion": "discovery.k8s.io/v1",
    "kind": "EndpointSlice",
    "metadata": {"name": "web-1", "labels": {"kubernetes.io/service-name": "web"}},
    "addressType": "IPv4",
    "endpoints": [{"addresses": ["10.0.0.1"]}],
    "ports": [{"port": 8080}],
}
ENDPOINTS: dict[str, Any] = {"apiVersion": "v1", "kind": "Endpoints", "metadata": {"name": "web"}}
NODE: dict[str, Any] = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}}
POD: dict[str, Any] = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"clusterIP": 7}}
NAMESPACE: dict[str, Any] = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}
ALL = [SERVICE, SLICE, ENDPOINTS, NODE, POD, NAMESPACE]
"""Of which the Pod alone counts as skipped: nobody misses anything of a Namespace."""


def keys(found: Manifests) -> list[str]:
    groups = (found.services, found.endpoint_slices, found.endpoints, found.nodes)
    return [item.metadata.key for group in groups for item in group]


def problems(data: bytes | str, file: str = "f") -> list[str]:
    with pytest.raises(ManifestError) as caught:
        parse_manifests(data, file)
    return [str(problem) for problem in caught.value.problems]


def listed(*items: Any, kind: str = "List", version: str = "v1") -> dict[str, Any]:
    return {"apiVersion": version, "items": list(items), "kind": kind, "metadata": {"resourceVersion": ""}}


FORMS = {
    "json lines": "\n".join(json.dumps(item) for item in ALL),
    "json lines, blank lines and returns": "\r\n\r\n".join(json.dumps(item) for item in ALL) + "\r\n \r\n",
    "concatenated json": "".join(json.dumps(item) for item in ALL),
    "concatenated pretty json": "\n".join(json.dumps(item, indent=2) for item in ALL),
    "json list": json.dumps(listed(*ALL)),
    "pretty json list": json.dumps(listed(*ALL), indent=4),
    "nested json lists": json.dumps(listed(listed(*ALL[:2]), listed(listed(*ALL[2:])), listed())),
    "yaml": yaml.safe_dump_all(ALL),
    "yaml flow": yaml.safe_dump_all(ALL, default_flow_style=True),
    "yaml with json documents": "\n---\n".join(json.dumps(item) for item in ALL),
    "yaml with empty documents": "---\n---\n# nothing\n---\n" + yaml.safe_dump_all(ALL, explicit_start=True) + "---\n",
    "yaml with windows lines": yaml.safe_dump_all(ALL).replace("\n", "\r\n"),
    "yaml with a byte order mark": "\ufeff" + yaml.safe_dump_all(ALL),
    "yaml list": yaml.safe_dump(listed(*ALL)),
    "nested yaml lists": yaml.safe_dump(listed(listed(*ALL))),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("file", ["x", "x.yaml"])
def test_forms(form: str, file: str) -> None:
    found = parse_manifests(FORMS[form], file)
    assert keys(found) == ["default/web", "default/web-1", "default/web", "n1"]
    assert found.skipped == {"v1/Pod": 1}
    assert found.warnings == ()
    assert found == parse_manifests(FORMS["json lines"], file).__class__(
        found.services, found.endpoint_slices, found.endpoints, found.nodes, found.sources, {"v1/Pod": 1}, ()
    )
    assert found.services == parse_manifests(json.dumps(SERVICE)).services
    assert found.endpoint_slices == parse_manifests(json.dumps(SLICE)).endpoint_slices
    assert {location.file for location in found.sources.values()} == {file}


def test_typed_lists_lend_their_kind_to_their_items() -> None:
    bare = [{key: value for key, value in item.items() if key not in ("apiVersion", "kind")} for item in ALL]
    lists = [
        listed(bare[0], kind="ServiceList"),
        listed(bare[1], kind="EndpointSliceList", version="discovery.k8s.io/v1"),
        listed(bare[2], kind="EndpointsList"),
        listed(bare[3], NODE | {"metadata": {"name": "m"}}, kind="NodeList"),
        listed(bare[4], bare[4], kind="PodList"),
        listed(kind="ServiceList"),
        {"apiVersion": "v1", "kind": "List"},
        {"apiVersion": "v1", "kind": "List", "items": None},
    ]
    for text in ("\n".join(map(json.dumps, lists)), yaml.safe_dump_all(lists)):
        found = parse_manifests(text)
        assert keys(found) == ["default/web", "default/web-1", "default/web", "n1", "m"]
        assert found.skipped == {"v1/Pod": 2}


def test_a_kind_of_that_name_in_another_group_is_skipped() -> None:
    foreign = {"apiVersion": "serving.knative.dev/v1", "kind": "Service", "spec": {"ports": "many"}}
    for text in (json.dumps(foreign), yaml.safe_dump(foreign), json.dumps(listed(foreign, foreign))):
        found = parse_manifests(text + "\n" if text.startswith("{") else text)
        assert set(found.skipped) == {"serving.knative.dev/v1/Service"}
    odd = {"apiVersion": "example.com/v1", "kind": "ShoppingList", "spec": {}}
    assert parse_manifests(json.dumps(odd)).skipped == {"example.com/v1/ShoppingList": 1}


def test_sources() -> None:
    text = "---\n" + yaml.safe_dump(SERVICE) + "---\n" + yaml.safe_dump(listed(SLICE, NODE))
    found = parse_manifests(text, "f.yaml").sources
    assert {key: str(location) for key, location in found.items()} == {
        ("Service", "default/web"): "f.yaml: document 1: line 1",
        ("EndpointSlice", "default/web-1"): "f.yaml: document 2: line 10: items[0]",
        ("Node", "n1"): "f.yaml: document 2: line 10: items[1]",
    }
    lines = "\n\n".join(json.dumps(item) for item in (SERVICE, NODE))
    assert [str(place) for place in parse_manifests(lines, "-").sources.values()] == [
        "-: document 1: line 1",
        "-: document 2: line 3",
    ]


BROKEN: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": "bad"},
    "spec": {"clusterIP": "10.96.0.9", "ports": [{"port": 80, "name": "a"}, {"port": 0, "name": "b", "targetPort": 1}]},
}


@pytest.mark.parametrize(
    ("text", "where"),
    [
        (yaml.safe_dump_all([SERVICE, BROKEN], sort_keys=False), "document 2: line 19: spec.ports[1].port"),
        (yaml.safe_dump(listed(BROKEN), sort_keys=False), "document 1: line 12: items[0].spec.ports[1].port"),
        (json.dumps(SERVICE) + "\n" + json.dumps(BROKEN), "document 2: line 2: spec.ports[1].port"),
        (json.dumps(BROKEN, indent=1), "document 1: line 15: spec.ports[1].port"),
        (
            json.dumps(SERVICE, indent=1) + "\n" + json.dumps(BROKEN, indent=1),
            "document 2: line 30: spec.ports[1].port",
        ),
        (json.dumps(listed(SERVICE, BROKEN), indent=1), "document 1: line 33: items[1].spec.ports[1].port"),
        (json.dumps(listed(BROKEN)), "document 1: line 1: items[0].spec.ports[1].port"),
    ],
)
def test_a_field_error_says_where(text: str, where: str) -> None:
    assert problems(text) == [f"f: {where}: Invalid value: 0: must be between 1 and 65535, inclusive"]


def test_all_errors_of_all_documents() -> None:
    text = """\
apiVersion: v1
kind: Service
metadata: {name: a}
spec:
  ports:
  - port: http
    targetPort: [1]
  selector: {on: off}
---
apiVersion: v1
kind: Service
metadata: {name: B}
spec: {type: ExternalName}
---
just text
---
kind: Service
kind: Service
---
- a
--- [
"""
    found = problems(text, "f.yaml")
    assert found[:4] + found[5:] == [
        'f.yaml: document 1: line 6: spec.ports[0].port: Invalid value: "http": must be an integer, not a string',
        "f.yaml: document 1: line 7: spec.ports[0].targetPort: Invalid value: [1]: "
        "must be an integer or a string, not a list",
        "f.yaml: document 1: line 8: spec.selector[true]: Invalid value: false: must be a string, not a boolean",
        'f.yaml: document 2: line 12: metadata.name: Invalid value: "B": a lowercase RFC 1123 label must consist of '
        "lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. "
        "'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')",
        'f.yaml: document 3: line 14: not an object: "just text"',
        'f.yaml: document 4: line 18: key "kind" already set in map',
        "f.yaml: document 4: line 16: apiVersion not set",
        "f.yaml: document 5: line 19: a list at the top is no manifest: put the objects under `items` of a v1 List, "
        "or one per line",
        "f.yaml: document 6: line 22: invalid YAML, column 1: did not find expected node content, "
        "while parsing a flow node",
    ]
    assert found[4] == "f.yaml: document 2: line 13: spec.externalName: Required value"


NO_LIST = "a list at the top is no manifest: put the objects under `items` of a v1 List, or one per line"


@pytest.mark.parametrize(
    ("data", "file", "found"),
    [
        ("", "f", "f: no Kubernetes objects found"),
        ("  \n", "f.json", "f.json: no Kubernetes objects found"),
        ("# a\n---\n", "f", "f: no Kubernetes objects found"),
        (b"\xff\xfea\0", "f", "f: line 1: not UTF-8: byte 0xff (it looks like UTF-16)"),
        (b"a: 1\nb: \x80", "f", "f: line 2: not UTF-8: byte 0x80"),
        ("[]", "f.json", f"f.json: document 1: line 1: {NO_LIST}"),
        ("[{}]", "f", f"f: document 1: line 1: {NO_LIST}"),
        ("[a: 1]", "f.yaml", f"f.yaml: document 1: line 1: {NO_LIST}"),
        ("- a: 1", "f.yaml", f"f.yaml: document 1: line 1: {NO_LIST}"),
        ("3", "f.jsonl", "f.jsonl: document 1: line 1: not an object: 3"),
        ("{", "f.json", "f.json: document 1: line 1: invalid JSON, column 2: unexpected end of input"),
        ('{"a":\n [1,}', "f.json", "f.json: document 1: line 2: invalid JSON, column 5: invalid character"),
        ('{"a":\n [1,}', "f", "f: document 1: line 2: invalid JSON, column 5: invalid character"),
        ("{a: [1", "f", "f: document 1: line 1: invalid JSON, column 2: object keys must be strings"),
        ("a: [1", "f", "f: document 1: line 2: invalid YAML, column 1: did not find expected ',' or ']', "
         "while parsing a flow sequence"),
        # Deeper than any interpreter's limit: Python 3.13 goes 10,000 levels deep in C, earlier ones 1000.
        ('{"a": ' * 100_000, "f.json", "f.json: document 1: line 1: nested too deeply"),
        ('{"apiVersion": 1, "kind": "Service"}', "f",
         "f: document 1: line 1: apiVersion: Invalid value: 1: must be a string"),
        ('{"apiVersion": "v1", "kind": "List", "items": {}}', "f",
         "f: document 1: line 1: items: Invalid value: {}: must be a list"),
        ('{"apiVersion": "discovery.k8s.io/v1beta1", "kind": "EndpointSlice"}', "f",
         'f: document 1: line 1: apiVersion: no matches for kind "EndpointSlice" in version '
         '"discovery.k8s.io/v1beta1": only discovery.k8s.io/v1 is supported'),
        ('{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n", "generation": 1e999}}', "f",
         "f: document 1: line 1: Number out of range"),
        ('{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "x": "\\ud800"}', "f", None),
    ],
)  # fmt: skip
def test_one_clear_error(data: bytes | str, file: str, found: str | None) -> None:
    told = problems(data, file)
    assert len(told) == 1
    if found is not None:
        assert told == [found]


def test_json_lines_go_on_after_a_broken_one() -> None:
    text = '{"a" 1}\n{"apiVersion": "v1", "kind": "Service"}\n{"kind": "X"}\n'
    assert problems(text, "f.jsonl") == [
        "f.jsonl: document 1: line 1: invalid JSON, column 6: expected ':'",
        "f.jsonl: document 2: line 2: metadata.name: Required value: name or generateName is required",
        "f.jsonl: document 2: line 2: spec.ports: Required value",
        "f.jsonl: document 3: line 3: apiVersion not set",
    ]


def test_lists_nested_too_deeply() -> None:
    value = listed()
    for _ in range(20):
        value = listed(value)
    assert problems(json.dumps(value)) == [
        "f: document 1: line 1: " + ".".join(["items[0]"] * 9) + ": Lists nested more than 8 deep"
    ]


def test_duplicate_objects() -> None:
    text = yaml.safe_dump_all([SERVICE, NODE, SERVICE, ENDPOINTS, NODE])
    assert problems(text, "f.yaml") == [
        'f.yaml: document 3: line 18: metadata.name: Duplicate value: "default/web": already defined in '
        "f.yaml: document 1: line 1",
        'f.yaml: document 5: line 32: metadata.name: Duplicate value: "n1": already defined in '
        "f.yaml: document 2: line 9",
    ]
    other = SERVICE | {
        "metadata": {"name": "web", "namespace": "other"},
        "spec": SERVICE["spec"] | {"clusterIP": "None"},
    }
    assert keys(parse_manifests(json.dumps(SERVICE) + "\n" + json.dumps(other))) == ["default/web", "other/web"]


def test_warnings_say_where() -> None:
    text = """\
apiVersion: v1
kind: Service
metadata: {name: a}
spec:
  type: LoadBalancer
  ports: [{port: 80}]
  loadBalancerSourceRanges:
  - 198.51.100.7/24
"""
    assert parse_manifests(text, "f.yaml").warnings == (
        'f.yaml: document 1: line 8: spec.LoadBalancerSourceRanges[0]: "198.51.100.7/24" must not have bits set beyond '
        "the prefix length: a v1.36 API server refuses it in a new object",
    )


def test_null_where_a_value_could_be() -> None:
    text = """\
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: a, creationTimestamp: null, labels: {service.kubernetes.io/headless: }}
addressType: IPv4
endpoints: null
ports: null
"""
    (found,) = parse_manifests(text).endpoint_slices
    assert (found.endpoints, found.ports) == ((), ())
    assert found.metadata.labels == {"service.kubernetes.io/headless": ""}


def test_unquoted_timestamps_and_node_names_that_look_like_numbers() -> None:
    text = "apiVersion: v1\nkind: Node\nmetadata: {name: a, creationTimestamp: 2024-01-01T00:00:00Z, uid: 22:22}\n"
    (node,) = parse_manifests(text).nodes
    assert (node.metadata.creation_timestamp, node.metadata.uid) == ("2024-01-01T00:00:00Z", "22:22")
    assert problems("apiVersion: v1\nkind: Node\nmetadata: {name: 0123}\n") == [
        "f: document 1: line 3: metadata.name: Invalid value: 83: must be a string, not an integer"
    ]


def test_a_number_beyond_all_bounds_spoils_its_own_item_only() -> None:
    huge = json.dumps(NODE).replace('"n1"', '"n2", "generation": 1' + "0" * 5000)
    text = json.dumps(listed(NODE, "HERE", BROKEN)).replace('"HERE"', huge)
    assert problems(text) == [
        "f: document 1: line 1: items[1]: Integer value out of range",
        "f: document 1: line 1: items[2].spec.ports[1].port: Invalid value: 0: must be between 1 and 65535, inclusive",
    ]


def test_wrong_types_do_not_hide_wrong_values() -> None:
    text = """
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  clusterIP: 10.96.0.7
  ports:
  - {port: 70000, protocol: TPC}
  - {port: "http", name: a}
"""
    found = problems(text)
    assert len([line for line in found if "spec.ports[0].port: Invalid value: 70000" in line]) == 1
    assert len([line for line in found if "spec.ports[0].protocol: Unsupported value" in line]) == 1
    assert [line for line in found if "spec.ports[1]" in line] == [
        'f: document 1: line 9: spec.ports[1].port: Invalid value: "http": must be an integer, not a string'
    ]


def test_a_wrong_type_in_a_deciding_field_is_reported_alone() -> None:
    text = (
        "apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {type: 7, ports: [{port: 80, nodePort: 30080}]}\n"
    )
    (only,) = problems(text)
    assert "spec.type: Invalid value: 7: must be a string" in only


def test_misspelt_fields_are_warned_about() -> None:
    text = """
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  clusterIP: 10.96.0.7
  externaltrafficPolicy: Local
  somethingNew: 1
  ports:
  - {port: 80, nodeport: 30001, targetPort: 80}
"""
    found = parse_manifests(text, "f").warnings
    assert [line for line in found if "unknown field" in line] == [
        "f: document 1: line 7: spec.externaltrafficPolicy: unknown field, ignored: is 'externalTrafficPolicy' meant?",
        "f: document 1: line 10: spec.ports[0].nodeport: unknown field, ignored: is 'nodePort' meant?",
    ]
