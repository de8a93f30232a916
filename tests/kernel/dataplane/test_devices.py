"""The kernel agrees about what hangs on single devices: ingress chains, ports of bridges, bridges' own chains."""

from __future__ import annotations

import os
from collections.abc import Iterator
from random import Random

import pytest

from kproxy.dataplane import Host, index_ruleset, trace
from kproxy.dataplane.concrete.reply import trace_reply
from kproxy.linux.testbed.wire import what_counts
from kproxy.netfilter import Family
from kproxy.netfilter.nftables.text import parse_nft
from tests.support.kernel.dataplane_agree import Bench, Tally
from tests.support.kernel.dataplane_rules import Packets
from tests.support.kernel.dataplane_runs import nft_loaded, node_with_sets
from tests.support.kernel.dataplane_wire import NODE_V4, Node, Probe

pytestmark = pytest.mark.root

POD, OTHER_POD, CALI, OUTSIDE, FAR = "10.244.0.11", "10.244.0.12", "10.245.0.5", "198.51.100.7", "10.244.1.9"


@pytest.fixture(scope="module")
def plain() -> Iterator[tuple[Node, Host]]:
    with node_with_sets(f"dv{os.getpid() % 1000}") as found:
        yield found


def ingress(rules: str, device: str = "eth0", family: str = "netdev", priority: int = 0) -> str:
    return f"chain c{priority} {{ type filter hook ingress device {device} priority {priority}\n{rules}\n}}\n"


def table(chains: str, family: str = "netdev", name: str = "t") -> str:
    return f"table {family} {name} {{\n{chains}}}\n"


OUT = table("chain o { type filter hook output priority 0\n meta l4proto { tcp, icmp } drop\n}\n", "ip", "o")

RULES = {
    "netdev": (table(ingress("udp dport 80 drop")), {"o0"}),
    "inet": (table(ingress("udp dport 80 drop", "cali1"), "inet"), {"c1"}),
    "a bridge port": (table(ingress("udp dport 80 drop", "vp1")), {"p1"}),
    "the bridge, which frames between ports do not meet": (table(ingress("udp dport 80 drop", "cni0")), {"p1", "p2"}),
    "the lowest priority first": (
        table(ingress("meta mark set 1", priority=5) + ingress("meta mark 1 udp dport 80 drop", priority=6)), {"o0"},
    ),
    "the lowest priority first, of both families": (
        table(ingress("meta mark 1 udp dport 80 drop", priority=6)) + table(ingress("meta mark set 1"), "inet"), {"o0"},
    ),
    "the mark stays": (
        table(ingress("meta mark set 7"))
        + table("chain p { type filter hook forward priority 0\n meta mark 7 drop\n}\n", "ip"), {"o0"},
    ),
    "the destination as it was": (
        table(ingress("udp dport 80 drop", "{ eth0, cali1 }").replace("device {", "devices = {"))
        + table("chain p { type nat hook prerouting priority -100\n udp dport 80 dnat to :81\n}\n", "ip"), {"o0", "c1"},
    ),
}  # fmt: skip


def probes() -> list[Probe]:
    packets = Packets(Random(11), Family.IPV4)
    found = []
    for link, src in (("o0", OUTSIDE), ("p1", POD), ("p2", OTHER_POD), ("c1", CALI)):
        found += [packets.packet(link, src, dst, 80, "udp") for dst in (FAR, NODE_V4, CALI) if dst != src]
    return [*found, packets.packet("p1", POD, OTHER_POD, 80, "udp"), packets.packet("node", NODE_V4, CALI, 80, "udp")]


@pytest.mark.parametrize("name", RULES)
def test_ingress(plain: tuple[Node, Host], name: str) -> None:
    text, links = RULES[name]
    node, host = plain
    index = index_ruleset((), nftables=parse_nft(text), family=Family.IPV4)
    sent = probes()
    stopped = {probe.link for probe in sent if trace(index, host, probe.packet).outcomes[0].verdict == "DROP"}
    tally = Tally()
    with nft_loaded(node, text):
        Bench(node, index, host, tally, name).compare(sent)
    assert not tally.disagreements, "\n".join(tally.disagreements)
    assert tally.open == 0
    assert stopped == links


