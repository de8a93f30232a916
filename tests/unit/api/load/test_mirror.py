"""Endpoints to EndpointSlices."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kproxy.api.load.mirror import mirror_endpoints
from kproxy.api.types.core import Endpoints, Service
from kproxy.api.types.discovery import Endpoint, EndpointConditions, EndpointPort, EndpointSlice
from kproxy.api.types.meta import ObjectMeta
from kproxy.api.validation.discovery import validate_endpoint_slice
from kproxy.api.wire import convert, structs

SERVICE = Service(ObjectMeta("db", "ns"))
READY, NOT_READY = EndpointConditions(ready=True), EndpointConditions(ready=False)


def endpoints(*subsets: dict[str, Any], **meta: Any) -> Endpoints:
    value = {"metadata": {"name": "db", "namespace": "ns", **meta}, "subsets": list(subsets)}
    return convert.convert_endpoints(msgspec.convert(value, structs.WireEndpoints))


def mirrored(*subsets: dict[str, Any], **meta: Any) -> tuple[EndpointSlice, ...]:
    return mirror_endpoints([SERVICE], [], [endpoints(*subsets, **meta)])


SUBSET: dict[str, Any] = {"addresses": [{"ip": "10.0.0.1"}], "ports": [{"port": 5432}]}


def test_a_slice_per_family() -> None:
    first, second = mirrored({
        "addresses": [{"ip": "10.0.0.1", "nodeName": "n", "hostname": "h"}, {"ip": "fd00::1"}],
        "notReadyAddresses": [{"ip": "10.0.0.2"}],
        "ports": [{"name": "sql", "port": 5432, "appProtocol": "x"}, {"name": "m", "port": 9, "protocol": "UDP"}],
    })  # fmt: skip
    ports = (EndpointPort(5432, "sql", "TCP", "x"), EndpointPort(9, "m", "UDP"))
    assert (first.address_type, second.address_type) == ("IPv4", "IPv6")
    assert first.endpoints == (
        Endpoint(("10.0.0.1",), READY, "h", "n"),
        Endpoint(("10.0.0.2",), NOT_READY),
    )
    assert second.endpoints == (Endpoint(("fd00::1",), READY),)
    assert first.ports == second.ports == ports
    assert first.metadata.name.startswith("db-")
    assert first.metadata.name != second.metadata.name
    assert validate_endpoint_slice(first) == validate_endpoint_slice(second) == []


def test_metadata() -> None:
    labels = {"app": "db", "service.kubernetes.io/service-proxy-name": "x", "kubernetes.io/service-name": "wrong"}
    annotations = {"a": "b", "endpoints.kubernetes.io/last-change-trigger-time": "t",
                   "kubectl.kubernetes.io/last-applied-configuration": "{}"}  # fmt: skip
    (found,) = mirrored(SUBSET, labels=labels, annotations=annotations)
    assert found.metadata.namespace == "ns"
    assert found.metadata.labels == {
        "app": "db",
        "service.kubernetes.io/service-proxy-name": "x",
        "kubernetes.io/service-name": "db",
        "endpointslice.kubernetes.io/managed-by": "endpointslicemirroring-controller.k8s.io",
    }
    assert found.metadata.annotations == {"a": "b"}


@pytest.mark.parametrize(
    "meta",
    [
        {"labels": {"endpointslice.kubernetes.io/skip-mirror": "true"}},
        {"annotations": {"control-plane.alpha.kubernetes.io/leader": "{}"}},
        {"deletionTimestamp": "2026-01-01T00:00:00Z"},
        {"name": "other"},
        {"namespace": "other"},
    ],
)
def test_not_mirrored(meta: dict[str, Any]) -> None:
    assert mirrored(SUBSET, **meta) == ()


def test_skip_mirror_needs_true() -> None:
    assert len(mirrored(SUBSET, labels={"endpointslice.kubernetes.io/skip-mirror": "false"})) == 1


def test_only_without_slices_of_that_service() -> None:
    def labelled(namespace: str, service: str) -> EndpointSlice:
        return EndpointSlice(ObjectMeta("s", namespace, {"kubernetes.io/service-name": service}), "IPv4")

    item = endpoints(SUBSET)
    assert mirror_endpoints([SERVICE], [labelled("ns", "db")], [item]) == ()
    assert len(mirror_endpoints([SERVICE], [labelled("ns", "web"), labelled("default", "db")], [item])) == 1
    assert mirror_endpoints([], [], [item]) == ()


def test_a_selector_does_not_matter() -> None:
    spec = {"selector": {"app": "db"}}
    selecting = msgspec.convert({"metadata": {"name": "db", "namespace": "ns"}, "spec": spec}, structs.WireService)
    assert len(mirror_endpoints([convert.convert_service(selecting)], [], [endpoints(SUBSET)])) == 1


def test_subsets_with_the_same_ports_share_a_slice() -> None:
    one = {"addresses": [{"ip": "10.0.0.1"}], "ports": [{"name": "a", "port": 1}, {"name": "b", "port": 2}]}
    two = {"addresses": [{"ip": "10.0.0.2"}], "ports": [{"name": "b", "port": 2}, {"name": "a", "port": 1}]}
    other = {"addresses": [{"ip": "10.0.0.3"}], "ports": [{"name": "a", "port": 3}]}
    first, second = mirrored(one, two, other)
    assert [endpoint.addresses for endpoint in first.endpoints] == [("10.0.0.1",), ("10.0.0.2",)]
    assert [endpoint.addresses for endpoint in second.endpoints] == [("10.0.0.3",)]


def test_duplicates_count_once_and_not_ready_wins() -> None:
    (found,) = mirrored({
        "addresses": [{"ip": "10.0.0.1"}, {"ip": "10.0.0.2"}, {"ip": "10.0.0.1"}, {"ip": "10.0.0.1", "hostname": "h"}],
        "notReadyAddresses": [{"ip": "10.0.0.2"}],
    })  # fmt: skip
    assert found.endpoints == (
        Endpoint(("10.0.0.1",), READY),
        Endpoint(("10.0.0.2",), NOT_READY),
        Endpoint(("10.0.0.1",), READY, "h"),
    )


def test_at_most_a_thousand() -> None:
    many = [{"ip": f"10.0.{n >> 8}.{n & 255}"} for n in range(1500)]
    (found,) = mirrored({"addresses": many[:900], "notReadyAddresses": many[900:]})
    assert len(found.endpoints) == 1000
    assert sum(endpoint.conditions.ready is False for endpoint in found.endpoints) == 100
    (found,) = mirrored({"addresses": many[:900]}, {"addresses": many[900:]})
    assert len(found.endpoints) == 1000


def test_nothing_from_nothing() -> None:
    assert mirrored() == ()
    assert mirrored({"ports": [{"port": 80}]}) == ()


def test_names_are_deterministic_and_fit() -> None:
    (first,) = mirrored(SUBSET)
    (again,) = mirrored(SUBSET)
    assert first == again
    long = "a" * 253
    item = endpoints(SUBSET, name=long)
    (found,) = mirror_endpoints([Service(ObjectMeta(long, "ns"))], [], [item])
    assert len(found.metadata.name) <= 253
    # A Service has no such name; the label would not fit, and the API server would say so.
    assert [error.path for error in validate_endpoint_slice(found)] == ["metadata.labels"]


@given(st.permutations(range(6)), st.lists(st.booleans(), min_size=6, max_size=6))
def test_order_of_objects_does_not_matter(order: list[int], mirrored_already: list[bool]) -> None:
    services = [Service(ObjectMeta(f"s{n}", "ns")) for n in range(6)]
    items = [endpoints(SUBSET, name=f"s{n}") for n in range(6)]
    slices = [
        EndpointSlice(ObjectMeta(f"x{n}", "ns", {"kubernetes.io/service-name": f"s{n}"}), "IPv4")
        for n in range(6)
        if mirrored_already[n]
    ]
    expected = {item.metadata.name: item for item in mirror_endpoints(services, slices, items)}
    found = mirror_endpoints([services[n] for n in order], slices[::-1], [items[n] for n in order])
    assert {item.metadata.name: item for item in found} == expected
    assert len(expected) == mirrored_already.count(False)
