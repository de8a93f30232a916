"""The concrete and the symbolic evaluation know the same: every match, target, statement and expression of `netfilter`.

For each class one rule that a real iptables or nft took is compared with no rule. Where one engine knows something that
the other does not, the symbolic one sees a difference that traces do not confirm, or none where traces show one.
"""

from __future__ import annotations

import typing
from collections.abc import Iterator
from functools import cache
from typing import Any, Final

import pytest

from kproxy.dataplane import Connection, Host, Packet, make_packet, trace
from kproxy.dataplane.compare.compare import Comparison, compare
from kproxy.dataplane.compare.examine import UNCONFIRMED
from kproxy.dataplane.compare.observe import index_rules, observe
from kproxy.dataplane.compare.witness import Situation, Watch
from kproxy.dataplane.concrete.effects import ACTS
from kproxy.dataplane.concrete.nft import statements as concrete_statements
from kproxy.dataplane.concrete.nft.keys import payload
from kproxy.dataplane.symbolic.host_rules import SideRules
from kproxy.dataplane.symbolic.nftables.structure import parts_of
from kproxy.netfilter import BUILTIN_CHAINS, Family, parse_save
from kproxy.netfilter.address import parse_address
from kproxy.netfilter.iptables.matches import MATCH_CLASSES
from kproxy.netfilter.iptables.targets import OPAQUE_TARGETS, TARGET_CLASSES
from kproxy.netfilter.nftables import effects, expression, statement
from kproxy.netfilter.nftables.expression import Payload
from kproxy.netfilter.nftables.lowering import key_of
from kproxy.netfilter.nftables.protocol import HEADERS
from kproxy.netfilter.nftables.ruleset import Rule
from kproxy.netfilter.nftables.text import parse_nft
from tests.support.netfilter.nft_corpus import recorded_rules
from tests.support.netfilter.recorded_rules import groups

NOWHERE = frozenset({
    "CLUSTERIP",  # gone from kernels
    "DNPT", "SNPT", "SECMARK", "RATEEST", "IDLETIMER", "LED", "ULOG", "SYNPROXY", "AUDIT", "CHECKSUM", "CLASSIFY",
    "CONNSECMARK", "ECN", "HMARK", "TCPOPTSTRIP",
})  # fmt: skip
"""Targets that need no recorded rule: `TOLD` has one for each."""
TOLD = (
    "mangle POSTROUTING CLASSIFY --set-class 0001:0002", "mangle FORWARD AUDIT --type accept",
    "mangle POSTROUTING CHECKSUM --checksum-fill", "mangle FORWARD CONNSECMARK --save",
    "mangle FORWARD ECN --ecn-tcp-remove",
    "mangle FORWARD HMARK --hmark-tuple src --hmark-mod 4 --hmark-rnd 0x1",
    "mangle FORWARD IDLETIMER --timeout 9 --label x",
    "filter FORWARD LED --led-trigger-id x", "mangle FORWARD RATEEST --rateest-name x --rateest-interval 250.0ms",
    "mangle FORWARD SECMARK --selctx x", "mangle FORWARD TCPOPTSTRIP --strip-options 3", "filter FORWARD ULOG --x",
    "filter FORWARD SYNPROXY --mss 1460", "mangle FORWARD DNPT --src-pfx fd00::/64 --dst-pfx fd01::/64",
    "mangle FORWARD SNPT --src-pfx fd00::/64 --dst-pfx fd01::/64", "filter INPUT CLUSTERIP --new",
)  # fmt: skip
FIELDS: Final[tuple[dict[str, Any], ...]] = (
    {"protocol": 6, "sport": 40000, "dport": 80, "tcp_flags": 2}, {"protocol": 17, "sport": 40000, "dport": 53},
    {"protocol": 1, "icmp_type": 8, "icmp_code": 0},
)  # fmt: skip
ADDRESSES: Final[dict[str, Any]] = {
    "src": parse_address("198.51.100.7", Family.IPV4),
    "dst": parse_address("203.0.113.9", Family.IPV4),
}
PACKETS: Final = tuple(Packet(Family.IPV4, in_interface="eth0", **ADDRESSES, **fields) for fields in FIELDS)


def told_apart(one: SideRules, other: SideRules, family: Family) -> Comparison:
    """The comparison, after a look at what the two engines disagree about."""
    found = compare(one, other, family=family)
    assert UNCONFIRMED not in {item.reason for item in found.undecided}, found.undecided
    if found.alike and family is Family.IPV4:
        indexes = [index_rules(side, family) for side in (one, other)]
        for packet in PACKETS:
            situation = Situation(packet, Host(), Connection())
            seen = [observe(index, situation, Watch(0, 0, {})) for index in indexes]
            assert seen[0] == seen[1], packet
    return found


