"""Rules that refuse every new connection."""

from __future__ import annotations

from typing import Any

import pytest

from kproxy.linux.pod.overlay_rules import RuleEnd, iptables_verdict, nft_verdict, refuses
from tests.support import paths


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("-j REJECT --reject-with icmp-port-unreachable", RuleEnd("REJECT")),
        ('-m comment --comment "a b -p tcp" -j DROP', RuleEnd("DROP")),
        ("-m conntrack --ctstate INVALID,NEW -j DROP", RuleEnd("DROP")),
        ("-m conntrack ! --ctstate RELATED,ESTABLISHED -g end", RuleEnd("end", goes=True)),
        ("-m state --state NEW -j a", RuleEnd("a")),
        ("-m conntrack --ctstate INVALID -j DROP", None),
        ("-m conntrack ! --ctstate NEW -j DROP", None),
        ("-i eth0 -j DROP", None),
        ("-m conntrack --ctstate NEW -p tcp -j DROP", None),
        ('-m comment --comment "no target"', None),
    ],
)
def test_a_rule_of_iptables(rule: str, expected: RuleEnd | None) -> None:
    assert iptables_verdict(f"-A FORWARD {rule}") == expected


STATE = {"ct": {"key": "state"}}


@pytest.mark.parametrize(
    ("statements", "expected"),
    [
        ([{"counter": {"packets": 0, "bytes": 0}}, {"drop": None}], RuleEnd("DROP")),
        ([{"reject": {"type": "icmpx", "expr": "admin-prohibited"}}], RuleEnd("REJECT")),
        ([{"match": {"op": "in", "left": STATE, "right": "new"}}, {"jump": {"target": "a"}}], RuleEnd("a")),
        ([{"match": {"op": "in", "left": STATE, "right": ["new", "invalid"]}}, {"drop": None}], RuleEnd("DROP")),
        ([{"match": {"op": "==", "left": STATE, "right": {"set": ["new"]}}}, {"drop": None}], RuleEnd("DROP")),
        ([{"match": {"op": "!=", "left": STATE, "right": "new"}}, {"drop": None}], None),
        ([{"match": {"op": "in", "left": STATE, "right": "invalid"}}, {"drop": None}], None),
        ([{"match": {"op": "==", "left": {"meta": {"key": "iif"}}, "right": "lo"}}, {"drop": None}], None),
        ([{"counter": None}], None),
    ],
)
def test_a_rule_of_nft(statements: list[dict[str, Any]], expected: RuleEnd | None) -> None:
    assert nft_verdict(statements) == expected


def chains(text: str) -> dict[str, list[RuleEnd | None]]:
    found: dict[str, list[RuleEnd | None]] = {}
    for line in text.splitlines():
        if line.startswith("-A "):
            found.setdefault(line.split()[1], []).append(iptables_verdict(line))
    return found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("-A a -j b\n-A b -i lo -j ACCEPT\n-A b -j REJECT", True),
        ("-A a -j b\n-A b -j RETURN\n-A b -j REJECT", False),
        ("-A a -j b\n-A b -j ACCEPT\n-A a -j DROP", True),  # as if b could come back: the jump before b is right too
        ("-A a -g b\n-A a -j DROP\n-A b -i lo -j DROP", False),
        ("-A a -j b\n-A b -j c\n-A c -p tcp -j DROP", False),
    ],
)
def test_jumps_are_followed(text: str, expected: bool) -> None:
    known = chains(text)
    assert refuses(RuleEnd("a"), lambda name: known.get(name, ())) is expected


def test_ufw_refuses_nothing_by_itself_but_by_its_policy() -> None:
    text = (paths.ROOT / "tests/reference/hosts/ufw/iptables-save").read_text()
    known = chains(text.partition("*filter")[2].partition("COMMIT")[0])
    assert not refuses(RuleEnd("FORWARD"), lambda name: known.get(name, ()))
    known["ufw-reject-forward"] = [RuleEnd("REJECT")]
    assert refuses(RuleEnd("FORWARD"), lambda name: known.get(name, ()))
