"""nft's JSON in kube-proxy's words, of single rules and of recorded clusters' tables, whatever nft's version."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kproxy.linux.errors import UnreadableDumpError
from kproxy.linux.nftables.readback import (
    canonical,
    chain_definition,
    chain_signature,
    element,
    listed_set_signature,
    parse_listing,
    rule_text,
    set_definition,
    set_signature,
)
from kproxy.linux.nftables.table import TableText, difference
from kproxy.render.nftables.serviceport import ElementValue
from tests.support.linux.nft_tables import parse_script
from tests.support.recorded import REFERENCE

LISTINGS = sorted((REFERENCE / "nft-json").glob("*/*.json"))


def loaded(listing: Path) -> TableText:
    """The table that was loaded before this was listed."""
    case, family = listing.stem.split(".")
    return parse_script((REFERENCE / "clusters" / case / f"kube-proxy.{family}.nft").read_text())


@pytest.mark.parametrize("listing", LISTINGS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_nothing_differs(listing: Path) -> None:
    wanted = loaded(listing)
    found = parse_listing(listing.read_text(), wanted)
    assert not difference(found.table, wanted)
    assert (found.foreign, found.foreign_rules) == ((), ())
    # And rules count: without its first rule every chain that has one differs.
    objects = json.loads(listing.read_text())["nftables"]
    first = {each["rule"]["chain"]: each for each in reversed(objects) if "rule" in each}
    rest = [each for each in objects if each not in first.values()]
    without = difference(parse_listing(json.dumps({"nftables": rest}), wanted).table, wanted)
    assert set(without.rules) == set(wanted.rules)


def test_the_recordings_differ_where_versions_and_hosts_do() -> None:
    texts = {path.parent.name: path.read_text() for path in LISTINGS if path.stem == "case-10067.v4"}
    assert texts.keys() == {"1.0.6", "1.1.3", "1.1.3-without-etc-protocols"}
    assert '"tcp"' in texts["1.1.3"]
    assert '"tcp"' not in texts["1.1.3-without-etc-protocols"]
    assert '"comment": "rules for kube-proxy"' in texts["1.1.3"]
    assert '"comment": "rules for kube-proxy"' not in texts["1.0.6"]


@pytest.mark.parametrize("text", ["", "nothing", "[]", "{}", '{"nftables": [1]}', '{"nftables": [{"chain": {}}]}'])
def test_what_is_not_nfts_json_is_an_error(text: str) -> None:
    with pytest.raises(UnreadableDumpError, match="what nft -j list table ip kube-proxy prints cannot be understood"):
        parse_listing(text, TableText("ip kube-proxy"))


MARK = {"meta": {"key": "mark"}}
SADDR = {"payload": {"protocol": "ip", "field": "saddr"}}


@pytest.mark.parametrize(
    ("wanted", "expr"),
    [
        (
            "mark and 0x80000000 != 0 mark set mark xor 0x80000000 masquerade fully-random",
            [
                # nft 1.0 makes a prefix of a test of the highest bit.
                {"match": {"op": "!=", "left": MARK, "right": {"prefix": {"addr": 0, "len": 1}}}},
                {"mangle": {"key": MARK, "value": {"^": [MARK, 0x80000000]}}},
                {"masquerade": {"flags": "fully-random"}},
            ],
        ),
        (
            "ip saddr != { 10.0.0.0/8 , 192.0.2.1 , 10.1.0.0/16 } drop",
            [
                {
                    "match": {
                        "op": "!=",
                        "left": SADDR,
                        "right": {"set": [{"prefix": {"addr": "10.0.0.0", "len": 8}}, "192.0.2.1"]},
                    }
                },
                {"drop": None},
            ],
        ),
        (
            "ip saddr { 10.0.0.0/30,10.0.0.4/31 } drop",
            [
                {"match": {"op": "==", "left": SADDR, "right": {"range": ["10.0.0.0", "10.0.0.5"]}}},
                {"drop": None},
            ],
        ),
        (
            "meta l4proto tcp dnat to [fd00::1]:80",
            [
                {"match": {"op": "==", "left": {"meta": {"key": "l4proto"}}, "right": "tcp"}},
                {"dnat": {"addr": "fd00::1", "port": 80}},
            ],
        ),
        (
            'fib saddr type local mark set mark or 0x00004000 comment "masquerade local traffic"',
            [
                {"match": {"op": "==", "left": {"fib": {"result": "type", "flags": ["saddr"]}}, "right": "local"}},
                {"mangle": {"key": MARK, "value": {"|": [MARK, 0x4000]}}},
            ],
        ),
        (
            'iifname "br0" goto x',
            [
                {"match": {"op": "==", "left": {"meta": {"key": "iifname"}}, "right": "br0"}},
                {"goto": {"target": "x"}},
            ],
        ),
    ],
)
def test_rules_that_mean_the_same(wanted: str, expr: list[Any]) -> None:
    rule: dict[str, Any] = {"expr": expr}
    if "comment" in wanted:
        rule["comment"] = wanted.split('"')[1]
    assert rule_text(rule) == canonical(wanted)


@pytest.mark.parametrize(
    "expr",
    [
        [{"counter": {"packets": 1, "bytes": 2}}],
        [{"dnat": {"addr": "10.0.0.1"}}],
        [{"reject": {"type": "tcp reset"}}, {"queue": {"num": 3}}],
        [{"match": {"op": ">", "left": MARK, "right": 1}}],
        [{"meta": 1, "more": 2}],
    ],
)
def test_other_rules_are_spelled_as_json(expr: list[Any]) -> None:
    assert rule_text({"expr": expr, "comment": "odd"}).startswith("[{")
    assert rule_text({"expr": expr, "comment": "odd"}).endswith('}] comment "odd"')


def test_a_reject_with_another_answer_is_another_rule() -> None:
    plain = {"expr": [{"reject": {"type": "icmp", "expr": "port-unreachable"}}]}
    other = {"expr": [{"reject": {"type": "icmp", "expr": "host-unreachable"}}]}
    assert rule_text(plain) == "reject"
    assert rule_text(other) != "reject"
    assert rule_text({"expr": [{"reject": {"type": "tcp reset"}}]}) != "reject"


def test_elements() -> None:
    assert element("10.96.0.1") == ("10.96.0.1", ElementValue())
    key = {"concat": ["10.96.0.1", "tcp", 80]}
    assert element([key, {"goto": {"target": "x"}}]) == ("10.96.0.1 . tcp . 80", ElementValue("goto x"))
    commented = {"elem": {"val": key, "comment": "ns/a:p"}}
    assert element([commented, {"drop": None}]) == ("10.96.0.1 . tcp . 80", ElementValue("drop", "ns/a:p"))


def test_sets_differ_by_what_they_hold() -> None:
    definition = "{ type ipv4_addr ; flags dynamic,timeout ; timeout 10800s ; }"
    item = {"type": "ipv4_addr", "size": 65535, "flags": ["timeout"], "timeout": 10800}
    assert set_signature("set", definition) == listed_set_signature("set", item)
    assert set_definition(item) == "{ type ipv4_addr ; flags timeout ; timeout 10800s ; }"
    assert set_signature("set", definition) != listed_set_signature("set", {**item, "timeout": 60})
    verdicts = '{ type inet_proto . inet_service : verdict ; comment "a ; b" ; }'
    listed = {"type": ["inet_proto", "inet_service"], "map": "verdict", "comment": "a"}
    assert set_signature("map", verdicts) == listed_set_signature("map", listed)
    assert set_definition(listed) == '{ type inet_proto . inet_service : verdict ; comment "a" ; }'


def test_chains_differ_by_their_hook() -> None:
    definition = "{ type nat hook prerouting priority -100 ; }"
    item = {"name": "x", "type": "nat", "hook": "prerouting", "prio": -100, "policy": "accept"}
    assert chain_definition(item) == definition
    assert chain_signature(definition) == ("nat", "prerouting", "-100", "accept")
    dropping = chain_definition({**item, "policy": "drop"})
    assert chain_signature(dropping) == ("nat", "prerouting", "-100", "drop")
    assert chain_signature("") == chain_signature('{ comment "x" ; }') == ()
