"""Splitting dumps, and iptables-restore's error messages, as version 1.8.9 words them, turned into lines."""

from __future__ import annotations

import pytest

from kproxy.linux.errors import ToolFailedError, UnreadableDumpError
from kproxy.linux.iptables.executor import parse_dump, restore_error
from kproxy.linux.iptables.ownership import services_of_chains
from kproxy.netfilter import parse_save
from kproxy.netfilter.text import service_of
from tests.support.recorded import MINIKUBE

TEXT = (
    "*nat\n:KUBE-A - [0:0]\n-A KUBE-A -m nosuch -j DROP\nCOMMIT\n*filter\n:KUBE-B - [0:0]\n-A KUBE-B -j DNAT\nCOMMIT\n"
)


@pytest.mark.parametrize(
    ("stderr", "line", "table", "committed", "reason"),
    [
        (
            "iptables-nft-restore v1.8.9 (nf_tables): Couldn't load match `nosuch':No such file or directory\n\n"
            "Error occurred at line: 3\nTry `iptables-nft-restore -h' or 'iptables-nft-restore --help' for more"
            " information.\n",
            3,
            "nat",
            0,
            "Couldn't load match `nosuch':No such file or directory",
        ),
        (
            "iptables-nft-restore v1.8.9 (nf_tables): \nline 7: RULE_APPEND failed (Invalid argument): rule in chain"
            " KUBE-B\n",
            7,
            "filter",
            1,
            "RULE_APPEND failed (Invalid argument): rule in chain KUBE-B",
        ),
        ("iptables-restore: line 8 failed\n", 8, "filter", 1, "the kernel refused it without saying why"),
        (
            "iptables-nft-restore: line 2 failed: Bad rule (does a matching rule exist in that chain?).\n",
            2,
            "nat",
            0,
            "Bad rule (does a matching rule exist in that chain?).",
        ),
        ("iptables-restore: COMMIT expected at line 3\n", 3, "nat", 0, "COMMIT expected at line 3"),
    ],
)
def test_each_wording(stderr: str, line: int, table: str, committed: int, reason: str) -> None:
    error = restore_error("iptables-restore", stderr, TEXT)
    assert [each.number for each in error.lines] == [line]
    assert (error.table, error.committed, error.reason) == (table, committed, reason)
    assert f"line {line}: " in str(error)
    if TEXT.split("\n")[line - 1] == "COMMIT":
        assert error.lines[0].text == f"COMMIT (the kernel refused table {table} as a whole)"
    else:
        assert error.lines[0].text == TEXT.split("\n")[line - 1]


def test_several_lines_and_none() -> None:
    both = restore_error("x", "line 3: RULE_APPEND failed (a): b\nline 7: RULE_APPEND failed (a): b\n", TEXT)
    assert [line.number for line in both.lines] == [3, 7]
    assert both.table == "nat"
    none = restore_error("x", "", TEXT)
    assert none.lines == ()
    assert "without saying why" in none.reason


@pytest.mark.parametrize("variant", ["nft", "legacy"])
def test_it_agrees_with_the_parser(variant: str) -> None:
    text = (MINIKUBE / f"iptables-{variant}-save.v4.txt").read_text()
    ruleset = parse_save(text)
    dump = parse_dump(text)
    assert list(dump.tables) == [table.name for table in ruleset.tables]
    for table in ruleset.tables:
        assert list(dump.tables[table.name]) == [chain.name for chain in table.chains]
        for chain in table.chains:
            found = dump.chain(table.name, chain.name)
            assert found is not None
            assert [f"-A {chain.name} {rule}" for rule in found.rules] == [r.to_save(chain.name) for r in chain.rules]
            assert found.is_builtin == (chain.policy is not None)


def test_counters() -> None:
    dump = parse_dump("*filter\n:INPUT ACCEPT [1:2]\n:A - [0:0]\n[3:4] -A A -j DROP\n[5:6] -A A\nCOMMIT\n")
    chain = dump.chain("filter", "A")
    assert chain is not None
    assert (chain.rules, chain.counters) == (["-j DROP", ""], ["[3:4]", "[5:6]"])
    assert dump.chain("filter", "B") is None
    assert dump.chain("nat", "A") is None


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("# Table `nat' is incompatible, use 'nft' tool.\n", "holds rules that only nft understands"),
        ("*filter\n-A X -j DROP\nCOMMIT\n", "had not declared"),
        ("*nosuch\nCOMMIT\n", "a table that Linux does not have"),
        ("hello\n", "does not belong to a dump"),
    ],
)
def test_what_is_no_dump(text: str, told: str) -> None:
    with pytest.raises(ToolFailedError, match=told):
        parse_dump(text)


def test_services_by_comments() -> None:
    assert service_of('-m comment --comment "shop/web:http -> 10.0.0.1:80" -j X') == "shop/web:http"
    assert service_of("-m comment --comment shop/web -j X") == "shop/web"
    assert service_of('-m comment --comment "masquerade traffic for shop/web external destinations"') == "shop/web"
    assert service_of('-m comment --comment "kubernetes service portals" -j X') == ""
    dump = parse_dump(
        "*nat\n:KUBE-SERVICES - [0:0]\n:KUBE-SVC-A - [0:0]\n:KUBE-SEP-A - [0:0]\n"
        '-A KUBE-SERVICES -m comment --comment "shop/web cluster IP" -j KUBE-SVC-A\n'
        "-A KUBE-SVC-A -j KUBE-SEP-A\nCOMMIT\n"
    )
    assert services_of_chains(dump) == {"KUBE-SVC-A": "shop/web", "KUBE-SEP-A": "shop/web"}


def test_a_declaration_without_counters_is_no_dump() -> None:
    for line in (":FOO", ":FOO -"):
        with pytest.raises(UnreadableDumpError, match="invalid declaration"):
            parse_dump(f"*nat\n{line}\nCOMMIT\n")
