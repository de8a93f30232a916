"""What statements do, as data: marks as exclusive ors of bits, answers of refusals, translations."""

from __future__ import annotations

import random

import pytest

from kproxy.netfilter.effect import Nat, Reject
from kproxy.netfilter.family import Family
from kproxy.netfilter.field import UINT32
from kproxy.netfilter.iptables.save import parse_rule
from kproxy.netfilter.nftables.effects import lower
from kproxy.netfilter.nftables.expression import Binary, Ct, Expression, Meta
from kproxy.netfilter.nftables.text import parse_nft

_CONSTANTS = (0, 1, 0xFF, 0x4000, 0xFFFF0000, UINT32)


def random_value(chance: random.Random, depth: int) -> Expression:
    if depth == 0 or chance.random() < 0.2:
        return chance.choice((Meta("mark"), Ct("mark"), chance.choice(_CONSTANTS)))
    operator = chance.choice(("&", "|", "^", "<<", ">>"))
    right = chance.choice((0, 1, 8, 31, 32)) if operator in ("<<", ">>") else random_value(chance, depth - 1)
    return Binary(operator, random_value(chance, depth - 1), right)


def number_of(value: object, marks: dict[type, int]) -> int:
    if isinstance(value, int):
        return value
    if isinstance(value, (Meta, Ct)):
        return marks[type(value)]
    assert isinstance(value, Binary)
    left, right = number_of(value.left, marks), number_of(value.right, marks)
    if value.operator in ("<<", ">>"):
        return left << right & UINT32 if value.operator == "<<" else left >> right
    return {"&": left & right, "|": left | right, "^": left ^ right}[value.operator]


def steps(text: str, family: str = "ip") -> tuple[object, ...]:
    found = parse_nft(f"table {family} t {{ chain c {{ {text} }} }}").tables[0].chains[0].rules[0].statements[-1]
    return lower(found, family, str)


@pytest.mark.parametrize(
    ("text", "family", "ipv4", "ipv6"),
    [
        ("reject", "ip", "icmp-port-unreachable", ""),
        ("reject", "inet", "icmp-port-unreachable", "icmp6-port-unreachable"),
        ("reject with icmpx admin-prohibited", "inet", "icmp-admin-prohibited", "icmp6-adm-prohibited"),
        ("reject with icmpv6 policy-fail", "ip6", "", "icmp6-policy-fail"),
    ],
)
def test_refusals(text: str, family: str, ipv4: str, ipv6: str) -> None:
    assert steps(text, family) == (Reject(ipv4, ipv6),)


def test_a_reset_is_for_tcp() -> None:
    asked, done = steps("reject with tcp reset")
    assert done == Reject("tcp-reset", "tcp-reset")
    assert asked is not None


@pytest.mark.parametrize(
    ("native", "rule"),
    [
        ("dnat to 10.0.0.1:80", "-A X -p tcp -j DNAT --to-destination 10.0.0.1:80"),
        ("snat to 10.0.0.1-10.0.0.3", "-A X -j SNAT --to-source 10.0.0.1-10.0.0.3"),
        ("masquerade fully-random", "-A X -j MASQUERADE --random-fully"),
        ("redirect to :80-90", "-A X -p tcp -j REDIRECT --to-ports 80-90"),
        ("meta mark set meta mark | 0x4000", "-A X -j MARK --or-mark 0x4000"),
        ("ct mark set meta mark & 0xff", "-A X -j CONNMARK --save-mark --nfmask 0xff --ctmask 0xffffffff"),
        ("jump c2", "-A X -j c2"),
        ("goto c2", "-A X -g c2"),
        ("drop", "-A X -j DROP"),
        ('log prefix "x"', "-A X -j LOG"),
        ("notrack", "-A X -j CT --notrack"),
    ],
)
def test_both_languages_say_the_same(native: str, rule: str) -> None:
    target = parse_rule(rule).target
    assert target is not None
    found, wanted = steps(native)[-1], target.effect()
    if isinstance(found, Nat) and found.family is None:
        assert isinstance(wanted, Nat)
        assert (found.kind, found.ports, found.fully) == (wanted.kind, wanted.ports, wanted.fully)
    else:
        assert found == wanted


def test_text_of_a_translation_is_that_of_iptables() -> None:
    for text in (
        "SNAT --to-source 10.0.0.1:5-9 --random --persistent", "MASQUERADE --to-ports 7 --random-fully",
        "NETMAP --to 10.1.0.0/16", "DNAT --to-destination 10.0.0.1-10.0.0.2", "SNAT --to-source :80",
    ):  # fmt: skip
        target = parse_rule(f"-A X -p tcp -j {text}").target
        assert target is not None
        found = target.effect()
        assert isinstance(found, Nat)
        assert target.to_save() == f"-j {found.text()}"
    v6 = parse_rule("-A X -p tcp -j SNAT --to-source [fd00::1]:80", family=Family.IPV6).target
    assert v6 is not None
    assert isinstance(found := v6.effect(), Nat)
    assert v6.to_save() == f"-j {found.text()}"
