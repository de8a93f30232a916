"""Which endpoints a ServicePort uses on a node."""

from __future__ import annotations

import pytest

from kproxy.api.types.core import ServicePort as ApiServicePort
from kproxy.api.types.discovery import Endpoint as SliceEndpoint
from kproxy.services.endpoints import Endpoint, endpoints_of_service
from kproxy.services.names import IPFamily, ServicePortName
from kproxy.services.serviceport import ServicePort, service_ports
from kproxy.services.topology import SelectedEndpoints, select_endpoints, why_unused
from tests.support.services.builders import make_endpoint, make_service, make_slice

WEB = ServicePortName("shop", "web", "", "TCP")
NODE_PORT = (ApiServicePort(port=80, node_port=30080),)


def port(internal_policy: str = "Cluster", external_policy: str = "") -> ServicePort:
    if external_policy:
        service = make_service(type="NodePort", ports=NODE_PORT, external_policy=external_policy)
    else:
        service = make_service(internal_policy=internal_policy)
    return service_ports(service, IPFamily.IPV4)[WEB]


def entries(*made: SliceEndpoint) -> tuple[Endpoint, ...]:
    return endpoints_of_service("shop/web", {"k": make_slice(*made)}, IPFamily.IPV4, "node-0").get(WEB, ())


def ips(chosen: tuple[Endpoint, ...]) -> list[str]:
    return [ep.ip for ep in chosen]


def select(service_port: ServicePort, *made: SliceEndpoint, zone: str = "zone-a") -> SelectedEndpoints:
    return select_endpoints(service_port, entries(*made), "node-0", zone)


READY = make_endpoint("10.244.0.1")
REMOTE = make_endpoint("10.244.1.1", node="node-1")
UNREADY = make_endpoint("10.244.0.9", ready=False, serving=False)
DRAINING = make_endpoint("10.244.0.3", ready=False, serving=True, terminating=True)
REMOTE_DRAINING = make_endpoint("10.244.1.3", node="node-1", ready=False, serving=True, terminating=True)
GONE = make_endpoint("10.244.0.4", ready=False, serving=False, terminating=True)


def test_ready_endpoints_are_used_and_nothing_else_while_there_are_some() -> None:
    selected = select(port(), READY, REMOTE, UNREADY, DRAINING, GONE)
    assert ips(selected.cluster) == ips(selected.reachable) == ["10.244.0.1", "10.244.1.1"]
    assert selected.local == ()


def test_endpoints_that_serve_while_terminating_are_the_fall_back() -> None:
    selected = select(port(), UNREADY, DRAINING, REMOTE_DRAINING, GONE)
    assert ips(selected.cluster) == ["10.244.0.3", "10.244.1.3"]
    assert selected.has_any


def test_nothing_usable_means_has_any_is_false() -> None:
    assert not select(port(), UNREADY, GONE).has_any
    assert not select(port()).has_any


def test_cluster_and_local_fall_back_separately() -> None:
    selected = select(port(external_policy="Local"), REMOTE, DRAINING)
    assert ips(selected.cluster) == ["10.244.1.1"]
    assert ips(selected.local) == ["10.244.0.3"]
    assert ips(selected.reachable) == ["10.244.0.3", "10.244.1.1"]


def test_internal_policy_local_needs_no_remote_endpoints() -> None:
    selected = select(port(internal_policy="Local"), READY, REMOTE)
    assert selected.cluster == ()
    assert ips(selected.local) == ips(selected.reachable) == ["10.244.0.1"]
    elsewhere = select(port(internal_policy="Local"), REMOTE)
    assert elsewhere.has_any
    assert elsewhere.reachable == ()


@pytest.mark.parametrize(
    ("hints", "zone", "topology", "chosen"),
    [
        ([{"zones": ("zone-a",)}, {"zones": ("zone-b",)}], "zone-a", "PreferSameZone", ["10.244.0.1"]),
        ([{"zones": ("zone-b",)}, {"zones": ("zone-b",)}], "zone-a", "", ["10.244.0.1", "10.244.0.2"]),
        ([{"zones": ("zone-a",)}, {}], "zone-a", "", ["10.244.0.1", "10.244.0.2"]),
        ([{"zones": ("zone-a",)}, {"zones": ("zone-b",)}], "", "", ["10.244.0.1", "10.244.0.2"]),
        (
            [{"zones": ("zone-a",), "nodes": ("node-1",)}, {"zones": ("zone-b",), "nodes": ("node-0",)}],
            "zone-a",
            "PreferSameNode",
            ["10.244.0.2"],
        ),
        (
            [{"zones": ("zone-a",), "nodes": ("node-1",)}, {"zones": ("zone-b",), "nodes": ("node-1",)}],
            "zone-a",
            "PreferSameZone",
            ["10.244.0.1"],
        ),
    ],
)
def test_topology_hints(hints: list[dict[str, tuple[str, ...]]], zone: str, topology: str, chosen: list[str]) -> None:
    made = [
        make_endpoint(f"10.244.0.{i}", node="node-1", zones=hint.get("zones", ()), nodes=hint.get("nodes", ()))
        for i, hint in enumerate(hints, start=1)
    ]
    selected = select(port(), *made, UNREADY, zone=zone)
    assert selected.topology == topology
    assert ips(selected.cluster) == chosen


def test_hints_do_not_narrow_the_local_policy() -> None:
    here = make_endpoint("10.244.0.1", zones=("zone-b",))
    there = make_endpoint("10.244.1.1", node="node-1", zones=("zone-a",))
    selected = select(port(external_policy="Local"), here, there)
    assert (ips(selected.cluster), ips(selected.local)) == (["10.244.1.1"], ["10.244.0.1"])
    assert ips(selected.reachable) == ["10.244.0.1", "10.244.1.1"]


def test_why_an_endpoint_is_unused() -> None:
    service_port = port()
    selected = select(service_port, READY, UNREADY, DRAINING, GONE)
    reasons = {ep.ip: why_unused(ep, service_port, selected) for ep in entries(READY, UNREADY, DRAINING, GONE)}
    assert reasons == {
        "10.244.0.1": "",
        "10.244.0.3": "terminating, and there are ready endpoints",
        "10.244.0.4": "terminating and no longer serving",
        "10.244.0.9": "not ready",
    }
    local = port(internal_policy="Local")
    assert "another node" in why_unused(entries(REMOTE)[0], local, select(local, READY, REMOTE))
    zoned = [make_endpoint("10.244.0.1", zones=("zone-a",)), make_endpoint("10.244.0.2", zones=("zone-b",))]
    assert "other zones" in why_unused(entries(*zoned)[1], service_port, select(service_port, *zoned))
