"""Splitting dumps."""

from __future__ import annotations

import random

import pytest

from kproxy.linux.dump import Dump, Expected, parse_dump
from kproxy.linux.errors import ToolFailedError
from kproxy.linux.report import service_of_rule, services_of_chains
from kproxy.linux.wanted import wanted_rules
from kproxy.netfilter import parse_save
from kproxy.services import IPFamily
from tests.recorded import MINIKUBE, render


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
        ("hello\n", "no dump"),
    ],
)
def test_what_is_no_dump(text: str, told: str) -> None:
    with pytest.raises(ToolFailedError, match=told):
        parse_dump(text)


def test_services_by_comments() -> None:
    assert service_of_rule('-m comment --comment "shop/web:http -> 10.0.0.1:80" -j X') == "shop/web:http"
    assert service_of_rule("-m comment --comment shop/web -j X") == "shop/web"
    assert service_of_rule('-m comment --comment "masquerade traffic for shop/web external destinations"') == "shop/web"
    assert service_of_rule('-m comment --comment "kubernetes service portals" -j X') == ""
    dump = parse_dump(
        "*nat\n:KUBE-SERVICES - [0:0]\n:KUBE-SVC-A - [0:0]\n:KUBE-SEP-A - [0:0]\n"
        '-A KUBE-SERVICES -m comment --comment "shop/web cluster IP" -j KUBE-SVC-A\n'
        "-A KUBE-SVC-A -j KUBE-SEP-A\nCOMMIT\n"
    )
    assert services_of_chains(dump) == {"KUBE-SVC-A": "shop/web", "KUBE-SEP-A": "shop/web"}


@pytest.mark.parametrize("variant", ["nft", "legacy"])
@pytest.mark.parametrize("family", list(IPFamily), ids=lambda family: str(family.value))
def test_expected_chains_are_not_split_and_the_others_are(variant: str, family: IPFamily) -> None:
    command = "ip6tables" if family.is_ipv6 else "iptables"
    text = (MINIKUBE / f"{command}-{variant}-save.v{family.value[-1]}.txt").read_text()
    wanted = wanted_rules(render(MINIKUBE, family))
    plain, quick = parse_dump(text), parse_dump(text, expected=wanted.expected)
    assert rules(quick) == rules(plain)
    shared = [
        place
        for place in wanted.chains
        if (chain := quick.chain(*place)) is not None and chain.rules is wanted.rules(place)
    ]
    assert len(shared) > 10
    chance = random.Random(variant)
    lines = text.splitlines(keepends=True)
    for _ in range(400):
        edited = list(lines)
        at = chance.randrange(len(edited))
        kind = chance.choice(("drop", "double", "swap", "alter"))
        if kind == "drop":
            del edited[at]
        elif kind == "double":
            edited.insert(at, edited[at])
        elif kind == "swap":
            other = chance.randrange(len(edited))
            edited[at], edited[other] = edited[other], edited[at]
        else:
            edited[at] = edited[at].replace("-j ", "-m mark --mark 0x1 -j ", 1)
        assert told("".join(edited), None) == told("".join(edited), wanted.expected)


def rules(dump: Dump) -> dict[str, dict[str, tuple[str, list[str]]]]:
    return {
        table: {name: (chain.policy, list(chain.rules)) for name, chain in chains.items()}
        for table, chains in dump.tables.items()
    }


def told(text: str, expected: Expected | None) -> object:
    """What is read from a text, or what is wrong with it."""
    try:
        return rules(parse_dump(text, expected=expected))
    except (ToolFailedError, ValueError) as error:
        return str(error)
