"""One rule as a value."""

from __future__ import annotations

import pytest

from kproxy.netfilter import ACCEPT, Family, Rule, RuleSyntaxError, canonicalize_rule, parse_rule


def test_lines() -> None:
    rule = parse_rule("[5:6] -A X -p 6 -j ACCEPT")
    assert rule.spec() == "-p tcp -j ACCEPT"
    assert rule.to_save("Y") == "-A Y -p 6 -j ACCEPT"
    assert rule.to_restore("Y") == "-A Y -p tcp -j ACCEPT"
    assert Rule().to_save("Y") == "-A Y"


def test_equality_is_the_kernels() -> None:
    counted = parse_rule("[5:6] -A X -p 6 -j ACCEPT")
    plain = parse_rule("-p tcp -j ACCEPT")
    assert counted == plain
    assert hash(counted) == hash(plain)
    assert plain != parse_rule("! -p tcp -j ACCEPT")
    assert plain != parse_rule("-p tcp")


def test_head() -> None:
    rule = parse_rule("! -o b -i a+ -f -p 200 -d 1.1.1.1 -s 2.2.0.0/16 -j ACCEPT")
    assert rule.head.text() == "-s 2.2.0.0/16 -d 1.1.1.1/32 -i a+ ! -o b -p 200 -f"
    assert rule.head.fragment is True
    assert rule.target == ACCEPT


def test_canonicalize() -> None:
    assert canonicalize_rule("-A X -j MARK --or-mark 0x4000") == "-j MARK --set-xmark 0x4000/0x4000"
    assert canonicalize_rule("-j REJECT", family=Family.IPV6) == "-j REJECT --reject-with icmp6-port-unreachable"


@pytest.mark.parametrize("text", ["-j A\n-j B", "-c 1 2", "-A X --bogus", "-B X", "[1:2] -I X"])
def test_refused(text: str) -> None:
    with pytest.raises(RuleSyntaxError) as caught:
        parse_rule(text, source="here")
    assert caught.value.source == "here"
    assert caught.value.line == 0
    assert caught.value.exit_code == 2
    assert caught.value.text == text
