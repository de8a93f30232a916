"""Rules against what nft 1.0.6 and 1.1.3 list once they are loaded."""

from __future__ import annotations

import pytest

from kproxy.netfilter.nftables.errors import NftSyntaxError
from kproxy.netfilter.nftables.rule import RulePrinter
from kproxy.netfilter.nftables.ruleset import Rule, TableFamily
from kproxy.netfilter.nftables.statement import OpaqueStatement
from kproxy.netfilter.nftables.style import BOOKWORM, TRIXIE, Style
from kproxy.netfilter.nftables.text import parse_nft
from tests.support.netfilter.nft_corpus import Recorded, recorded_rules

MERGED = "ip saddr { 10.0.0.0/9, 10.128.0.0/9 }"
"""nft joins the two and keeps the braces. What it lists so is another rule when it is loaded: one with a prefix."""

REWRITTEN = frozenset({"@nh,8,8 & 0x3 == 1", "meta l4proto tcp redirect to tcp dport map { 80 : 8080, 81 : 8081 }"})
"""nft 1.1.3 lists other expressions for these, which say the same."""


def read(family: str, text: str) -> Rule:
    ruleset = parse_nft(f"add table {family} t\nadd chain {family} t c\nadd rule {family} t c {text}\n", "rule")
    return ruleset.tables[0].chains[0].rules[0]


def listed(item: Recorded, style: Style) -> str:
    return item.trixie if style.newer else item.bookworm


@pytest.mark.parametrize("style", [BOOKWORM, TRIXIE], ids=["1.0.6", "1.1.3"])
def test_rules_are_printed_as_nft_lists_them(style: Style) -> None:
    for item in recorded_rules():
        printed = RulePrinter(TableFamily(item.family), style).rule(read(item.family, item.rule))
        if not (style.newer and item.rule in REWRITTEN):
            assert printed == listed(item, style), item.rule
        if item.rule != MERGED:
            assert read(item.family, printed) == read(item.family, item.rule)


@pytest.mark.parametrize("style", [BOOKWORM, TRIXIE], ids=["1.0.6", "1.1.3"])
def test_a_script_and_its_listing_are_the_same_rule(style: Style) -> None:
    for item in recorded_rules():
        rule = read(item.family, item.rule)
        assert not any(isinstance(statement, OpaqueStatement) for statement in rule.statements), item
        if item.rule != MERGED and not (style.newer and item.rule in REWRITTEN):
            assert read(item.family, listed(item, style)) == rule, item


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("meta length 010", "meta length 8"),
        ("limit rate 010/second", "limit rate 8/second"),
        ("queue num 1 - 3 bypass", "queue flags bypass to 1-3"),
        ("masquerade to :1024 random,persistent", "masquerade to :1024 random,persistent"),
    ],
)
def test_what_nft_makes_of_it(text: str, printed: str) -> None:
    assert RulePrinter(TableFamily.IP, BOOKWORM).rule(read("ip", text)) == printed


@pytest.mark.parametrize("text", ["queue num 70000", "queue to 3-1", "masquerade random,", "reject with icmp type"])
def test_what_nft_refuses(text: str) -> None:
    with pytest.raises(NftSyntaxError):
        read("ip", text)
