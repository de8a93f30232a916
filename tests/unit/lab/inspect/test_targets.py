"""Names for the two ends of a connection."""

from __future__ import annotations

import pytest

from kproxy.lab.cluster import ClusterView, EndpointView, NodeView, PodView, ServicePortView, ServiceView
from kproxy.lab.errors import LabInputError
from kproxy.lab.inspect.targets import client_host, find_target
from kproxy.lab.kubelet.servers import Port

CLUSTER = ClusterView(
    "lab", "dual", "nft", "iptables", "vxlan", "kubeconfig", "https://127.0.0.1:1", True, ("203.0.113.2",),
    (NodeView("node-1", "ns", ("172.30.0.11", "fd00::b"), ("10.244.1.0/24",), True),),
    tuple(
        PodView(
            "default", name, name, "node-1", (f"10.244.1.{number}",), "Running", True, False, False, True, False,
            "n", (Port(8080, "TCP"),),
        )
        for number, name in enumerate(("web-a", "web-b", "db-0"), 2)
    ),
    (
        ServiceView(
            "default", "web", "NodePort", ("10.96.0.9", "fd00:10:96::9"), (), (),
            ports=(
                ServicePortView(
                    "http", "TCP", 80, "8080", 30080,
                    (EndpointView("10.244.1.2", 8080, "default/web-a", "node-1", True, True, False),),
                ),
                ServicePortView("dns", "UDP", 53, "53", 30053, ()),
            ),
        ),
    ),
)  # fmt: skip


@pytest.mark.parametrize(
    ("text", "family", "wanted"),
    [
        ("svc/web", None, ("clusterIP", "10.96.0.9:80", "TCP")),
        ("svc/default/web:dns", 6, ("clusterIP", "[fd00:10:96::9]:53", "UDP")),
        ("svc/web/udp", None, ("clusterIP", "10.96.0.9:53", "UDP")),
        ("nodeport/web:http@node-1", None, ("nodePort", "172.30.0.11:30080", "TCP")),
        ("nodeport/web", 6, ("nodePort", "[fd00::b]:30080", "TCP")),
        ("localhost/web", None, ("localhost", "127.0.0.1:30080", "TCP")),
        ("pod/db-0", None, ("pod", "10.244.1.4:8080", "TCP")),
        ("pod/db-0:9/udp", None, ("pod", "10.244.1.4:9", "UDP")),
        ("[::1]:53/udp", None, ("address", "[::1]:53", "UDP")),
    ],
)
def test_targets(text: str, family: int | None, wanted: tuple[str, str, str]) -> None:
    found = find_target(CLUSTER, text, family)
    assert (found.kind, found.destination, found.protocol) == wanted


@pytest.mark.parametrize(
    "text", ["svc/none", "svc/web:9", "lb/web", "pod/web", "pod/db-0:x", "10.0.0.1", "svc", "nodeport/web@node-7"]
)
def test_targets_that_are_none(text: str) -> None:
    with pytest.raises(LabInputError):
        find_target(CLUSTER, text)


def test_clients() -> None:
    assert client_host(CLUSTER, "client") == "client"
    assert client_host(CLUSTER, "node-1") == "node-1"
    assert client_host(CLUSTER, "db") == "pod/default/db-0"
    with pytest.raises(LabInputError, match="may mean web-a, web-b"):
        client_host(CLUSTER, "web")
