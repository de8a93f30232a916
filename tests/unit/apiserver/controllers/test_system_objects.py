"""What every cluster has comes back while the server runs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kproxy.apiserver import running_apiserver
from tests.support.apiserver.server import TOKENS, Api

SLICE = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes"
MERGE = "application/merge-patch+json"


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """A server that publishes its CA and says it is at 192.0.2.7."""
    directory: Path = tmp_path_factory.mktemp("apiserver")
    (directory / "tokens.csv").write_text(TOKENS)
    with running_apiserver(
        directory, token_file=directory / "tokens.csv", advertise="192.0.2.7", publish_root_ca=True
    ) as server:
        yield Api(server)


@pytest.mark.parametrize(
    ("path", "kept"),
    [
        ("/api/v1/namespaces/default/services/kubernetes", ("spec", "clusterIP")),
        (SLICE, ("endpoints",)),
        ("/api/v1/namespaces/default/endpoints/kubernetes", ("subsets",)),
        ("/api/v1/namespaces/default/serviceaccounts/default", ("metadata", "name")),
        ("/api/v1/namespaces/kube-system/serviceaccounts/default", ("metadata", "name")),
        ("/api/v1/namespaces/default/configmaps/kube-root-ca.crt", ("data",)),
        ("/api/v1/namespaces/kube-node-lease", ("metadata", "name")),
        ("/apis/networking.k8s.io/v1/servicecidrs/kubernetes", ("spec",)),
    ],
)
def test_what_is_deleted_comes_back(published: Api, path: str, kept: tuple[str, ...]) -> None:
    def part(found: Any) -> Any:
        for name in kept:
            found = found[name]
        return found

    before = published.eventually(path, lambda found: found["kind"] != "Status")
    published.ok("DELETE", path)
    uid = before["metadata"]["uid"]
    after = published.eventually(path, lambda found: found["metadata"].get("uid", uid) != uid)
    assert part(after) == part(before)


def test_what_is_changed_is_put_right(published: Api) -> None:
    published.ok("PATCH", SLICE, {"endpoints": [{"addresses": ["192.0.2.66"]}]}, MERGE)
    found = published.eventually(SLICE, lambda found: found["endpoints"][0]["addresses"] == ["192.0.2.7"])
    assert found["ports"][0]["port"] == published.server.port
    ca = "/api/v1/namespaces/kube-system/configmaps/kube-root-ca.crt"
    published.eventually(ca, lambda found: found["kind"] == "ConfigMap")
    published.ok("PATCH", ca, {"data": {"ca.crt": "mine", "x": "y"}}, MERGE)
    published.eventually(ca, lambda found: found["data"] == {"ca.crt": published.server.ca.read_text()})


def test_ports_of_the_kubernetes_service_are_put_right(published: Api) -> None:
    path = "/api/v1/namespaces/default/services/kubernetes"
    wrong = {"spec": {"ports": [{"name": "https", "port": 444, "targetPort": 1}]}}
    published.ok("PATCH", path, wrong, MERGE)
    port = {"name": "https", "protocol": "TCP", "port": 443, "targetPort": published.server.port}
    published.eventually(path, lambda found: found["spec"]["ports"] == [port])
    patched = published.ok("PATCH", path, {"metadata": {"labels": {"mine": "stays"}}}, MERGE)["metadata"]
    time.sleep(0.3)
    found = published.ok("GET", path)["metadata"]
    assert (found["labels"]["mine"], found["resourceVersion"]) == ("stays", patched["resourceVersion"])


def test_a_new_namespace_gets_both(published: Api) -> None:
    published.ok("POST", "/api/v1/namespaces", {"metadata": {"name": "fresh"}})
    published.eventually("/api/v1/namespaces/fresh/serviceaccounts/default", lambda found: found["kind"] != "Status")
    path = "/api/v1/namespaces/fresh/configmaps/kube-root-ca.crt"
    published.eventually(path, lambda found: found["kind"] == "ConfigMap")
    published.ok("DELETE", "/api/v1/namespaces/fresh")
    published.eventually("/api/v1/namespaces/fresh", lambda found: found["kind"] == "Status")
    assert published("GET", path)[0] == 404


def test_without_being_asked_no_certificate_is_published(shared: Api) -> None:
    shared.eventually("/api/v1/namespaces/default/serviceaccounts/default", lambda found: found["kind"] != "Status")
    assert shared("GET", "/api/v1/namespaces/default/configmaps/kube-root-ca.crt")[0] == 404
