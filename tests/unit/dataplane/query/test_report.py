"""Reports: merged outcomes, hosts of which little is known, replies."""

from __future__ import annotations

from fractions import Fraction

from kproxy.dataplane import Host, index_ruleset
from kproxy.dataplane.query.assumptions import (
    Surroundings,
    named_addresses,
    shows_route_localnet,
    surroundings_of_rules,
)
from kproxy.dataplane.query.report import Report, report
from kproxy.dataplane.query.spec import read_question
from kproxy.netfilter import parse_save
from tests.support.dataplane.tools import NODE

RULES = """*nat
:PREROUTING ACCEPT [0:0]
:POSTROUTING ACCEPT [0:0]
:KUBE-SERVICES - [0:0]
:KUBE-NODEPORTS - [0:0]
-A PREROUTING -j KUBE-SERVICES
-A POSTROUTING -m mark --mark 0x4000/0x4000 -j MASQUERADE
-A KUBE-SERVICES -d 10.96.0.1 -m statistic --mode random --probability 0.33333333349 -j DNAT --to-destination 10.0.0.1
-A KUBE-SERVICES -d 10.96.0.1/32 -j DNAT --to-destination 10.0.0.2
-A KUBE-SERVICES -d 192.0.2.1/32 -j KUBE-NODEPORTS
-A KUBE-SERVICES -m addrtype --dst-type LOCAL -j KUBE-NODEPORTS
-A KUBE-NODEPORTS -p tcp -m tcp --dport 30080 -j MARK --set-xmark 0x4000/0x4000
-A KUBE-NODEPORTS -p tcp -m tcp --dport 30080 -j DNAT --to-destination 10.0.0.1:80
COMMIT
*filter
:INPUT ACCEPT [0:0]
:FORWARD ACCEPT [0:0]
:KUBE-FIREWALL - [0:0]
-A INPUT -p tcp -m tcp --dport 22 -j REJECT --reject-with tcp-reset
-A KUBE-FIREWALL ! -s 127.0.0.0/8 -d 127.0.0.0/8 -j DROP
COMMIT
"""
RULESET = parse_save(RULES)
INDEX = index_ruleset(RULESET)
NAMED = named_addresses((RULESET,))
NODE_AROUND = Surroundings.known(NODE)


def ask(dst: str, *local: str, **fields: object) -> Report:
    question = read_question({"src": "203.0.113.7:4000", "dst": dst, **fields})
    around = Surroundings.known(Host.simple(local))
    if not local:
        around = surroundings_of_rules(NAMED, question.packet, route_localnet=shows_route_localnet(RULESET))
    return report(INDEX, around, question)


def test_chances_are_exact_and_add_up() -> None:
    outcomes = [item.outcome for item in ask("10.96.0.1:443", "192.0.2.9").outcomes]
    assert sum(item.probability for item in outcomes) == 1
    assert outcomes[0].probability != Fraction(2, 3)
    assert abs(outcomes[0].probability - Fraction(2, 3)) < Fraction(1, 10**6)
    assert [item.dst for item in outcomes] == ["10.0.0.2:443", "10.0.0.1:443"]


def test_replies_are_followed_back() -> None:
    (item,) = ask("192.0.2.9:30080", "192.0.2.9").outcomes
    assert item.outcome.masquerade
    assert item.reply is not None
    assert (item.reply.src, item.reply.dst) == ("10.0.0.1:80", "192.0.2.9:4000")
    assert (item.reply.received_src, item.reply.received_dst) == ("192.0.2.9:30080", "203.0.113.7:4000")
    (item,) = ask("192.0.2.9:22", "192.0.2.9").outcomes
    assert item.reply is not None
    assert (item.outcome.verdict, item.reply.kind) == ("REJECT", "TCP RST")


def test_what_the_rules_give_away() -> None:
    assert shows_route_localnet(RULESET)
    assert not shows_route_localnet(parse_save("*filter\n:INPUT ACCEPT [0:0]\n-A INPUT -j ACCEPT\nCOMMIT\n"))
    (item,) = ask("192.0.2.1:30080").outcomes
    assert item.outcome.dst == "10.0.0.1:80", "node ports are restricted to this address, so it is the host's"
    assert {item.outcome.hook for item in ask("10.96.0.1:443").outcomes} == {"POSTROUTING"}


def test_the_source_that_masquerading_is_taken_to_choose_is_said() -> None:
    (said,) = ask("192.0.2.9:30080", "192.0.2.9").assumptions
    assert said.startswith("192.0.2.9, the only address given, is the source of what is masqueraded")
    assert not ask("192.0.2.9:30080", "192.0.2.9", "10.0.0.254").assumptions, "the source is open then, and shown so"
    assert not ask("192.0.2.9:22", "192.0.2.9").assumptions
    question = read_question({"src": "203.0.113.7:4000", "dst": "192.0.2.10:30080", "in": "eth0"})
    found = report(INDEX, NODE_AROUND, question)
    assert found.outcomes[0].outcome.masquerade
    assert not found.assumptions, "the interfaces are known, so the source is"


def test_an_interface_that_the_host_does_not_have_is_said() -> None:
    question = read_question({"dst": "10.96.0.1:443", "in": "nope0"})
    assert any("nope0, though the host has only" in text for text in report(INDEX, NODE_AROUND, question).assumptions)
    question = read_question({"dst": "10.96.0.1:443", "in": "eth0"})
    assert not report(INDEX, NODE_AROUND, question).assumptions


def test_hosts_that_agree_are_one_answer() -> None:
    found = ask("198.51.100.5:80")
    (item,) = found.outcomes
    assert (item.outcome.verdict, item.outcome.hook) == ("ACCEPT", "POSTROUTING or INPUT")
    assert found.assumptions


def test_hosts_that_disagree_leave_it_open() -> None:
    (item,) = ask("198.51.100.5:30080").outcomes
    assert item.outcome.verdict == "INDETERMINATE"
    assert item.outcome.reasons == ("whether 198.51.100.5 is an address of this host (--local-ip)",)
    assert {other.dst for other in item.outcome.possible} == {"198.51.100.5:30080", "10.0.0.1:80"}
    assert item.reply is None
