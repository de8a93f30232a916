"""The plan of the overlay's rules: exact text, and what it does with ranges and with what a node has."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kproxy.api.types.core import Node
from kproxy.api.types.meta import ObjectMeta
from kproxy.netfilter import canonicalize_rule
from kproxy.netfilter.family import Family
from kproxy.netfilter.hooks import Variant
from kproxy.overlay.nodes import OverlayNode, read_node
from kproxy.overlay.rules import Firewall, RuleSettings, plan_rules, pod_ranges
from tests.support.overlay.network import node_object

BOTH = frozenset((variant, version) for variant in Variant for version in (4, 6))
NFT = Firewall(Variant.NFT, BOTH, frozenset())


def nodes(*numbers: int, families: tuple[int, ...] = (4, 6)) -> list[OverlayNode]:
    return [read_node(node_object(number, families)) for number in numbers]


def test_the_whole_plan_of_a_node() -> None:
    own, *others = nodes(1, 4, families=(4,))
    masquerading, forwarding = plan_rules(own, others, RuleSettings(ip_masq=True), NFT)
    assert (masquerading.table, masquerading.base, masquerading.chain) == ("nat", "POSTROUTING", "KPROXY-POSTRTG")
    masq = '-m comment --comment "kproxy overlay masq"'
    assert masquerading.rules == (
        f"-m mark --mark 0x4000/0x4000 {masq} -j RETURN",
        f"-s 10.244.1.0/24 -d 10.244.4.0/24 {masq} -j RETURN",
        f"-d 10.244.1.0/24 {masq} -j RETURN",
        f"-s 10.244.1.0/24 ! -d 224.0.0.0/4 {masq} -j MASQUERADE --random-fully",
        f"-s 10.244.4.0/24 ! -d 224.0.0.0/4 {masq} -j MASQUERADE --random-fully",
        f"-d 10.244.4.0/24 {masq} -j MASQUERADE --random-fully",
    )
    assert (forwarding.table, forwarding.base, forwarding.chain) == ("filter", "FORWARD", "KPROXY-FWD")
    forward = '-m comment --comment "kproxy overlay forward" -j ACCEPT'
    assert forwarding.rules == (
        f"-s 10.244.1.0/24 {forward}",
        f"-d 10.244.1.0/24 {forward}",
        f"-s 10.244.4.0/24 {forward}",
        f"-d 10.244.4.0/24 {forward}",
    )


def test_the_range_of_all_pods_makes_the_rules_few_and_lasting() -> None:
    cidrs = (ipaddress.ip_network("10.244.0.0/16"), ipaddress.ip_network("fd00:10:244::/48"))
    own, *others = nodes(1, 2, 3)
    settings = RuleSettings(ip_masq=True, forward=False, cluster_cidrs=cidrs)
    four, six = plan_rules(own, others, settings, NFT)
    masq = '-m comment --comment "kproxy overlay masq"'
    assert four.rules == (
        f"-m mark --mark 0x4000/0x4000 {masq} -j RETURN",
        f"-s 10.244.1.0/24 -d 10.244.0.0/16 {masq} -j RETURN",
        f"-d 10.244.1.0/24 {masq} -j RETURN",
        f"-s 10.244.0.0/16 ! -d 224.0.0.0/4 {masq} -j MASQUERADE --random-fully",
        f"-d 10.244.0.0/16 {masq} -j MASQUERADE --random-fully",
    )
    assert six.rules[3] == f"-s fd00:10:244::/48 ! -d ff00::/8 {masq} -j MASQUERADE --random-fully"
    assert plan_rules(own, nodes(1, 2, 3, 4), settings, NFT) == (four, six), "a new Node changes nothing"
    stranger = read_node(Node(ObjectMeta("z"), ("192.168.77.0/24",)))
    assert "192.168.77.0/24" in " ".join(plan_rules(own, [stranger], settings, NFT)[0].rules), "no pod is left out"


@given(st.lists(st.integers(0, 255)))
def test_ranges_hold_every_pod_and_nothing_else(numbers: list[int]) -> None:
    made = [read_node(Node(ObjectMeta(str(number)), (f"10.244.{number}.0/24",))) for number in numbers]
    ranges = pod_ranges(made, 4)
    assert sum(item.num_addresses for item in ranges) == 256 * len(set(numbers))
    assert all(
        any(ipaddress.ip_address(f"10.244.{number}.9") in item for item in ranges) == (number in numbers)
        for number in range(256)
    )


@pytest.mark.parametrize(
    ("settings", "firewall", "expected"),
    [
        (RuleSettings(), NFT, [("nft", "filter")]),
        (RuleSettings(forward=False), NFT, []),
        (RuleSettings(ip_masq=True, forward=False), NFT, [("nft", "nat")]),
        (RuleSettings(ip_masq=True), Firewall(None, frozenset(), frozenset()), []),
        (
            RuleSettings(),
            Firewall(Variant.NFT, BOTH, frozenset([(Variant.LEGACY, 4)])),
            [("nft", "filter"), ("legacy", "filter")],
        ),
    ],
)
def test_rules_are_where_they_are_asked_for_or_needed(
    settings: RuleSettings, firewall: Firewall, expected: list[tuple[str, str]]
) -> None:
    (own,) = nodes(1, families=(4,))
    assert [(item.variant.value, item.table) for item in plan_rules(own, [], settings, firewall)] == expected


def test_an_iptables_that_is_too_old_chooses_ports_as_it_can() -> None:
    (own,) = nodes(1)
    firewall = Firewall(Variant.LEGACY, frozenset(), frozenset())
    chains = plan_rules(own, [], RuleSettings(ip_masq=True), firewall)
    assert not [rule for chain in chains for rule in chain.rules if "random" in rule]


def test_rules_are_written_as_iptables_prints_them() -> None:
    """So that reading them back finds no difference."""
    own, *others = nodes(1, 2)
    for chain in plan_rules(own, others, RuleSettings(ip_masq=True), NFT):
        family = Family.IPV4 if chain.version == 4 else Family.IPV6
        for rule in chain.rules:
            assert canonicalize_rule(rule, family=family) == rule