@pytest.mark.parametrize(
    ("where", "rules"),
    [
        ("o0", table(ingress("tcp dport 80 reject with tcp reset")) + OUT),
        ("o0", table(ingress("tcp dport 80 reject with icmp type host-unreachable")) + OUT),
        (
            "p1",
            table("chain i { type filter hook input priority 0\n tcp dport 80 reject with tcp reset\n}\n", "ip") + OUT,
        ),
    ],
)
def test_answers_that_meet_no_rules(plain: tuple[Node, Host], where: str, rules: str) -> None:
    """What is rejected at ingress, and the RST to a packet that came over a bridge, are sent past OUTPUT."""
    node, host = plain
    dst = NODE_V4 if where == "o0" else "10.244.0.1"
    probe = Packets(Random(12), Family.IPV4).packet(where, OUTSIDE if where == "o0" else POD, dst, 80, "tcp")
    index = index_ruleset((), nftables=parse_nft(rules), family=Family.IPV4)
    (outcome,) = trace(index, host, probe.packet).outcomes
    assert outcome.verdict == "REJECT"
    assert [answer.verdict for answer in trace_reply(index, host, outcome).outcomes] == ["ACCEPT"]
    with nft_loaded(node, rules):
        seen = what_counts(node.exchange([probe]).get(probe.token, []))
    assert seen is not None
    assert seen.where == where


@pytest.mark.parametrize("beside", ["", OUT], ids=["", "OUTPUT drops"])
@pytest.mark.parametrize("device", ["eth0", "cni0", "vp1"])
@pytest.mark.parametrize("rule", ["reject", "meta l4proto tcp reject with tcp reset"])
@pytest.mark.parametrize("family", ["inet", "netdev"])
def test_answers_of_ingress(plain: tuple[Node, Host], family: str, rule: str, device: str, beside: str) -> None:
    """A chain of inet answers through OUTPUT, and not to a bridge port but by a reset; one of netdev by the device."""
    node, host = plain
    rules = table(ingress(rule, device), family) + beside
    index = index_ruleset((), nftables=parse_nft(rules), family=Family.IPV4)
    packets, tally = Packets(Random(5), Family.IPV4), Tally()
    sent = [probe for probe in (packets.one() for _ in range(40)) if probe.link in ("o0", "p1", "c1")]
    with nft_loaded(node, rules):
        Bench(node, index, host, tally, f"{family} {device}").compare(sent, replies=False)
    assert not tally.disagreements, "\n".join(tally.disagreements[:2])


def test_the_chains_of_a_bridge_are_open(plain: tuple[Node, Host]) -> None:
    node, host = plain
    text = table(
        "chain f { type filter hook forward priority 0\n udp dport 80 drop\n}\n"
        "chain i { type filter hook input priority 0\n udp dport 81 drop\n}\n", "bridge",
    )  # fmt: skip
    index = index_ruleset((), nftables=parse_nft(text), family=Family.IPV4)
    packets = Packets(Random(13), Family.IPV4)
    with nft_loaded(node, text):
        for dst, port, assumed in (
            (OTHER_POD, 80, "bridge t f"),
            ("10.244.0.1", 81, "bridge t i"),
            (FAR, 81, "bridge"),
        ):
            probe = packets.packet("p1", POD, dst, port, "udp")
            (outcome,) = trace(index, host, probe.packet).outcomes
            assert outcome.verdict == "INDETERMINATE"
            assert outcome.reasons == (
                f"whether bridge t {'f' if port == 80 else 'i'} let the packet pass is not known",
            )
            assert {item.verdict for item in outcome.possible} == {"ACCEPT", "DROP"}
            assert [item.verdict for item in trace(index, host, probe.packet, assumed={assumed: False}).outcomes] == [
                "DROP"
            ]
            assert not node.exchange([probe]).get(probe.token, [])
        probe = packets.packet("o0", OUTSIDE, NODE_V4, 80, "udp")
        assert [item.verdict for item in trace(index, host, probe.packet).outcomes] == ["ACCEPT"]
        assert what_counts(node.exchange([probe])[probe.token]) is not None
