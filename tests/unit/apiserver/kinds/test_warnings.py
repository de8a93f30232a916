"""What the writer of an object is warned of, in Kubernetes' words."""

from __future__ import annotations

import copy
import json
import re
import time
from typing import Any

import pytest

from kproxy.apiserver.kinds.warnings import WARNINGS, warnings_for
from tests.support.apiserver.objects import objects, resources
from tests.support.apiserver.server import Api

Json = dict[str, Any]
_POD: Json = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}


def pod(*, annotations: Json | None = None, container: Json | None = None, **spec: Any) -> Json:
    made = copy.deepcopy(_POD)
    made["metadata"] |= {"annotations": annotations} if annotations else {}
    made["spec"]["containers"][0] |= container or {}
    made["spec"] |= spec
    return made


def _spread(key: str, **more: Any) -> list[Json]:
    return [{"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule", **more}]


_MASTER = {"matchExpressions": [{"key": "node-role.kubernetes.io/master", "operator": "Exists"}]}
_OLD_MASTER = (
    'node-role.kubernetes.io/master is use "node-role.kubernetes.io/control-plane" instead'  # upstream's grammar
)
_AFFINITY = "spec.affinity.nodeAffinity"
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_TWICE = [{"name": "A", "value": "1"}, {"name": "A", "value": "$(A)2"}, {"name": "A", "value": "3"}]
PODS = [
    (pod(nodeSelector={"beta.kubernetes.io/os": "linux"}),
     'spec.nodeSelector[beta.kubernetes.io/os]: deprecated since v1.14; use "kubernetes.io/os" instead'),
    (pod(affinity={"nodeAffinity": {_REQUIRED: {"nodeSelectorTerms": [_MASTER]}}}),
     f"{_AFFINITY}.{_REQUIRED}.nodeSelectorTerms[0].matchExpressions[0].key: {_OLD_MASTER}"),
    (pod(affinity={"nodeAffinity": {_PREFERRED: [
        {"weight": 1, "preference": _MASTER}]}}),
     f"{_AFFINITY}.{_PREFERRED}[0].preference.matchExpressions[0].key: {_OLD_MASTER}"),
    (pod(affinity={"podAffinity": {_PREFERRED: [
        {"weight": 1, "podAffinityTerm": {"topologyKey": "k"}}]}}),
     f"spec.affinity.podAffinity.{_PREFERRED}[0].podAffinityTerm.labelSelector: a null labelSelector results in "
     "matching no pod"),
    (pod(topologySpreadConstraints=_spread("failure-domain.beta.kubernetes.io/zone", labelSelector={})),
     "spec.topologySpreadConstraints[0].topologyKey: failure-domain.beta.kubernetes.io/zone is deprecated since v1.17; "
     'use "topology.kubernetes.io/zone" instead'),
    (pod(topologySpreadConstraints=_spread("kubernetes.io/hostname")),
     "spec.topologySpreadConstraints[0].labelSelector: a null labelSelector results in matching no pod"),
    (pod(annotations={"scheduler.alpha.kubernetes.io/critical-pod": ""}),
     "metadata.annotations[scheduler.alpha.kubernetes.io/critical-pod]: non-functional in v1.16+; use the "
     '"priorityClassName" field instead'),
    (pod(annotations={"seccomp.security.alpha.kubernetes.io/pod": "x"}),
     "metadata.annotations[seccomp.security.alpha.kubernetes.io/pod]: non-functional in v1.27+; use the "
     '"seccompProfile" field instead'),
    (pod(annotations={"container.seccomp.security.alpha.kubernetes.io/c": "x"}),
     "metadata.annotations[container.seccomp.security.alpha.kubernetes.io/c]: non-functional in v1.27+; use the "
     '"seccompProfile" field instead'),
    (pod(volumes=[{"name": "v", "gitRepo": {"repository": "x"}}]), "spec.volumes[0].gitRepo: deprecated in v1.11"),
    (pod(volumes=[{"name": "v", "configMap": {"name": "m", "items": [
        {"key": "a", "path": "x"}, {"key": "b", "path": "x/y"}, {"key": "c", "path": "xy"}]}}]),
     'volume "v" (ConfigMap "m"): overlapping paths: "x/y" with "x"'),
    (pod(volumes=[{"name": "v", "projected": {"sources": [
        {"secret": {"name": "s", "items": [{"key": "k", "path": "t"}]}}, {"serviceAccountToken": {"path": "t"}}]}}]),
     'volume "v" (Projected ServiceAccountToken): overlapping paths: "t" with "t"'),
    (pod(hostAliases=[{"ip": "192.0.2.1"}, {"ip": "192.0.2.1"}]), 'spec.hostAliases[1].ip: duplicate ip "192.0.2.1"'),
    (pod(imagePullSecrets=[{"name": "a"}, {"name": "a"}]), 'spec.imagePullSecrets[1].name: duplicate name "a"'),
    (pod(imagePullSecrets=[{}]), 'spec.imagePullSecrets[0].name: invalid empty name ""'),
    (pod(container={"resources": {"limits": {"memory": "1536"}, "requests": {"memory": "100m"}}}),
     'spec.containers[0].resources.requests[memory]: fractional byte value "100m" is invalid, must be an integer'),
    (pod(container={"env": _TWICE}),
     'spec.containers[0].env[2]: hides previous definition of "A", which may be dropped when using apply'),
    (pod(container={"ports": [{"containerPort": 80}, {"containerPort": 80, "protocol": "UDP"}, {"containerPort": 80}]}),
     "spec.containers[0].ports[2]: duplicate port definition with spec.containers[0].ports[0]"),
    (pod(container={"ports": [{"containerPort": 80}, {"containerPort": 80, "hostPort": 8080}]}),
     "spec.containers[0].ports[1]: overlapping port definition with spec.containers[0].ports[0]"),
    (pod(container={"ports": [{"containerPort": 8, "hostPort": 8}, {"containerPort": 8, "hostPort": 8,
                                                                   "hostIP": "192.0.2.1"}]}),
     "spec.containers[0].ports[1]: dangerously ambiguous port definition with spec.containers[0].ports[0]"),
    (pod(container={"ports": [{"containerPort": 80, "hostIP": "192.0.2.1"}]}),
     "spec.containers[0].ports[0]: hostIP set without hostPort: {Name: HostPort:0 ContainerPort:80 Protocol:TCP "
     "HostIP:192.0.2.1}"),
    (pod(terminationGracePeriodSeconds=-1),
     "spec.terminationGracePeriodSeconds: must be >= 0; negative values are invalid and will be treated as 1"),
]  # fmt: skip


