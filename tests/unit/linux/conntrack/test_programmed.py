"""Where the rules in the kernel send UDP and SCTP, and which entries have gone stale."""

from __future__ import annotations

import pytest

from kproxy.cluster.facts.conntrack import Flow, parse_flows
from kproxy.cluster.stale_flows import Addresses, desired_addresses, stale_flows
from kproxy.linux.conntrack.programmed import programmed_addresses, table_addresses
from kproxy.linux.iptables.executor import parse_dump
from kproxy.services import IPFamily, ServiceState
from tests.support.linux.nft_tables import parse_script
from tests.support.recorded import CLUSTERS, load, render

DNS = "kube-system/dns/UDP"
WANTED = Addresses(
    {("UDP", "10.96.0.10", 53): DNS, ("UDP", "", 30053): DNS, ("UDP", "10.96.0.11", 53): "x/empty/UDP"},
    {
        ("UDP", "10.96.0.10", 53): frozenset({"10.244.0.5:5353"}),
        ("UDP", "", 30053): frozenset({"10.244.0.5:5353"}),
        ("UDP", "10.96.0.11", 53): frozenset(),
    },
    frozenset({"10.244.0.5:5353"}),
)
BEFORE = Addresses(
    {("UDP", "10.96.0.12", 53): "x/gone", ("UDP", "", 30054): "x/gone", ("UDP", "", 30053): "kube-system/dns"},
    {},
    frozenset({"10.244.0.5:5353", "10.244.0.6:5353"}),
)


def flow(to: str, dport: int, via: str, port: int) -> Flow:
    return Flow("UDP", "10.0.0.1", 4000, to, dport, via, port, "10.0.0.1", 4000)


@pytest.mark.parametrize(
    ("to", "dport", "via", "port", "reason"),
    [
        ("10.96.0.10", 53, "10.244.0.5", 5353, ""),
        ("10.96.0.10", 53, "10.244.0.6", 5353, "is no endpoint any more"),
        ("10.96.0.10", 53, "10.96.0.10", 53, "before there were endpoints"),
        ("10.96.0.11", 53, "10.244.0.6", 5353, "no endpoints any more"),
        ("10.96.0.11", 53, "10.96.0.11", 53, ""),
        ("10.96.0.12", 53, "10.244.0.6", 5353, "no Service has 10.96.0.12:53"),
        ("10.96.0.12", 53, "10.9.9.9", 5353, ""),
        ("192.0.2.1", 30053, "10.244.0.5", 5353, ""),
        ("192.0.2.1", 30053, "10.244.0.6", 5353, "is no endpoint any more"),
        ("192.0.2.1", 30053, "192.0.2.1", 30053, "before there were endpoints"),
        ("198.51.100.7", 30053, "198.51.100.7", 30053, ""),
        ("192.0.2.1", 30054, "10.244.0.6", 5353, "no Service has node port 30054"),
        ("192.0.2.1", 30055, "10.244.0.6", 5353, ""),
        ("8.8.8.8", 53, "8.8.8.8", 53, ""),
        ("172.17.0.1", 53, "172.17.0.5", 53, ""),
    ],
)
def test_each_kind(to: str, dport: int, via: str, port: int, reason: str) -> None:
    found = stale_flows([flow(to, dport, via, port)], WANTED, BEFORE, ("192.0.2.1",))
    assert [reason in each.reason for each in found] == ([True] if reason else [])


def test_another_programs_translation_at_a_new_node_port_is_kept() -> None:
    nothing = Addresses({}, {}, frozenset())
    assert stale_flows([flow("192.0.2.1", 30053, "172.17.0.5", 53)], WANTED, nothing, ()) == []


@pytest.mark.parametrize("family", list(IPFamily), ids=lambda family: str(family.value))
def test_rules_tell_the_addresses_that_they_were_made_from(family: IPFamily) -> None:
    """What is read out of the kernel's rules is what the state says, as far as it has endpoints."""
    seen = 0
    for case in CLUSTERS:
        manifests, _ = load(case)
        rendered = render(case, family)
        state = ServiceState.of(family, "node-0", manifests.services, manifests.endpoint_slices)
        wanted = desired_addresses(state)
        read = programmed_addresses(parse_dump(rendered.save_text))
        assert set(read.services) <= set(wanted.services)
        for address, service in read.services.items():
            if address[1].startswith(("10.96.", "fd00:10:96:")):  # other addresses may be several Services'
                assert f"{service}/{address[0]}" == wanted.services[address]
        seen += len(read.services)
        assert read.all_endpoints <= wanted.all_endpoints
    assert seen


def test_what_the_conntrack_tool_prints() -> None:
    text = (
        "udp      17 29 src=10.0.0.1 dst=10.96.0.10 sport=4000 dport=53 [UNREPLIED] src=10.244.0.5 dst=10.0.0.1 "
        "sport=5353 dport=4000 mark=0 use=1\n"
        "icmp     1 29 src=10.0.0.1 dst=10.0.0.2 type=8 code=0 id=1 src=10.0.0.2 dst=10.0.0.1 type=0 code=0 id=1 "
        "mark=0 use=1\n"
    )
    (found,) = parse_flows(text, "UDP")
    assert found == Flow("UDP", "10.0.0.1", 4000, "10.96.0.10", 53, "10.244.0.5", 5353, "10.0.0.1", 4000)
    assert str(found) == "UDP 10.0.0.1:4000 to 10.96.0.10:53 via 10.244.0.5:5353"


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
