"""ResourceQuotas enforced and counted (specs: [sig-api-machinery] ResourceQuota, kubernetes/kubernetes)."""

from __future__ import annotations

from typing import Any

import pytest

from kproxy.apiserver.registry.quotas import concerns, usage_of
from tests.support.apiserver.server import Api

HARD = {
    "pods": "2", "services": "3", "services.nodeports": "1", "services.loadbalancers": "1", "secrets": "2",
    "replicationcontrollers": "10", "resourcequotas": "1", "configmaps": "2", "persistentvolumeclaims": "10",
    "requests.storage": "10Gi", "gold.storageclass.storage.k8s.io/requests.storage": "1Gi",
    "count/replicasets.apps": "5", "cpu": "1", "memory": "500Mi", "requests.ephemeral-storage": "50Gi",
    "requests.example.com/dongle": "3",
}  # fmt: skip


class Limited:
    """A namespace with a quota, and what it is used for."""

    def __init__(self, api: Api, name: str) -> None:
        self.api = api
        self.path = f"/api/v1/namespaces/{name}"
        api.ok("POST", "/api/v1/namespaces", {"metadata": {"name": name}})

    def quota(self, hard: Any, name: str = "q", **spec: Any) -> None:
        """Makes a quota, and waits until its status is counted."""
        body = {"metadata": {"name": name}, "spec": {"hard": hard, **spec}}
        self.api.ok("POST", f"{self.path}/resourcequotas", body)
        self.api.eventually(f"{self.path}/resourcequotas/{name}", lambda got: got["status"].get("hard") == hard)

    def used(self, name: str = "q") -> dict[str, str]:
        """What a quota says is used, of what is used at all."""
        status = self.api.ok("GET", f"{self.path}/resourcequotas/{name}")["status"]
        return {key: amount for key, amount in status["used"].items() if amount != "0"}

    def freed(self, wanted: dict[str, str], name: str = "q") -> None:
        """Waits until no more than that is used."""
        self.api.eventually(
            f"{self.path}/resourcequotas/{name}",
            lambda got: {key: amount for key, amount in got["status"]["used"].items() if amount != "0"} == wanted,
        )

    def refused(self, path: str, body: Any) -> str:
        status, answer = self.api("POST", f"{self.path}/{path}", body)
        assert (status, answer["reason"]) == (403, "Forbidden")
        message: str = answer["message"]
        return message


@pytest.fixture
def limited(shared: Api, request: pytest.FixtureRequest) -> Limited:
    return Limited(shared, "".join(each for each in request.node.name.lower() if each.isalnum())[:50])


def pod(name: str, requests: Any = None, limits: Any = None, **spec: Any) -> dict[str, Any]:
    given = {key: item for key, item in (("requests", requests), ("limits", limits)) if item}
    return {
        "metadata": {"name": name},
        "spec": {"containers": [{"name": "c", "image": "i", "resources": given}], **spec},
    }


def service(name: str, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"ports": [{"port": 80}], **spec}}


def test_the_life_of_a_pod(limited: Limited) -> None:
    """Spec: ResourceQuota should create a ResourceQuota and capture the life of a pod."""
    limited.quota(HARD)
    none = {"resourcequotas": "1"}
    assert limited.used() == none
    first = {"cpu": "500m", "memory": "252Mi", "ephemeral-storage": "30Gi", "example.com/dongle": "2"}
    limited.api.ok("POST", f"{limited.path}/pods", pod("first", first, {"example.com/dongle": "2"}))
    used = none | {
        "pods": "1", "cpu": "500m", "memory": "252Mi", "requests.ephemeral-storage": "30Gi",
        "requests.example.com/dongle": "2",
    }  # fmt: skip
    assert limited.used() == used
    assert limited.refused("pods", pod("second", {"cpu": "600m", "memory": "100Mi"})) == (
        'pods "second" is forbidden: exceeded quota: q, requested: cpu=600m, used: cpu=500m, limited: cpu=1'
    )
    both = {"cpu": "500m", "memory": "100Mi", "ephemeral-storage": "30Gi", "example.com/dongle": "2"}
    assert limited.refused("pods", pod("second", both, {"example.com/dongle": "2"})) == (
        'pods "second" is forbidden: exceeded quota: q, '
        "requested: requests.ephemeral-storage=30Gi,requests.example.com/dongle=2, "
        "used: requests.ephemeral-storage=30Gi,requests.example.com/dongle=2, "
        "limited: requests.ephemeral-storage=50Gi,requests.example.com/dongle=3"
    )
    assert limited.refused("pods", pod("second")) == (
        'pods "second" is forbidden: failed quota: q: must specify cpu for: c; memory for: c'
    )
    change = [{"op": "replace", "path": "/spec/containers/0/resources/requests/cpu", "value": "100m"}]
    status, _ = limited.api("PATCH", f"{limited.path}/pods/first", change, "application/json-patch+json")
    assert (status, limited.used()) == (422, used)
    limited.api.ok("POST", f"{limited.path}/pods?dryRun=All", pod("other", {"cpu": "1m", "memory": "1Mi"}))
    assert limited.used() == used
    limited.api.ok("DELETE", f"{limited.path}/pods/first")
    limited.freed(none)


