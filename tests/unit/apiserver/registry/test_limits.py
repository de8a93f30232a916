"""LimitRanges applied: to containers, Pods and claims (specs: [sig-scheduling] LimitRange, kubernetes/kubernetes)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.apiserver.server import Api


@pytest.fixture
def limits(shared: Api, request: pytest.FixtureRequest) -> Any:
    """Makes a namespace with a LimitRange of one row; answers with the namespace's path."""
    name = "limits-" + "".join(character for character in request.node.name if character.isalnum()).lower()[-40:]

    def make(**row: Any) -> str:
        shared.ok("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
        path = f"/api/v1/namespaces/{name}"
        shared.ok("POST", f"{path}/limitranges", {"metadata": {"name": "l"}, "spec": {"limits": [row]}})
        return path

    return make


def container(name: str, requests: Any = None, limits: Any = None, **more: Any) -> dict[str, Any]:
    given = {"requests": requests, "limits": limits}
    return {"name": name, "image": "i", "resources": {key: item for key, item in given.items() if item}, **more}


def pod(*containers: Any, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "p"}, "spec": {"containers": list(containers), **spec}}


def claim(size: str) -> dict[str, Any]:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}}
    return {"metadata": {"name": "c"}, "spec": spec}


def test_defaults_of_containers(shared: Api, limits: Any) -> None:
    path = limits(type="Container", default={"cpu": "500m", "memory": "1Gi"}, defaultRequest={"cpu": "100m"})
    body = pod(container("none"), container("own", {"cpu": "200m"}, {"memory": "2Gi"}), initContainers=[container("i")])
    made = shared.ok("POST", f"{path}/pods", body)
    none, own = (each["resources"] for each in made["spec"]["containers"])
    default = {"requests": {"cpu": "100m", "memory": "1Gi"}, "limits": {"cpu": "500m", "memory": "1Gi"}}
    assert none == made["spec"]["initContainers"][0]["resources"] == default
    assert own == {"requests": {"cpu": "200m", "memory": "2Gi"}, "limits": {"cpu": "500m", "memory": "2Gi"}}
    assert made["metadata"]["annotations"]["kubernetes.io/limit-ranger"] == (
        "LimitRanger plugin set: cpu, memory request for container none; cpu, memory limit for container none; "
        "cpu limit for container own; cpu, memory request for init container i; cpu, memory limit for init container i"
    )
    assert made["status"]["qosClass"] == "Burstable"
    owned = str(made["metadata"]["managedFields"])
    assert "f:name" in owned
    assert "limit-ranger" not in owned


def test_a_namespace_without_has_none(shared: Api, limits: Any) -> None:
    limits(type="Container", max={"cpu": "1m"}, min={"cpu": "1m"})
    made = shared.ok("POST", "/api/v1/namespaces/default/pods?dryRun=All", pod(container("c")))
    assert made["spec"]["containers"][0]["resources"] == {}
    assert "annotations" not in made["metadata"]


@pytest.mark.parametrize(
    ("row", "given", "why"),
    [
        ({"max": {"cpu": "1"}}, ({"cpu": "1"}, {"cpu": "2"}), "maximum cpu usage per Container is 1, but limit is 2"),
        ({"min": {"cpu": "1"}}, ({"cpu": "1m"}, None), "minimum cpu usage per Container is 1, but request is 1m"),
        ({"min": {"cpu": "1"}}, ({"cpu": "1"}, None), ""),
        (
            {"max": {"cpu": "1"}, "min": {"memory": "1Gi"}},
            ({"cpu": "2", "memory": "1Mi"}, {"cpu": "3"}),
            "[minimum memory usage per Container is 1Gi, but request is 1Mi, "
            "maximum cpu usage per Container is 1, but limit is 3]",
        ),
        (
            {"maxLimitRequestRatio": {"cpu": "2"}},
            ({"cpu": "1"}, {"cpu": "2500m"}),
            "cpu max limit to request ratio per Container is 2, but provided ratio is 2.500000",
        ),
        ({"maxLimitRequestRatio": {"cpu": "2500m"}}, ({"cpu": "1"}, {"cpu": "2500m"}), ""),
        (
            {"maxLimitRequestRatio": {"cpu": "2"}},
            (None, None),
            "cpu max limit to request ratio per Container is 2, but no request is specified or request is 0",
        ),
        (
            {"maxLimitRequestRatio": {"cpu": "2"}},
            ({"cpu": "1"}, None),
            "cpu max limit to request ratio per Container is 2, but no limit is specified or limit is 0",
        ),
    ],
)
def test_bounds_of_containers(shared: Api, limits: Any, row: Any, given: Any, why: str) -> None:
    path = limits(type="Container", **row)
    status, answer = shared("POST", f"{path}/pods", pod(container("c", *given)))
    assert (status, answer.get("message", "")) == ((403, f'pods "p" is forbidden: {why}') if why else (201, ""))


