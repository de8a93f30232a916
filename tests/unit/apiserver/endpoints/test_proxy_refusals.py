"""proxy, attach and portforward: what kube-apiserver says when nothing can be reached."""

from __future__ import annotations

import pytest

from tests.support.apiserver.server import Api

PLACE = "/api/v1/namespaces/reach"


@pytest.fixture(scope="module")
def reach(shared: Api) -> Api:
    """A server with Services, Pods and a node that nothing runs."""
    shared.ok("POST", "/api/v1/namespaces", {"metadata": {"name": "reach"}})
    for name in ("none", "some"):
        ports = {"ports": [{"name": "http", "port": 80}]}
        shared.ok("POST", f"{PLACE}/services", {"metadata": {"name": name}, "spec": ports})
    labels = {"kubernetes.io/service-name": "some"}
    shared.ok("POST", "/apis/discovery.k8s.io/v1/namespaces/reach/endpointslices", {
        "metadata": {"name": "some", "labels": labels}, "addressType": "IPv4",
        "endpoints": [{"addresses": ["192.0.2.1"]}],
    })  # fmt: skip
    for name, node in (("free", {}), ("bound", {"nodeName": "n"})):
        spec = {"containers": [{"name": "c", "image": "i"}], **node}
        shared.ok("POST", f"{PLACE}/pods", {"metadata": {"name": name}, "spec": spec})
    status = {"status": {"podIP": "192.0.2.1"}}
    shared.ok("PATCH", f"{PLACE}/pods/bound/status", status, "application/merge-patch+json")
    shared.ok("POST", "/api/v1/nodes", {"metadata": {"name": "n"}})
    return shared


UNREACHED = "error trying to reach service: this server does not reach nodes and Pods"


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE"])
@pytest.mark.parametrize(
    ("path", "code", "message"),
    [
        (f"{PLACE}/services/none/proxy", 503, 'no endpoints available for service "none"'),
        (f"{PLACE}/services/none:80/proxy/a/b", 503, 'no endpoints available for service "none"'),
        (f"{PLACE}/services/https:some:http/proxy/", 503, UNREACHED),
        (f"{PLACE}/services/some:81/proxy/", 503, 'no service port "81" found for service "some"'),
        (f"{PLACE}/services/other/proxy/", 404, 'services "other" not found'),
        (f"{PLACE}/pods/free/proxy/", 400, "address not allowed"),
        (f"{PLACE}/pods/bound:8080/proxy/x?y=z", 503, UNREACHED),
        ("/api/v1/nodes/n:10250/proxy/metrics", 503, UNREACHED),
        ("/api/v1/nodes/other/proxy/", 404, 'nodes "other" not found'),
    ],
)
def test_proxies(reach: Api, method: str, path: str, code: int, message: str) -> None:
    status, answer = reach(method, path, b"any" if method in ("POST", "PUT", "PATCH") else None)
    assert (status, answer["code"], answer["message"]) == (code, code, message)


@pytest.mark.parametrize("part", ["attach", "portforward"])
def test_streams(reach: Api, part: str) -> None:
    found = [reach("POST", f"{PLACE}/pods/{name}/{part}") for name in ("free", "bound", "other")]
    assert [(status, answer["message"]) for status, answer in found] == [
        (400, "pod free does not have a host assigned"), (503, UNREACHED), (404, 'pods "other" not found'),
    ]  # fmt: skip


def test_who_may(reach: Api) -> None:
    status, answer = reach.as_user("bob-token")("GET", f"{PLACE}/services/none/proxy/x")
    assert (status, 'cannot get resource "services/proxy"' in answer["message"]) == (403, True)
