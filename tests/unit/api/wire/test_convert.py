"""Defaults, canonical addresses and sharing. The expected defaults are what a v1.36.2 API server answered."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import msgspec
import pytest

from kproxy.api.types.core import LoadBalancerIngress, Node, NodeAddress, Service, ServicePort, ServiceSpec
from kproxy.api.types.discovery import EndpointConditions, EndpointHints, EndpointPort, EndpointSlice
from kproxy.api.types.meta import EMPTY
from kproxy.api.wire import convert, structs


def service(spec: dict[str, Any] | None = None, **rest: Any) -> Service:
    value = {"metadata": {"name": "a"}, "spec": spec, **rest}
    return convert.convert_service(msgspec.convert(value, structs.WireService))


def endpoint_slice(**fields: Any) -> EndpointSlice:
    return convert.convert_endpoint_slice(msgspec.convert(fields, structs.WireEndpointSlice))


def test_plain_service() -> None:
    found = service({"ports": [{"port": 80}], "selector": {"app": "a"}, "clusterIP": "10.98.55.129"})
    assert found.metadata.key == "default/a"
    assert found.spec == ServiceSpec(
        type="ClusterIP",
        cluster_ip="10.98.55.129",
        cluster_ips=("10.98.55.129",),
        ip_families=("IPv4",),
        ip_family_policy="SingleStack",
        ports=(ServicePort(80, "", "TCP", 80, 0, None),),
        selector={"app": "a"},
        session_affinity="None",
        internal_traffic_policy="Cluster",
    )
    assert found.ingress == ()


def test_nothing_is_allocated() -> None:
    found = service({"type": "LoadBalancer", "externalTrafficPolicy": "Local", "ports": [{"port": 80}]}).spec
    assert (found.cluster_ip, found.cluster_ips, found.ip_families) == ("", (), ())
    assert (found.ports[0].node_port, found.health_check_node_port) == (0, 0)
    assert found.allocate_load_balancer_node_ports is True


@pytest.mark.parametrize(
    ("spec", "policy"),
    [
        ({}, None),
        ({"type": "NodePort"}, "Cluster"),
        ({"type": "LoadBalancer"}, "Cluster"),
        ({"type": "NodePort", "externalTrafficPolicy": "Local"}, "Local"),
        ({"externalIPs": ["192.0.2.1"]}, "Cluster"),
        ({"type": "ExternalName", "externalName": "a.b"}, None),
        ({"type": "NodePort", "externalTrafficPolicy": ""}, "Cluster"),
    ],
)
def test_external_traffic_policy(spec: dict[str, Any], policy: str | None) -> None:
    assert service(spec).spec.external_traffic_policy == policy


def test_external_name_has_no_families_and_no_policies() -> None:
    found = service({"type": "ExternalName", "externalName": "example.org", "clusterIP": ""}).spec
    assert found == ServiceSpec(type="ExternalName", external_name="example.org")
    assert found.internal_traffic_policy is None


@pytest.mark.parametrize(
    ("spec", "ips", "families", "policy"),
    [
        ({"clusterIPs": ["fd00::1"]}, ("fd00::1",), ("IPv6",), "SingleStack"),
        ({"clusterIP": "FD00:0::1"}, ("fd00::1",), ("IPv6",), "SingleStack"),
        ({"clusterIPs": ["fd00::1", "10.0.0.1"]}, ("fd00::1", "10.0.0.1"), ("IPv6", "IPv4"), "RequireDualStack"),
        ({"clusterIPs": ["10.0.0.1"], "ipFamilies": ["IPv4", "IPv6"]}, ("10.0.0.1",), ("IPv4", "IPv6"),
         "RequireDualStack"),
        ({"clusterIP": "None"}, ("None",), (), "RequireDualStack"),
        ({"clusterIP": "None", "selector": {"a": "b"}}, ("None",), (), "SingleStack"),
        ({"clusterIP": "10.0.0.1", "ipFamilyPolicy": "PreferDualStack"}, ("10.0.0.1",), ("IPv4",), "PreferDualStack"),
        ({"clusterIP": "nonsense"}, ("nonsense",), (), "SingleStack"),
        ({}, (), (), "SingleStack"),
    ],
)  # fmt: skip
def test_cluster_ips_and_families(
    spec: dict[str, Any], ips: tuple[str, ...], families: tuple[str, ...], policy: str
) -> None:
    found = service(spec).spec
    assert (found.cluster_ips, found.ip_families, found.ip_family_policy) == (ips, families, policy)
    assert found.cluster_ip == (ips[0] if ips else "")


@pytest.mark.parametrize(
    ("spec", "timeout"),
    [
        ({}, None),
        ({"sessionAffinity": "ClientIP"}, 10800),
        ({"sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": None}}, 10800),
        ({"sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 5}}}, 5),
        ({"sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 0}}}, 0),
        ({"sessionAffinity": "None", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 5}}}, None),
    ],
)
def test_session_affinity(spec: dict[str, Any], timeout: int | None) -> None:
    assert service(spec).spec.session_affinity_timeout == timeout


def test_ports() -> None:
    found = service({"ports": [
        {"port": 80, "targetPort": "http", "name": "a", "appProtocol": "h2c"},
        {"port": 53, "protocol": "UDP", "targetPort": 0, "nodePort": 30053},
        {"port": 54, "targetPort": ""},
    ]}).spec.ports  # fmt: skip
    assert found == (
        ServicePort(80, "a", "TCP", "http", 0, "h2c"),
        ServicePort(53, "", "UDP", 53, 30053),
        ServicePort(54, "", "TCP", 54),
    )


def test_ingress_mode_defaults_only_for_an_ip_of_a_load_balancer() -> None:
    ingress = [{"ip": "192.0.2.1"}, {"hostname": "a.b"}, {"ip": "2001:DB8::1", "ipMode": "Proxy"}]
    status = {"loadBalancer": {"ingress": ingress}}
    assert service({"type": "LoadBalancer"}, status=status).ingress == (
        LoadBalancerIngress("192.0.2.1", "", "VIP"),
        LoadBalancerIngress("", "a.b", None),
        LoadBalancerIngress("2001:db8::1", "", "Proxy"),
    )
    assert service({}, status=status).ingress[0].ip_mode is None


def test_source_ranges_are_trimmed_and_keep_their_host_bits() -> None:
    found = service({"loadBalancerSourceRanges": [" 10.0.0.0/8 ", "198.51.100.7/24", "2001:DB8::/32", "x "]}).spec
    assert found.load_balancer_source_ranges == ("10.0.0.0/8", "198.51.100.7/24", "2001:db8::/32", "x")


def test_meta() -> None:
    meta = {
        "name": "a", "namespace": "ns", "labels": {"x": None, "y": "z"}, "annotations": {}, "uid": "u",
        "resourceVersion": "7", "generation": 3, "creationTimestamp": None, "deletionTimestamp": "2026-01-01T00:00:00Z",
    }  # fmt: skip
    found = service(None, metadata=meta).metadata
    assert found.labels == {"x": "", "y": "z"}
    assert isinstance(found.labels, MappingProxyType)
    assert found.annotations is EMPTY
    assert (found.key, found.uid, found.resource_version, found.generation) == ("ns/a", "u", "7", 3)
    assert (found.creation_timestamp, found.deletion_timestamp) == ("", "2026-01-01T00:00:00Z")


def test_endpoint_slice() -> None:
    found = endpoint_slice(
        metadata={"name": "s"},
        addressType="IPv6",
        endpoints=[
            {"addresses": ["FD00::0:1"]},
            {"addresses": ["fd00::2", "fd00::3"], "conditions": {}, "hostname": "h", "nodeName": "n", "zone": "z"},
            {"addresses": None, "conditions": {"ready": True, "serving": None, "terminating": False}, "hints": {}},
            {"addresses": [None], "hints": {"forZones": [{"name": "a"}, {}], "forNodes": [{"name": "n"}]}},
        ],
        ports=[{"port": 80}, {"name": None, "port": None, "protocol": "UDP", "appProtocol": "x"}],
    )
    assert [endpoint.addresses for endpoint in found.endpoints] == [("fd00::1",), ("fd00::2", "fd00::3"), (), ("",)]
    assert found.endpoints[0].conditions == found.endpoints[1].conditions == EndpointConditions()
    assert found.endpoints[2].conditions == EndpointConditions(True, None, False)
    assert (found.endpoints[1].hostname, found.endpoints[1].node_name, found.endpoints[1].zone) == ("h", "n", "z")
    assert [endpoint.hints for endpoint in found.endpoints] == [
        None, None, EndpointHints(), EndpointHints(("a", ""), ("n",)),
    ]  # fmt: skip
    assert found.ports == (EndpointPort(80, "", "TCP"), EndpointPort(None, "", "UDP", "x"))
    assert endpoint_slice() == EndpointSlice(found.metadata.__class__("", "default"), "")


@pytest.mark.parametrize(
    ("spec", "cidrs"),
    [
        ({"podCIDR": "10.0.0.0/24"}, ("10.0.0.0/24",)),
        ({"podCIDR": "10.0.0.0/24", "podCIDRs": ["10.0.0.0/24", "FD00::/64"]}, ("10.0.0.0/24", "FD00::/64")),
        ({"podCIDRs": None}, ()),
        (None, ()),
    ],
)
def test_node(spec: dict[str, Any] | None, cidrs: tuple[str, ...]) -> None:
    value = {
        "metadata": {"name": "n"},
        "spec": spec,
        "status": {"addresses": [{"type": "InternalIP", "address": "FD00::1"}, {"type": "Hostname", "address": "n"}]},
    }
    found = convert.convert_node(msgspec.convert(value, structs.WireNode))
    assert found.pod_cidrs == cidrs
    assert found.addresses == (NodeAddress("InternalIP", "fd00::1"), NodeAddress("Hostname", "n"))
    assert found.metadata.namespace == ""
    assert found.metadata.key == "n"


def test_convert_takes_every_kind() -> None:
    for _, struct in structs.KINDS.values():
        assert type(convert.convert(struct())).__name__ == struct.__name__.removeprefix("Wire")
    assert isinstance(convert.convert(structs.WireNode()), Node)