def iptables(table: str, hook: str, family: Family, *rules: str) -> SideRules:
    chains = "".join(f":{name} ACCEPT [0:0]\n" for name in BUILTIN_CHAINS[table])
    lines = "".join(f"{rule}\n" for rule in rules)
    text = f"*{table}\n{chains}:T - [0:0]\n:U - [0:0]\n{lines}-A {hook} -j T\nCOMMIT\n"
    return SideRules.of(parse_save(text, family=family))


@cache
def recorded() -> dict[object, tuple[str, str, Family, str]]:
    """For each class of matches and targets a rule with it."""
    found: dict[object, tuple[str, str, Family, str]] = {}
    usual = {"nat": "PREROUTING", "raw": "PREROUTING"}
    for group in groups():
        for item in (*group.typed, *group.opaque):
            if not item.saved:
                continue
            hook = group.hook or usual.get(group.table, "FORWARD")
            rules = iptables(group.table, hook, group.family, item.saved[0]).rulesets[0]
            rule = next((each for _, chain, _, each in rules.rules() if chain.name == "T"), None)
            if rule is None:
                continue
            for part in (*rule.matches, rule.target):
                found.setdefault(type(part), (group.table, hook, group.family, item.saved[0]))
    return found


@pytest.mark.parametrize("part", [*MATCH_CLASSES, *TARGET_CLASSES], ids=lambda part: part.__name__)
def test_iptables(part: type) -> None:
    table, hook, family, rule = recorded()[part]
    told_apart(iptables(table, hook, family, rule), iptables(table, hook, family), family)


@pytest.mark.parametrize("line", TOLD, ids=lambda line: line.split()[2])
def test_targets_that_are_not_interpreted(line: str) -> None:
    table, hook, rule = line.split(" ", 2)
    with_it, without = (iptables(table, hook, Family.IPV4, *rules) for rules in ((f"-A T -j {rule}",), ()))
    found = told_apart(with_it, without, Family.IPV4)
    assert found.differences or found.undecided
    # What comes after it counts, whatever it does.
    after = iptables(table, hook, Family.IPV4, f"-A T -j {rule}", "-A T -d 9.9.9.9/32 -j DROP")
    assert not told_apart(after, with_it, Family.IPV4).alike


def test_every_target_is_here() -> None:
    assert NOWHERE == OPAQUE_TARGETS == {line.split()[2] for line in TOLD}


def classes_of(alias: object) -> Iterator[type]:
    """The classes of a union."""
    for item in typing.get_args(alias):
        if item is Ellipsis:
            continue
        yield from classes_of(item) if typing.get_args(item) else (item,)


STATEMENTS = tuple(dict.fromkeys(classes_of(statement.Statement)))
EXPRESSIONS = tuple(
    dict.fromkeys(each for each in classes_of(expression.Expression) if each.__module__ == expression.__name__)
)
UNSEEN = frozenset({statement.Xt, statement.OpaqueStatement})
"""What no rule that nft prints makes."""


def native(rule: str, hook: str) -> SideRules:
    chains = f"chain u {{ }}\n chain c {{ {hook}\n {rule}\n }}"
    table = f"table inet t {{\n set s {{ type ipv4_addr; flags dynamic; }}\n {chains}\n}}"
    return SideRules(nftables=parse_nft(table))


def hook_of(parts: list[object]) -> str:
    """A base chain that the kernel lets such a rule be in."""
    kinds = {part.kind for part in parts if isinstance(part, statement.Nat)}
    if kinds:
        at = ("postrouting", 100) if kinds & {"snat", "masquerade"} else ("prerouting", -100)
        return "type nat hook {} priority {};".format(*at)
    hook = "prerouting" if any(isinstance(part, statement.Tproxy) for part in parts) else "forward"
    return f"type filter hook {hook} priority 0;"


