"""What a node's configuration and Node object mean."""

from __future__ import annotations

import pytest

from kproxy.api.types.core import Node, NodeAddress
from kproxy.api.types.meta import ObjectMeta
from kproxy.errors import InputError
from kproxy.services.names import IPFamily
from kproxy.services.node import (
    NodePortAddresses,
    detect_local,
    interface_addresses,
    node_ips,
    node_port_addresses,
    primary_family,
)
from tests.support.services.builders import make_node

V4, V6 = IPFamily.IPV4, IPFamily.IPV6
BOTH = "10.244.0.0/16,fd00:10:244::/56"


@pytest.mark.parametrize(
    ("mode", "family", "match"),
    [
        ("", V4, "-s 10.244.0.0/16"),
        ("ClusterCIDR", V6, "-s fd00:10:244::/56"),
        ("NodeCIDR", V4, "-s 10.244.7.0/24"),
        ("NodeCIDR", V6, ""),
        ("BridgeInterface", V4, "-i cni0"),
        ("InterfaceNamePrefix", V6, "-i veth+"),
    ],
)
def test_detect_local(mode: str, family: IPFamily, match: str) -> None:
    detector = detect_local(
        mode,
        family,
        cluster_cidr=BOTH,
        pod_cidrs=("10.244.7.0/24",),
        bridge_interface="cni0",
        interface_name_prefix="veth",
    )
    assert detector.if_local == match
    assert detector.if_not_local == (f"! {match}" if match else "")
    assert detector.is_implemented is bool(match)


@pytest.mark.parametrize(
    ("configured", "family", "wanted"),
    [
        ([], V4, NodePortAddresses()),
        (["192.168.0.0/24"], V4, NodePortAddresses(False, ("192.168.0.0/24",))),
        (["192.168.0.0/24"], V6, NodePortAddresses()),
        (["192.168.0.0/24", "0.0.0.0/0"], V4, NodePortAddresses()),
        (["primary"], V4, NodePortAddresses(False, ("192.168.0.2/32",))),
    ],
)
def test_node_port_addresses(configured: list[str], family: IPFamily, wanted: NodePortAddresses) -> None:
    assert node_port_addresses(configured, family, "192.168.0.2" if family is V4 else "::1") == wanted


def test_node_ips_prefer_internal_addresses_and_bind_address_overrides() -> None:
    node = Node(
        ObjectMeta("n"),
        addresses=(
            NodeAddress("ExternalIP", "198.51.100.1"),
            NodeAddress("InternalIP", "192.168.0.2"),
            NodeAddress("InternalIP", "192.168.0.3"),
            NodeAddress("Hostname", "n"),
        ),
    )
    assert node_ips(node) == {V4: "192.168.0.2", V6: "::1"}
    assert node_ips(node, "0.0.0.0") == {V4: "192.168.0.2", V6: "::1"}
    assert node_ips(node, "192.168.0.9")[V4] == "192.168.0.9"
    assert node_ips(None) == {V4: "127.0.0.1", V6: "::1"}


def test_primary_family_and_interface_addresses() -> None:
    six_first = make_node(ips=("2001:db8::2", "192.168.0.2"))
    assert primary_family(six_first) is V6
    assert primary_family(None) is V4
    assert primary_family(None, "::") is V4, "an unspecified bindAddress says nothing"
    assert primary_family(make_node(), "2001:db8::9") is V6, "a specific one decides"
    assert interface_addresses(six_first, V4) == ("127.0.0.1", "192.168.0.2")
    assert interface_addresses(None, V6) == ("::1",)


def test_node_addresses_that_are_no_ip_are_passed_over() -> None:
    entries = ("foo", "", "10.0.0.1 ", "fe80::1%eth0", "010.0.0.7", "::ffff:10.0.0.8")
    node = Node(ObjectMeta("n"), addresses=tuple(NodeAddress("InternalIP", entry) for entry in entries))
    assert node_ips(node) == {V4: "10.0.0.7", V6: "::1"}
    assert interface_addresses(node, V4) == ("127.0.0.1", "10.0.0.7", "10.0.0.8")
    assert interface_addresses(node, V6) == ("::1",)


def test_an_external_ip_is_on_no_interface_but_may_be_the_nodes_ip() -> None:
    node = Node(ObjectMeta("n"), addresses=(NodeAddress("ExternalIP", "198.51.100.1"),))
    assert node_ips(node)[V4] == "198.51.100.1"
    assert interface_addresses(node, V4) == ("127.0.0.1",)


def test_configuration_is_read_as_go_reads_it() -> None:
    assert detect_local("ClusterCIDR", V4, cluster_cidr="010.244.0.0/16").if_local == "-s 10.244.0.0/16"
    assert detect_local("ClusterCIDR", V4, cluster_cidr="010.244.0.0/16").written == "10.244.0.0/16"
    six = detect_local("NodeCIDR", IPFamily.IPV6, pod_cidrs=("fd00:10:244:0::/64",))
    assert (six.source, six.written) == ("fd00:10:244::/64", "fd00:10:244:0::/64")
    assert node_port_addresses(["010.0.0.0/8"], V4, "192.168.0.2").cidrs == ("10.0.0.0/8",)
    assert node_ips(None, "010.0.0.1")[V4] == "10.0.0.1"
    assert node_ips(None, "::ffff:10.0.0.7") == {V4: "10.0.0.7", V6: "::1"}


@pytest.mark.parametrize("name", ["a b", "a\n-A X", "x" * 16, "a/b", "-x", 'a"b', "!a"])
def test_names_that_no_interface_can_have_are_refused(name: str) -> None:
    with pytest.raises(InputError, match=r"detectLocal\.bridgeInterface"):
        detect_local("BridgeInterface", V4, bridge_interface=name)
    with pytest.raises(InputError, match=r"detectLocal\.interfaceNamePrefix"):
        detect_local("InterfaceNamePrefix", V4, interface_name_prefix=name)
