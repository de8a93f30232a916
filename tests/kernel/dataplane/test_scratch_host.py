"""The host that the kernel's word is asked on knows connections as the kernel would."""

from __future__ import annotations

import pytest

from kproxy.dataplane import Connection, Host, make_packet
from kproxy.dataplane.model.conntrack import ESTABLISHED, tuple_of
from kproxy.linux.testbed.host import RuleText, ScratchHost
from kproxy.netfilter import Family
from kproxy.netfilter.address import parse_address

pytestmark = pytest.mark.root

# A rule that asks for connections switches conntrack on.
NAT = RuleText("table {} t {{\n chain p {{\n type nat hook prerouting priority -100\n ct state new counter\n}}\n}}\n")


@pytest.mark.parametrize("protocol", ["tcp", "udp"])
@pytest.mark.parametrize(
    ("family", "client", "service", "endpoint"),
    [
        (Family.IPV4, "198.51.100.7:40000", "10.96.0.10:80", "10.244.0.5:8080"),
        (Family.IPV6, "[2001:db8:1::7]:40000", "[fd00:10:96::10]:80", "[fd00:10:244::5]:8080"),
    ],
)
def test_a_known_connection_is_translated(
    family: Family, client: str, service: str, endpoint: str, protocol: str
) -> None:
    table = RuleText(NAT.text.format("ip6" if family is Family.IPV6 else "ip"))
    sent = make_packet(client, service, protocol).replace(in_interface="eth0", in_port="")
    address, port = endpoint.rsplit(":", 1)
    original = tuple_of(sent)
    real = parse_address(address.strip("[]"), family)
    known = Connection(
        ESTABLISHED, original=original, reply=original.reversed()._replace(src=real, sport=int(port)), dnat=True
    )
    host = Host.simple(())
    with ScratchHost(family, [table]) as bed:
        (seen,) = bed.send(host, sent, known)
    assert seen is not None
    assert (seen.kind, seen.dst, seen.dport) == ("packet", address.strip("[]"), int(port))


def test_what_is_masqueraded_has_no_address_of_virtual_servers() -> None:
    """Of IPv6 the kernel takes the longest match among those of the link that the packet leaves by."""
    rules = RuleText("table ip6 t {\n chain p {\n type nat hook postrouting priority 100\n masquerade\n}\n}\n")
    sent = make_packet("[2001:db8:1::7]:40000", "[fd00:10:244::5]:8080", "tcp").replace(in_interface="eth0", in_port="")
    host = Host.simple(()).serving([(Family.IPV6, parse_address("fd00:10:244::10", Family.IPV6))])
    with ScratchHost(Family.IPV6, [rules]) as bed:
        (seen,) = bed.send(host, sent, Connection())
        own = bed.own.values()
    assert seen is not None
    assert parse_address(seen.src, Family.IPV6) in own
