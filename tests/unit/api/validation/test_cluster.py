"""Rules between Services."""

from __future__ import annotations

from typing import Any

import msgspec

from kproxy.api.types.core import Service
from kproxy.api.validation.cluster import collisions
from kproxy.api.wire import convert, structs


def service(name: str, **spec: Any) -> Service:
    return convert.convert_service(msgspec.convert({"metadata": {"name": name}, "spec": spec}, structs.WireService))


def found(*services: Service) -> list[str]:
    places = {("Service", item.metadata.key): f"{item.metadata.name}.yaml" for item in services}
    return [f"{item.metadata.name}: {error}" for item, error in collisions(services, places)]


def test_cluster_ips() -> None:
    first = service("a", clusterIPs=["10.0.0.1", "fd00::1"])
    assert found(first, service("b", clusterIPs=["10.0.0.2", "fd00::2"])) == []
    assert found(first, service("b", clusterIPs=["10.0.0.2", "FD00:0::1"])) == [
        'b: spec.clusterIPs: Invalid value: ["10.0.0.2","fd00::1"]: failed to allocate IP fd00::1: provided IP is '
        "already allocated to Service default/a (a.yaml)"
    ]
    assert found(service("a", clusterIP="None"), service("b", clusterIP="None"), service("c"), service("d")) == []


def test_node_ports() -> None:
    def exposed(name: str, *ports: tuple[int, str]) -> Service:
        listed = [{"name": f"p{n}", "port": n + 1, "nodePort": port, "protocol": protocol}
                  for n, (port, protocol) in enumerate(ports)]  # fmt: skip
        return service(name, type="NodePort", ports=listed)

    assert found(exposed("a", (30053, "TCP"), (30053, "UDP")), exposed("b", (30053, "SCTP"), (0, "TCP"))) == []
    assert found(exposed("a", (0, "TCP"), (0, "TCP")), exposed("b", (0, "TCP"))) == []
    assert found(exposed("a", (30053, "TCP")), exposed("b", (30000, "UDP"), (30053, "TCP"))) == [
        "b: spec.ports[1].nodePort: Invalid value: 30053: provided port is already allocated to Service default/a "
        "(a.yaml)"
    ]
    # Twice within one Service is that Service's own error, which validate_service reports.
    assert found(exposed("a", (30053, "TCP"), (30053, "TCP"))) == []


def test_health_check_node_ports() -> None:
    def checked(name: str, port: int, node_port: int = 0, protocol: str = "TCP") -> Service:
        listed = [{"port": 80, "nodePort": node_port, "protocol": protocol}]
        return service(name, type="LoadBalancer", externalTrafficPolicy="Local", healthCheckNodePort=port, ports=listed)

    taken = "b: spec.healthCheckNodePort: Invalid value: 31000: provided port is already allocated to Service default/a"
    assert found(checked("a", 31000), checked("b", 31001)) == []
    assert found(checked("a", 31000), checked("b", 31000)) == [f"{taken} (a.yaml)"]
    assert found(checked("a", 0, 31000), checked("b", 31000)) == [f"{taken} (a.yaml)"]
    assert found(checked("a", 0, 31000, "UDP"), checked("b", 31000)) == []
    assert found(checked("a", 31000), checked("b", 0, 31000)) == [
        "b: spec.ports[0].nodePort: Invalid value: 31000: provided port is already allocated to Service default/a "
        "(a.yaml)"
    ]
    assert found(checked("a", 31000, 31000)) == [
        "a: spec.healthCheckNodePort: Invalid value: 31000: provided port is already allocated to Service default/a "
        "(a.yaml)"
    ]


def test_external_name_services_own_nothing() -> None:
    alias = service("b", type="ExternalName", clusterIP="10.0.0.1")
    assert found(service("a", clusterIP="10.0.0.1"), alias) == []
