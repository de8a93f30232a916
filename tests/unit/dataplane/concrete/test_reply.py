"""Replies, with translation undone."""

from __future__ import annotations

import pytest

from kproxy.dataplane import (
    Connection,
    DataplaneError,
    FlowTuple,
    index_ruleset,
    make_packet,
    parse_endpoint,
    trace,
    trace_reply,
)
from kproxy.dataplane.concrete.reply import reply_to
from kproxy.dataplane.model.conntrack import REPLY
from kproxy.dataplane.query.report import reply_of
from kproxy.netfilter import Family
from kproxy.netfilter.nftables.text import parse_nft
from tests.support.dataplane.tools import NEW_PACKET, NODE, fate, only, rules

KUBE = """nat: -A PREROUTING -d 10.96.0.1 -p tcp --dport 80 -j DNAT --to-destination 10.244.0.11:8080
          nat: -A POSTROUTING -d 10.244.0.11 -j MASQUERADE
          filter: -A FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
          filter: -A FORWARD -m conntrack --ctstate NEW -d 10.244.0.11 -j ACCEPT
          filter: -A FORWARD -j DROP"""


def test_the_packet_after_the_first() -> None:
    """The rules may have changed: what the connection has is what counts."""
    outcome = fate(KUBE)
    assert outcome.connection is not None
    later = outcome.connection.turned().turned()
    again = fate("nat: -A PREROUTING -j DNAT --to-destination 10.244.0.99", connection=later)
    assert (again.src, again.dst) == ("10.244.0.1:4000", "10.244.0.11:8080")
    assert again.masquerade


def test_a_connection_given_by_its_tuples() -> None:
    original = FlowTuple(*(parse_endpoint("198.51.100.7:4000")[1:] + parse_endpoint("10.96.0.1:80")[1:]))
    reply = FlowTuple(*(parse_endpoint("10.244.0.11:8080")[1:] + parse_endpoint("10.244.0.1:6000")[1:]))
    known = Connection.established(original, reply, direction=REPLY)
    packet = make_packet("10.244.0.11:8080", "10.244.0.1:6000", in_interface="veth1", new=False)
    outcome = fate("filter: -A FORWARD -m conntrack --ctdir ORIGINAL -j DROP", packet, connection=known)
    assert (outcome.verdict, outcome.src, outcome.dst) == ("ACCEPT", "10.96.0.1:80", "198.51.100.7:4000")


def test_nothing_answers_a_dropped_packet() -> None:
    text = "filter: -A FORWARD -j DROP"
    with pytest.raises(DataplaneError, match="verdict is DROP"):
        trace_reply(rules(text), NODE, fate(text))


def test_a_reply_does_not_know_a_mark_that_chance_has_set() -> None:
    """The two ways of the packet are one outcome; which mark its connection has then is open to the answer."""
    text = """mangle: -A PREROUTING -i eth1 -m statistic --mode random --probability 0.5 -j CONNMARK --set-xmark 0x1/0x1
        mangle: -A FORWARD -m connmark --mark 0x1/0x1 -m conntrack --ctdir REPLY -j DROP"""
    packet = NEW_PACKET.replace(in_interface="eth1")
    first = fate(text, packet)
    assert first.connection is not None
    assert (first.connection.mark & 1, first.connection.mark_known & 1) == (0, 0)
    assert only(trace_reply(rules(text), NODE, first)).verdict == "INDETERMINATE"


def test_what_a_chain_of_inet_refuses_at_ingress_is_answered_through_output() -> None:
    packet = make_packet("192.0.2.1:1000", "192.0.2.10:53", "udp", in_interface="eth0", ttl=64)
    for family, verdict in (("inet", "DROP"), ("netdev", "ACCEPT")):
        text = f"""table {family} t {{ chain c {{ type filter hook ingress device eth0 priority 0; reject; }} }}
            table inet o {{ chain o {{ type filter hook output priority 0; meta l4proto icmp drop; }} }}"""
        index = index_ruleset((), nftables=parse_nft(text), family=Family.IPV4)
        (outcome,) = trace(index, NODE, packet).outcomes
        assert [answer.verdict for answer in trace_reply(index, NODE, outcome).outcomes] == [verdict], family


def test_what_rules_write_is_not_what_the_connection_has() -> None:
    """`udp dport set` after conntrack: NAT keeps the connection's own port, and the answer belongs to no connection."""
    packet = make_packet("10.244.0.11:1000", "198.51.100.7:53", "udp", in_interface="cni0", ttl=64)
    written = """table ip t {
        chain written { type filter hook forward priority 0; udp sport set 2000; }
        chain out { type nat hook postrouting priority 100; SNAT }
    }"""
    outcomes = []
    for translation in ("", "snat to 192.0.2.10"):
        index = index_ruleset((), nftables=parse_nft(written.replace("SNAT", translation)), family=Family.IPV4)
        (outcome,) = trace(index, NODE, packet).outcomes
        outcomes.append(
            (outcome.packet.sport, trace_reply(index, NODE, outcome).connection.fits(reply_to(NODE, outcome)[0]))
        )
    assert outcomes == [(2000, False), (1000, True)]


@pytest.mark.parametrize(("flags", "answer"), [(0x02, 0x14), (0x10, 0x04)])
def test_a_reset_acknowledges_what_does_not_acknowledge(flags: int, answer: int) -> None:
    text = "filter: -A FORWARD -p tcp -j REJECT --reject-with tcp-reset"
    back, _ = reply_to(NODE, fate(text, NEW_PACKET.replace(tcp_flags=flags)))
    assert back.tcp_flags == answer


RESET = "-p tcp -j REJECT --reject-with tcp-reset"


@pytest.mark.parametrize(
    ("rule", "changes", "answered"),
    [
        (RESET, {"tcp_flags": 0x04}, False),
        (RESET, {"tcp_flags": 0x12}, True),
        ("-j REJECT", {"tcp_flags": 0x04}, True),
        *(
            ("-j REJECT", {"protocol": 1, "icmp_type": kind, "icmp_code": 0, "sport": None, "dport": None}, answered)
            for kind, answered in ((3, False), (8, True), (11, False), (12, False), (13, True))
        ),
    ],
)
def test_errors_are_not_answered_with_their_kind(rule: str, changes: dict[str, int | None], answered: bool) -> None:
    text = f"filter: -A FORWARD {rule}"
    outcome = fate(text, NEW_PACKET.replace(**changes))
    assert outcome.verdict == "REJECT"
    assert (reply_of(index_ruleset(rules(text)), NODE, outcome) is not None) == answered
    if not answered:
        with pytest.raises(DataplaneError, match="no reply"):
            trace_reply(rules(text), NODE, outcome)
