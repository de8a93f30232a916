"""What a kubelet v1.36 asks for from their start: kinds, rights, and protobuf bodies."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kproxy.apiserver import running_apiserver
from kproxy.apiserver.schema.protobuf import decode_envelope, encode_envelope
from tests.support.apiserver.server import Api

TOKENS = """\
admin-token,admin,uid1,"system:masters"
n1,system:node:n1,uid2,"system:nodes"
n2,system:node:n2,uid3,"system:nodes"
odd,kubelet,uid4,"system:nodes"
"""
PROTOBUF = "application/vnd.kubernetes.protobuf"
PODS, SECRETS = "/api/v1/namespaces/default/pods", "/api/v1/namespaces/default/secrets"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
CSINODES = "/apis/storage.k8s.io/v1/csinodes"
STRATEGIC, MERGE = "application/strategic-merge-patch+json", "application/merge-patch+json"
POD: Any = {
    "containers": [{"name": "c", "image": "i", "env": [
        {"name": "A", "valueFrom": {"secretKeyRef": {"name": "from-env", "key": "a"}}}]}],
    "imagePullSecrets": [{"name": "pull"}],
    "serviceAccountName": "builder",
    "volumes": [
        {"name": "s", "secret": {"secretName": "mounted"}}, {"name": "c", "configMap": {"name": "settings"}},
        {"name": "p", "projected": {"sources": [{"secret": {"name": "projected"}}]}},
        {"name": "v", "persistentVolumeClaim": {"claimName": "data"}},
        {"name": "x", "csi": {"driver": "d", "nodePublishSecretRef": {"name": "published"}}},
    ],
}  # fmt: skip


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """A server as its administrator sees it, with a pod on each of two nodes."""
    directory: Path = tmp_path_factory.mktemp("kubelet")
    (directory / "tokens.csv").write_text(TOKENS)
    with running_apiserver(directory, token_file=directory / "tokens.csv") as server:
        api = Api(server)
        api.ok("POST", "/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "builder"}})
        for name in ("mounted", "from-env", "pull", "projected", "published"):
            api.ok("POST", SECRETS, {"metadata": {"name": name}})
        for name in ("settings", "other"):
            api.ok("POST", "/api/v1/namespaces/default/configmaps", {"metadata": {"name": name}})
        claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, "volumeName": "pv1"}
        claims = "/api/v1/namespaces/default/persistentvolumeclaims"
        api.ok("POST", claims, {"metadata": {"name": "data"}, "spec": claim})
        for name in ("pv1", "pv2"):
            volume = {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "hostPath": {"path": "/x"}}
            body = {"metadata": {"name": name}, "spec": volume}
            api.ok("POST", "/api/v1/persistentvolumes", body)
        api.ok("POST", PODS, {"metadata": {"name": "mine"}, "spec": {**POD, "nodeName": "n1"}})
        containers = [{"name": "c", "image": "i"}]
        api.ok("POST", PODS, {"metadata": {"name": "theirs"}, "spec": {"containers": containers, "nodeName": "n2"}})
        api.ok("POST", "/api/v1/nodes", {"metadata": {"name": "n2"}})
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:node"}
        users = [{"kind": "User", "name": f"system:node:{name}"} for name in ("n1", "n2")]
        body = {"metadata": {"name": "kubelets"}, "roleRef": role, "subjects": users}
        api.ok("POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", body)
        yield api


def _protobuf(api: Api, method: str, path: str, body: Any) -> tuple[int, Any]:
    """A write as client-go's typed clients send it."""
    answer = api.raw(method, path, encode_envelope(body), Content_Type=PROTOBUF, Accept=PROTOBUF)
    return answer.status, decode_envelope(answer.read())


