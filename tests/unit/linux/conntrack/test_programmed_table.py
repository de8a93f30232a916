"""Where the nftables rules in the kernel send UDP and SCTP."""

from __future__ import annotations

from kproxy.linux.conntrack.programmed import table_addresses
from tests.support.linux.nft_tables import parse_script

TABLE = """\
add table ip kube-proxy
add chain ip kube-proxy service-AAAAAAAA-ns/dns/udp/p
add chain ip kube-proxy external-AAAAAAAA-ns/dns/udp/p
add chain ip kube-proxy service-BBBBBBBB-ns/web/tcp/
add chain ip kube-proxy service-CCCCCCCC-ns/sticky/sctp/
add chain ip kube-proxy endpoint-DDDDDDDD-ns/sticky/sctp/__10.0.0.3/5
add map ip kube-proxy service-ips { type ipv4_addr . inet_proto . inet_service : verdict ; }
add rule ip kube-proxy service-AAAAAAAA-ns/dns/udp/p meta l4proto udp dnat ip addr . port to numgen random mod 2 map \
{ 0 : 10.0.0.1 . 53 , 1 : 10.0.0.2 . 53 }
add rule ip kube-proxy external-AAAAAAAA-ns/dns/udp/p goto service-AAAAAAAA-ns/dns/udp/p
add rule ip kube-proxy service-BBBBBBBB-ns/web/tcp/ meta l4proto tcp dnat ip addr . port to numgen random mod 1 map \
{ 0 : 10.0.0.9 . 80 }
add rule ip kube-proxy service-CCCCCCCC-ns/sticky/sctp/ numgen random mod 1 vmap \
{ 0 : goto endpoint-DDDDDDDD-ns/sticky/sctp/__10.0.0.3/5 }
add rule ip kube-proxy endpoint-DDDDDDDD-ns/sticky/sctp/__10.0.0.3/5 meta l4proto sctp dnat to 10.0.0.3:5
add element ip kube-proxy cluster-ips { 10.96.0.1 }
add element ip kube-proxy service-ips { 10.96.0.1 . udp . 53 : goto service-AAAAAAAA-ns/dns/udp/p }
add element ip kube-proxy service-ips { 10.96.0.2 . tcp . 80 : goto service-BBBBBBBB-ns/web/tcp/ }
add element ip kube-proxy service-ips { 10.96.0.3 . sctp . 5 : goto service-CCCCCCCC-ns/sticky/sctp/ }
add element ip kube-proxy service-nodeports { udp . 30053 : goto external-AAAAAAAA-ns/dns/udp/p }
"""


def test_addresses_lead_to_endpoints_through_chains_and_maps() -> None:
    found = table_addresses(parse_script(TABLE))
    dns = frozenset(("10.0.0.1:53", "10.0.0.2:53"))
    assert found.services == {
        ("UDP", "10.96.0.1", 53): "ns/dns:p",
        ("SCTP", "10.96.0.3", 5): "ns/sticky",
        ("UDP", "", 30053): "ns/dns:p",
    }
    assert found.endpoints[("UDP", "10.96.0.1", 53)] == found.endpoints[("UDP", "", 30053)] == dns
    assert found.endpoints[("SCTP", "10.96.0.3", 5)] == {"10.0.0.3:5"}
    assert found.all_endpoints == {*dns, "10.0.0.3:5"}


def test_ipv6_endpoints_have_brackets() -> None:
    text = TABLE.replace("ip kube-proxy", "ip6 kube-proxy").replace("10.0.0.1 . 53", "fd00::1 . 53")
    assert "[fd00::1]:53" in table_addresses(parse_script(text)).all_endpoints


def test_no_table() -> None:
    assert table_addresses(None).services == {}