def warned(api: Api, method: str, path: str, body: Json, media: str = "application/json") -> tuple[int, list[str]]:
    response = api.raw(method, path, json.dumps(body).encode(), Content_Type=media)
    found = [re.fullmatch(r'299 - "(.*)"', each) for each in response.headers.get_all("Warning") or ()]
    return response.status, [each[1].replace('\\"', '"') for each in found if each is not None]


@pytest.mark.parametrize(("body", "text"), PODS, ids=[text[:60] for _, text in PODS])
def test_what_is_odd_in_a_pod_is_warned_of(body: Json, text: str, shared: Api) -> None:
    """[sig-node] Pods: kubernetes/kubernetes pkg/api/pod/warnings.go; one thing is odd, so there is one warning."""
    assert warned(shared, "POST", "/api/v1/namespaces/default/pods?dryRun=All", body) == (201, [text])


TEMPLATES = {
    "Deployment": "spec.template", "ReplicaSet": "spec.template", "DaemonSet": "spec.template",
    "StatefulSet": "spec.template", "Job": "spec.template", "CronJob": "spec.jobTemplate.spec.template",
    "PodTemplate": "template", "ReplicationController": "template",
}  # fmt: skip


@pytest.mark.parametrize("kind", TEMPLATES)
def test_a_template_is_warned_of_where_it_lies_when_it_changes(kind: str) -> None:
    found: Json = copy.deepcopy(next(each for each in objects() if each["kind"] == kind))
    path = TEMPLATES[kind] if kind != "ReplicationController" else "spec.template"
    template = found
    for part in path.split("."):
        template = template[part]
    template["spec"]["nodeSelector"] = {"beta.kubernetes.io/arch": "amd64"}
    storage = resources()[found["apiVersion"], kind].storage
    deprecated = 'deprecated since v1.14; use "kubernetes.io/arch" instead'
    text = f"{TEMPLATES[kind]}.spec.nodeSelector[beta.kubernetes.io/arch]: {deprecated}"
    assert warnings_for(storage, found, None) == [text]
    found["metadata"]["generation"] = 2
    assert warnings_for(storage, found, found) == []
    assert warnings_for(storage, found, {**found, "metadata": {"generation": 1}}) == [text]


def test_no_valid_object_of_ours_is_warned_of() -> None:
    known = {resource.storage for resource in resources().values()}
    assert set(WARNINGS) <= known
    for each in objects():
        if each["kind"] not in ("Service", "Pod", "PersistentVolume"):
            assert warnings_for(resources()[each["apiVersion"], each["kind"]].storage, each, None) == [], each["kind"]


