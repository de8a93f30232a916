"""Pods: what only they get by default, what may be changed in them, their generation, and their binding to a node.

The specs of Kubernetes' end-to-end suite whose behaviour this is are named at the tests.
"""

from __future__ import annotations

from typing import Any

import pytest

from kproxy.apiserver.kinds.pods import quality
from tests.support.apiserver.server import Api

PODS = "/api/v1/namespaces/default/pods"
APPS = "/apis/apps/v1/namespaces/default"
MERGE = "application/merge-patch+json"
LIMITED = {"name": "c", "image": "i:1", "ports": [{"containerPort": 80}], "resources": {"limits": {"cpu": "1"}}}
HOST = {"hostNetwork": True, "containers": [LIMITED], "initContainers": [{**LIMITED, "name": "i"}]}


def _made(api: Api, name: str, **spec: Any) -> Any:
    body = {"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i:1"}], **spec}}
    return api.ok("POST", PODS, body)


def _causes(api: Api, name: str, patch: Any) -> list[str]:
    """What an update by a merge patch is refused for."""
    status, answer = api("PATCH", f"{PODS}/{name}", patch, MERGE)
    assert status == 422, answer
    return [f"{each['field']}: {each['message']}" for each in answer["details"]["causes"]]


@pytest.mark.parametrize("kind", ["containers", "initContainers"])
def test_what_only_pods_get_by_default(shared: Api, kind: str) -> None:
    """A template that gained fields would be a new revision of its workload, and its pods would be replaced."""
    pod = _made(shared, f"host-{kind.lower()}", **HOST)["spec"]
    assert pod["enableServiceLinks"] is True
    assert pod[kind][0]["ports"] == [{"containerPort": 80, "hostPort": 80, "protocol": "TCP"}]
    assert pod[kind][0]["resources"] == {"limits": {"cpu": "1"}, "requests": {"cpu": "1"}}
    template = {"metadata": {"labels": {"a": "b"}}, "spec": HOST}
    spec = {"selector": {"matchLabels": {"a": "b"}}, "template": template}
    for plural in ("deployments", "replicasets", "daemonsets"):
        body = {"metadata": {"name": f"host-{kind.lower()}"}, "spec": spec}
        made = shared.ok("POST", f"{APPS}/{plural}", body)["spec"]["template"]["spec"]
        assert "enableServiceLinks" not in made
        assert made[kind][0]["ports"] == [{"containerPort": 80, "protocol": "TCP"}]
        assert made[kind][0]["resources"] == {"limits": {"cpu": "1"}}
        assert made[kind][0]["imagePullPolicy"] == "IfNotPresent"


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"containers": [{}]}, "BestEffort"),
        ({"containers": [{"resources": {"requests": {"cpu": "0"}}}]}, "BestEffort"),
        ({"containers": [{"resources": {"limits": {"example.org/gpu": "1"}}}]}, "BestEffort"),
        ({"containers": [{"resources": {"requests": {"cpu": "1"}}}]}, "Burstable"),
        (
            {"containers": [{"resources": {"requests": {"cpu": "1000m", "memory": "1Gi"},
                                           "limits": {"cpu": "1", "memory": "1024Mi"}}}]},
            "Guaranteed",
        ),
        (
            {"containers": [{"resources": {"requests": {"cpu": "1", "memory": "1Gi"},
                                           "limits": {"cpu": "1", "memory": "1Gi"}}}],
             "initContainers": [{"resources": {"requests": {"cpu": "1"}}}]},
            "Burstable",
        ),
        (
            {"containers": [{}], "resources": {"requests": {"cpu": "1", "memory": "1Gi"},
                                               "limits": {"cpu": "1", "memory": "1Gi"}}},
            "Guaranteed",
        ),
    ],
)  # fmt: skip
def test_quality_of_service(spec: Any, expected: str) -> None:
    """[sig-node] Pods Extended, Pods Set QOS Class should be set on Pods with matching resource requests and limits."""
    assert quality(spec) == expected


