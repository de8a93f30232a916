"""Splitting dumps."""

from __future__ import annotations

import pytest

from kproxy.linux.errors import ToolFailedError, UnreadableDumpError
from kproxy.linux.iptables.dump import parse_dump
from kproxy.linux.iptables.ownership import services_of_chains
from kproxy.netfilter import parse_save
from kproxy.netfilter.text import service_of
from tests.support.recorded import MINIKUBE


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