OTHERS = [
    ("Service", {"ports": [{"port": 1}], "externalIPs": ["2001:DB8::1"]},
     ['spec.externalIPs[0]: IPv6 address "2001:DB8::1" should be in RFC 5952 canonical format ("2001:db8::1")',
      "spec.externalIPs is deprecated and may no longer be implemented in some clusters"]),
    ("Service", {"clusterIP": "None", "type": "ClusterIP", "sessionAffinity": "ClientIP"},
     ["spec.SessionAffinity is ignored for headless services"]),
    ("Service", {"ports": [{"port": 1}], "trafficDistribution": "PreferClose"},
     ['spec.trafficDistribution: "PreferClose" is deprecated; use "PreferSameZone"']),
    ("Service", {"ports": [{"port": 1}], "externalName": "a.example"},
     ['spec.externalName is ignored when spec.type is not "ExternalName"']),
    ("PersistentVolumeClaim", {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1500m"}}},
     ['spec.resources.requests[storage]: fractional byte value "1500m" is invalid, must be an integer']),
    ("PersistentVolume", {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
                          "hostPath": {"path": "/x"}, "persistentVolumeReclaimPolicy": "Recycle"},
     ["spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. Instead, the recommended approach "
      "is to use dynamic provisioning."]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "spec", "texts"), OTHERS, ids=[f"{kind}-{texts[0][:30]}" for kind, _, texts in OTHERS]
)
def test_what_is_odd_in_other_kinds_is_warned_of(kind: str, spec: Json, texts: list[str], shared: Api) -> None:
    plural = {"Service": "services", "PersistentVolumeClaim": "persistentvolumeclaims"}.get(kind, "persistentvolumes")
    path = f"/api/v1/{plural}" if kind == "PersistentVolume" else f"/api/v1/namespaces/default/{plural}"
    assert warned(shared, "POST", f"{path}?dryRun=All", {"metadata": {"name": "x"}, "spec": spec}) == (201, texts)


def test_names_that_make_odd_host_names_are_warned_of_once(api: Api) -> None:
    path = "/api/v1/namespaces/default/pods"
    status, texts = warned(api, "POST", path, {**_POD, "metadata": {"name": "a.b"}})
    assert (status, len(texts)) == (201, 1)
    assert texts[0].startswith("metadata.name: this is used in the Pod's hostname, which can result in surprising")
    merge = "application/merge-patch+json"
    assert warned(api, "PATCH", f"{path}/a.b", {"metadata": {"labels": {"x": "y"}}}, merge) == (200, [])
    assert warned(api, "PATCH", f"{path}/a.b/status", {"status": {"message": "x"}}, merge) == (200, [])


def test_warnings_stand_beside_refusals_that_come_after_validation(shared: Api) -> None:
    """k8s.io/apiserver pkg/registry/rest BeforeCreate warns before it is known that the name is taken."""
    path, body = "/api/v1/namespaces/default/services", {
        "metadata": {"name": "twice"}, "spec": {"ports": [{"port": 80}], "trafficDistribution": "PreferClose"},
    }  # fmt: skip
    status, texts = warned(shared, "POST", path, body)
    assert (status, len(texts)) == (201, 1)
    assert warned(shared, "POST", path, body) == (409, texts)


def test_a_refusal_says_what_an_acceptance_would_warn_of_before_it(shared: Api) -> None:
    """Unknown fields are found before the object is looked at (k8s.io/apiserver pkg/endpoints/handlers)."""
    body = {"metadata": {"name": "Bad_Name"}, "data": {}, "bogus": 1}
    assert warned(shared, "POST", "/api/v1/namespaces/default/configmaps", body) == (422, ['unknown field "bogus"'])
    shared.ok("POST", "/api/v1/namespaces/default/configmaps", {"metadata": {"name": "held"}})
    path, patch = "/api/v1/namespaces/default/configmaps/held", {"metadata": {"uid": "x"}, "bogus": 1}
    assert warned(shared, "PATCH", path, patch, "application/merge-patch+json") == (422, ['unknown field "bogus"'])


def test_many_files_of_a_volume_are_compared_in_bounds() -> None:
    """700 KB of a projected volume's paths held all clients up for minutes."""
    files = [{"key": "a", "path": f"p{number}/x"} for number in range(20_000)]
    maps = [{"configMap": {"name": "c", "items": [each]}} for each in files[:10_000]]
    alike = {"configMap": {"name": "c", "items": [*files, files[0]]}}
    volumes = [{"name": "v", "projected": {"sources": maps}}, {"name": "w", "projected": {"sources": [alike]}}]
    pod = {"metadata": {"name": "p"}, "spec": {"volumes": volumes, "containers": []}}
    began = time.process_time()
    found = [each for each in warnings_for("pods", pod, None) if "overlapping" in each]
    assert found == ['volume "w" (Projected ConfigMap "c"): overlapping paths: "p0/x" with "p0/x"']
    assert time.process_time() - began < 20
