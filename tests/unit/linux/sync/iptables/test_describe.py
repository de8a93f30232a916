"""Findings: each kind, its Service, and that it means something."""

from __future__ import annotations

import pytest

from kproxy.linux.iptables.executor import parse_dump
from kproxy.linux.sync.finding import Drift
from kproxy.linux.sync.iptables.describe import family_findings
from kproxy.linux.sync.iptables.desired import desired_rules, find_difference
from kproxy.netfilter.hooks import Variant
from kproxy.services import IPFamily
from tests.support.recorded import MINIKUBE, render

RENDERED = render(MINIKUBE, IPFamily.IPV4)
SERVICE = "default/crd-array-watchers"
SVC, SEP = "KUBE-SVC-GCRHHKL6ZB4XAFBC", "KUBE-SEP-E4K4QV7BSCUUUP7F"


def findings(text: str) -> list[Drift]:
    wanted, dump = desired_rules(RENDERED), parse_dump(text)
    return family_findings(wanted, dump, find_difference(wanted, dump), Variant.NFT)


def lines() -> list[str]:
    return RENDERED.save_text.splitlines()


def position(start: str, number: int = 0) -> int:
    return [index for index, line in enumerate(lines()) if line.startswith(start)][number]


def test_nothing() -> None:
    assert findings(RENDERED.save_text) == []


def test_a_missing_rule() -> None:
    text = lines()
    gone = text.pop(position(f"-A {SEP} ", 1))
    (found,) = findings("\n".join(text))
    assert (found.kind, found.chain, found.rule, found.service) == ("rule-missing", SEP, 2, SERVICE)
    assert found.wanted == gone.partition(f"-A {SEP} ")[2]
    assert found.explanation == (
        f"not done any more: Service {SERVICE} (TCP): to endpoint 10.244.0.36:8080 of EndpointSlice {SERVICE}-5tn8d"
    )


def test_an_altered_rule() -> None:
    text = [line.replace("0.50000000000", "0.25000000000") for line in lines()]
    (found,) = [each for each in findings("\n".join(text)) if each.chain == SVC]
    assert (found.kind, found.service) == ("rule-altered", SERVICE)
    assert "0.25" in found.found
    assert "0.5" in found.wanted
    assert "10.244.0.36:8080" in found.explanation


@pytest.mark.parametrize(
    ("rule", "meaning"),
    [
        ("-j DROP", "may be refused"),
        ("-j ACCEPT", "may be let through"),
        ("-j RETURN", "may leave the chain"),
        (f"-j {SEP}", "an endpoint that should not get it"),
        ("-p tcp", "may be treated otherwise"),
    ],
)
def test_an_extra_rule(rule: str, meaning: str) -> None:
    text = lines()
    text.insert(position(f"-A {SVC} "), f"-A {SVC} {rule}")
    (found,) = findings("\n".join(text))
    assert (found.kind, found.rule, found.found, found.service) == ("rule-extra", 1, rule, SERVICE)
    assert meaning in found.explanation


def test_reordered_rules() -> None:
    text = lines()
    first = position(f"-A {SVC} ", 1)
    text[first], text[first + 1] = text[first + 1], text[first]
    (found,) = findings("\n".join(text))
    assert (found.kind, found.chain, found.service) == ("rules-reordered", SVC, SERVICE)
    assert "another order" in found.explanation


def test_chains_that_are_missing_and_extra() -> None:
    text = [line for line in lines() if SEP not in line]
    text.insert(text.index("*nat") + 1, ":KUBE-XLB-ABCDEFGHIJKLMNOP - [0:0]")
    kinds = {(each.kind, each.chain) for each in findings("\n".join(text))}
    assert ("chain-missing", SEP) in kinds
    assert ("chain-extra", "KUBE-XLB-ABCDEFGHIJKLMNOP") in kinds


def test_a_missing_canary() -> None:
    text = lines()
    text.pop(position(":KUBE-PROXY-CANARY", 1))
    (found,) = findings("\n".join(text))
    assert (found.kind, found.table) == ("canary-missing", "filter")
    assert "somebody flushed the table" in found.explanation


def test_the_kubelets_rule_in_the_shared_chain_is_no_drift() -> None:
    six = render(MINIKUBE, IPFamily.IPV6)
    rule = '-A KUBE-FIREWALL -m comment --comment "the kubelet\'s" -j DROP'
    text = six.save_text.replace("-A INPUT", f"{rule}\n-A INPUT", 1)
    wanted = desired_rules(six)
    dump = parse_dump(text)
    assert find_difference(wanted, dump)
    canary = text.replace("*nat\n", "*nat\n:KUBE-KUBELET-CANARY - [0:0]\n")
    assert not find_difference(wanted, parse_dump(canary))
