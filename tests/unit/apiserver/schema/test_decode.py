"""Bodies as Go's decoder would have them: JSON, YAML, types, unknown fields."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from kproxy.apiserver.errors import StatusError
from kproxy.apiserver.schema.decode import (
    Decoder,
    TypeMismatchError,
    media_type,
    parse_body,
    parse_json,
    parse_yaml,
)
from kproxy.apiserver.schema.types import named

SERVICE = named("io.k8s.api.core.v1.Service")
POD = named("io.k8s.api.core.v1.Pod")
SECRET = named("io.k8s.api.core.v1.Secret")
EVENT = named("io.k8s.api.core.v1.Event")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a: 1", {"a": 1}),
        ("a: 2026-01-02", {"a": "2026-01-02"}),
        ("1: x\n1.5: z", {"1": "x", "1.5": "z"}),
        ("true: y", {"true": True}),
        ("a: &x [1]\nb: *x", {"a": [1], "b": [1]}),
        ("", None),
        ('{"a": "b"}', {"a": "b"}),
        ('{"a": 1e3}', {"a": 1000.0}),
        ("a: 1:30\nb: 1:30.5", {"a": "1:30", "b": "1:30.5"}),
        ("a: 0x10\nb: -5\nc: 1.5", {"a": 16, "b": -5, "c": 1.5}),
        ("a: 18446744073709551616", {"a": 18446744073709551616.0}),
        ("a: 1\na: 2", {"a": 2}),
        ("a: !!int x", {"a": "x"}),
    ],
)
def test_yaml(text: str, value: Any) -> None:
    assert parse_yaml(text.encode()) == value


_MERGED = "a0: &a0 {x: 1}\n" + "".join(f"a{n}: &a{n} {{<<: *a{n - 1}, k{n}: 1}}\n" for n in range(1, 5000))


@pytest.mark.parametrize(
    "text",
    [
        "a: [", "\t- x", "? [a]\n: b", "a: .inf", "a: 1\n---\nb: 1\n",
        pytest.param("a: 0x" + "f" * 10_000, id="hex"), pytest.param("a: " + "9" * 10_000, id="digits"),
        pytest.param(_MERGED, id="merged"), pytest.param("[" + "a," * 600_000 + "]", id="values"),
    ],
)  # fmt: skip
def test_bad_yaml(text: str) -> None:
    with pytest.raises(ValueError, match="error converting YAML to JSON"):
        parse_yaml(text.encode())


@pytest.mark.parametrize(
    ("text", "message"),
    [("", "unexpected end"), ('{"a":', "unexpected end"), ("{x}", "invalid character 'x'"), ('{"a":1}}', "invalid")],
)
def test_bad_json(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_json(text.encode())


def test_deep_json() -> None:
    with pytest.raises(ValueError, match="exceeded max depth"):
        parse_json(b"[" * 100_000 + b"]" * 100_000)


def test_media_types() -> None:
    assert media_type("Application/JSON; charset=utf-8") == "application/json"
    with pytest.raises(StatusError) as caught:
        parse_body(b"{}", "text/plain", "Service")
    assert caught.value.code == 415


def decoded(value: Any, node: Any = SERVICE) -> tuple[Any, list[str]]:
    decoder = Decoder()
    return decoder.object(value, node), decoder.unknown


def test_unknown_fields_are_dropped_and_named() -> None:
    value, unknown = decoded({"spec": {"ports": [{"port": 1, "x": 1}], "y": 1}, "z": {}})
    assert value["spec"] == {"ports": [{"port": 1}]}
    assert unknown == ["spec.ports[0].x", "spec.y", "z"]


def test_null_and_empty_are_absent() -> None:
    value, unknown = decoded({"metadata": {"labels": {}, "name": "", "annotations": None}, "spec": {"selector": {}}})
    assert value == {"metadata": {}, "spec": {}, "status": {"loadBalancer": {}}}
    assert unknown == []


def test_pointers_keep_their_zero() -> None:
    deployment = named("io.k8s.api.apps.v1.Deployment")
    assert decoded({"spec": {"replicas": 0}}, deployment)[0]["spec"]["replicas"] == 0
    assert "hostNetwork" not in decoded({"spec": {"hostNetwork": False}}, POD)[0]["spec"]


@pytest.mark.parametrize(
    ("node", "value", "message"),
    [
        (SERVICE, [], "json: cannot unmarshal array into Go value of type v1.Service"),
        (
            SERVICE,
            {"spec": 5},
            "json: cannot unmarshal number into Go struct field Service.spec of type v1.ServiceSpec",
        ),
        (SERVICE, {"spec": {"ports": {}}}, "json: cannot unmarshal object into Go struct field"),
        (
            SERVICE,
            {"spec": {"ports": [{"port": "x"}]}},
            "cannot unmarshal string into Go struct .* of type int32",
        ),
        (SERVICE, {"spec": {"ports": [{"port": 2**31}]}}, "cannot unmarshal number 2147483648"),
        (SERVICE, {"spec": {"ports": [{"port": True}]}}, "cannot unmarshal bool"),
        (SERVICE, {"spec": {"ports": [{"targetPort": 2**31}]}}, "of type int32"),
        (SERVICE, {"spec": {"selector": {"a": 5}}}, "cannot unmarshal number into Go struct field .* of type string"),
        (SERVICE, {"metadata": {"labels": []}}, "cannot unmarshal array .* of type map"),
        (SECRET, {"data": {"a": "x"}}, "illegal base64 data"),
        (EVENT, {"firstTimestamp": "yesterday"}, "parsing time"),
        (POD, {"spec": {"containers": [{"resources": {"limits": {"cpu": "1x"}}}]}}, "quantities must match"),
    ],
)
def test_wrong_types(node: Any, value: Any, message: str) -> None:
    with pytest.raises(TypeMismatchError, match=message):
        decoded(value, node)


def test_scalars_of_their_own_kind() -> None:
    data = base64.b64encode(b"x").decode()
    assert decoded({"data": {"a": data}}, SECRET)[0]["data"] == {"a": data}
    limits = {"cpu": 1, "memory": "1Gi"}
    value = decoded({"spec": {"containers": [{"name": "c", "resources": {"limits": limits}}]}}, POD)[0]
    assert value["spec"]["containers"][0]["resources"]["limits"] == {"cpu": "1", "memory": "1Gi"}


def test_times_that_are_no_pointers_in_go_are_always_there() -> None:
    """omitempty leaves no struct out (k8s.io/api core/v1 types.go)."""
    event = Decoder().object({"series": {}, "involvedObject": {}}, EVENT)
    times = {"eventTime": None, "firstTimestamp": None, "lastTimestamp": None}
    assert {key: event.get(key, "absent") for key in times} == times
    assert event["series"] == {"lastObservedTime": None}
    assert (event["reportingComponent"], event["reportingInstance"]) == ("", "")
    condition = {"type": "Ready", "status": "False"}
    states = [{"state": {"terminated": {"exitCode": 1}}}]
    status = Decoder().object({"conditions": [condition], "containerStatuses": states}, POD.props["status"].node)
    assert status["conditions"] == [{**condition, "lastProbeTime": None, "lastTransitionTime": None}]
    ended = status["containerStatuses"][0]["state"]["terminated"]
    assert ended == {"exitCode": 1, "startedAt": None, "finishedAt": None}
    assert "startTime" not in status
