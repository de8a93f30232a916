"""The helpers that interpret configuration values."""

from __future__ import annotations

from ipaddress import ip_network

import pytest

from kproxy.api.kubeproxyconfig.types import IPTables, KubeProxyConfiguration, json_name, parse_network


def test_masquerade_mark() -> None:
    assert KubeProxyConfiguration().masquerade_mark == 0x4000
    assert KubeProxyConfiguration(iptables=IPTables(masquerade_bit=0)).masquerade_mark == 1
    assert KubeProxyConfiguration(iptables=IPTables(masquerade_bit=31)).masquerade_mark == 0x80000000


def test_node_ports_on_the_primary_addresses_only() -> None:
    assert KubeProxyConfiguration(node_port_addresses=("primary",)).node_ports_on_primary_only
    assert not KubeProxyConfiguration(node_port_addresses=("192.168.0.0/24",)).node_ports_on_primary_only


@pytest.mark.parametrize(
    ("text", "network"),
    [
        ("10.1.2.3/8", "10.0.0.0/8"),
        ("010.001.002.003/08", "10.0.0.0/8"),
        ("0.0.0.0/0", "0.0.0.0/0"),
        ("FD00::1/64", "fd00::/64"),
    ],
)
def test_parse_network(text: str, network: str) -> None:
    assert parse_network(text) == ip_network(network)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "10.0.0.0",
        "10.0.0.0/",
        "10.0.0.0/33",
        "10.0.0.0/255.0.0.0",
        "10.0.0.0/+8",
        "10.0.0.0/٨",
        "10.0.0/8",
        "fd00::/129",
        "fe80::1%eth0/64",
        "/8",
        "10.0.0.256/8",
        " 10.0.0.0/8",
        "10.0.0.0/" + "9" * 5000,
        "1/8/8",
    ],
)
def test_not_a_network(text: str) -> None:
    with pytest.raises(ValueError, match="invalid CIDR address: "):
        parse_network(text)


@pytest.mark.parametrize(
    ("field", "name"),
    [
        ("iptables", "iptables"),
        ("masquerade_bit", "masqueradeBit"),
        ("tcp_be_liberal", "tcpBeLiberal"),
        ("show_hidden_metrics_for_version", "showHiddenMetricsForVersion"),
        ("cluster_cidr", "clusterCIDR"),
        ("strict_arp", "strictARP"),
    ],
)
def test_json_name(field: str, name: str) -> None:
    assert json_name(field) == name