def test_a_kubelet_starts_and_keeps_its_node(cluster: Api) -> None:
    """The requests of a kubelet's start, in their order; it ends when it cannot make its CSINode."""
    kubelet = cluster.as_user("n1")
    for path in (
        "/api/v1/nodes?fieldSelector=metadata.name%3Dn1", "/api/v1/services",
        "/api/v1/pods?fieldSelector=spec.nodeName%3Dn1", "/apis/storage.k8s.io/v1/csidrivers",
        "/apis/node.k8s.io/v1/runtimeclasses",
    ):  # fmt: skip
        for accept in (f"{PROTOBUF},application/json", PROTOBUF):
            assert kubelet.raw("GET", path, Accept=accept).status == 200, path
        watched = f"{path}{'&' if '?' in path else '?'}watch=1&timeoutSeconds=1&allowWatchBookmarks=true"
        assert kubelet.raw("GET", watched, Accept=f"{PROTOBUF};stream=watch,application/json").status == 200, path
    node = {"kind": "Node", "apiVersion": "v1", "metadata": {"name": "n1", "labels": {"kubernetes.io/hostname": "n1"}}}
    status, made = _protobuf(kubelet, "POST", "/api/v1/nodes", node)
    assert (status, made["metadata"]["name"]) == (201, "n1")
    conditions = [{"type": "Ready", "status": "True", "reason": "KubeletReady"}]
    change = {"status": {"$setElementOrder/conditions": [{"type": "Ready"}], "conditions": conditions}}
    assert kubelet("PATCH", "/api/v1/nodes/n1/status", change, STRATEGIC)[0] == 200
    owner = {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": made["metadata"]["uid"]}
    lease = {
        "kind": "Lease", "apiVersion": "coordination.k8s.io/v1",
        "metadata": {"name": "n1", "namespace": "kube-node-lease", "ownerReferences": [owner]},
        "spec": {"holderIdentity": "n1", "leaseDurationSeconds": 40, "renewTime": "2026-01-01T00:00:00.000000Z"},
    }  # fmt: skip
    assert kubelet("GET", f"{LEASES}/n1")[0] == 404
    status, held = _protobuf(kubelet, "POST", LEASES, lease)
    assert status == 201
    assert _protobuf(kubelet, "PUT", f"{LEASES}/n1", held)[0] == 200
    assert kubelet("GET", f"{CSINODES}/n1")[0] == 404
    csi = {
        "kind": "CSINode", "apiVersion": "storage.k8s.io/v1", "spec": {},
        "metadata": {"name": "n1", "ownerReferences": [owner],
                     "annotations": {"storage.alpha.kubernetes.io/migrated-plugins": "kubernetes.io/nfs"}},
    }  # fmt: skip
    status, found = _protobuf(kubelet, "POST", CSINODES, csi)
    assert status == 201
    driver = {"name": "d.example.org", "nodeID": "n1", "topologyKeys": ["zone"], "allocatable": {"count": 0}}
    status, found = _protobuf(kubelet, "PUT", f"{CSINODES}/n1", {**found, "spec": {"drivers": [driver]}})
    assert (status, found["spec"]["drivers"]) == (200, [driver])
    assert kubelet.ok("GET", f"{CSINODES}/n1")["spec"]["drivers"] == [driver]
    event = {
        "kind": "Event", "apiVersion": "v1", "metadata": {"name": "e", "namespace": "default"},
        "involvedObject": {"kind": "Node", "name": "n1"}, "reason": "Starting", "source": {"component": "kubelet"},
    }  # fmt: skip
    assert _protobuf(kubelet, "POST", "/api/v1/namespaces/default/events", event)[0] == 201


def test_a_kubelet_runs_its_pods(cluster: Api) -> None:
    kubelet = cluster.as_user("n1")
    mine = kubelet.ok("GET", f"{PODS}/mine")
    running = {"status": {"phase": "Running", "podIP": "10.0.0.9", "podIPs": [{"ip": "10.0.0.9"}]}}
    assert kubelet("PATCH", f"{PODS}/mine/status", running, STRATEGIC)[0] == 200
    for name in ("mounted", "from-env", "pull", "projected", "published"):
        assert kubelet("GET", f"{SECRETS}/{name}")[0] == 200
        query = f"fieldSelector=metadata.name%3D{name}&watch=1&timeoutSeconds=1"
        assert kubelet.raw("GET", f"{SECRETS}?{query}").status == 200
    assert kubelet("GET", "/api/v1/namespaces/default/configmaps/settings")[0] == 200
    assert kubelet("GET", "/api/v1/namespaces/default/persistentvolumeclaims/data")[0] == 200
    assert kubelet("GET", "/api/v1/persistentvolumes/pv1")[0] == 200
    bound = {"apiVersion": "v1", "kind": "Pod", "name": "mine", "uid": mine["metadata"]["uid"]}
    asked = {"spec": {"audiences": ["https://kubernetes.default.svc"], "boundObjectRef": bound}}
    path = "/api/v1/namespaces/default/serviceaccounts/builder/token"
    status, answer = kubelet("POST", path, asked)
    assert status == 201
    assert answer["status"]["token"].count(".") == 2
    assert kubelet("POST", "/api/v1/nodes", {"metadata": {"name": "n1"}})[0] in (201, 409)
    meta = {"name": "static-n1", "annotations": {"kubernetes.io/config.mirror": "x"}}
    spec: Any = {"containers": [{"name": "c", "image": "i"}], "nodeName": "n1"}
    assert kubelet("POST", PODS, {"metadata": meta, "spec": spec})[0] == 201
    gone = {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0}
    assert kubelet("DELETE", f"{PODS}/static-n1", gone)[0] == 200


def test_a_kubelet_that_nobody_has_bound_may_nothing(cluster: Api) -> None:
    assert cluster.as_user("odd")("GET", "/api/v1/nodes")[0] == 403
    assert cluster.as_user("n1")("DELETE", "/api/v1/nodes/n2")[0] == 403


@pytest.mark.parametrize(
    ("path", "body", "defaults"),
    [
        ("/apis/storage.k8s.io/v1/csidrivers", {"spec": {}},
         {"spec": {"attachRequired": True, "podInfoOnMount": False, "volumeLifecycleModes": ["Persistent"],
                   "storageCapacity": False, "fsGroupPolicy": "ReadWriteOnceWithFSType", "requiresRepublish": False,
                   "seLinuxMount": False}}),
        ("/apis/storage.k8s.io/v1/storageclasses", {"provisioner": "a/b"},
         {"reclaimPolicy": "Delete", "volumeBindingMode": "Immediate"}),
        ("/api/v1/namespaces/default/replicationcontrollers",
         {"spec": {"template": {
             "metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}},
         {"status": {"replicas": 0}}),
        ("/apis/apps/v1/namespaces/default/statefulsets",
         {"spec": {"serviceName": "s", "selector": {"matchLabels": {"a": "b"}}, "template": {
             "metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}},
         {"status": {"replicas": 0, "availableReplicas": 0}}),
        ("/apis/policy/v1/namespaces/default/poddisruptionbudgets", {"spec": {"minAvailable": 1}},
         {"status": {"currentHealthy": 0, "desiredHealthy": 0, "disruptionsAllowed": 0, "expectedPods": 0}}),
        ("/apis/node.k8s.io/v1/runtimeclasses", {"handler": "runc"}, {"handler": "runc"}),
        ("/apis/resource.k8s.io/v1/namespaces/default/resourceclaims",
         {"spec": {"devices": {"requests": [{"name": "a", "exactly": {"deviceClassName": "gpu"}}]}}}, {"status": {}}),
    ],
)  # fmt: skip
def test_defaults(cluster: Api, path: str, body: Any, defaults: Any) -> None:
    made = cluster.ok("POST", path, {"metadata": {"name": "made"}, **body})
    assert {key: made[key] for key in defaults} == defaults
