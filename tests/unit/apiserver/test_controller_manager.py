"""What kube-controller-manager v1.36 lists and watches when it starts is answered."""

from __future__ import annotations

import http.client
import json
import ssl
from typing import Any

import pytest

from tests.support.apiserver.server import Api

# By kube-controller-manager's names (cmd/kube-controller-manager/names): what the informers of each controller ask
# for that runs by default, and of those that --controllers can add. What they ask for only behind feature gates that
# are off is left out.
INFORMERS = """
bootstrap-signer-controller
    v1/configmaps v1/secrets
certificatesigningrequest-approving-controller
    certificates.k8s.io/v1/certificatesigningrequests
certificatesigningrequest-cleaner-controller
    certificates.k8s.io/v1/certificatesigningrequests
certificatesigningrequest-signing-controller
    certificates.k8s.io/v1/certificatesigningrequests
clusterrole-aggregation-controller
    rbac.authorization.k8s.io/v1/clusterroles
cronjob-controller
    batch/v1/cronjobs batch/v1/jobs
daemonset-controller
    apps/v1/controllerrevisions apps/v1/daemonsets v1/nodes v1/pods
deployment-controller
    apps/v1/deployments apps/v1/replicasets v1/pods
disruption-controller
    apps/v1/deployments apps/v1/replicasets apps/v1/statefulsets v1/pods policy/v1/poddisruptionbudgets
    v1/replicationcontrollers
endpoints-controller
    v1/endpoints v1/pods v1/services
endpointslice-controller
    discovery.k8s.io/v1/endpointslices v1/nodes v1/pods v1/services
endpointslice-mirroring-controller
    discovery.k8s.io/v1/endpointslices v1/endpoints v1/services
ephemeral-volume-controller
    v1/persistentvolumeclaims v1/pods
horizontal-pod-autoscaler-controller
    autoscaling/v2/horizontalpodautoscalers v1/pods
job-controller
    batch/v1/jobs v1/pods
legacy-serviceaccount-token-cleaner-controller
    v1/configmaps v1/pods v1/secrets v1/serviceaccounts
namespace-controller
    v1/namespaces
node-ipam-controller
    v1/nodes
node-lifecycle-controller
    apps/v1/daemonsets coordination.k8s.io/v1/leases v1/nodes v1/pods
persistentvolume-attach-detach-controller
    storage.k8s.io/v1/csidrivers storage.k8s.io/v1/csinodes v1/nodes v1/pods storage.k8s.io/v1/volumeattachments
    v1/persistentvolumeclaims v1/persistentvolumes
persistentvolume-binder-controller
    storage.k8s.io/v1/storageclasses v1/nodes v1/pods v1/persistentvolumeclaims v1/persistentvolumes
persistentvolume-expander-controller
    v1/persistentvolumeclaims v1/persistentvolumes
persistentvolume-protection-controller
    v1/persistentvolumes
persistentvolumeclaim-protection-controller
    v1/persistentvolumeclaims v1/pods
pod-garbage-collector-controller
    v1/nodes v1/pods
replicaset-controller
    apps/v1/replicasets v1/pods
replicationcontroller-controller
    v1/pods v1/replicationcontrollers
resourceclaim-controller
    resource.k8s.io/v1/resourceclaims resource.k8s.io/v1/resourceclaimtemplates v1/pods
resourcequota-controller
    v1/resourcequotas
root-ca-certificate-publisher-controller
    v1/configmaps v1/namespaces
selinux-warning-controller
    storage.k8s.io/v1/csidrivers v1/persistentvolumeclaims v1/persistentvolumes v1/pods
service-cidr-controller
    networking.k8s.io/v1/ipaddresses networking.k8s.io/v1/servicecidrs
serviceaccount-controller
    v1/namespaces v1/serviceaccounts
serviceaccount-token-controller
    v1/secrets v1/serviceaccounts
statefulset-controller
    apps/v1/controllerrevisions apps/v1/statefulsets v1/persistentvolumeclaims v1/pods
taint-eviction-controller
    v1/nodes v1/pods
token-cleaner-controller
    v1/secrets
ttl-after-finished-controller
    batch/v1/jobs
ttl-controller
    v1/nodes
validatingadmissionpolicy-status-controller
    admissionregistration.k8s.io/v1/validatingadmissionpolicies
volumeattributesclass-protection-controller
    storage.k8s.io/v1/volumeattributesclasses v1/persistentvolumeclaims v1/persistentvolumes
"""
ASKED = sorted({word for word in INFORMERS.split() if "/" in word})
AS_MANAGER = {"Impersonate-User": "system:kube-controller-manager"}
METADATA = "application/json;as={};g=meta.k8s.io;v=v1"


