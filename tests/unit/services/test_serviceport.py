"""ServicePorts: what kube-proxy reads out of a Service, per family."""

from __future__ import annotations

import pytest

from kproxy.api.types.core import LoadBalancerIngress, ServicePort
from kproxy.services.names import IPFamily, ServicePortName
from kproxy.services.serviceport import cluster_ip_of, service_ports, why_skipped
from tests.support.services.builders import make_service

V4, V6 = IPFamily.IPV4, IPFamily.IPV6
WEB = ServicePortName("shop", "web", "", "TCP")


def test_a_plain_service_has_one_port_in_its_family_only() -> None:
    service = make_service()
    assert list(service_ports(service, V4)) == [WEB]
    assert service_ports(service, V4)[WEB].cluster_ip == "10.96.0.1"
    assert service_ports(service, V6) == {}


def test_dual_stack_gives_each_family_its_own_addresses() -> None:
    service = make_service(
        cluster_ips=("fd00::1", "10.96.0.1"),
        type="LoadBalancer",
        external_ips=("198.51.100.1", "2001:db8::1"),
        ingress=(LoadBalancerIngress("203.0.113.1"), LoadBalancerIngress("2001:db8::2")),
        source_ranges=("10.0.0.0/8", "2001:db8::/64"),
    )
    four, six = service_ports(service, V4)[WEB], service_ports(service, V6)[WEB]
    assert (four.cluster_ip, six.cluster_ip) == ("10.96.0.1", "fd00::1")
    assert (four.external_ips, six.external_ips) == (("198.51.100.1",), ("2001:db8::1",))
    assert (four.load_balancer_vips, six.load_balancer_vips) == (("203.0.113.1",), ("2001:db8::2",))
    assert (four.load_balancer_source_ranges, six.load_balancer_source_ranges) == (("10.0.0.0/8",), ("2001:db8::/64",))


def test_a_label_headless_keeps_no_service_with_a_cluster_ip_from_its_rules() -> None:
    assert service_ports(make_service(labels={"service.kubernetes.io/headless": ""}), V4)


@pytest.mark.parametrize(
    ("service", "words"),
    [
        (make_service(labels={"service.kubernetes.io/service-proxy-name": ""}), "another proxy"),
        (make_service(type="ExternalName"), "ExternalName"),
        (make_service(cluster_ips=("None",)), "headless"),
        (make_service(cluster_ips=()), "no clusterIP"),
    ],
)
def test_services_that_kube_proxy_skips(service: object, words: str) -> None:
    from kproxy.api.types.core import Service

    assert isinstance(service, Service)
    assert words in why_skipped(service)
    assert service_ports(service, V4) == {}


def test_load_balancer_ingress_counts_only_with_an_ip_in_mode_vip() -> None:
    service = make_service(
        type="LoadBalancer",
        ingress=(
            LoadBalancerIngress("203.0.113.1", ip_mode="Proxy"),
            LoadBalancerIngress("203.0.113.2", ip_mode="VIP"),
            LoadBalancerIngress("203.0.113.3"),
            LoadBalancerIngress(hostname="lb.example"),
        ),
    )
    assert service_ports(service, V4)[WEB].load_balancer_vips == ("203.0.113.2", "203.0.113.3")


@pytest.mark.parametrize(
    ("ranges", "wanted"),
    [
        ((" 10.0.0.0/8 ", "198.51.100.7/24"), ("10.0.0.0/8", "198.51.100.0/24")),
        (("10.0.0.0/8", "0.0.0.0/0"), ()),
        (("10.0.0.0/8", "::/0"), ("10.0.0.0/8",)),
        (("2001:db8::/64",), ()),
    ],
)
def test_source_ranges_are_trimmed_masked_and_none_when_one_is_everything(
    ranges: tuple[str, ...], wanted: tuple[str, ...]
) -> None:
    service = make_service(type="LoadBalancer", source_ranges=ranges)
    assert service_ports(service, V4)[WEB].load_balancer_source_ranges == wanted


@pytest.mark.parametrize(
    ("type", "external_ips", "policy", "is_local"),
    [
        ("ClusterIP", (), "Local", False),
        ("ClusterIP", ("198.51.100.1",), "Local", True),
        ("NodePort", (), "Local", True),
        ("NodePort", (), "Cluster", False),
        ("LoadBalancer", (), "Local", True),
    ],
)
def test_the_external_policy_matters_only_for_services_that_accept_external_traffic(
    type: str, external_ips: tuple[str, ...], policy: str, is_local: bool
) -> None:
    service = make_service(type=type, external_ips=external_ips, external_policy=policy)
    assert service_ports(service, V4)[WEB].external_policy_local is is_local


def test_the_health_check_node_port_needs_load_balancer_and_local() -> None:
    both = make_service(type="LoadBalancer", external_policy="Local", health_check_node_port=30100)
    cluster = make_service(type="LoadBalancer", external_policy="Cluster", health_check_node_port=30100)
    node_port = make_service(type="NodePort", external_policy="Local", health_check_node_port=30100)
    assert service_ports(both, V4)[WEB].health_check_node_port == 30100
    assert service_ports(cluster, V4)[WEB].health_check_node_port == 0
    assert service_ports(node_port, V4)[WEB].health_check_node_port == 0


def test_which_endpoints_a_port_uses_follows_from_policies_and_reachability() -> None:
    plain = service_ports(make_service(), V4)[WEB]
    internal = service_ports(make_service(internal_policy="Local"), V4)[WEB]
    node_port = ServicePort(port=80, node_port=30080)
    external = service_ports(make_service(ports=(node_port,), type="NodePort", external_policy="Local"), V4)[WEB]
    assert (plain.uses_cluster_endpoints, plain.uses_local_endpoints) == (True, False)
    assert (internal.uses_cluster_endpoints, internal.uses_local_endpoints) == (False, True)
    assert (external.uses_cluster_endpoints, external.uses_local_endpoints) == (True, True)


def test_cluster_ip_of_falls_back_to_the_single_field() -> None:
    from kproxy.api.types.core import ServiceSpec

    assert cluster_ip_of(ServiceSpec(cluster_ip="10.96.0.9"), V4) == "10.96.0.9"
    assert cluster_ip_of(ServiceSpec(cluster_ip="10.96.0.9"), V6) == ""


def test_names_print_as_kube_proxy_prints_them() -> None:
    assert str(ServicePortName("kube-system", "kube-dns", "dns", "UDP")) == "kube-system/kube-dns:dns"
    assert str(WEB) == "shop/web"
