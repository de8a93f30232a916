"""What targets do."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from kproxy.dataplane import DataplaneError, make_packet, trace
from tests.support.dataplane.tools import NEW_PACKET, NODE, chances, fate, rules


def test_an_address_of_a_range_is_a_matter_of_chance() -> None:
    text = "nat: -A PREROUTING -p tcp -j DNAT --to-destination 10.244.0.11-10.244.0.14:8080"
    found = chances(trace(rules(text), NODE, NEW_PACKET))
    assert found == {f"10.244.0.{number}:8080": Fraction(1, 4) for number in range(11, 15)}


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


def test_tproxy() -> None:
    text = "mangle: -A PREROUTING -p tcp -j TPROXY --on-port 1234 --tproxy-mark 0x1/0x1"
    assert fate(text).verdict == "DROP"  # with a socket, too, as no rule routes it to this host
    assert fate(text, host=replace(NODE, transparent=frozenset())).verdict == "DROP"
    listening = replace(NODE, transparent=frozenset({(6, 1234)}))
    assert "TPROXY" in fate(text, host=listening).reason  # no rule routes it to this host
    here = make_packet("198.51.100.7:4000", "192.0.2.10:80", in_interface="eth0")
    assert fate(text, here).verdict == "INDETERMINATE"
    assert fate(text, here, listening).via == "local"


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