def prefix(path: str) -> str:
    return f"/api/{path}" if path.startswith("v1/") else f"/apis/{path}"


def first_events(shared: Api, path: str) -> list[Any]:
    """The events of a list that comes as a watch (client-go's WatchListClient, on by default), up to its end."""
    context = ssl.create_default_context(cafile=str(shared.server.ca))
    connection = http.client.HTTPSConnection("127.0.0.1", shared.server.port, context=context, timeout=60)
    query = "allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan&sendInitialEvents=true&watch=true"
    try:
        connection.request("GET", f"{path}?{query}", headers={"Authorization": "Bearer admin-token", **AS_MANAGER})
        answer = connection.getresponse()
        assert answer.status == 200, (path, answer.read())
        events: list[Any] = []
        while not events or events[-1]["type"] != "BOOKMARK":
            events.append(json.loads(answer.readline()))
        return events
    finally:
        connection.close()


@pytest.mark.parametrize("path", ASKED)
def test_what_informers_ask_for(shared: Api, path: str) -> None:
    """A list as a watch, and for servers that refuse it a list from the cache."""
    status, found = shared("GET", f"{prefix(path)}?limit=500&resourceVersion=0", **AS_MANAGER)
    assert (status, found["kind"][-4:]) == (200, "List")
    *_, last = first_events(shared, prefix(path))
    assert last["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}


def test_what_the_garbage_collector_and_quotas_ask_for(shared: Api) -> None:
    """Metadata alone, of everything that discovery says can be listed and watched."""
    lists = shared.ok("GET", "/apis")["groups"]
    versions = ["/api/v1", *(f"/apis/{group['preferredVersion']['groupVersion']}" for group in lists)]
    seen = 0
    for version in versions:
        for resource in shared.ok("GET", version)["resources"]:
            if {"list", "watch"} <= set(resource["verbs"]):
                accept = METADATA.format("PartialObjectMetadataList")
                status, found = shared("GET", f"{version}/{resource['name']}", Accept=accept, **AS_MANAGER)
                assert (status, found["kind"]) == (200, "PartialObjectMetadataList"), resource["name"]
                seen += 1
    assert seen > 50


def test_what_it_asks_for_itself(shared: Api) -> None:
    """The lease by which one of several leads, its events, and whether the server is ready."""
    for path in ("/healthz", "/version", "/openid/v1/jwks"):
        assert shared("GET", path)[0] == 200
    lease = {
        "metadata": {"name": "kube-controller-manager"},
        "spec": {"holderIdentity": "m", "leaseDurationSeconds": 15},
    }
    path = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
    assert shared("GET", f"{path}/kube-controller-manager", **AS_MANAGER)[1]["reason"] == "NotFound"
    assert shared("POST", path, lease, **AS_MANAGER)[0] == 201
    held = shared("GET", f"{path}/kube-controller-manager", **AS_MANAGER)[1]
    held["spec"]["holderIdentity"] = "n"
    assert shared("PUT", f"{path}/kube-controller-manager", held, **AS_MANAGER)[0] == 200
    about = {"kind": "Lease", "apiVersion": "coordination.k8s.io/v1", "name": "l", "namespace": "kube-system"}
    event = {"metadata": {"name": "led"}, "involvedObject": about, "reason": "LeaderElection", "type": "Normal"}
    assert shared("POST", "/api/v1/namespaces/kube-system/events", event, **AS_MANAGER)[0] == 201
