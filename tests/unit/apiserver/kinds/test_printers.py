"""What `kubectl get` shows, cell by cell."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from kproxy.apiserver.kinds.printers.builtin import KINDS
from kproxy.apiserver.kinds.printers.table import age, custom_columns, human_duration, labels_text, selector_text
from kproxy.apiserver.kinds.resources import built_in

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
META = {"name": "n", "creationTimestamp": "2026-01-02T03:02:05Z"}


def cells(kind: str, **value: Any) -> dict[str, Any]:
    """The cells of an object by column."""
    columns = KINDS[kind]
    row = columns.row({"metadata": META, **value}, NOW)
    assert len(row) == len(columns.definitions)
    return dict(zip([each["name"] for each in columns.definitions], row, strict=True))


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "<invalid>"), (-1, "0s"), (0, "0s"), (119, "119s"), (120, "2m"), (130, "2m10s"), (599, "9m59s"),
        (600, "10m"), (10799, "179m"), (10800, "3h"), (10860, "3h1m"), (28800, "8h"), (172799, "47h"), (172800, "2d"),
        (180000, "2d2h"), (691200, "8d"), (63072000, "2y"), (64000000, "2y10d"), (300000000, "9y"),
    ],
)  # fmt: skip
def test_human_duration(seconds: int, text: str) -> None:
    assert human_duration(seconds) == text


@pytest.mark.parametrize("text", [None, "", "x", 5, "2026-01-02"])
def test_no_age(text: Any) -> None:
    assert age(text, NOW) == "<unknown>"


@pytest.mark.parametrize(
    ("spec", "status", "wanted"),
    [
        (
            {"type": "ClusterIP", "clusterIP": "10.0.0.1", "ports": [{"port": 80, "protocol": "TCP"}]}, {},
            {"Cluster-IP": "10.0.0.1", "External-IP": "<none>", "Port(s)": "80/TCP", "Selector": "<none>"},
        ),
        (
            {"type": "NodePort", "clusterIPs": ["10.0.0.2", "fd00::2"], "externalIPs": ["1.1.1.1", "2.2.2.2"],
             "ports": [{"port": 80, "protocol": "TCP", "nodePort": 30080}, {"port": 53, "protocol": "UDP"}],
             "selector": {"b": "2", "a": "1"}}, {},
            {"Cluster-IP": "10.0.0.2", "External-IP": "1.1.1.1,2.2.2.2", "Port(s)": "80:30080/TCP,53/UDP",
             "Selector": "a=1,b=2"},
        ),
        ({"type": "LoadBalancer", "clusterIP": "10.0.0.3"}, {}, {"External-IP": "<pending>", "Port(s)": "<none>"}),
        (
            {"type": "LoadBalancer", "externalIPs": ["9.9.9.9"]},
            {"loadBalancer": {"ingress": [{"ip": "3.3.3.3"}, {"hostname": "a.b"}]}},
            {"External-IP": "3.3.3.3,a.b,9.9.9.9", "Cluster-IP": "<none>"},
        ),
        ({"type": "ExternalName", "externalName": "a.b"}, {}, {"Cluster-IP": "<none>", "External-IP": "a.b"}),
        ({"type": "ClusterIP", "clusterIP": "None"}, {}, {"Cluster-IP": "None"}),
    ],
)  # fmt: skip
def test_services(spec: Any, status: Any, wanted: dict[str, Any]) -> None:
    found = cells("Service", spec=spec, status=status)
    assert found["Age"] == "2m"
    assert {key: found[key] for key in wanted} == wanted


@pytest.mark.parametrize(
    ("spec", "status", "meta", "wanted"),
    [
        ({"containers": [{}, {}]}, {"phase": "Pending"}, {}, ("0/2", "Pending", "0", "<none>", "<none>", "<none>")),
        (
            {"containers": [{}], "nodeName": "n1", "readinessGates": [{"conditionType": "a"}, {"conditionType": "b"}]},
            {"phase": "Running", "podIP": "10.1.0.1", "conditions": [{"type": "a", "status": "True"}],
             "containerStatuses": [{"ready": True, "restartCount": 3, "state": {"running": {}}}]},
            {}, ("1/1", "Running", "3", "10.1.0.1", "n1", "1/2"),
        ),
        (
            {"containers": [{}]},
            {"phase": "Running", "containerStatuses": [{"state": {"waiting": {"reason": "CrashLoopBackOff"}}}]},
            {}, ("0/1", "CrashLoopBackOff", "0", "<none>", "<none>", "<none>"),
        ),
        ({"containers": [{}]}, {"phase": "Failed", "reason": "Evicted"}, {},
         ("0/1", "Evicted", "0", "<none>", "<none>", "<none>")),
        ({"containers": [{}]}, {"phase": "Running"}, {"deletionTimestamp": "2026-01-02T03:04:04Z"},
         ("0/1", "Terminating", "0", "<none>", "<none>", "<none>")),
    ],
)  # fmt: skip
def test_pods(spec: Any, status: Any, meta: Any, wanted: tuple[str, ...]) -> None:
    found = cells("Pod", spec=spec, status=status, metadata={**META, **meta})
    names = ("Ready", "Status", "Restarts", "IP", "Node", "Readiness Gates")
    assert tuple(found[name] for name in names) == wanted


def test_nodes() -> None:
    status = {
        "conditions": [{"type": "Ready", "status": "True"}],
        "addresses": [{"type": "InternalIP", "address": "1.1.1.1"}, {"type": "InternalIP", "address": "fd00::1"}],
        "nodeInfo": {"kubeletVersion": "v1.36.2", "kernelVersion": "6.1.0", "architecture": "arm64"},
    }
    meta = {**META, "labels": {"node-role.kubernetes.io/worker": "", "node-role.kubernetes.io/a": ""}}
    found = cells("Node", spec={"unschedulable": True}, status=status, metadata=meta)
    assert found["Status"] == "Ready,SchedulingDisabled"
    assert (found["Roles"], found["Version"], found["Internal-IP"]) == ("a,worker", "v1.36.2", "1.1.1.1")
    bare = cells("Node", spec={})
    assert (bare["Status"], bare["Roles"], bare["External-IP"]) == ("Unknown", "<none>", "<none>")
    assert (found["Kernel-Version"], bare["Kernel-Version"]) == ("6.1.0 (arm64)", "<unknown>")


def test_service_accounts_do_not_count_secrets() -> None:
    """Nobody fills `secrets` since Kubernetes 1.24; kube-apiserver shows no such column since 1.35."""
    assert cells("ServiceAccount", secrets=[{"name": "a"}]) == {"Name": "n", "Age": "2m"}


def test_slices_and_endpoints_are_cut_short() -> None:
    endpoints = [{"addresses": [f"10.0.0.{n}"]} for n in range(5)]
    found = cells("EndpointSlice", addressType="IPv4", endpoints=endpoints, ports=[{"port": 80}, {"name": "x"}])
    assert (found["Ports"], found["Endpoints"]) == ("80,*", "10.0.0.0,10.0.0.1,10.0.0.2 + 2 more...")
    empty = cells("EndpointSlice", addressType="IPv4", endpoints=None, ports=None)
    assert (empty["Ports"], empty["Endpoints"]) == ("<unset>", "<unset>")
    subset = {"addresses": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}], "ports": [{"port": 80}]}
    assert cells("Endpoints", subsets=[subset])["Endpoints"] == "10.0.0.1:80,[fd00::1]:80"


@pytest.mark.parametrize(
    ("kind", "value", "wanted"),
    [
        ("StatefulSet", {"spec": {"replicas": 3, "template": {"spec": {"containers": [{"name": "a", "image": "i"}]}}},
                         "status": {"readyReplicas": 1}}, ["n", "1/3", "2m", "a", "i"]),
        (
            "Job",
            {"spec": {"completions": 2, "parallelism": 2, "selector": {"matchLabels": {"a": "b"}},
                      "template": {"spec": {"containers": [{"name": "a", "image": "i"}]}}},
             "status": {"succeeded": 2, "startTime": "2026-01-02T03:02:05Z", "completionTime": "2026-01-02T03:02:15Z",
                        "conditions": [{"type": "Complete", "status": "True"}]}},
            ["n", "Complete", "2/2", "10s", "2m", "a", "i", "a=b"],
        ),
        ("Job", {"metadata": {**META, "deletionTimestamp": "x"}, "spec": {"parallelism": 3, "template": {"spec": {}}}},
         ["n", "Terminating", "0/1 of 3", "", "2m", "", "", "<none>"]),
    ],
)  # fmt: skip
def test_workloads(kind: str, value: Any, wanted: list[Any]) -> None:
    assert list(cells(kind, **value).values()) == wanted


def test_selectors() -> None:
    terms = [
        {"key": "a", "operator": "In", "values": ["y", "x"]}, {"key": "b", "operator": "Exists"},
        {"key": "c", "operator": "DoesNotExist"}, {"key": "d", "operator": "NotIn", "values": ["z"]},
    ]  # fmt: skip
    assert selector_text({"matchLabels": {"m": "n"}, "matchExpressions": terms}) == "m=n,a in (x,y),b,!c,d notin (z)"
    assert (selector_text({}), labels_text(None)) == ("<none>", "<none>")


def test_a_kind_that_is_only_stored_shows_its_name_and_age() -> None:
    shown = next(each.columns for each in built_in() if each.kind == "StorageClass")
    assert [each["name"] for each in shown.definitions] == ["Name", "Age"]
    assert shown.row({"metadata": META}, NOW) == ["n", "2m"]


@pytest.mark.parametrize(
    ("kind", "value", "cell"),
    [
        ("string", "x", "x"), ("string", True, "true"), ("string", {"a": 1}, '{"a":1}'), ("string", None, ""),
        ("integer", 5, 5), ("integer", "5", None), ("integer", True, None), ("integer", 2.0, 2), ("number", 1.5, 1.5),
        ("boolean", False, False), ("boolean", "x", None), ("date", "2026-01-02T03:04:00Z", "5s"),
    ],
)  # fmt: skip
def test_custom_columns(kind: str, value: Any, cell: Any) -> None:
    columns = custom_columns([{"name": "C", "type": kind, "jsonPath": ".spec.c"}])
    assert columns.row({"metadata": META, "spec": {"c": value}}, NOW) == ["n", cell]


def test_custom_columns_of_arrays_and_of_nothing() -> None:
    paths = (".spec.list", ".spec.list[*]", ".spec.other")
    columns = custom_columns([{"name": path, "type": "string", "jsonPath": path} for path in paths])
    assert columns.row({"metadata": META, "spec": {"list": ["a", "b"]}}, NOW) == ["n", '["a","b"]', "a", None]
    text = "Custom resource definition column (in JSONPath format): .spec.other"
    assert columns.definitions[3]["description"] == text


def test_custom_resources_without_columns_show_their_age() -> None:
    assert custom_columns([]).row({"metadata": META}, NOW) == ["n", "2m"]


@pytest.mark.parametrize("kind", sorted(KINDS))
@pytest.mark.parametrize("value", [{"metadata": {}}, {"metadata": {}, "spec": {}, "status": {}}])
def test_no_field_is_assumed(kind: str, value: Any) -> None:
    """A kind that is held to its schema alone may lack any field."""
    assert len(KINDS[kind].row(value, NOW)) == len(KINDS[kind].definitions)
