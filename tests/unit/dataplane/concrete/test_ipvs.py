"""IPVS for one packet: where a request goes, what refuses it, and how the answer comes back."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from kproxy.dataplane import Connection, Host, Index, index_ruleset, make_packet, trace, trace_reply
from kproxy.dataplane.model.conntrack import FlowTuple
from kproxy.dataplane.model.host import Interface, InterfaceAddress
from kproxy.dataplane.model.ipvs import CONNTRACK, Ipvs
from kproxy.netfilter import Family, parse_save
from kproxy.netfilter.address import parse_address
from kproxy.netfilter.ipvs.read import Entry, read_servers

RULES = """*nat
:PREROUTING ACCEPT [0:0]
:POSTROUTING ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
-A PREROUTING ! -s 10.244.0.0/16 -d 10.96.0.10/32 -j MARK --set-xmark 0x4000/0x4000
-A POSTROUTING -m mark --mark 0x4000/0x4000 -j MASQUERADE
COMMIT
*filter
:INPUT ACCEPT [0:0]
:FORWARD DROP [0:0]
:OUTPUT ACCEPT [0:0]
-A INPUT -d 10.96.0.13/32 -j DROP
-A OUTPUT -d 10.244.1.66/32 -j DROP
COMMIT
"""
SERVERS = """-A -t 10.96.0.10:80 -s rr
-a -t 10.96.0.10:80 -r 10.244.0.5:8080 -m -w 1
-a -t 10.96.0.10:80 -r 10.244.1.7:8080 -m -w 1
-a -t 10.96.0.10:80 -r 10.244.1.8:8080 -m -w 0
-A -t 10.96.0.11:80 -s rr
-A -t 10.96.0.12:80 -s wrr
-a -t 10.96.0.12:80 -r 10.244.0.5:8080 -m -w 1
-a -t 10.96.0.12:80 -r 10.244.1.66:8080 -m -w 3
-A -t 10.96.0.13:80 -s rr
-a -t 10.96.0.13:80 -r 10.244.0.5:8080 -m -w 1
-A -u 10.96.0.14:53 -s lc
-a -u 10.96.0.14:53 -r 10.244.0.5:53 -m -w 1
-a -u 10.96.0.14:53 -r 10.244.1.7:53 -m -w 1
-A -t 192.0.2.1:30080 -s rr
-a -t 192.0.2.1:30080 -r 192.0.2.1:8080 -m -w 1
"""
OWN = ("192.0.2.1", "10.96.0.10", "10.96.0.11", "10.96.0.12", "10.96.0.13", "10.96.0.14")
HOST = Host.simple(OWN)


@pytest.fixture(scope="module")
def index() -> Index:
    servers = read_servers(SERVERS, "servers").servers
    return index_ruleset(parse_save(RULES), ipvs=Ipvs(Family.IPV4, servers), family=Family.IPV4)


def ends(index: Index, src: str, dst: str, protocol: str = "tcp", host: Host = HOST) -> list[tuple[Fraction, str]]:
    found = trace(index, host, make_packet(src, dst, protocol)).outcomes
    return sorted((each.probability, f"{each.verdict} {each.reject or each.dst} {each.hook}") for each in found)


def test_a_request_goes_by_output_to_servers_of_weight_above_0(index: Index) -> None:
    half = Fraction(1, 2)
    assert ends(index, "10.244.0.9:4000", "10.96.0.10:80") == [
        (half, "ACCEPT 10.244.0.5:8080 POSTROUTING"),  # FORWARD's policy is DROP
        (half, "ACCEPT 10.244.1.7:8080 POSTROUTING"),
    ]


def test_filters_see_the_virtual_server_in_input_and_the_real_one_in_output(index: Index) -> None:
    assert ends(index, "10.244.0.9:4000", "10.96.0.13:80") == [(Fraction(1), "DROP 10.96.0.13:80 INPUT")]
    assert ends(index, "10.244.0.9:4000", "10.96.0.12:80") == [
        (Fraction(1, 4), "ACCEPT 10.244.0.5:8080 POSTROUTING"),
        (Fraction(3, 4), "DROP 10.244.1.66:8080 OUTPUT"),
    ]


def test_no_real_server_is_a_refusal(index: Index) -> None:
    assert ends(index, "10.244.0.9:4000", "10.96.0.11:80") == [(Fraction(1), "REJECT icmp-port-unreachable INPUT")]


def test_other_ports_of_its_address_are_the_hosts_own(index: Index) -> None:
    assert ends(index, "10.244.0.9:4000", "10.96.0.10:81") == [(Fraction(1), "ACCEPT 10.96.0.10:81 INPUT")]
    assert ends(index, "10.244.0.9:4000", "10.96.0.10:80", "udp") == [(Fraction(1), "ACCEPT 10.96.0.10:80 INPUT")]


def test_a_scheduler_that_counts_connections_leaves_the_choice_open(index: Index) -> None:
    (open_one,) = trace(index, HOST, make_packet("10.244.0.9:4000", "10.96.0.14:53", "udp")).outcomes
    assert open_one.reasons == ("which real server the scheduler lc takes is not known",)
    assert sorted(each.dst for each in open_one.possible) == ["10.244.0.5:53", "10.244.1.7:53"]


def test_a_real_server_of_the_host_itself_is_reached_without_output(index: Index) -> None:
    assert ends(index, "198.51.100.7:4000", "192.0.2.1:30080") == [(Fraction(1), "ACCEPT 192.0.2.1:8080 INPUT")]


def test_a_real_server_at_a_broadcast_address_is_the_host_itself(index: Index) -> None:
    wide = InterfaceAddress(
        Family.IPV4, parse_address("192.0.2.9", Family.IPV4), 24, parse_address("10.244.1.66", Family.IPV4)
    )
    host = replace(HOST, interfaces={"eth0": Interface("eth0", (wide,))})
    found = ends(index, "198.51.100.7:4000", "10.96.0.12:80", host=host)
    assert (Fraction(3, 4), "ACCEPT 10.244.1.66:8080 INPUT") in found


@pytest.mark.parametrize("src", ["198.51.100.7:4000", "10.244.0.9:4000"])
def test_the_answer_has_the_virtual_servers_address(index: Index, src: str) -> None:
    for outcome in trace(index, HOST, make_packet(src, "10.96.0.10:80", "tcp")).outcomes:
        assert outcome.snat is (src == "198.51.100.7:4000")
        (answer,) = trace_reply(replace_policy(index), HOST, outcome).outcomes
        assert (answer.verdict, answer.src, answer.dst) == ("ACCEPT", "10.96.0.10:80", src)


def replace_policy(index: Index) -> Index:
    """With a FORWARD that lets answers pass."""
    rules = parse_save(RULES.replace("FORWARD DROP", "FORWARD ACCEPT"))
    return index_ruleset(rules, ipvs=index.ipvs, family=Family.IPV4)


def test_a_packet_of_the_host_itself_passes_output_twice(index: Index) -> None:
    packet = replace(make_packet("10.96.0.10:4000", "10.96.0.10:80", "tcp"), origin="local")
    first, *_ = trace(index, HOST, packet).outcomes
    ways = [(step.kind, step.hook.value) for step in first.steps if step.kind in ("conntrack", "ipvs", "route")]
    again = ways.index(("ipvs", "OUTPUT"))
    assert ("route", "OUTPUT") in ways[:again]
    assert ("route", "OUTPUT") in ways[again:]
    assert (first.verdict, first.via) == ("ACCEPT", "out")


@pytest.mark.parametrize(
    ("match", "holds"),
    [
        ("--ipvs", True),
        ("! --ipvs", False),
        ("--vaddr 10.96.0.10", True),
        ("--vproto tcp --vaddr 10.96.0.0/24 --vport 80", True),
        ("--vport 81", False),
        ("! --vport 81", True),
        ("--vdir ORIGINAL", True),
        ("--vdir REPLY", False),
    ],
)
def test_the_match_asks_for_the_virtual_server(index: Index, match: str, holds: bool) -> None:
    rules = parse_save(f"*filter\n:OUTPUT ACCEPT [0:0]\n-A OUTPUT -m ipvs {match} -j DROP\nCOMMIT\n")
    asking = index_ruleset(rules, ipvs=index.ipvs, family=Family.IPV4)
    found = trace(asking, HOST, make_packet("10.244.0.9:4000", "10.96.0.10:80", "tcp")).outcomes
    assert {str(each.verdict) for each in found} == {"DROP" if holds else "ACCEPT"}


def test_a_known_connection_keeps_its_real_server(index: Index) -> None:
    def flow(src: str, sport: int, dst: str, dport: int) -> FlowTuple:
        return FlowTuple(parse_address(src, Family.IPV4), sport, parse_address(dst, Family.IPV4), dport)

    there = flow("10.244.0.9", 4000, "10.96.0.10", 80)
    entry = Connection.established(there, flow("10.244.1.8", 8080, "10.244.0.9", 4000))
    packet = make_packet("10.244.0.9:4000", "10.96.0.10:80", "tcp").replace(tcp_flags=0x10)
    (found,) = trace(index, HOST, packet, entry).outcomes
    assert (found.verdict, found.dst) == ("ACCEPT", "10.244.1.8:8080")


@pytest.mark.parametrize(
    ("client", "real", "ends_at"),
    [
        (("198.51.100.7", 4000), ("10.244.1.8", 8080), ["10.244.1.8:8080"]),  # a connection stays without weight
        (("198.51.100.7", 0), ("10.244.1.7", 8080), ["10.244.1.7:8080"]),
        (("198.51.100.7", 0), ("10.244.1.8", 8080), ["10.244.0.5:8080", "10.244.1.7:8080"]),
        (("198.51.100.7", 4001), ("10.244.1.7", 8080), ["10.244.0.5:8080", "10.244.1.7:8080"]),
    ],
)
def test_ipvs_knows_connections_and_templates(
    client: tuple[str, int], real: tuple[str, int], ends_at: list[str]
) -> None:
    servers = read_servers(SERVERS, "servers").servers
    ipvs = Ipvs(Family.IPV4, servers, [Entry("tcp", client, ("10.96.0.10", 80), real)])
    knowing = index_ruleset(parse_save(RULES), ipvs=ipvs, family=Family.IPV4)
    found = trace(knowing, HOST, make_packet("198.51.100.7:4000", "10.96.0.10:80", "tcp"))
    assert sorted(str(each.dst) for each in found.outcomes) == ends_at


def test_a_segment_that_begins_nothing_passes_ipvs(index: Index) -> None:
    packet = make_packet("10.244.0.9:4000", "10.96.0.10:80", "tcp").replace(tcp_flags=0x10)
    (found,) = trace(index, HOST, packet).outcomes
    assert (found.verdict, found.via, found.dst) == ("ACCEPT", "local", "10.96.0.10:80")


def test_without_conntrack_the_answer_is_open(index: Index) -> None:
    host = replace(HOST, sysctls={**HOST.sysctls, CONNTRACK: 0})
    for found in trace(index, host, make_packet("198.51.100.7:4000", "10.96.0.10:80", "tcp")).outcomes:
        assert (found.verdict, found.via, found.snat) == ("ACCEPT", "out", False)  # no nat table is walked
        (answer,) = trace_reply(index, host, found).outcomes
        assert answer.verdict == "INDETERMINATE"
        assert "untracked answer" in answer.reasons[0]


def test_a_listing_without_weights_may_refuse() -> None:
    text = """IP Virtual Server version 1.2.1 (size=4096)
Prot LocalAddress:Port               Conns   InPkts  OutPkts  InBytes OutBytes
  -> RemoteAddress:Port
TCP  10.96.0.10:80                       0        0        0        0        0
  -> 10.244.0.5:8080                     0        0        0        0        0
"""
    servers = Ipvs(Family.IPV4, read_servers(text, "listing").servers)
    index = index_ruleset(parse_save(RULES), ipvs=servers, family=Family.IPV4)
    (found,) = trace(index, HOST, make_packet("10.244.0.9:4000", "10.96.0.10:80", "tcp")).outcomes
    assert {str(each.verdict) for each in found.possible} == {"ACCEPT", "REJECT"}
