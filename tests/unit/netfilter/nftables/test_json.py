"""`nft -j list ruleset`: the same rule set as the text, and what is refused with its path."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kproxy.netfilter.nftables.errors import NftSyntaxError
from kproxy.netfilter.nftables.statement import OpaqueStatement
from kproxy.netfilter.nftables.text import parse_nft
from kproxy.netfilter.nftables.value import Verdict

META: dict[str, Any] = {"metainfo": {"version": "1.0.6", "json_schema_version": 1}}


def document(*objects: dict[str, Any]) -> str:
    return json.dumps({"nftables": [META, *objects]})


def rule(*statements: Any) -> str:
    place = {"family": "inet", "table": "t"}
    return document(
        {"table": {"family": "inet", "name": "t", "handle": 1}},
        {"chain": {**place, "name": "c", "handle": 2}},
        {"rule": {**place, "chain": "c", "handle": 3, "comment": "why", "expr": list(statements)}},
    )


def test_json_and_text_are_the_same() -> None:
    place = {"family": "ip", "table": "t"}
    source = {"payload": {"protocol": "ip", "field": "saddr"}}
    text = document(
        {"table": {"family": "ip", "name": "t", "handle": 1}},
        {
            "map": {
                **place,
                "name": "m",
                "type": ["ipv4_addr", "inet_service"],
                "map": "verdict",
                "elem": [
                    [{"concat": ["10.0.0.1", 80]}, {"goto": {"target": "a/b"}}],
                    [{"elem": {"val": {"concat": ["10.0.0.2", 81]}, "comment": "c d"}}, {"drop": None}],
                ],
            }
        },
        {"chain": {**place, "name": "a/b"}},
        {"chain": {**place, "name": "in", "type": "filter", "hook": "input", "prio": -110, "policy": "drop"}},
        {
            "rule": {
                **place,
                "chain": "in",
                "handle": 9,
                "expr": [
                    {"match": {"op": "==", "left": source, "right": {"prefix": {"addr": "10.0.0.0", "len": 8}}}},
                    {"match": {"op": "in", "left": {"ct": {"key": "state"}}, "right": ["new", "related"]}},
                    {"counter": {"packets": 4, "bytes": 5}},
                    {"log": {"prefix": "x: "}},
                    {"accept": None},
                ],
            }
        },
    )
    found = parse_nft(text)
    assert found == parse_nft("""table ip t {
	map m {
		type ipv4_addr . inet_service : verdict
		elements = { 10.0.0.1 . 80 : goto a/b, 10.0.0.2 . 81 comment "c d" : drop }
	}
	chain a/b {
	}
	chain in {
		type filter hook input priority -110; policy drop;
		ip saddr 10.0.0.0/8 ct state related,new counter log prefix "x: " accept
	}
}
""")
    assert found.tables[0].chains[1].rules[0].handle == 9
    assert found.tables[0].handle == 1


def test_a_statement_that_is_not_known_is_kept_and_the_next_is_read() -> None:
    found = parse_nft(rule({"frobnicate": {"a": [1, "x"]}}, {"accept": None})).tables[0].chains[0].rules[0]
    assert found.statements == (
        OpaqueStatement("frobnicate", '{"frobnicate": {"a": [1, "x"]}}', json=True),
        Verdict("accept"),
    )
    assert found.comment == "why"


@pytest.mark.parametrize(
    "statement",
    [
        {
            "match": {
                "op": "==",
                "left": {"ct": {"key": "proto-dst", "dir": "original"}},
                "right": "0x35 [invalid type]",
            }
        },
        {"reset": {"tcp option": {"base": 99, "offset": 0, "len": 0}}},
    ],
)
def test_a_statement_that_nft_lists_and_does_not_take_is_opaque(statement: dict[str, object]) -> None:
    found = parse_nft(rule(statement, {"accept": None})).tables[0].chains[0].rules[0]
    assert found.statements == (
        OpaqueStatement(next(iter(statement)), json.dumps(statement), json=True),
        Verdict("accept"),
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "f: JSON expected: "),
        ('{"nftables": 3}', "f: an object with the list nftables expected"),
        (
            '{"nftables": [{"metainfo": {"json_schema_version": 2}}]}',
            "f: nftables[0].metainfo.json_schema_version: the version 1 expected, not 2",
        ),
        (document({"cat": {}}), "f: nftables[1].cat: a table, chain, rule, set, map, flowtable or object expected"),
        (
            rule({"match": {"op": "=", "left": 1, "right": 2}}),
            "f: nftables[3].rule.expr[0].match.op: an operator expected",
        ),
        (rule({"accept": None}, 7), "f: nftables[3].rule.expr[1]: an object with one key expected"),
        (
            rule({"match": {"op": "==", "left": {"meta": {"key": "l4proto"}}, "right": {"range": [1]}}}),
            "f: nftables[3].rule.expr[0].match.range: the two ends of a range expected",
        ),
        (
            rule({"match": {"op": "==", "left": {"payload": {"protocol": "ip", "field": "saddr"}}, "right": "x\ny"}}),
            "f: nftables[3].rule.expr[0].match: a string without quotes and line breaks expected",
        ),
        (
            rule({"match": {"op": "==", "left": {"payload": {"protocol": "tcp", "field": "dport"}}, "right": 70000}}),
            "f: nftables[3].rule: a value of type inet_service expected (at most 65535), not '70000'",
        ),
        (
            document(
                {"table": {"family": "ip", "name": "t"}},
                {"rule": {"family": "ip", "table": "t", "chain": "c", "expr": [{"accept": None}]}},
            ),
            "f: nftables[2].rule: table ip t: no such chain: c",
        ),
    ],
)
def test_bad_json_is_one_error_with_its_path(text: str, message: str) -> None:
    with pytest.raises(NftSyntaxError) as found:
        parse_nft(text, "f")
    assert str(found.value).startswith(message)


@pytest.mark.parametrize(
    ("flags", "dormant", "open_"), [("dormant", True, False), (["dormant"], True, False), ("t", False, True)]
)
def test_a_table_whose_flags_nft_does_not_tell_is_open(flags: object, dormant: bool, open_: bool) -> None:
    """nft 1.0.6 gives the name of the table instead."""
    place = {"family": "ip", "table": "t"}
    text = document(
        {"table": {"family": "ip", "name": "t", "handle": 1, "flags": flags}},
        {"chain": {**place, "name": "c", "type": "filter", "hook": "input", "prio": 0, "policy": "accept"}},
        {"chain": {**place, "name": "d"}},
    )
    table = parse_nft(text).tables[0]
    assert ("dormant" in table.flags) is dormant
    assert [len(chain.rules) for chain in table.chains] == [open_, 0]
    if open_:
        (statement,) = table.chains[0].rules[0].statements
        assert isinstance(statement, OpaqueStatement)