def test_a_pod_that_has_ended_uses_nothing(limited: Limited) -> None:
    limited.quota({"pods": "1", "count/pods": "5"})
    limited.api.ok("POST", f"{limited.path}/pods", pod("p"))
    body = {"status": {"phase": "Succeeded"}}
    limited.api.ok("PATCH", f"{limited.path}/pods/p/status", body, "application/merge-patch+json")
    limited.freed({"count/pods": "1"})
    limited.api.ok("POST", f"{limited.path}/pods", pod("after"))


def test_the_life_of_services_and_claims(limited: Limited) -> None:
    """Spec: ResourceQuota should create a ResourceQuota and capture the life of a service; of a persistent volume
    claim with a storage class."""
    limited.quota(HARD)
    none = {"resourcequotas": "1"}
    for name, kind in (("cluster", "ClusterIP"), ("node", "NodePort")):
        limited.api.ok("POST", f"{limited.path}/services", service(name, type=kind))
    assert limited.used() == none | {"services": "2", "services.nodeports": "1"}
    assert "exceeded quota: q, requested: services.nodeports=1, used: services.nodeports=1" in limited.refused(
        "services", service("lb", type="LoadBalancer")
    )
    limited.api.ok(
        "POST", f"{limited.path}/services", service("lb", type="LoadBalancer", allocateLoadBalancerNodePorts=False)
    )
    status, _ = limited.api("PATCH", f"{limited.path}/services/cluster", {"spec": {"type": "NodePort"}},
                            "application/merge-patch+json")  # fmt: skip
    assert status == 403
    limited.api.ok(
        "PATCH", f"{limited.path}/services/node", {"spec": {"type": "ClusterIP"}}, "application/merge-patch+json"
    )
    limited.freed(none | {"services": "3", "services.loadbalancers": "1"})
    claim = {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "gold",
        "resources": {"requests": {"storage": "1Gi"}},
    }
    path = f"{limited.path}/persistentvolumeclaims"
    limited.api.ok("POST", path, {"metadata": {"name": "c"}, "spec": claim})
    assert (
        limited.used()["gold.storageclass.storage.k8s.io/requests.storage"]
        == limited.used()["requests.storage"]
        == "1Gi"
    )
    limited.refused("persistentvolumeclaims", {"metadata": {"name": "d"}, "spec": claim})
    limited.api.ok("DELETE", limited.path + "/services")
    limited.api.ok("DELETE", path + "/c")
    limited.freed(none)


@pytest.mark.parametrize(
    ("path", "name", "spec"),
    [
        ("/api/v1/namespaces/{}/secrets", "secrets", {}),
        ("/api/v1/namespaces/{}/configmaps", "configmaps", {}),
        ("/api/v1/namespaces/{}/replicationcontrollers", "replicationcontrollers", {"replicas": 0}),
        ("/apis/apps/v1/namespaces/{}/replicasets", "count/replicasets.apps", {"replicas": 0}),
        ("/apis/coordination.k8s.io/v1/namespaces/{}/leases", "count/leases.coordination.k8s.io", {}),
    ],
)
def test_the_life_of_anything(limited: Limited, path: str, name: str, spec: Any) -> None:
    """Spec: ResourceQuota should create a ResourceQuota and capture the life of a secret; of a configMap; of a
    replication controller; of a replica set."""
    path = path.format(limited.path.rpartition("/")[2])
    template = {"metadata": {"labels": {"a": "b"}}, "spec": pod("p")["spec"]}
    if spec:
        spec |= {
            "template": template,
            "selector": {"a": "b"} if "replicationc" in path else {"matchLabels": {"a": "b"}},
        }
    limited.api.ok("POST", path, {"metadata": {"name": "before"}, **({"spec": spec} if spec else {})})
    limited.quota({name: "2"})
    assert limited.used() == {name: "1"}
    limited.api.ok("POST", path, {"metadata": {"name": "one"}, **({"spec": spec} if spec else {})})
    assert limited.used() == {name: "2"}
    status, answer = limited.api("POST", path, {"metadata": {"name": "two"}, **({"spec": spec} if spec else {})})
    assert (status, answer["message"].partition(": ")[2]) == (
        403, f"exceeded quota: q, requested: {name}=1, used: {name}=2, limited: {name}=2",
    )  # fmt: skip
    limited.api.ok("DELETE", path + "/one")
    limited.freed({name: "1"})