FORBIDDEN = (
    "spec: Forbidden: pod updates may not change fields other than `spec.containers[*].image`,"
    "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing "
    "tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)


@pytest.mark.parametrize(
    "spec",
    [
        {"nodeName": "n1"},
        {"nodeSelector": {"a": "b"}},
        {"terminationGracePeriodSeconds": 1},
        {"containers": [{"name": "c", "image": "i:1", "command": ["x"]}]},
        {"containers": [{"name": "d", "image": "i:1"}]},
        {"hostNetwork": True},
        {"serviceAccountName": "other"},
    ],
)
def test_what_may_not_change(shared: Api, spec: Any) -> None:
    shared("POST", PODS, {"metadata": {"name": "fixed"}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}})
    assert _causes(shared, "fixed", {"spec": spec}) == [FORBIDDEN]


@pytest.mark.parametrize(
    ("given", "added"),
    [
        ([], ["not-ready", "unreachable"]),
        ([{"key": "a", "operator": "Exists"}], ["not-ready", "unreachable"]),
        ([{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "tolerationSeconds": 5, "effect": "NoExecute"}],
         ["unreachable"]),
        ([{"key": "node.kubernetes.io/unreachable", "operator": "Exists"}], ["not-ready"]),
        ([{"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoSchedule"}],
         ["not-ready", "unreachable"]),
        ([{"operator": "Exists"}], []),
        ([{"operator": "Exists", "effect": "NoSchedule"}], ["not-ready", "unreachable"]),
    ],
)  # fmt: skip
def test_lost_nodes_are_tolerated_for_five_minutes(shared: Api, given: Any, added: list[str]) -> None:
    """As the admission plugin DefaultTolerationSeconds. An update brings
    them back, and they belong to nobody."""
    lost = [
        {"key": f"node.kubernetes.io/{name}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
        for name in added
    ]
    made = _made(shared, "tolerant", tolerations=given)
    try:
        assert made["spec"]["tolerations"] == given + lost
        assert "unreachable" not in str(made["metadata"]["managedFields"])
        made["spec"]["tolerations"] = given
        assert shared.ok("PUT", f"{PODS}/tolerant", made)["spec"]["tolerations"] == given + lost
    finally:
        shared.ok("DELETE", f"{PODS}/tolerant")


def test_what_may_change(shared: Api) -> None:
    """[sig-node] Pods should be updated; should allow activeDeadlineSeconds to be updated."""
    old = {"key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5}
    init = [{"name": "i", "image": "i:1"}]
    _made(shared, "mild", tolerations=[old], terminationGracePeriodSeconds=-5, initContainers=init)
    new = [{"key": "b", "operator": "Exists"}, {**old, "tolerationSeconds": 9}]
    spec = {
        "containers": [{"name": "c", "image": "i:2"}], "initContainers": [{"name": "i", "image": "i:2"}],
        "tolerations": new, "activeDeadlineSeconds": 30, "terminationGracePeriodSeconds": 1,
    }  # fmt: skip
    strategic = "application/strategic-merge-patch+json"
    changed = shared.ok("PATCH", f"{PODS}/mild", {"spec": spec}, strategic)["spec"]
    assert changed["containers"][0]["image"] == changed["initContainers"][0]["image"] == "i:2"
    assert (changed["tolerations"][:2], changed["activeDeadlineSeconds"]) == (new, 30)
    shared.ok("PATCH", f"{PODS}/mild", {"spec": {"activeDeadlineSeconds": 5}}, MERGE)
    shared.ok("PATCH", f"{PODS}/mild", {"metadata": {"labels": {"time": "now"}}}, MERGE)


@pytest.mark.parametrize(
    ("spec", "causes"),
    [
        ({"tolerations": [{"key": "b", "operator": "Exists"}]},
         ["spec.tolerations: Forbidden: existing toleration can not be modified except its tolerationSeconds"]),
        ({"tolerations": None},
         ["spec.tolerations: Forbidden: existing toleration can not be modified except its tolerationSeconds"]),
        ({"activeDeadlineSeconds": 40},
         ["spec.activeDeadlineSeconds: Invalid value: 40: must be less than or equal to previous value"]),
        ({"activeDeadlineSeconds": None},
         ["spec.activeDeadlineSeconds: Invalid value: null: must not update from a positive integer to nil value"]),
        ({"activeDeadlineSeconds": -1},
         ["spec.activeDeadlineSeconds: Invalid value: -1: must be between 0 and 2147483647, inclusive"]),
        ({"containers": []}, ["spec.containers: Forbidden: pod updates may not add or remove containers"]),
        ({"containers": [{"name": "c", "image": "i:1"}, {"name": "d", "image": "i:1"}]},
         ["spec.containers: Forbidden: pod updates may not add or remove containers"]),
        ({"containers": [{"name": "c", "image": " i:1"}]},
         ['spec.containers[0].image: Invalid value: " i:1": must not have leading or trailing whitespace']),
        ({"schedulingGates": [{"name": "example.org/g"}]},
         ["spec.schedulingGates: Forbidden: only deletion is allowed, but found new scheduling gate 'example.org/g'"]),
    ],
)  # fmt: skip
def test_changes_that_are_refused(shared: Api, spec: Any, causes: list[str]) -> None:
    first = {
        "containers": [{"name": "c", "image": "i:1"}], "activeDeadlineSeconds": 30,
        "tolerations": [{"key": "a", "operator": "Exists"}],
    }  # fmt: skip
    shared("POST", PODS, {"metadata": {"name": "strict"}, "spec": first})
    assert set(causes) <= set(_causes(shared, "strict", {"spec": spec}))


def test_a_gated_pod_can_be_narrowed_and_waits_for_its_gates(shared: Api) -> None:
    _made(shared, "gated", schedulingGates=[{"name": "a/b"}, {"name": "c/d"}], nodeSelector={"a": "b"})
    path, bind = f"{PODS}/gated", f"{PODS}/gated/binding"
    body = {"metadata": {"name": "gated"}, "target": {"kind": "Node", "name": "n1"}}
    status, answer = shared("POST", bind, body)
    assert (status, answer["message"]) == (
        409, 'Operation cannot be fulfilled on pods/binding "gated": pod gated has non-empty .spec.schedulingGates'
    )  # fmt: skip
    shared.ok("PATCH", path, {"spec": {"nodeSelector": {"c": "d"}}}, MERGE)
    shared.ok("PATCH", path, {"spec": {"schedulingGates": [{"name": "c/d"}]}}, MERGE)
    shared.ok("PATCH", path, {"spec": {"schedulingGates": None}}, MERGE)
    assert _causes(shared, "gated", {"spec": {"nodeSelector": {"e": "f"}}}) == [FORBIDDEN]
    shared.ok("POST", bind, body)


def test_a_new_pod_without_what_comes_later(shared: Api) -> None:
    containers = [{"name": "c", "image": "i"}]
    spec: Any = {"containers": containers, "ephemeralContainers": [{"name": "e", "image": "i"}]}
    status, answer = shared("POST", PODS, {"metadata": {"name": "early"}, "spec": spec})
    assert (status, answer["details"]["causes"][0]["message"]) == (422, "Forbidden: cannot be set on create")
    spec = {"containers": containers, "nodeName": "n1", "schedulingGates": [{"name": "a/b"}]}
    status, answer = shared("POST", PODS, {"metadata": {"name": "early"}, "spec": spec})
    assert status == 422
    assert "cannot be set until all schedulingGates have been cleared" in answer["message"]


def test_generation(shared: Api) -> None:
    """[sig-node] Pods Extended (pod generation) pod generation should start at 1 and increment per update; custom-set
    generation on new pods and graceful delete."""
    body = {"metadata": {"name": "counted", "generation": 7}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}}
    path = f"{PODS}/counted"
    assert shared.ok("POST", PODS, body)["metadata"]["generation"] == 1

    def after(patch: Any, place: str = path) -> int:
        number: int = shared.ok("PATCH", place, patch, MERGE)["metadata"]["generation"]
        return number

    assert after({"spec": {"activeDeadlineSeconds": 30}}) == 2
    assert after({"spec": {"activeDeadlineSeconds": 30}}) == 2
    assert after({"spec": {"tolerations": [{"key": "a", "operator": "Exists"}]}}) == 3
    assert after({"metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}}}) == 3
    assert after({"metadata": {"generation": 9}}) == 3
    assert after({"status": {"phase": "Running", "observedGeneration": 3}}, f"{path}/status") == 3
    shared.ok("POST", f"{path}/binding", {"metadata": {"name": "counted"}, "target": {"name": "n1"}})
    assert shared.ok("GET", path)["metadata"]["generation"] == 3
    assert shared.ok("DELETE", path)["metadata"]["generation"] == 4


def test_binding(shared: Api) -> None:
    """What kube-scheduler does with a pod it has found a node for."""
    made = _made(shared, "bound")
    meta: Any = {"name": "bound", "labels": {"zone": "z"}, "annotations": {"a": "b"}}
    body = {"kind": "Binding", "apiVersion": "v1", "metadata": meta, "target": {"kind": "Node", "name": "n1"}}
    path = f"{PODS}/bound/binding"
    dry = shared.ok("POST", f"{path}?dryRun=All", body)
    assert dry == {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    stale = {**body, "metadata": {**meta, "uid": "other"}}
    assert shared("POST", path, stale)[0] == 409
    assert shared("POST", path, body) == (201, dry)
    pod = shared.ok("GET", f"{PODS}/bound")
    assert pod["spec"]["nodeName"] == "n1"
    assert (pod["metadata"]["labels"], pod["metadata"]["annotations"]) == ({"zone": "z"}, {"a": "b"})
    assert pod["metadata"]["uid"] == made["metadata"]["uid"]
    assert [(each["type"], each["status"]) for each in pod["status"]["conditions"]] == [("PodScheduled", "True")]
    status, answer = shared("POST", path, body)
    assert (status, answer["message"]) == (
        409, 'Operation cannot be fulfilled on pods/binding "bound": pod bound is already assigned to node "n1"'
    )  # fmt: skip


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"metadata": {"name": "other"}, "target": {"name": "n1"}}, (400, "name in URL does not match")),
        ({"metadata": {"name": "p"}, "target": {}}, (422, "target.name: Required value")),
        ({"metadata": {"name": "p"}, "target": {"kind": "Pod", "name": "n"}}, (422, 'Unsupported value: "Pod"')),
        ({"metadata": {"name": "p"}, "target": {"name": "n1"}}, (404, 'pods "p" not found')),
        ({"kind": "Pod", "metadata": {"name": "p"}, "target": {"name": "n1"}}, (400, "not a Binding object")),
    ],
)  # fmt: skip
def test_bad_bindings(shared: Api, body: Any, expected: tuple[int, str]) -> None:
    status, answer = shared("POST", f"{PODS}/p/binding", body)
    assert status == expected[0]
    assert expected[1] in answer["message"]


def test_binding_at_the_older_place(shared: Api) -> None:
    _made(shared, "old")
    body = {"metadata": {"name": "old"}, "target": {"name": "n2"}}
    assert shared("POST", "/api/v1/namespaces/default/bindings", body)[0] == 201
    assert shared.ok("GET", f"{PODS}/old")["spec"]["nodeName"] == "n2"


def test_one_address_of_a_pod_stands_for_the_other(shared: Api) -> None:
    _made(shared, "addressed")
    path = f"{PODS}/addressed/status"
    status = shared.ok("PATCH", path, {"status": {"podIP": "10.0.0.1"}}, MERGE)["status"]
    assert status["podIPs"] == [{"ip": "10.0.0.1"}]
    both = {"podIP": "10.0.0.2", "podIPs": [{"ip": "10.0.0.2"}, {"ip": "fd00::2"}]}
    assert shared.ok("PATCH", path, {"status": both}, MERGE)["status"]["podIPs"] == both["podIPs"]
