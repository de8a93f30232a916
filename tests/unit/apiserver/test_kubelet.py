"""What a kubelet and kube-scheduler v1.36 ask for from their start: kinds, rights, and protobuf bodies.

[sig-auth] Node Authorizer: getting a non-existent secret should exit with the Forbidden error, getting a secret for a
workload the node has access to should succeed, a node shouldn't be able to create another node, a node shouldn't be
able to delete another node.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kproxy.apiserver import running_apiserver
from kproxy.apiserver.auth.node import references
from kproxy.apiserver.schema.protobuf.decoder import decode_envelope
from kproxy.apiserver.schema.protobuf.encoder import encode_envelope
from tests.support.apiserver.server import Api

TOKENS = """\
admin-token,admin,uid1,"system:masters"
n1,system:node:n1,uid2,"system:nodes"
n2,system:node:n2,uid3,"system:nodes"
odd,kubelet,uid4,"system:nodes"
scheduler,system:kube-scheduler,uid5
controllers,system:kube-controller-manager,uid6
"""
PROTOBUF = "application/vnd.kubernetes.protobuf"
PODS, SECRETS = "/api/v1/namespaces/default/pods", "/api/v1/namespaces/default/secrets"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
CSINODES = "/apis/storage.k8s.io/v1/csinodes"
CLAIM = "/api/v1/namespaces/default/persistentvolumeclaims/data"
SLICES = "/apis/resource.k8s.io/v1/resourceslices"
BUILDER = "/api/v1/namespaces/default/serviceaccounts/builder"
MINE = {"apiVersion": "v1", "kind": "Pod", "name": "mine"}
NODE_ROLE = "node-role.kubernetes.io/control-plane"
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
        for name in ("mounted", "from-env", "pull", "projected", "published", "foreign"):
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
        api.ok("POST", SLICES, _slice("theirs", "n2"))
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
    uid = kubelet.ok("GET", "/api/v1/nodes/n1")["metadata"]["uid"]
    owner = {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": uid, "controller": True}
    meta = {"name": "static-n1", "annotations": {"kubernetes.io/config.mirror": "x"}}
    spec: Any = {"containers": [{"name": "c", "image": "i"}], "nodeName": "n1"}
    mirror: Any = {"metadata": meta | {"ownerReferences": [owner]}, "spec": spec}
    trust = {"sources": [{"clusterTrustBundle": {"name": "x", "path": "t"}}]}
    for odd in (
        {"metadata": meta}, {"metadata": meta | {"ownerReferences": [owner | {"uid": "u"}]}},
        {"spec": spec | {"volumes": [{"name": "v", "projected": trust}]}},
        {"spec": spec | {"resourceClaims": [{"name": "a", "resourceClaimName": "b"}]}},
    ):  # fmt: skip
        assert kubelet("POST", PODS, mirror | odd)[0] == 403
    assert kubelet("POST", PODS, mirror)[0] == 201
    other = {"metadata": {"ownerReferences": [owner | {"uid": "u"}]}}
    assert kubelet("PATCH", f"{PODS}/static-n1/status", other, MERGE)[0] == 200
    assert cluster.ok("GET", f"{PODS}/static-n1")["metadata"]["ownerReferences"] == [owner]
    gone = {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0}
    assert kubelet("DELETE", f"{PODS}/static-n1", gone)[0] == 200


def test_a_kubelet_writes_its_own_resource_slices_and_how_claims_grow(cluster: Api) -> None:
    for node in ("n1", "n2"):
        cluster.ok("POST", SLICES, _slice(f"deleted-{node}", node))
    kubelet = cluster.as_user("n1")
    assert kubelet("DELETE", SLICES)[0] == 403
    assert kubelet("DELETE", f"{SLICES}?fieldSelector=spec.nodeName=n2")[0] == 403
    assert kubelet("DELETE", f"{SLICES}?fieldSelector=spec.nodeName=n1")[0] == 200
    assert cluster("GET", f"{SLICES}/deleted-n2")[0] == 200
    assert kubelet("POST", SLICES, _slice("mine", "n1"))[0] == 201
    assert kubelet("PATCH", f"{SLICES}/mine", {"metadata": {"labels": {"a": "b"}}}, MERGE)[0] == 200
    assert kubelet("DELETE", f"{SLICES}/mine")[0] == 200
    grown = {"status": {"capacity": {"storage": "2Gi"}}}
    assert kubelet("PATCH", f"{CLAIM}/status", grown, MERGE)[0] == 200


def _slice(name: str, node: str) -> Any:
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "d.example.com", "nodeName": node, "pool": pool, "devices": [{"name": "d"}]}
    return {"metadata": {"name": name}, "spec": spec}


FORBIDDEN: list[tuple[str, str, Any, str]] = [
    ("GET", f"{SECRETS}/foreign", None, "no relationship found between node 'n1' and this object"),
    ("GET", f"{SECRETS}/absent", None, "no relationship found between node 'n1' and this object"),
    ("GET", SECRETS, None, "can only read namespaced object of this type"),
    ("GET", "/api/v1/secrets", None, "can only read namespaced object of this type"),
    ("GET", "/api/v1/namespaces/default/configmaps/other", None, "no relationship found"),
    ("GET", "/api/v1/persistentvolumes/pv2", None, "no relationship found"),
    ("POST", SECRETS, {"metadata": {"name": "x"}}, 'cannot create resource "secrets"'),
    ("POST", "/api/v1/namespaces/default/serviceaccounts/default/token", {"spec": {}}, "no relationship found"),
    ("POST", "/api/v1/nodes", {"metadata": {"name": "n3"}}, 'node "n1" is not allowed to modify node "n3"'),
    ("PATCH", "/api/v1/nodes/n2", {"spec": {"unschedulable": True}}, 'is not allowed to modify node "n2"'),
    ("PATCH", "/api/v1/nodes/n2/status", {"status": {}}, 'is not allowed to modify node "n2"'),
    ("DELETE", "/api/v1/nodes/n2", None, 'cannot delete resource "nodes"'),
    ("PUT", f"{LEASES}/n2", {"metadata": {"name": "n2"}}, "with the same name as the requesting node"),
    ("GET", f"{LEASES.replace('kube-node-lease', 'default')}/n1", None, 'in the "kube-node-lease" system namespace'),
    ("POST", LEASES, {"metadata": {"name": "n2"}}, "with the same name as the requesting node"),
    (
        "POST",
        CSINODES,
        {"metadata": {"name": "n2"}, "spec": {"drivers": []}},
        "with the same name as the requesting node",
    ),
    ("POST", f"{BUILDER}/token", {"spec": {}}, "node requested token not bound to a pod"),
    ("POST", f"{BUILDER}/token", {"spec": {"boundObjectRef": MINE}}, "a pod binding without a uid"),
    (
        "POST",
        f"{BUILDER}/token",
        {"spec": {"boundObjectRef": {**MINE, "name": "theirs", "uid": "u"}}},
        "a different node",
    ),
    ("PATCH", f"{PODS}/mine/status", {"metadata": {"labels": {"app": "x"}}}, "cannot update labels through pod status"),
    ("GET", f"{CSINODES}/n2", None, "with the same name as the requesting node"),
    ("PATCH", f"{PODS}/theirs/status", {"status": {"phase": "Failed"}}, "with spec.nodeName set to itself"),
    ("DELETE", f"{PODS}/theirs", None, "with spec.nodeName set to itself"),
    ("POST", PODS, {"metadata": {"name": "x"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}, "mirror pods"),
    ("POST", f"{PODS}/theirs/binding", {"target": {"name": "n1"}}, 'cannot create resource "pods/binding"'),
    ("GET", "/api/v1/secrets?fieldSelector=metadata.name=mounted", None, "can only read namespaced object"),
    ("POST", SLICES, _slice("x", "n2"), "with the same NodeName"),
    ("GET", f"{SLICES}/theirs", None, "no relationship found"),
    ("PATCH", f"{SLICES}/theirs", {"metadata": {"labels": {"a": "b"}}}, "no relationship found"),
    ("DELETE", f"{SLICES}/theirs", None, "no relationship found"),
    ("PATCH", f"{CLAIM}/status", {"metadata": {"labels": {"a": "b"}}}, "fields other than status.capacity"),
    ("PATCH", f"{CLAIM}/status", {"status": {"phase": "Lost"}}, "fields other than status.capacity"),
    (
        "PATCH",
        f"{PODS}/mine/status",
        {"status": {"resourceClaimStatuses": [{"name": "a", "resourceClaimName": "b"}]}},
        "cannot update resource claim statuses",
    ),
    ("GET", "/apis/rbac.authorization.k8s.io/v1/clusterroles", None, 'cannot list resource "clusterroles"'),
]


@pytest.mark.parametrize(("method", "path", "body", "message"), FORBIDDEN)
def test_what_a_kubelet_may_not(cluster: Api, method: str, path: str, body: Any, message: str) -> None:
    kubelet = cluster.as_user("n1")
    media = MERGE if method == "PATCH" else "application/json"
    status, answer = kubelet(method, path, body, media)
    assert status == 403, answer
    assert message in answer["message"]
    assert 'User "system:node:n1"' in answer["message"] or "is forbidden: " in answer["message"]


def test_labels_that_kubelets_may_not_set(cluster: Api) -> None:
    kubelet = cluster.as_user("n2")
    for name in ("node-restriction.kubernetes.io/secure", "a.node-restriction.kubernetes.io/b", NODE_ROLE):
        status, answer = kubelet("PATCH", "/api/v1/nodes/n2", {"metadata": {"labels": {name: ""}}}, MERGE)
        assert status == 403
        assert f"is not allowed to modify labels: {name}" in answer["message"]
    allowed = {"topology.kubernetes.io/zone": "a", "node.kubernetes.io/x": "", "example.org/k8s.io": ""}
    assert kubelet("PATCH", "/api/v1/nodes/n2", {"metadata": {"labels": allowed}}, MERGE)[0] == 200
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": "u"}
    status, answer = kubelet("PATCH", "/api/v1/nodes/n2", {"metadata": {"ownerReferences": [owner]}}, MERGE)
    assert (status, "is not allowed to modify ownerReferences" in answer["message"]) == (403, True)
    assert kubelet("PATCH", "/api/v1/nodes/n2", {"metadata": {"labels": {"a": "b"}}}, MERGE)[0] == 200
    assert (
        kubelet("PATCH", "/api/v1/nodes/n2", {"spec": {"taints": [{"key": "a", "effect": "NoExecute"}]}}, MERGE)[0]
        == 403
    )


def test_rights_follow_the_pods(cluster: Api) -> None:
    """What a kubelet may read begins with a pod on its node and ends with it."""
    cluster.ok("POST", SECRETS, {"metadata": {"name": "moving"}})
    kubelet = cluster.as_user("n2")
    assert kubelet("GET", f"{SECRETS}/moving")[0] == 403
    spec = {"containers": [{"name": "c", "image": "i", "envFrom": [{"secretRef": {"name": "moving"}}]}]}
    cluster.ok("POST", PODS, {"metadata": {"name": "moving"}, "spec": spec})
    assert kubelet("GET", f"{SECRETS}/moving")[0] == 403
    cluster.ok("POST", f"{PODS}/moving/binding", {"metadata": {"name": "moving"}, "target": {"name": "n2"}})
    assert kubelet("GET", f"{SECRETS}/moving")[0] == 200
    cluster.ok("DELETE", f"{PODS}/moving?gracePeriodSeconds=0")
    assert kubelet("GET", f"{SECRETS}/moving")[0] == 403


def test_the_group_alone_is_no_kubelet(cluster: Api) -> None:
    assert cluster.as_user("odd")("GET", "/api/v1/nodes")[0] == 403


def test_a_controller_manager_reads_all_and_gives_out_accounts(cluster: Api) -> None:
    """What kubernetes/kubernetes grants system:kube-controller-manager in its bootstrap policy."""
    manager = cluster.as_user("controllers")
    for path in ("/api/v1/nodes", "/api/v1/secrets", "/apis/apps/v1/deployments"):
        assert manager("GET", path)[0] == 200
    lease = {"metadata": {"name": "kube-controller-manager"}, "spec": {"holderIdentity": "m"}}
    leases = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
    made = manager.ok("POST", leases, lease)
    assert manager("PUT", f"{leases}/kube-controller-manager", made)[0] == 200
    assert manager("GET", f"{leases}/other")[0] == 403
    accounts = "/api/v1/namespaces/kube-system/serviceaccounts"
    manager.ok("POST", accounts, {"metadata": {"name": "deployment-controller"}})
    answer = manager.ok("POST", f"{accounts}/deployment-controller/token", {"spec": {}})
    assert answer["status"]["token"]
    assert manager("POST", PODS, {"metadata": {"name": "own"}, "spec": {"containers": []}})[0] == 403


@pytest.mark.slow
def test_a_scheduler_starts_and_binds(cluster: Api) -> None:
    """What kube-scheduler's informers list before it begins, and what it writes."""
    scheduler = cluster.as_user("scheduler")
    core = ("nodes", "pods", "services", "replicationcontrollers", "persistentvolumeclaims", "namespaces")
    paths = [f"/api/v1/{name}" for name in (*core, "persistentvolumes")]
    paths += [f"/apis/apps/v1/{name}" for name in ("replicasets", "statefulsets")]
    storage = ("csinodes", "csidrivers", "csistoragecapacities", "storageclasses", "volumeattachments")
    paths += [f"/apis/storage.k8s.io/v1/{name}" for name in storage]
    paths += [f"/apis/resource.k8s.io/v1/{name}" for name in ("resourceclaims", "resourceslices", "deviceclasses")]
    for path in [*paths, "/apis/policy/v1/poddisruptionbudgets"]:
        assert scheduler.raw("GET", path, Accept=f"{PROTOBUF},application/json").status == 200, path
        query = (
            "watch=1&timeoutSeconds=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
        )
        answer = scheduler.raw("GET", f"{path}?{query}", Accept="application/json")
        last = json.loads(answer.read().splitlines()[-1])
        assert (answer.status, last["type"]) == (200, "BOOKMARK"), path
    cluster.ok("POST", PODS, {"metadata": {"name": "waits"}, "spec": {"containers": [{"name": "c", "image": "i"}]}})
    binding = {
        "kind": "Binding", "apiVersion": "v1", "metadata": {"name": "waits", "namespace": "default"},
        "target": {"kind": "Node", "name": "n2"},
    }  # fmt: skip
    assert _protobuf(scheduler, "POST", f"{PODS}/waits/binding", binding)[0] == 201
    assert cluster.ok("GET", f"{PODS}/waits")["spec"]["nodeName"] == "n2"
    status = {"status": {"nominatedNodeName": "n2"}}
    assert scheduler("PATCH", f"{PODS}/waits/status", status, STRATEGIC)[0] == 200
    leases = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
    lease = {"metadata": {"name": "kube-scheduler"}, "spec": {"holderIdentity": "s"}}
    made = scheduler.ok("POST", leases, lease)
    assert scheduler("PUT", f"{leases}/kube-scheduler", made)[0] == 200
    assert scheduler("GET", f"{leases}/other")[0] == 403
    event = {
        "metadata": {"name": "s"}, "regarding": {"kind": "Pod", "name": "waits", "namespace": "default"},
        "reason": "Scheduled", "type": "Normal", "action": "Binding", "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": "default-scheduler", "reportingInstance": "s",
    }  # fmt: skip
    assert scheduler("POST", "/apis/events.k8s.io/v1/namespaces/default/events", event)[0] == 201
    assert scheduler("GET", SECRETS)[0] == 403
    assert scheduler("PATCH", "/api/v1/nodes/n2", {"spec": {"unschedulable": True}}, MERGE)[0] == 403


def test_what_a_pod_refers_to() -> None:
    assert sorted(set(references({"metadata": {"name": "p"}, "spec": POD}))) == [
        ("configmaps", "settings"), ("persistentvolumeclaims", "data"), ("secrets", "from-env"), ("secrets", "mounted"),
        ("secrets", "projected"), ("secrets", "published"), ("secrets", "pull"), ("serviceaccounts", "builder"),
    ]  # fmt: skip


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