@cache
def native_rules() -> dict[type, tuple[str, str]]:
    """For each class of statements and expressions a rule with it, and its chain."""
    found: dict[type, tuple[str, str]] = {}
    extra = (
        "add @s { ip saddr }",
        "flow add @f",
        "last",
        "queue to 1",
        'osf name "Linux"',
        "ipsec in reqid 1 drop",
        "ip saddr @s drop",
        'ct helper set "x"',
    )
    for text in (*extra, *(item.bookworm for item in recorded_rules() if item.family in ("ip", "inet"))):
        rules = native(text, "type filter hook forward priority 0;").nftables
        rule: Rule = next(chain for chain in rules.tables[0].chains if chain.name == "c").rules[0]
        parts = list(parts_of(rule.statements))
        for part in parts:
            found.setdefault(type(part), (text, hook_of(parts)))
    return found


@pytest.mark.parametrize("part", [*STATEMENTS, *EXPRESSIONS], ids=lambda part: part.__name__)
def test_nftables(part: type) -> None:
    if part in UNSEEN:
        return
    text, hook = native_rules()[part]
    told_apart(native(text, hook), native("", hook), Family.IPV4)


def test_every_statement_has_an_action() -> None:
    assert {*STATEMENTS} == {*effects._ROWS, *effects.PENDING}
    assert {*effects.PENDING} - {statement.Match} <= {*concrete_statements.STATEMENTS}


def test_every_target_has_an_effect() -> None:
    for target in TARGET_CLASSES:
        table, hook, family, rule = recorded()[target]
        for _, chain, _, found in iptables(table, hook, family, rule).rulesets[0].rules():
            if chain.name == "T" and found.target is not None:
                assert type(found.target.effect()) in ACTS


@pytest.mark.parametrize("text", ["reject with icmp 5", "reject with icmp 12", "reject with icmpx 1", "reject"])
def test_answers_of_refusals(text: str) -> None:
    hook = "type filter hook forward priority 0;"
    assert not told_apart(native(text, hook), native("", hook), Family.IPV4).alike
    assert not told_apart(native(text, hook), native("reject with icmp 1", hook), Family.IPV4).alike


WRITES = (
    "ip ecn set ce", "ip dscp set cs1", "ip dscp set ip dscp | 1", "ip ttl set 5", "tcp flags set syn", "ip id set 5",
    "ip length set 5", "meta priority set 1:2", "meta pkttype set host", "ct label set 5",
    "tcp option maxseg size set 1400",
    "udp checksum set 0", "icmp type set echo-reply", "meta mark set jhash ip saddr mod 8",
    "reset tcp option sack-perm",
)  # fmt: skip


@pytest.mark.parametrize("text", WRITES)
def test_writes(text: str) -> None:
    hook = "type filter hook forward priority 0;"
    beside = "fib saddr . iif oif 0 drop"
    found = told_apart(native(f"{beside}\n {text}", hook), native(beside, hook), Family.IPV4)
    assert not found.alike
    assert told_apart(native(f"{text}\n counter", hook), native(text, hook), Family.IPV4).alike


@pytest.mark.parametrize("family", Family)
def test_what_is_the_same_in_all_headers_is_known_to_both_engines(family: Family) -> None:
    packet = Packet(family, None, None, 6)
    name = "ip" if family is Family.IPV4 else "ip6"
    known = {field for field in HEADERS[name].fields if isinstance(payload(packet, name, field), int)}
    assert "version" in known
    assert [field for field in known if key_of(Payload(name, field)) is None] == []


@pytest.mark.parametrize(
    ("text", "v4", "v6"),
    [
        ("reject", "icmp-port-unreachable", "icmp6-port-unreachable"),
        ("reject with icmp admin-prohibited", "icmp-admin-prohibited", ""),
        ("reject with icmpv6 addr-unreachable", "", "icmp6-addr-unreachable"),
        ("reject with icmpx admin-prohibited", "icmp-admin-prohibited", "icmp6-adm-prohibited"),
    ],
)
def test_packets_of_a_family_are_refused_in_its_own_words(text: str, v4: str, v6: str) -> None:
    one, other = (
        SideRules((), parse_nft(f"table inet t {{ chain f {{ type filter hook forward priority 0; {rule}; }} }}"))
        for rule in (text, "counter")
    )
    packets = {Family.IPV4: ("10.0.0.1", "10.0.0.2:80", v4), Family.IPV6: ("fd00::1", "[fd00::2]:80", v6)}
    for family, (src, dst, answer) in packets.items():
        (traced,) = trace(index_rules(one, family), Host.simple(["10.9.9.9"]), make_packet(src, dst, "tcp")).outcomes
        assert (traced.verdict, traced.reject or "") == ("REJECT" if answer else "ACCEPT", answer)
        found = compare(one, other, family=family).differences
        assert [each for each in found if answer not in each.one] == []
        assert bool(found) == bool(answer)
