"""Options: what configuration and Node object decide."""

from __future__ import annotations

import msgspec

from kproxy.api.kubeproxyconfig.types import KubeProxyConfiguration
from kproxy.render import Features, render_options
from kproxy.services import IPFamily, NodePortAddresses
from tests.support.services.builders import make_node

V4, V6 = IPFamily.IPV4, IPFamily.IPV6
DEFAULT = KubeProxyConfiguration()


def test_defaults_are_kube_proxys() -> None:
    options = render_options(DEFAULT, V4, "node-0", make_node(zone="zone-a"))
    assert options.mark == "0x00004000"
    assert (options.zone, options.node_ip) == ("zone-a", "192.168.0.2")
    assert options.interface_addresses == ("127.0.0.1", "192.168.0.2")
    assert (options.masquerade_all, options.localhost_node_ports, options.drop_invalid) == (False, True, True)
    assert options.features == Features(nfacct=False, random_fully=True)
    assert not options.local_traffic.is_implemented


def test_without_a_node_object_zone_and_addresses_are_unknown() -> None:
    options = render_options(DEFAULT, V6, "node-0")
    assert (options.zone, options.node_ip, options.interface_addresses) == ("", "::1", ("::1",))


def test_interface_addresses_can_be_given() -> None:
    config = msgspec.structs.replace(DEFAULT, node_port_addresses=("10.0.0.0/8",))
    options = render_options(config, V4, "node-0", make_node(), addresses=["10.1.2.3", "192.168.0.2"])
    assert options.node_port_addresses == NodePortAddresses(False, ("10.0.0.0/8",))
    assert options.node_port_addresses.matching(options.interface_addresses) == ("10.1.2.3",)
