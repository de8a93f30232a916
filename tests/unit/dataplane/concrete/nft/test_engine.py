"""nftables in the concrete engine: what each expression and statement does, chances, sets, unknowns."""

from __future__ import annotations

from fractions import Fraction
from unittest.mock import Mock

import pytest

from kproxy.dataplane import Host, Outcome, index_ruleset, make_packet, trace
from kproxy.dataplane.concrete.nft.values import Uniform
from kproxy.netfilter import Family
from kproxy.netfilter.nftables.rule import RulePrinter
from kproxy.netfilter.nftables.text import parse_nft

HOST = Host.simple(["192.168.0.2"])
PACKET = make_packet("10.244.0.9:4000", "10.96.0.1:80", "tcp", in_interface="eth0")


def outcomes(rules: str, packet: object = PACKET, host: Host = HOST, **given: object) -> list[Outcome]:
    index = index_ruleset((), nftables=parse_nft(rules), family=Family.IPV4)
    return list(trace(index, host, packet, **given).outcomes)  # type: ignore[arg-type]


def filtered(match: str, packet: object = PACKET, host: Host = HOST, **given: object) -> list[Outcome]:
    rules = f"table ip t {{ chain c {{ type filter hook forward priority 0\n {match} drop\n }}\n }}\n"
    return outcomes(rules, packet, host, **given)


@pytest.mark.parametrize(("hook", "verdict"), [("prerouting", "DROP"), ("input", "INDETERMINATE")])
def test_the_route_back_to_loopback(hook: str, verdict: str) -> None:
    """nft_fib_can_skip: in INPUT only newer kernels find the loopback interface."""
    rules = f"table ip t {{ chain c {{ type filter hook {hook} priority 0\n fib saddr . iif oif exists drop\n }}\n }}\n"
    (outcome,) = outcomes(rules, make_packet("192.168.0.2:4000", "192.168.0.2:80", "tcp", in_interface="lo"))
    assert outcome.verdict == verdict


def test_what_is_open_makes_only_what_depends_on_it_indeterminate() -> None:
    (outcome,) = filtered("meta cgroup 5")
    assert outcome.verdict == "INDETERMINATE"
    assert outcome.reasons == ("ip t c rule 1: meta cgroup is not known",)
    assert outcome.hints == ("--assume 'meta cgroup 5=yes|no'",)
    assert {item.verdict for item in outcome.possible} == {"ACCEPT", "DROP"}
    assert [item.verdict for item in filtered("ip daddr 10.9.9.9 meta cgroup 5")] == ["ACCEPT"]
    assert [item.verdict for item in filtered("meta cgroup 5 ip daddr 10.9.9.9")] == ["ACCEPT"]


@pytest.mark.parametrize(
    ("match", "name"),
    [
        ('osf ttl loose name "Linux"', "osf name"),
        ('osf version != "Linux:4.20"', "osf version"),
        ("socket wildcard 1", "socket wildcard"),
        ("rt classid 10", "rt classid"),
        ("ipsec in reqid 1", "ipsec reqid"),
    ],
)
def test_what_is_open_is_named_and_printed_as_it_was_read(match: str, name: str) -> None:
    (outcome,) = filtered(match)
    assert outcome.reasons == (f"ip t c rule 1: {name} is not known",)
    assert outcome.hints == (f"--assume '{match}=yes|no'",)


@pytest.mark.parametrize(("expression", "verdict"), [("meta cgroup 5", "DROP"), ("cgroup", "DROP")])
def test_assumptions_decide_what_is_open(expression: str, verdict: str) -> None:
    for answer, expected in ((True, verdict), (False, "ACCEPT")):
        (outcome,) = filtered("meta cgroup 5", assumed={expression: answer})
        assert outcome.verdict == expected
    (known,) = filtered("tcp dport 80", assumed={"tcp dport 80": False})
    assert known.verdict == "DROP"


def test_a_rate_is_decided_by_limit() -> None:
    assert [item.verdict for item in filtered("limit rate over 5/second", limit=False)] == ["DROP"]
    assert [item.verdict for item in filtered("limit rate over 5/second", limit=True)] == ["ACCEPT"]
    (outcome,) = filtered("limit rate over 5/second")
    assert outcome.hints == ("--limit within|above", "--assume 'limit rate over 5/second=yes|no'")
    (assumed,) = filtered("limit rate over 5/second", assumed={"limit rate over 5/second": True})
    assert assumed.verdict == "DROP"


SPLIT = """table ip t {
chain c { type nat hook prerouting priority -100
meta l4proto tcp dnat ip addr . port to numgen random mod 3 map { 0 : 10.0.0.1 . 8080, 1 : 10.0.0.2 . 8080, 2 : 10.0.0.1 . 8080 }
}
}
"""  # noqa: E501


def test_numgen_has_the_chances_of_reciprocal_scale() -> None:
    found = {item.dst: item.probability for item in outcomes(SPLIT)}
    first, second, third = (Uniform(3).chance(number, number) for number in range(3))
    assert (first, second, third) == (
        Fraction(1431655766, 1 << 32), Fraction(1431655765, 1 << 32), Fraction(1431655765, 1 << 32),
    )  # fmt: skip
    assert found == {"10.0.0.1:8080": first + third, "10.0.0.2:8080": second}
    (dropped, rest) = sorted(filtered("numgen random mod 10 < 3"), key=lambda item: item.verdict, reverse=True)
    assert (dropped.verdict, rest.verdict) == ("DROP", "ACCEPT")
    assert dropped.probability == Uniform(10).chance(0, 2)


def test_a_rule_is_printed_once_however_many_it_chooses_among(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its text has all endpoints, and each way through it has the text."""
    counted = Mock(side_effect=RulePrinter.rule)
    monkeypatch.setattr(RulePrinter, "rule", lambda self, rule: counted(self, rule))
    ends = ", ".join(f"{number} : 10.0.{number >> 8}.{number & 255} . 8080" for number in range(300))
    found = outcomes(SPLIT.partition("numgen")[0] + f"numgen random mod 300 map {{ {ends} }}\n}}\n}}\n")
    assert len(found) == 300
    assert {step.text.count("8080") for item in found for step in item.steps if step.kind == "rule"} == {300}
    assert counted.call_count == 1


@pytest.mark.parametrize("operation", ["add", "update"])
def test_an_element_of_a_map_keeps_its_data(operation: str) -> None:
    rules = f"""table ip t {{
map m {{ type ipv4_addr : mark; flags dynamic; elements = {{ 10.244.0.9 : 0x1 }}; }}
chain c {{ type filter hook prerouting priority 0
{operation} @m {{ ip saddr : 0x5 }}
{operation} @m {{ ip daddr : 0x5 }}
}}
}}
"""
    index = index_ruleset((), nftables=parse_nft(rules), family=Family.IPV4)
    (outcome,) = trace(index, HOST, PACKET).outcomes
    assert outcome.elements == {("ip t", "m"): {0x0AF40009: 1, 0x0A600001: 5}}
