"""What typed matches mean; their text is tested by the recorded rules and the properties."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from kproxy.netfilter import Family, Negatable, RuleSyntaxError, parse_rule


def match(text: str, family: Family = Family.IPV4) -> Any:
    rule = parse_rule(f"-m {text}", family=family)
    assert len(rule.matches) == 1
    return rule.matches[0]


def test_probability_is_exact() -> None:
    third = match("statistic --mode random --probability 0.3333333333")
    assert third.probability == Negatable(715827883)
    assert third.chance == Fraction(715827883, 1 << 31)
    assert third == match("statistic --mode random --probability 0.33333333349")
    assert match("statistic --mode random ! --probability 0.25").chance == Fraction(3, 4)
    assert match("statistic --mode nth --every 3 --packet 1").chance is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("comment", "--comment expected"),
        ("comment ! --comment x", "no ! expected before --comment"),
        ("comment --comment x --comment y", "only one of its kind"),
        (f"comment --comment {'x' * 256}", "at most 255 bytes"),
        ("mark --mark", "1 argument(s) expected after --mark"),
        ("tcp --dport http", "a number from 0 to 65535"),
        ("multiport --dports 1 --sports 2", "only one of these expected: --sports, --dports"),
        ("multiport --dports 5:5", "lower end first"),
        ("multiport --ports 1:2,3:4,5:6,7:8,9:10,11:12,13:14,15:16", "at most 15"),
        ("recent --rcheck --update", "only one of its kind"),
        ("recent --set --seconds 5", "--rcheck or --update"),
        ("statistic --mode nth --every 3 --packet 3", "--packet below --every"),
        ("addrtype", "one of these expected: --src-type, --dst-type"),
        ("set --match-set s SRC", "src and dst"),
        ("mac --mac-source 0011", "a MAC address"),
        ("owner --uid-owner root", "a number"),
    ],
)
def test_refused(text: str, expected: str) -> None:
    with pytest.raises(RuleSyntaxError) as caught:
        match(text)
    assert expected in caught.value.expected


def test_names_with_blanks_survive() -> None:
    """iptables-save prints them without quotes, so that iptables-restore could not read them back."""
    found = match("recent --set --name a b --mask 255.255.255.255 --rsource")
    assert found.name == "a b"
    assert found.to_save() == "-m recent --set --name a b --mask 255.255.255.255 --rsource"