def test_scopes(limited: Limited) -> None:
    """Specs: ResourceQuota should verify ResourceQuota with terminating scopes; with best effort scope."""
    for scope in ("Terminating", "NotTerminating", "BestEffort", "NotBestEffort"):
        limited.quota({"pods": "5"}, scope.lower(), scopes=[scope])
    for name, body, scopes in (
        ("plain", pod("plain"), ("notterminating", "besteffort")),
        ("late", pod("late", {"cpu": "1"}, activeDeadlineSeconds=3600), ("terminating", "notbesteffort")),
    ):
        limited.api.ok("POST", f"{limited.path}/pods", body)
        used = {each: limited.used(each) for each in ("terminating", "notterminating", "besteffort", "notbesteffort")}
        assert {each for each, amounts in used.items() if amounts == {"pods": "1"}} == set(scopes)
        limited.api.ok("DELETE", f"{limited.path}/pods/{name}")
        for each in scopes:
            limited.freed({}, each)


def test_a_status_that_somebody_writes_stays(limited: Limited) -> None:
    """Spec: ResourceQuota should apply changes to a resourcequota status."""
    limited.quota({"cpu": "500m", "memory": "500Mi"})
    path, merge = f"{limited.path}/resourcequotas/q", "application/merge-patch+json"
    limited.api.ok("PATCH", path, {"metadata": {"labels": {"a": "b"}}, "spec": {"hard": {"cpu": "750m"}}}, merge)
    limited.api.eventually(path, lambda got: got["status"]["hard"] == {"cpu": "750m", "memory": "500Mi"})
    limited.api.ok("PATCH", path + "/status", {"status": {"hard": {"cpu": "1"}}}, merge)
    limited.api.ok("PATCH", path, {"metadata": {"labels": {"a": "c"}}}, merge)
    got = limited.api.ok("GET", path + "/status")
    assert (got["status"]["hard"]["cpu"], got["spec"]["hard"]["cpu"]) == ("1", "750m")


def test_scopes_by_priority_and_affinity() -> None:
    def scope(**term: Any) -> Any:
        return {"spec": {"scopeSelector": {"matchExpressions": [term]}}}

    high = {"spec": {"priorityClassName": "high", "containers": []}}
    among = scope(scopeName="PriorityClass", operator="In", values=["high"])
    outside = scope(scopeName="PriorityClass", operator="NotIn", values=["high"])
    assert [concerns(each, "pods", high) for each in (among, outside)] == [True, False]
    assert not concerns(among, "services", {"spec": {}})
    crossing = scope(scopeName="CrossNamespacePodAffinity", operator="Exists")
    term = {"topologyKey": "t", "namespaces": ["other"]}
    rules = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    assert concerns(crossing, "pods", {"spec": {"affinity": rules}})
    assert not concerns(crossing, "pods", high)


def test_claims_by_the_class_of_their_volumes_attributes(limited: Limited) -> None:
    """Spec: ResourceQuota should verify ResourceQuota's volume attributes class scope against a pvc with the class."""
    gold = {"scopeName": "VolumeAttributesClass", "operator": "In", "values": ["gold"]}
    limited.quota({"persistentvolumeclaims": "1"}, scopeSelector={"matchExpressions": [gold]})

    def claim(name: str, **spec: str) -> int:
        size = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
        body = {"metadata": {"name": name}, "spec": {**size, **spec}}
        return limited.api("POST", f"{limited.path}/persistentvolumeclaims", body)[0]

    assert [claim("none"), claim("tin", volumeAttributesClassName="tin")] == [201, 201]
    assert limited.used() == {}
    assert claim("first", volumeAttributesClassName="gold") == 201
    assert limited.used() == {"persistentvolumeclaims": "1"}
    assert claim("second", volumeAttributesClassName="gold") == 403
    old = {"spec": {}, "status": {"modifyVolumeStatus": {"targetVolumeAttributesClassName": "gold"}}}
    assert concerns({"spec": {"scopeSelector": {"matchExpressions": [gold]}}}, "persistentvolumeclaims", old)


def test_devices_of_a_claim() -> None:
    requests = [
        {"exactly": {"deviceClassName": "gold", "count": 2}},
        {
            "firstAvailable": [
                {"deviceClassName": "gold", "count": 4},
                {"deviceClassName": "tin", "allocationMode": "All"},
            ]
        },
    ]
    assert usage_of("resourceclaims.resource.k8s.io", {"spec": {"devices": {"requests": requests}}}) == {
        "count/resourceclaims.resource.k8s.io": "1", "gold.deviceclass.resource.k8s.io/devices": "6",
        "tin.deviceclass.resource.k8s.io/devices": "32",
    }  # fmt: skip
