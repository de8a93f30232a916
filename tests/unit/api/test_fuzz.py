"""Whatever comes in, out comes a value or a ManifestError."""

from __future__ import annotations

import copy
import json
from typing import Any

import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from kproxy.api import ManifestError, Manifests, parse_manifests
from tests.support.examples import tried

VALID: list[dict[str, Any]] = [
    {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "a", "namespace": "ns", "labels": {"x": "v"}, "annotations": {"x": "v"}},
        "spec": {
            "type": "LoadBalancer",
            "clusterIP": "10.0.0.1",
            "clusterIPs": ["10.0.0.1", "fd00::1"],
            "ipFamilies": ["IPv4", "IPv6"],
            "ipFamilyPolicy": "RequireDualStack",
            "ports": [{"name": "p", "port": 80, "targetPort": "http", "nodePort": 30080, "protocol": "TCP"}],
            "externalIPs": ["192.0.2.1"],
            "sessionAffinity": "ClientIP",
            "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 10}},
            "loadBalancerSourceRanges": ["10.0.0.0/8"],
            "externalTrafficPolicy": "Local",
            "healthCheckNodePort": 30081,
            "selector": {"app": "a"},
        },
        "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.2", "ipMode": "VIP"}]}},
    },
    {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": "s", "labels": {"kubernetes.io/service-name": "a"}},
        "addressType": "IPv4",
        "endpoints": [
            {
                "addresses": ["10.0.0.1"],
                "conditions": {"ready": True, "serving": None, "terminating": False},
                "hints": {"forZones": [{"name": "z"}], "forNodes": [{"name": "n1"}]},
                "nodeName": "n1",
                "zone": "z",
                "hostname": "h",
            }
        ],
        "ports": [{"name": "p", "port": 80, "protocol": "TCP", "appProtocol": "x"}],
    },
    {
        "apiVersion": "v1",
        "kind": "Endpoints",
        "metadata": {"name": "a"},
        "subsets": [
            {
                "addresses": [{"ip": "10.0.0.1", "nodeName": "n1", "hostname": "h"}],
                "notReadyAddresses": [{"ip": "fd00::1"}],
                "ports": [{"name": "p", "port": 80}],
            }
        ],
    },
    {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "n1"},
        "spec": {"podCIDR": "10.0.0.0/24", "podCIDRs": ["10.0.0.0/24"]},
        "status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.1"}]},
    },
]


def outcome(data: bytes | str, file: str = "f") -> Manifests | ManifestError:
    """What comes of it; anything but these two fails the test."""
    found: Manifests | ManifestError
    try:
        found = parse_manifests(data, file)
    except ManifestError as error:
        found = error
    if isinstance(found, Manifests):
        found.with_mirrored_slices()
        return found
    assert found.problems
    for problem in found.problems:
        assert problem.message
        assert problem.location.file == file
        assert "\n" not in str(problem)
        str(problem).encode()
    return found


FILES = st.sampled_from(["f", "f.yaml", "f.json", "f.jsonl"])


@given(st.binary(max_size=200), FILES)
@example(b"\xef\xbb\xbf", "f")
@example(b"\0", "f")
@example(b'{"kind":"Service","apiVersion":"v1","metadata":{"name":"\\ud800"}}', "f")
@example(b'{"kind":"Service","apiVersion":"v1","metadata":{"name":"\\u0000"}}', "f")
@example(b"[" * 100_000, "f")
@example(b'{"a":' * 100_000, "f")
@example(b'{"kind":"Node","apiVersion":"v1","x":' + b"[" * 100_000, "f")
@example(b"- " * 100_000, "f")
@example(b"{? " * 10_000, "f")
@example(b'{"apiVersion":"v1","kind":"List","items":' * 1000 + b"[]" + b"}" * 1000, "f")
@example(b'{"apiVersion":"v1","kind":"Node","metadata":{"generation":' + b"9" * 10_000 + b"}}", "f")
def test_bytes(data: bytes, file: str) -> None:
    outcome(data, file)


SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
    | st.sampled_from(
        ["v1", "Service", "None", "10.0.0.1", "::", "TCP", "ClientIP", 0, -1, 65536, 2**64, "1" * 300, "a.b", "\0"]
    )
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["apiVersion", "kind", "metadata", "spec", "items", "ports", "name", "port"]) | st.text(),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


def paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths of everything in a value."""
    items: list[tuple[Any, Any]] = []
    if isinstance(value, dict):
        items = list(value.items())
    elif isinstance(value, list):
        items = list(enumerate(value))
    return [found for key, item in items for found in [(*path, key), *paths(item, (*path, key))]]


@st.composite
def mutated(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Valid manifests with a few values replaced, removed or repeated."""
    documents: list[Any] = copy.deepcopy(VALID)
    for _ in range(draw(st.integers(1, 4))):
        choices = paths(documents)
        if not choices:
            break
        *way, last = draw(st.sampled_from(choices))
        holder: Any = documents
        for step in way:
            holder = holder[step]
        what = draw(st.sampled_from(["replace", "remove", "repeat"]))
        if what == "remove":
            del holder[last]
        elif what == "repeat" and isinstance(holder, list):
            holder.append(copy.deepcopy(holder[last]))
        else:
            holder[last] = draw(VALUES)
    return documents


@tried(80, 600)
@given(mutated())
def test_mutations_fare_alike_in_every_format(documents: list[dict[str, Any]]) -> None:
    """JSON lines take the fast path, a List the other; both must accept the same and name the same fields."""
    lines = outcome("\n".join(json.dumps(document) for document in documents) + "\n{}", "f.jsonl")
    items = outcome(json.dumps({"apiVersion": "v1", "kind": "List", "items": [*documents, {}]}))
    assert isinstance(lines, ManifestError)  # the last document, {}, has neither apiVersion nor kind
    assert isinstance(items, ManifestError)
    told = [(problem.location.field, problem.message) for problem in lines.problems]
    assert len(told) == len(items.problems)


@given(mutated())
def test_mutations_in_yaml(documents: list[dict[str, Any]]) -> None:
    try:
        text = yaml.safe_dump_all(documents)
    except yaml.YAMLError:
        return
    outcome(text, "f.yaml")


def test_the_valid_ones_are_valid() -> None:
    found = outcome("\n".join(json.dumps(document) for document in VALID))
    assert isinstance(found, Manifests)
    assert len(found.services) == len(found.endpoint_slices) == len(found.endpoints) == len(found.nodes) == 1
