"""The kernel agrees about points in which the model once was wrong, or which hardly any rule set shows: `-m ecn`, the
ranges of translations, sources that are not passed on."""

from __future__ import annotations

import os
from collections.abc import Iterator
from random import Random

import pytest

from kproxy.dataplane import Host, Index, index_ruleset, trace
from kproxy.netfilter import Family, canonical_ruleset
from tests.support.kernel.dataplane_agree import Bench, Tally
from tests.support.kernel.dataplane_rules import Packets
from tests.support.kernel.dataplane_runs import loaded, node_with_sets
from tests.support.kernel.dataplane_wire import Node, Probe

pytestmark = pytest.mark.root

OUTSIDE = {Family.IPV4: "198.51.100.", Family.IPV6: "2001:db8:9::"}
FAR = {Family.IPV4: "10.244.1.9", Family.IPV6: "fd00:245::5"}


@pytest.fixture(scope="module")
def plain() -> Iterator[tuple[Node, Host]]:
    with node_with_sets(f"pt{os.getpid() % 1000}") as found:
        yield found


def probes(family: Family, count: int = 24, protocol: str = "udp") -> list[Probe]:
    random = Random(21)
    packets = Packets(random, family)
    return [
        packets.packet("o0", f"{OUTSIDE[family]}{random.randrange(1, 250)}", FAR[family], 80, protocol)
        for _ in range(count)
    ]


def agree(node: Node, index: Index, host: Host, sent: list[Probe], name: str) -> set[str]:
    """The verdicts of packets about which the kernel agrees."""
    tally = Tally()
    found = {str(trace(index, host, probe.packet).outcomes[0].verdict) for probe in sent}
    Bench(node, index, host, tally, name).compare(sent, replies=False)
    assert not tally.disagreements, "\n".join(tally.disagreements[:3])
    assert tally.open == 0
    return found


def test_ecn_that_is_removed(plain: tuple[Node, Host]) -> None:
    before = "*mangle\n-A PREROUTING -p tcp -m ecn --ecn-tcp-cwr -j ECN --ecn-tcp-remove\nCOMMIT\n"
    forwarded(plain, "-p tcp -m ecn --ecn-tcp-ece", Family.IPV4, probes(Family.IPV4, protocol="tcp"), before)


def forwarded(plain: tuple[Node, Host], match: str, family: Family, sent: list[Probe], before: str = "") -> None:
    """Packets to be forwarded, past a rule that drops those that a match holds for."""
    node, host = plain
    text = f"{before}*filter\n-A FORWARD {match} -j DROP\nCOMMIT\n"
    index = index_ruleset(canonical_ruleset(text, family), variant="legacy")
    with loaded(node, text, family, "legacy"):
        assert len(agree(node, index, host, sent, match)) == 2


@pytest.mark.parametrize(
    "rule",
    [
        "PREROUTING -p udp -j DNAT --to-destination 10.244.1.8 --random",
        "POSTROUTING -p udp -j SNAT --to-source 198.51.100.1-198.51.100.254",
        "POSTROUTING -p udp -j SNAT --to-source 198.51.100.1-198.51.100.254:1-65535",
    ],
)
def test_translations_that_keep_something(plain: tuple[Node, Host], rule: str) -> None:
    """A destination's port that no range is given for stays; so does a source in the range."""
    node, host = plain
    text = f"*nat\n-A {rule}\nCOMMIT\n"
    index = index_ruleset(canonical_ruleset(text, Family.IPV4), variant="legacy")
    with loaded(node, text, Family.IPV4, "legacy"):
        assert agree(node, index, host, probes(Family.IPV4, 6), rule) == {"ACCEPT"}


@pytest.mark.parametrize(
    ("source", "verdict"), [("fe80::99", "DROP"), ("::", "DROP"), ("0.1.2.3", "ACCEPT"), ("0.0.0.0", "DROP")]
)
def test_sources_that_are_not_passed_on(plain: tuple[Node, Host], source: str, verdict: str) -> None:
    node, host = plain
    family = Family.IPV6 if ":" in source else Family.IPV4
    index = index_ruleset((), family=family)
    sent = [Packets(Random(1), family).packet("o0", source, FAR[family], 80, "udp")]
    assert agree(node, index, host, sent, source) == {verdict}