@pytest.mark.parametrize(
    ("row", "containers", "why"),
    [
        ({"max": {"cpu": "1"}}, [container("a")], "maximum cpu usage per Pod is 1.  No limit is specified"),
        ({"min": {"cpu": "1"}}, [container("a")], "minimum cpu usage per Pod is 1.  No request is specified"),
        (
            {"max": {"cpu": "1"}},
            [container("a", limits={"cpu": "600m"}), container("b", limits={"cpu": "600m"})],
            "maximum cpu usage per Pod is 1, but limit is 1200m",
        ),
        ({"max": {"cpu": "1"}}, [container("a", limits={"cpu": "1"}), container("b")], ""),
    ],
)
def test_bounds_of_pods(shared: Api, limits: Any, row: Any, containers: Any, why: str) -> None:
    path = limits(type="Pod", **row)
    status, answer = shared("POST", f"{path}/pods", pod(*containers))
    assert (status, answer.get("message", "")) == ((403, f'pods "p" is forbidden: {why}') if why else (201, ""))


def test_a_pods_init_containers_and_its_own_resources_count(shared: Api, limits: Any) -> None:
    path = limits(type="Pod", max={"cpu": "1"})
    small, large = container("a", limits={"cpu": "1"}), container("i", limits={"cpu": "2"})
    status, answer = shared("POST", f"{path}/pods", pod(small, initContainers=[large]))
    assert (status, answer["message"].rpartition("is ")[2]) == (403, "2")
    own = pod(container("a"), resources={"limits": {"cpu": "1"}})
    assert shared("POST", f"{path}/pods", own)[0] == 201


def test_a_pod_that_is_there_may_change(shared: Api, limits: Any) -> None:
    """Its resources are fixed, so a LimitRange that came later does not hold it."""
    path = limits(type="PersistentVolumeClaim", max={"storage": "2Gi"})
    shared.ok("POST", f"{path}/pods", pod(container("c")))
    row = {"type": "Container", "min": {"cpu": "1"}}
    shared.ok("POST", f"{path}/limitranges", {"metadata": {"name": "late"}, "spec": {"limits": [row]}})
    patch = {"metadata": {"labels": {"a": "b"}}}
    shared.ok("PATCH", f"{path}/pods/p", patch, "application/merge-patch+json")


def test_claims(shared: Api, limits: Any) -> None:
    path = limits(type="PersistentVolumeClaim", max={"storage": "2Gi"}, min={"storage": "1Gi"})
    refused = 'persistentvolumeclaims "c" is forbidden: {} storage usage per PersistentVolumeClaim is {}'
    for size, bound, much in (("500Mi", "minimum", "1Gi"), ("3Gi", "maximum", "2Gi")):
        status, answer = shared("POST", f"{path}/persistentvolumeclaims", claim(size))
        assert (status, answer["message"]) == (403, refused.format(bound, much) + f", but request is {size}")
    shared.ok("POST", f"{path}/persistentvolumeclaims", claim("2Gi"))
    row = {"type": "PersistentVolumeClaim", "max": {"storage": "1Gi"}}
    shared.ok("POST", f"{path}/limitranges", {"metadata": {"name": "late"}, "spec": {"limits": [row]}})
    patch = {"metadata": {"labels": {"a": "b"}}}
    status, answer = shared("PATCH", f"{path}/persistentvolumeclaims/c", patch, "application/merge-patch+json")
    assert (status, answer["message"]) == (403, refused.format("maximum", "1Gi") + ", but request is 2Gi")
    shared.ok("DELETE", f"{path}/persistentvolumeclaims/c")
