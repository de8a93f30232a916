"""pods/resize: new requests and limits of a Pod's containers (specs: [sig-node] Pod InPlace Resize, kubernetes)."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest

from tests.support.apiserver.server import Api

NUMBERS = count()
STRATEGIC = "application/strategic-merge-patch+json"


def container(name: str = "c", requests: Any = None, limits: Any = None, **more: Any) -> Any:
    given = {"requests": requests, "limits": limits}
    return {"name": name, "image": "i:1", "resources": {key: item for key, item in given.items() if item}, **more}


def running(api: Api, *containers: Any, **spec: Any) -> str:
    """The path of a new Pod."""
    name = f"resized-{next(NUMBERS)}"
    path = "/api/v1/namespaces/default/pods"
    api.ok("POST", path, {"metadata": {"name": name}, "spec": {"containers": list(containers), **spec}})
    return f"{path}/{name}"


def test_only_resources_change(shared: Api) -> None:
    path = running(shared, container(requests={"cpu": "1", "memory": "1Gi"}), container("d", {"cpu": "1"}))
    old = shared.ok("GET", path)
    patch = {
        "metadata": {"labels": {"a": "b"}},
        "spec": {
            "containers": [{"name": "d", "image": "other", "resources": {"requests": {"cpu": "1500m"}}}],
            "activeDeadlineSeconds": 5,
        },
    }
    new = shared.ok("PATCH", f"{path}/resize", patch, STRATEGIC)
    old["spec"]["containers"][1]["resources"]["requests"]["cpu"] = "1500m"
    assert new["spec"] == old["spec"]
    assert new["metadata"]["generation"] == old["metadata"]["generation"] + 1
    assert "labels" not in new["metadata"]
    (entry,) = [each for each in new["metadata"]["managedFields"] if each.get("subresource") == "resize"]
    assert "f:cpu" in str(entry)
    assert shared.ok("GET", f"{path}/resize")["spec"] == new["spec"]
    status, answer = shared("PATCH", path, {"spec": {"containers": [container("d", {"cpu": "2"})]}}, STRATEGIC)
    assert (status, "pod updates may not change fields" in answer["message"]) == (422, True)


ASKED = {"cpu": "1", "memory": "1Gi"}


@pytest.mark.parametrize(
    ("resources", "why"),
    [
        ({"requests": ASKED, "limits": {"cpu": "2"}}, None),
        ({"requests": ASKED | {"cpu": "3"}, "limits": {"cpu": "2"}}, "must be less than or equal to cpu limit"),
        ({"requests": {"cpu": "1"}}, "resource requests cannot be removed"),
        ({"requests": ASKED, "limits": ASKED}, "Pod QOS Class may not change as a result of resizing"),
        ({"requests": ASKED | {"ephemeral-storage": "1Gi"}}, "only cpu and memory resources are mutable"),
    ],
)
def test_what_a_size_may_be(shared: Api, resources: Any, why: str | None) -> None:
    path = running(shared, container(requests=ASKED))
    body = shared.ok("GET", path)
    body["spec"]["containers"][0]["resources"] = resources
    status, answer = shared("PUT", f"{path}/resize", body)
    if why is None:
        assert answer["spec"]["containers"][0]["resources"] == resources
    else:
        assert (status, why in answer["message"]) == (422, True), answer


def test_a_quota_holds(shared: Api) -> None:
    shared.ok("POST", "/api/v1/namespaces", {"metadata": {"name": "sizes"}})
    body = {"metadata": {"name": "q"}, "spec": {"hard": {"requests.cpu": "2"}}}
    shared.ok("POST", "/api/v1/namespaces/sizes/resourcequotas", body)
    path = "/api/v1/namespaces/sizes/pods"
    shared.ok("POST", path, {"metadata": {"name": "p"}, "spec": {"containers": [container(requests={"cpu": "1"})]}})

    def asks(cpu: str) -> tuple[int, Any]:
        return shared(
            "PATCH", f"{path}/p/resize", {"spec": {"containers": [container(requests={"cpu": cpu})]}}, STRATEGIC
        )

    assert [asks("3")[0], asks("2")[0]] == [403, 200]
    quota = shared.ok("GET", "/api/v1/namespaces/sizes/resourcequotas/q")
    assert quota["status"]["used"] == {"requests.cpu": "2"}
