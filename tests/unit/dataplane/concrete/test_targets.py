"""What targets do."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from kproxy.dataplane import Connection, DataplaneError, Packet, make_packet, trace
from tests.support.dataplane.tools import NEW_PACKET, NODE, chances, fate, rules

ALL = 0xFFFFFFFF
UDP = make_packet("198.51.100.7:4000", "10.96.0.1:53", "udp", in_interface="eth0")


@pytest.mark.parametrize(
    ("target", "verdict", "refusal"),
    [
        ("-j ACCEPT", "ACCEPT", ""),
        ("-j DROP", "DROP", ""),
        ("-p tcp -j REJECT --reject-with tcp-reset", "REJECT", "tcp-reset"),
        ("-j REJECT", "REJECT", "icmp-port-unreachable"),
        ("-j REJECT --reject-with icmp-admin-prohibited", "REJECT", "icmp-admin-prohibited"),
        ("-j QUEUE", "INDETERMINATE", ""),
        ("-j NFQUEUE --queue-num 1", "INDETERMINATE", ""),
        ("-j SYNPROXY --mss 1460", "INDETERMINATE", ""),
    ],
)
def test_verdict(target: str, verdict: str, refusal: str) -> None:
    outcome = fate(f"filter: -A FORWARD {target}")
    assert (outcome.verdict, outcome.reject) == (verdict, refusal)


@pytest.mark.parametrize(
    "target",
    [
        "-j LOG", "-j NFLOG --nflog-group 1", "-j TRACE", "-j RETURN", "-j MARK --set-mark 1", "",
        "-j AUDIT --type accept", "-j CLASSIFY --set-class 1:1",
    ],
)  # fmt: skip
def test_target_that_does_not_decide(target: str) -> None:
    outcome = fate(f"filter: -A FORWARD {target}")
    assert outcome.verdict == "ACCEPT"
    assert [step.rule for step in outcome.path] == [1]


@pytest.mark.parametrize(
    ("targets", "packet", "mark", "known"),
    [
        (["MARK --set-xmark 0x4000/0x4000"], NEW_PACKET.replace(mark=1), 0x4001, ALL),
        (["MARK --set-xmark 0x4000/0x0"], NEW_PACKET.replace(mark=0x4000), 0, ALL),
        (["MARK --set-mark 0x5"], NEW_PACKET.replace(mark_known=0), 5, ALL),
        (["MARK --set-xmark 0x4000/0x4000"], NEW_PACKET.replace(mark_known=0), 0x4000, 0x4000),
        (["CONNMARK --set-xmark 0x7/0xf", "CONNMARK --restore-mark"], NEW_PACKET, 7, ALL),
        (["CONNMARK --save-mark", "MARK --set-mark 0", "CONNMARK --restore-mark"], NEW_PACKET.replace(mark=9), 9, ALL),
        (["CONNMARK --set-xmark 0x7", "CONNMARK --restore-mark --mask 0x3"], NEW_PACKET.replace(mark=8), 11, ALL),
    ],
)  # fmt: skip
def test_marks(targets: list[str], packet: Packet, mark: int, known: int) -> None:
    outcome = fate("\n".join(f"mangle: -A FORWARD -j {target}" for target in targets), packet)
    assert (outcome.packet.mark, outcome.packet.mark_known) == (mark, known)


@pytest.mark.parametrize(
    ("target", "dst"),
    [
        ("DNAT --to-destination 10.244.0.11", "10.244.0.11:80"),
        ("DNAT --to-destination 10.244.0.11:8080", "10.244.0.11:8080"),
        ("DNAT --to-destination :8080", "10.96.0.1:8080"),
        ("DNAT --to-destination 10.244.0.11:70-90", "10.244.0.11:80"),
        ("DNAT --to-destination 10.244.0.11:90-99", "10.244.0.11:90"),
        ("DNAT --to-destination 10.244.0.11:1000-1099/70", "10.244.0.11:1010"),
        ("REDIRECT", "192.0.2.10:80"),
        ("REDIRECT --to-ports 8080", "192.0.2.10:8080"),
        ("NETMAP --to 10.244.1.0/24", "10.244.1.1:80"),
    ],
)
def test_destination(target: str, dst: str) -> None:
    outcome = fate(f"nat: -A PREROUTING -p tcp -j {target}")
    assert (outcome.verdict, outcome.dst, outcome.dnat) == ("ACCEPT", dst, True)


def test_an_address_of_a_range_is_a_matter_of_chance() -> None:
    text = "nat: -A PREROUTING -p tcp -j DNAT --to-destination 10.244.0.11-10.244.0.14:8080"
    found = chances(trace(rules(text), NODE, NEW_PACKET))
    assert found == {f"10.244.0.{number}:8080": Fraction(1, 4) for number in range(11, 15)}


@pytest.mark.parametrize(
    ("target", "src"),
    [
        ("MASQUERADE", "192.0.2.10:4000"),
        ("MASQUERADE --to-ports 7000", "192.0.2.10:7000"),
        ("MASQUERADE --random-fully", "192.0.2.10"),
        ("SNAT --to-source 192.0.2.99", "192.0.2.99:4000"),
        ("SNAT --to-source 192.0.2.99:1000-1010", "192.0.2.99"),
        ("SNAT --to-source 192.0.2.99 --random", "192.0.2.99"),
    ],
)
def test_source(target: str, src: str) -> None:
    outcome = fate(f"nat: -A POSTROUTING -p tcp -j {target}")
    assert (outcome.src, outcome.masquerade, outcome.snat, outcome.dnat) == (src, True, True, False)


def test_masquerade_by_a_device_that_is_not_known() -> None:
    outcome = fate("nat: -A POSTROUTING -j MASQUERADE", host=replace(NODE, routes=None))
    assert (outcome.src, outcome.masquerade) == ("?:4000", True)


@pytest.mark.parametrize(
    "rule",
    [
        "nat: -A PREROUTING -j MASQUERADE",
        "nat: -A PREROUTING -j SNAT --to-source 192.0.2.99",
        "nat: -A POSTROUTING -j DNAT --to-destination 10.244.0.11",
        "nat: -A POSTROUTING -p tcp -j REDIRECT --to-ports 80",
        "filter: -A FORWARD -j DNAT --to-destination 10.244.0.11",
    ],
)
def test_nat_where_no_kernel_takes_it_is_not_guessed_at(rule: str) -> None:
    outcome = fate(rule)
    assert outcome.verdict == "INDETERMINATE"
    assert not outcome.dnat
    assert not outcome.masquerade
    assert outcome.reasons[0].endswith("outside of its hooks")


def test_only_the_first_nat_rule_counts() -> None:
    text = """nat: -A PREROUTING -j DNAT --to-destination 10.244.0.11
              nat: -A PREROUTING -j DNAT --to-destination 10.244.0.12"""
    assert fate(text).dst == "10.244.0.11:80"


def test_nat_is_for_new_connections() -> None:
    text = "nat: -A PREROUTING -j DNAT --to-destination 10.244.0.11"
    for state in ("ESTABLISHED", "INVALID", "UNTRACKED"):
        assert fate(text, connection=Connection(state)).dst == "10.96.0.1:80"


def test_notrack() -> None:
    text = """raw: -A PREROUTING -j CT --notrack
              nat: -A PREROUTING -j DNAT --to-destination 10.244.0.11
              filter: -A FORWARD -m conntrack ! --ctstate UNTRACKED -j DROP"""
    outcome = fate(text)
    assert (outcome.verdict, outcome.dst, outcome.connection) == ("ACCEPT", "10.96.0.1:80", None)


def test_tproxy() -> None:
    text = "mangle: -A PREROUTING -p tcp -j TPROXY --on-port 1234 --tproxy-mark 0x1/0x1"
    assert fate(text).verdict == "DROP"  # with a socket, too, as no rule routes it to this host
    assert fate(text, host=replace(NODE, transparent=frozenset())).verdict == "DROP"
    listening = replace(NODE, transparent=frozenset({(6, 1234)}))
    assert "TPROXY" in fate(text, host=listening).reason  # no rule routes it to this host
    here = make_packet("198.51.100.7:4000", "192.0.2.10:80", in_interface="eth0")
    assert fate(text, here).verdict == "INDETERMINATE"
    assert fate(text, here, listening).via == "local"


def test_header_targets() -> None:
    text = """mangle: -A PREROUTING -j TTL --ttl-inc 3
              mangle: -A PREROUTING -j TOS --set-tos 0x10/0xff
              filter: -A FORWARD -m ttl ! --ttl-eq 66 -j DROP
              filter: -A FORWARD -m tos ! --tos 0x10/0xff -j DROP"""
    assert fate(text, NEW_PACKET.replace(ttl=64, tos=0)).verdict == "ACCEPT"
    assert fate("mangle: -A FORWARD -j DSCP --set-dscp 0x3f", NEW_PACKET.replace(tos=1)).packet.tos == 0xFD


def test_jump_return_and_goto() -> None:
    text = """filter: :A - [0:0]
              filter: :B - [0:0]
              filter: -A FORWARD -p tcp -j A
              filter: -A FORWARD -j DROP
              filter: -A A -p udp -j ACCEPT
              filter: -A A -g B
              filter: -A A -j ACCEPT
              filter: -A B -p tcp -j RETURN"""
    outcome = fate(text)
    assert outcome.verdict == "DROP"
    assert [(step.chain, step.rule) for step in outcome.path] == [("FORWARD", 1), ("A", 2), ("B", 1), ("FORWARD", 2)]
    assert [(step.chain, step.rule) for step in fate(text, UDP).path] == [("FORWARD", 2)]


def test_jumps_nested_deeper_than_can_be_followed_are_no_loop() -> None:
    chains = "".join(f"filter: :C{number} - [0:0]\n" for number in range(600))
    jumps = "".join(f"filter: -A C{number} -j C{number + 1}\n" for number in range(599))
    with pytest.raises(DataplaneError, match="jumps nested more than 512 deep"):
        fate(f"{chains}filter: -A FORWARD -j C0\n{jumps}")


def test_goto_from_a_built_in_chain_ends_in_its_policy() -> None:
    text = """filter: :FORWARD DROP [0:0]
              filter: :A - [0:0]
              filter: -A FORWARD -g A
              filter: -A FORWARD -j ACCEPT
              filter: -A A -j RETURN"""
    outcome = fate(text)
    assert (outcome.verdict, outcome.steps[-1].did) == ("DROP", "policy DROP")
