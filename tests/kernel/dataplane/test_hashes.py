"""The kernel agrees about what is computed from a packet: nft's jhash, -m cluster, -m u32, -m bpf, -m ecn."""

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


def bytecode(*program: str) -> str:
    return f'-m bpf --bytecode "{len(program)},{",".join(program)}"'


PROGRAMS = {
    # ip[12:4] & 0x80 != 0, by jset; the same of ip6[8 + 12:4]
    bytecode("32 0 0 12", "69 0 1 128", "6 0 0 1", "6 0 0 0"): Family.IPV4,
    bytecode("32 0 0 20", "69 0 1 64", "6 0 0 1", "6 0 0 0"): Family.IPV6,
    # as tcpdump writes `udp src portrange 56550-56560`: protocol, fragment, length of the IP header, port
    bytecode("48 0 0 9", "21 0 7 17", "40 0 0 6", "69 5 0 8191", "177 0 0 0", "72 0 0 0", "53 0 2 56550",
             "37 1 0 56560", "6 0 0 65535", "6 0 0 0"): Family.IPV4,
    # the last octet of the source, (x * 3 - 1 ^ 5) % 7 < 3, by way of memory
    bytecode("48 0 0 15", "2 0 0 4", "96 0 0 4", "36 0 0 3", "20 0 0 1", "164 0 0 5", "148 0 0 7", "7 0 0 0",
             "0 0 0 3", "45 0 1 0", "6 0 0 0", "6 0 0 1"): Family.IPV4,
    # the network header by its own name, shifts and a negation: -(src & 0xff) >> 2 << 2 & 4
    bytecode("48 0 0 4293918735", "132 0 0 0", "116 0 0 2", "100 0 0 2", "84 0 0 4", "22 0 0 0"): Family.IPV4,
    # beyond the packet's end, where every packet ends with 0
    bytecode("32 0 0 12", "48 0 0 1000", "6 0 0 1"): Family.IPV4,
    bytecode("128 0 0 0", "21 0 1 44", "6 0 0 1", "6 0 0 0"): Family.IPV4,
}  # fmt: skip
SAME_FOR_ALL = tuple(PROGRAMS)[-2:]
ECN = ("--ecn-tcp-cwr", "! --ecn-tcp-ece", "--ecn-tcp-ece ! --ecn-tcp-cwr", "--ecn-ip-ect 2", "! --ecn-ip-ect 0",
       "--ecn-tcp-ece ! --ecn-ip-ect 0")  # fmt: skip


def probes(family: Family, count: int = 24, protocol: str = "udp") -> list[Probe]:
    random = Random(21)
    packets = Packets(random, family)
    outside, far = ("198.51.100.", "10.244.1.9") if family is Family.IPV4 else ("2001:db8:9::", "fd00:245::5")
    # Sources and ports vary, so that hashes do.
    return [packets.packet("o0", f"{outside}{random.randrange(1, 250)}", far, 80, protocol) for _ in range(count)]


def agree(node: Node, index: Index, host: Host, sent: list[Probe], name: str) -> None:
    tally = Tally()
    found = {trace(index, host, probe.packet).outcomes[0].verdict for probe in sent}
    Bench(node, index, host, tally, name).compare(sent, replies=False)
    assert not tally.disagreements, "\n".join(tally.disagreements[:3])
    assert tally.open == 0
    assert len(found) == 2 or name in (*ONE_VERDICT, *SAME_FOR_ALL)


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


@pytest.mark.parametrize("match", MATCHES | PROGRAMS)
def test_matches(plain: tuple[Node, Host], match: str) -> None:
    family = (MATCHES | PROGRAMS)[match]
    forwarded(plain, match, family, probes(family))


@pytest.mark.parametrize("family", list(Family), ids=lambda family: f"v{family.version}")
@pytest.mark.parametrize("options", ECN)
def test_ecn(plain: tuple[Node, Host], options: str, family: Family) -> None:
    forwarded(plain, f"-p tcp -m ecn {options}", family, probes(family, protocol="tcp"))


def test_ecn_that_is_removed(plain: tuple[Node, Host]) -> None:
    before = "*mangle\n-A PREROUTING -p tcp -m ecn --ecn-tcp-cwr -j ECN --ecn-tcp-remove\nCOMMIT\n"
    forwarded(plain, "-p tcp -m ecn --ecn-tcp-ece", Family.IPV4, probes(Family.IPV4, protocol="tcp"), before)


def forwarded(plain: tuple[Node, Host], match: str, family: Family, sent: list[Probe], before: str = "") -> None:
    """Packets to be forwarded, past a rule that drops those that a match holds for."""
    node, host = plain
    text = f"{before}*filter\n-A FORWARD {match} -j DROP\nCOMMIT\n"
    index = index_ruleset(canonical_ruleset(text, family), variant="legacy")
    with loaded(node, text, family, "legacy"):
        agree(node, index, host, sent, match)
