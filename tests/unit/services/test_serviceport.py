"""ServicePorts: what kube-proxy reads out of a Service, per family."""

from __future__ import annotations

import pytest

from kproxy.services.names import IPFamily, ServicePortName
from kproxy.services.serviceport import service_ports, why_skipped
from tests.support.services.builders import make_service

V4, V6 = IPFamily.IPV4, IPFamily.IPV6
WEB = ServicePortName("shop", "web", "", "TCP")


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
