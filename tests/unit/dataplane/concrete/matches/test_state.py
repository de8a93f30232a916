"""Matches on what the host remembers: connections, address types, sets, lists, counters."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from kproxy.dataplane import Connection, FlowTuple, Host, make_packet, parse_endpoint, trace
from kproxy.dataplane.concrete.state import UNSEEN
from kproxy.dataplane.model.conntrack import INVALID, UNTRACKED
from tests.support.dataplane.tools import NEW_PACKET, NODE, SIMPLE, ask, chances, fate, rules


def address(text: str) -> int:
    return parse_endpoint(text)[1]


CLIENT, SERVICE, POD, NODE_IP = map(address, ("198.51.100.7", "10.96.0.1", "10.244.0.11", "192.0.2.10"))
ESTABLISHED = Connection.established(
    FlowTuple(CLIENT, 4000, SERVICE, 80), FlowTuple(POD, 8080, NODE_IP, 6000), direction="ORIGINAL"
)


@pytest.mark.parametrize(
    ("match", "connection", "wanted"),
    [
        ("--ctstate NEW", Connection(), True),
        ("! --ctstate NEW", Connection(), False),
        ("--ctstate RELATED,ESTABLISHED", Connection(), False),
        ("--ctstate RELATED,ESTABLISHED", ESTABLISHED, True),
        ("--ctstate DNAT", ESTABLISHED, True),
        ("! --ctstate SNAT", ESTABLISHED, False),
        ("--ctstate DNAT", Connection(), False),
        ("--ctstate INVALID", Connection(state=None), None),
        ("--ctorigdst 10.96.0.0/16", ESTABLISHED, True),
        ("--ctreplsrc 10.244.0.11", ESTABLISHED, True),
        ("! --ctrepldst 192.0.2.10", ESTABLISHED, False),
        ("--ctorigdstport 80 --ctreplsrcport 8080", ESTABLISHED, True),
        ("--ctrepldstport 6001", ESTABLISHED, False),
        ("--ctproto 6", ESTABLISHED, True),
        ("--ctproto 17", ESTABLISHED, False),
        ("--ctdir ORIGINAL", ESTABLISHED, True),
        ("--ctdir REPLY", ESTABLISHED, False),
        ("--ctstatus SEEN_REPLY", ESTABLISHED, True),
        ("--ctstatus ASSURED", ESTABLISHED, None),
        ("--ctstatus ASSURED", Connection(), False),
        ("--ctstatus NONE", Connection(), False),
        ("--ctexpire 10", ESTABLISHED, None),
    ],
)
def test_conntrack(match: str, connection: Connection, wanted: bool | None) -> None:
    assert ask(f"-m conntrack {match}", connection=connection) is wanted


def test_the_time_left_is_asked_by_each_match_that_is_written() -> None:
    marked = "mangle: -A PREROUTING -m conntrack --ctexpire 1:10 -j MARK --set-xmark 0x1/0x1\n"
    dropped = "filter: -A FORWARD -m mark --mark 0x1/0x1 -m conntrack ! --ctexpire 1:10 -j DROP\n"
    assert fate(marked + dropped, connection=ESTABLISHED).verdict == "INDETERMINATE"


def test_without_a_connection() -> None:
    assert ask("-m conntrack --ctstate INVALID", tracking=INVALID) is True
    assert ask("-m conntrack --ctstate UNTRACKED", tracking=UNTRACKED) is True
    assert ask("-m state --state UNTRACKED", tracking=UNTRACKED) is True
    assert ask("-m conntrack --ctstate INVALID", tracking=UNSEEN) is True
    assert ask("-m conntrack --ctorigdst 10.96.0.1", tracking=INVALID) is False
    # The kernel skips what else is asked of a connection that is not there.
    assert ask("-m conntrack --ctstate INVALID --ctorigdst 10.96.0.9", tracking=INVALID) is True


@pytest.mark.parametrize(
    ("match", "dst", "wanted"),
    [
        ("--dst-type LOCAL", "192.0.2.10:80", True),
        ("--dst-type LOCAL", "127.0.0.9:80", True),
        ("--dst-type LOCAL", "10.96.0.1:80", False),
        ("! --dst-type LOCAL", "10.96.0.1:80", True),
        ("--dst-type UNICAST", "10.96.0.1:80", True),
        ("--dst-type BROADCAST", "192.0.2.255:80", True),
        ("--dst-type BROADCAST,MULTICAST", "224.0.0.1:80", True),
        ("--dst-type UNICAST", "255.255.255.255:80", False),
        ("--src-type LOCAL", "192.0.2.10:80", False),
        ("--dst-type LOCAL --limit-iface-in", "192.0.2.10:80", True),
        ("--dst-type LOCAL --limit-iface-in", "10.244.0.1:80", False),
        ("--dst-type LOCAL", "[2001:db8::10]:80", True),
        ("--dst-type LOCAL,UNICAST", "[fd00:96::1]:80", False),
        ("--dst-type UNICAST", "[2001:db8::10]:80", True),
        ("--dst-type MULTICAST", "[ff02::1]:80", True),
        ("--dst-type UNICAST", "[ff02::1]:80", False),
        ("--dst-type ANYCAST", "[fd00:244::]:80", True),
        ("--dst-type LOCAL", "[fd00:244::]:80", False),
    ],
)
def test_addrtype(match: str, dst: str, wanted: bool) -> None:
    source = "[2001:db8::7]:4000" if dst.startswith("[") else "198.51.100.7:4000"
    assert ask(f"-m addrtype {match}", make_packet(source, dst, in_interface="eth0")) is wanted


def test_addrtype_of_an_unknown_host() -> None:
    assert ask("-m addrtype --dst-type LOCAL", host=Host()) is None
    assert ask("-m addrtype --dst-type LOCAL", host=SIMPLE) is False


def test_statistic_random() -> None:
    assert ask("-m statistic --mode random --probability 0.5") == Fraction(1, 2)
    assert ask("-m statistic --mode random ! --probability 0.25") == Fraction(3, 4)
    assert ask("-m statistic --mode random --probability 0.3333333333") == Fraction(715827883, 1 << 31)
    assert ask("-m statistic --mode random --probability 0") is False
    assert ask("-m statistic --mode random --probability 1") is True


def test_statistic_nth() -> None:
    match = "-m statistic --mode nth --every 3 --packet 1"
    assert ask(match) == Fraction(1, 3)
    for seen, wanted in ((0, False), (1, True), (2, False), (4, True)):
        assert ask(match, host=replace(NODE, nth={("filter", "X", 1): seen})) is wanted


def test_limit_is_a_choice() -> None:
    assert ask("-m limit --limit 5/min") is None
    assert ask("-m limit --limit 5/min", limit=True) is True
    above = "-m hashlimit --hashlimit-above 5/sec --hashlimit-name x"
    assert ask(above, limit=True) is False
    assert ask(above, limit=False) is True
    text = "filter: -A FORWARD -m limit --limit 1/sec -j LOG"
    assert fate(text).verdict == "ACCEPT"
    assert fate("filter: -A FORWARD -m limit --limit 1/sec -j DROP").verdict == "INDETERMINATE"


def seen(ages: tuple[int, ...]) -> Host:
    return replace(NODE, recent={"L": {CLIENT: ages}})


@pytest.mark.parametrize(
    ("match", "ages", "wanted"),
    [
        ("--rcheck --name L", (), False),
        ("! --rcheck --name L", (), True),
        ("--rcheck --name L", (100,), True),
        ("--rcheck --seconds 60 --name L", (100,), False),
        ("--rcheck --seconds 60 --hitcount 2 --name L", (5, 30, 100), True),
        ("--rcheck --seconds 60 --hitcount 3 --name L", (5, 30, 100), False),
        ("--update --seconds 60 --name L", (5,), True),
        ("--remove --name L", (5,), True),
        ("--remove --name L", (), False),
        ("--set --name L", (), True),
        ("! --set --name L", (), False),
        ("--rcheck --name L --rdest", (5,), False),
    ],
)
def test_recent(match: str, ages: tuple[int, ...], wanted: bool) -> None:
    assert ask(f"-m recent {match}", host=seen(ages)) is wanted


def test_recent_lists_that_are_not_known() -> None:
    assert ask("-m recent --rcheck --name L", host=replace(NODE, recent=None)) is None
    assert ask("-m recent --set --name L", host=replace(NODE, recent=None)) is True


def test_recent_remembers_within_one_packet() -> None:
    text = """filter: -A FORWARD -m recent --set --name A
              filter: -A FORWARD -m recent --rcheck --seconds 5 --name A -j RETURN
              filter: -A FORWARD -j DROP"""
    assert fate(text).verdict == "ACCEPT"
    text = """filter: -A FORWARD -m recent --remove --name A
              filter: -A FORWARD -m recent --rcheck --name A -j DROP"""
    assert fate(text, host=replace(NODE, recent={"A": {CLIENT: (1,)}})).verdict == "ACCEPT"


def test_a_set_that_a_rule_changed() -> None:
    text = """filter: -A FORWARD -j SET --add-set new src
              filter: -A FORWARD -m set --match-set new src -j DROP"""
    assert fate(text).verdict == "DROP"


def test_an_unknown_set_has_one_answer() -> None:
    text = """filter: -A FORWARD -m set --match-set s src -j MARK --set-xmark 0x1/0x1
              filter: -A FORWARD -m set ! --match-set s src -m mark --mark 0x1/0x1 -j DROP"""
    assert fate(text).verdict == "ACCEPT"


def test_round_robin() -> None:
    text = """nat: -A PREROUTING -m statistic --mode nth --every 3 --packet 0 -j DNAT --to-destination 10.244.0.11
              nat: -A PREROUTING -m statistic --mode nth --every 2 --packet 0 -j DNAT --to-destination 10.244.0.12
              nat: -A PREROUTING -j DNAT --to-destination 10.244.0.13"""
    assert set(chances(trace(rules(text), NODE, NEW_PACKET)).values()) == {Fraction(1, 3)}
