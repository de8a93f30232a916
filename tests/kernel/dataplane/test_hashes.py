"""The kernel agrees about what is computed from a packet: nft's jhash, -m cluster, -m u32."""

from __future__ import annotations

import os
from collections.abc import Iterator
from random import Random

import pytest

from kproxy.dataplane import Host, Index, index_ruleset, trace
from kproxy.netfilter import Family, canonical_ruleset
from kproxy.netfilter.nftables.text import parse_nft
from tests.support.kernel.dataplane_agree import Bench, Tally
from tests.support.kernel.dataplane_rules import Packets
from tests.support.kernel.dataplane_runs import loaded, nft_loaded, node_with_sets
from tests.support.kernel.dataplane_wire import Node, Probe

pytestmark = pytest.mark.root

KEYS = {
    "ip saddr": Family.IPV4, "ip saddr . ip daddr": Family.IPV4, "udp sport": Family.IPV4, "meta l4proto": Family.IPV4,
    "ip saddr . udp sport . meta l4proto": Family.IPV4, "ip saddr . iifname . meta mark": Family.IPV4,
    "ip6 saddr": Family.IPV6, "ip6 saddr . udp sport . ip6 daddr": Family.IPV6,
}  # fmt: skip
CLUSTER_V6 = "-m cluster --cluster-total-nodes 3 --cluster-local-node 1 --cluster-hash-seed 0x5"
MATCHES = {
    "-m cluster --cluster-total-nodes 3 --cluster-local-node 2 --cluster-hash-seed 0xdeadbeef": Family.IPV4,
    CLUSTER_V6: Family.IPV6,
    "-m cluster --cluster-total-nodes 3 ! --cluster-local-node 1 --cluster-hash-seed 0x5": Family.IPV4,
    "-m cluster --cluster-total-nodes 4 --cluster-local-nodemask 0x9 --cluster-hash-seed 7": Family.IPV4,
    '-m u32 --u32 "6&0xFF=6,17&&0>>22&0x3C@0>>16=0:56555"': Family.IPV4,
    '-m u32 ! --u32 "12=0xc6336400:0xc6336480"': Family.IPV4,
    '-m u32 --u32 "2000=0:0xffffffff"': Family.IPV4,
}
ONE_VERDICT = ("meta l4proto", '-m u32 --u32 "2000=0:0xffffffff"', CLUSTER_V6)
"""Where all packets of the test fare alike."""


@pytest.fixture(scope="module")
def plain() -> Iterator[tuple[Node, Host]]:
    with node_with_sets(f"ha{os.getpid() % 1000}") as found:
        yield found


def probes(family: Family, count: int = 24) -> list[Probe]:
    random = Random(21)
    packets = Packets(random, family)
    outside, far = ("198.51.100.", "10.244.1.9") if family is Family.IPV4 else ("2001:db8:9::", "fd00:245::5")
    # Sources and ports vary, so that hashes do.
    return [packets.packet("o0", f"{outside}{random.randrange(1, 250)}", far, 80, "udp") for _ in range(count)]


def agree(node: Node, index: Index, host: Host, sent: list[Probe], name: str) -> None:
    tally = Tally()
    found = {trace(index, host, probe.packet).outcomes[0].verdict for probe in sent}
    Bench(node, index, host, tally, name).compare(sent, replies=False)
    assert not tally.disagreements, "\n".join(tally.disagreements[:3])
    assert tally.open == 0
    assert len(found) == 2 or name in ONE_VERDICT


@pytest.mark.parametrize("key", KEYS)
def test_jhash(plain: tuple[Node, Host], key: str) -> None:
    node, host = plain
    text = (
        "table inet t {\n chain c { type filter hook forward priority 0\n"
        f" jhash {key} mod 5 seed 0xcafe offset 2 vmap {{ 2 : accept, 3-4 : drop, 5 : drop, 6 : accept }}\n}}\n}}\n"
    )
    index = index_ruleset((), nftables=parse_nft(text), family=KEYS[key])
    with nft_loaded(node, text):
        agree(node, index, host, probes(KEYS[key]), key)


@pytest.mark.parametrize("match", MATCHES)
def test_matches(plain: tuple[Node, Host], match: str) -> None:
    node, host = plain
    family = MATCHES[match]
    text = f"*filter\n-A FORWARD {match} -j DROP\nCOMMIT\n"
    index = index_ruleset(canonical_ruleset(text, family), variant="legacy")
    with loaded(node, text, family, "legacy"):
        agree(node, index, host, probes(family), match)
