"""Which fields each kind is selected by, and what a field that is not set is selected as.

Kubernetes' end-to-end suite lists nodes with `spec.unschedulable=false` before it begins
(test/e2e/framework/node GetReadySchedulableNodes).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from kproxy.apiserver import running_apiserver
from tests.support.apiserver.server import TOKENS, Api

PODS = "/api/v1/namespaces/default/pods"
NEW_EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"
EVENTS = "/api/v1/namespaces/default/events"


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """A server with two of everything, one with every field set and one without."""
    directory: Path = tmp_path_factory.mktemp("fields")
    (directory / "tokens.csv").write_text(TOKENS)
    with running_apiserver(directory, token_file=directory / "tokens.csv") as server:
        api = Api(server)
        api.ok("POST", "/api/v1/nodes", {"metadata": {"name": "plain"}})
        api.ok("POST", "/api/v1/nodes", {"metadata": {"name": "cordoned"}, "spec": {"unschedulable": True}})
        containers = [{"name": "c", "image": "i"}]
        api.ok("POST", PODS, {"metadata": {"name": "plain"}, "spec": {"containers": containers}})
        spec = {
            "containers": containers, "nodeName": "n1", "restartPolicy": "Never", "schedulerName": "mine",
            "serviceAccountName": "builder", "hostNetwork": True,
        }  # fmt: skip
        api.ok("POST", PODS, {"metadata": {"name": "full"}, "spec": spec})
        status = {"phase": "Running", "podIP": "10.0.0.7", "podIPs": [{"ip": "10.0.0.7"}], "nominatedNodeName": "n2"}
        api.ok("PATCH", f"{PODS}/full/status", {"status": status}, "application/merge-patch+json")
        api.ok("POST", "/api/v1/namespaces/default/secrets", {"metadata": {"name": "plain"}})
        secret = {"metadata": {"name": "typed"}, "type": "example.org/own"}
        api.ok("POST", "/api/v1/namespaces/default/secrets", secret)
        core = {
            "metadata": {"name": "core"}, "reason": "Old", "type": "Warning",
            "involvedObject": {
                "kind": "Pod", "name": "p", "namespace": "default", "uid": "u1", "apiVersion": "v1",
                "resourceVersion": "5", "fieldPath": "spec.containers{c}",
            },
            "source": {"component": "kubelet"},
        }  # fmt: skip
        api.ok("POST", EVENTS, core)
        new = {
            "metadata": {"name": "new"}, "regarding": {"kind": "Node", "name": "n1"}, "reason": "New",
            "type": "Normal", "eventTime": "2026-01-01T00:00:00.000000Z", "reportingController": "scheduler",
            "reportingInstance": "x", "action": "a",
        }  # fmt: skip
        api.ok("POST", NEW_EVENTS, new)
        template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": containers}}
        replicas = {"metadata": {"name": "rs"}, "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template}}
        api.ok("POST", "/apis/apps/v1/namespaces/default/replicasets", replicas)
        yield api


@pytest.mark.parametrize(
    ("path", "selector", "names"),
    [
        ("/api/v1/nodes", "spec.unschedulable=false", ["plain"]),
        ("/api/v1/nodes", "spec.unschedulable!=true", ["plain"]),
        ("/api/v1/nodes", "spec.unschedulable=true", ["cordoned"]),
        ("/api/v1/nodes", "spec.unschedulable!=false", ["cordoned"]),
        (PODS, "spec.hostNetwork=false", ["plain"]),
        (PODS, "spec.hostNetwork=true", ["full"]),
        (PODS, "spec.nodeName=", ["plain"]),
        (PODS, "spec.nodeName=n1", ["full"]),
        (PODS, "spec.host=n1", ["full"]),
        (PODS, "spec.restartPolicy=Always", ["plain"]),
        (PODS, "spec.schedulerName=mine", ["full"]),
        (PODS, "spec.serviceAccountName=builder", ["full"]),
        (PODS, "status.phase=Running", ["full"]),
        (PODS, "status.phase!=Running", ["plain"]),
        (PODS, "status.podIP=10.0.0.7", ["full"]),
        (PODS, "status.nominatedNodeName=n2", ["full"]),
        (PODS, "metadata.name=full,metadata.namespace=default", ["full"]),
        ("/api/v1/namespaces", "status.phase=Active,metadata.name=default", ["default"]),
        ("/api/v1/namespaces/default/secrets", "type=Opaque", ["plain"]),
        ("/api/v1/namespaces/default/services", "spec.type=ClusterIP", ["kubernetes"]),
        ("/apis/apps/v1/namespaces/default/replicasets", "status.replicas=0", ["rs"]),
        (EVENTS, "involvedObject.kind=Pod", ["core"]),
        (EVENTS, "involvedObject.fieldPath=spec.containers{c}", ["core"]),
        (EVENTS, "involvedObject.uid=u1,involvedObject.resourceVersion=5", ["core"]),
        (EVENTS, "source=kubelet", ["core"]),
        (EVENTS, "source=scheduler", ["new"]),
        (EVENTS, "reportingComponent=scheduler", ["new"]),
        (EVENTS, "reason=Old,type=Warning", ["core"]),
        (NEW_EVENTS, "regarding.name=n1", ["new"]),
        (NEW_EVENTS, "regarding.namespace=default", ["core"]),
        (NEW_EVENTS, "regarding.apiVersion=v1", ["core"]),
        (NEW_EVENTS, "reportingController=scheduler", ["new"]),
        (NEW_EVENTS, "type=Normal,reason=New", ["new"]),
    ],
)
def test_selected(filled: Api, path: str, selector: str, names: list[str]) -> None:
    items = filled.ok("GET", f"{path}?fieldSelector={selector}")["items"]
    assert [each["metadata"]["name"] for each in items] == names


@pytest.mark.parametrize(
    ("path", "selector", "message"),
    [
        (PODS, "spec.foo=1", "field label not supported: spec.foo"),
        ("/api/v1/nodes", "metadata.namespace=a", "field label not supported: metadata.namespace"),
        ("/api/v1/namespaces", "metadata.namespace=a", "field label not supported: metadata.namespace"),
        (EVENTS, "regarding.name=n1", "field label not supported: regarding.name"),
        (NEW_EVENTS, "involvedObject.name=n1", "field label not supported: involvedObject.name"),
        (NEW_EVENTS, "source=kubelet", "field label not supported: source"),
        (
            "/api/v1/namespaces/default/configmaps", "data=1",
            '"data" is not a known field selector: only "metadata.name", "metadata.namespace"',
        ),
        (PODS, "metadata.name=a,b", "invalid selector: 'metadata.name=a,b'; can't understand 'b'"),
    ],
)  # fmt: skip
def test_refused(filled: Api, path: str, selector: str, message: str) -> None:
    status, answer = filled("GET", f"{path}?fieldSelector={selector}")
    assert (status, answer["message"]) == (400, message)


def test_a_watch_sees_a_node_leave_its_selection(filled: Api) -> None:
    version = filled.ok("GET", "/api/v1/nodes")["metadata"]["resourceVersion"]
    filled.ok("POST", "/api/v1/nodes", {"metadata": {"name": "passing"}})
    patch = {"spec": {"unschedulable": True}}
    filled.ok("PATCH", "/api/v1/nodes/passing", patch, "application/merge-patch+json")
    filled.ok("DELETE", "/api/v1/nodes/passing")
    query = f"watch=1&timeoutSeconds=1&resourceVersion={version}&fieldSelector=spec.unschedulable%3Dfalse"

    lines = filled.raw("GET", f"/api/v1/nodes?{query}").read().splitlines()
    assert [json.loads(line)["type"] for line in lines] == ["ADDED", "DELETED"]
