"""The kernel agrees about nftables: random rule sets of it, alone and beside both variants of iptables.

Packets, wires and replies are those of test_model.py. The longer runs:

    pytest -m soak tests/kernel/dataplane/test_nft.py
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator
from random import Random

import pytest

from kproxy.dataplane import Host, index_ruleset, trace
from kproxy.dataplane.model.pipeline import IptablesRules
from kproxy.linux.testbed.wire import what_counts
from kproxy.netfilter import Family, canonical_ruleset
from kproxy.netfilter.nftables.text import parse_nft
from tests.support.kernel.dataplane_agree import Tally
from tests.support.kernel.dataplane_rules import Packets
from tests.support.kernel.dataplane_runs import (
    loaded,
    nft_loaded,
    node_with_sets,
    run_mixed,
    run_nft,
)
from tests.support.kernel.dataplane_wire import Node

pytestmark = pytest.mark.root

SERVICE, CLIENT = "10.96.0.1", "10.245.0.5"


@pytest.fixture(scope="module")
def plain() -> Iterator[tuple[Node, Host]]:
    with node_with_sets("dn") as found:
        yield found


def agree(tally: Tally) -> None:
    assert not tally.disagreements, f"{tally}\n" + "\n".join(tally.disagreements[:5])


def test_random_rule_sets(plain: tuple[Node, Host]) -> None:
    tally = Tally()
    run_nft(*plain, range(7000, 7006), 30, tally)
    run_nft(*plain, [80_066], 60, tally)  # a reset that notrack does not reach, and a rule then drops
    agree(tally)
    assert tally.packets == 240
    assert tally.open <= tally.packets // 20


def test_all_writers_in_one_namespace(plain: tuple[Node, Host]) -> None:
    tally = Tally()
    run_mixed(*plain, range(7100, 7104), 30, tally)
    run_mixed(
        *plain, [90_083], 60, tally
    )  # half of the packets are not tracked, so that their replies begin a connection
    agree(tally)
    assert tally.packets == 180


def test_random_writes(plain: tuple[Node, Host]) -> None:
    """Rules that write header fields and copy marks.

    The last three found that translation after a written header makes the kernel route a looped packet once more (its
    own address is no source then), and that a bridge's port is compared with the sender's, not with the written source.
    """
    tally = Tally()
    run_nft(*plain, [*range(7300, 7306), 110_047, 110_064, 110_098], 30, tally, writes=True)
    agree(tally)


@pytest.mark.soak
@pytest.mark.parametrize("group", range(5))
def test_many_random_writes(plain: tuple[Node, Host], group: int) -> None:
    tally = Tally()
    run_nft(*plain, range(110_000 + 20 * group, 110_020 + 20 * group), 30, tally, writes=True)
    agree(tally)


@pytest.mark.soak
@pytest.mark.parametrize("group", range(10))
def test_many_random_rule_sets(plain: tuple[Node, Host], group: int) -> None:
    tally = Tally()
    run_nft(*plain, range(80_000 + 20 * group, 80_020 + 20 * group), 60, tally)
    agree(tally)


@pytest.mark.soak
@pytest.mark.parametrize("group", range(7))
def test_all_writers_many_times(plain: tuple[Node, Host], group: int) -> None:
    tally = Tally()
    run_mixed(*plain, range(90_000 + 20 * group, 90_020 + 20 * group), 60, tally)
    agree(tally)


def fates(
    node: Node, host: Host, text: str, count: int = 1, family: Family = Family.IPV4
) -> tuple[Counter[str], dict[str, float]]:
    """Where packets to the service came out, and what the model says of that."""
    packets = Packets(Random(3), family)
    probes = [packets.packet("c1", CLIENT, SERVICE, 80, "udp") for _ in range(count)]
    index = index_ruleset((), nftables=parse_nft(text), family=family)
    told = {
        item.dst.rpartition(":")[0] if item.verdict == "ACCEPT" else item.verdict: float(item.probability)
        for item in trace(index, host, probes[0].packet).outcomes
    }
    with nft_loaded(node, text):
        seen = node.exchange(probes)
    found = [what_counts(seen.get(probe.token, [])) for probe in probes]
    return Counter("DROP" if fate is None else fate.dst for fate in found), told


FACTS = {
    "of equal priority the chain registered last comes first": (
        "table ip a { chain one { type nat hook prerouting priority -100\n udp dport 80 dnat to 10.244.1.1\n}\n}\n"
        "table ip b { chain two { type nat hook prerouting priority -100\n udp dport 80 dnat to 10.244.1.2\n}\n}\n",
        "10.244.1.2",
    ),
    "the first nat chain that translates wins": (
        "table ip a { chain one { type nat hook prerouting priority -90\n udp dport 80 dnat to 10.244.1.1\n}\n"
        "chain two { type nat hook prerouting priority -110\n udp dport 80 dnat to 10.244.1.2\n}\n}\n",
        "10.244.1.2",
    ),
    "accept ends one nat chain, and the next may translate": (
        "table ip a { chain one { type nat hook prerouting priority -110\n accept\n}\n"
        "chain two { type nat hook prerouting priority -100\n udp dport 80 dnat to 10.244.1.2\n}\n}\n",
        "10.244.1.2",
    ),
    "nat chains run at the NAT core's priority, whatever their own": (
        "table ip a { chain one { type nat hook prerouting priority -150\n udp dport 80 dnat to 10.244.1.1\n}\n"
        "chain two { type filter hook prerouting priority -120\n ip daddr 10.244.1.1 drop\n}\n}\n",
        "10.244.1.1",
    ),
    "a filter chain after the NAT core sees the translation and its status": (
        "table ip a { chain one { type nat hook prerouting priority -150\n udp dport 80 dnat to 10.244.1.1\n}\n"
        "chain two { type filter hook prerouting priority -99\n ip daddr 10.244.1.1 ct status dnat drop\n}\n}\n",
        "DROP",
    ),
    "accept of one base chain does not keep the next from dropping": (
        "table ip a { chain one { type filter hook prerouting priority -10\n accept\n}\n"
        "chain two { type filter hook prerouting priority -5\n udp dport 80 drop\n}\n}\n",
        "DROP",
    ),
    "notrack counts before conntrack only": (
        "table ip a { chain one { type filter hook prerouting priority -201\n udp dport 80 notrack\n}\n"
        "chain nat { type nat hook prerouting priority -100\n udp dport 80 dnat to 10.244.1.1\n}\n"
        "chain two { type filter hook prerouting priority 0\n ct state untracked drop\n}\n}\n",
        "DROP",
    ),
    "notrack after conntrack does nothing": (
        "table ip a { chain one { type filter hook prerouting priority -199\n udp dport 80 notrack\n}\n"
        "chain nat { type nat hook prerouting priority -100\n udp dport 80 dnat to 10.244.1.1\n}\n}\n",
        "10.244.1.1",
    ),
    "before conntrack a packet is invalid": (
        "table ip a { chain one { type filter hook prerouting priority -250\n"
        "udp dport 80 ct state invalid drop\n}\n}\n",
        "DROP",
    ),
    "the original destination stays what it was": (
        "table ip a { chain nat { type nat hook prerouting priority -100\n udp dport 80 dnat to 10.244.1.1\n}\n"
        "chain two { type filter hook forward priority 0\n"
        "ct original ip daddr 10.96.0.1 ct direction original drop\n}\n}\n",
        "DROP",
    ),
}


@pytest.mark.parametrize("name", FACTS)
def test_facts(plain: tuple[Node, Host], name: str) -> None:
    text, expected = FACTS[name]
    seen, told = fates(*plain, text)
    assert dict(seen) == {expected: 1}
    assert told == {expected: 1.0}


def test_between_writers_the_order_is_not_known(plain: tuple[Node, Host]) -> None:
    """Whoever came last is asked first; a dump does not show who that was, so the model names both."""
    node, host = plain
    native = "table ip a { chain one { type nat hook prerouting priority -100\n udp dport 80 dnat to 10.244.1.1\n}\n}\n"
    restore = "*nat\n-A PREROUTING -p udp --dport 80 -j DNAT --to-destination 10.244.1.2\nCOMMIT\n"
    probe = Packets(Random(4), Family.IPV4).packet("c1", CLIENT, SERVICE, 80, "udp")
    rules = [IptablesRules.of(canonical_ruleset(restore, Family.IPV4), "legacy")]
    index = index_ruleset(rules, nftables=parse_nft(native), family=Family.IPV4)
    (outcome,) = trace(index, host, probe.packet).outcomes
    assert {item.dst for item in outcome.possible} == {"10.244.1.1:80", "10.244.1.2:80"}
    with nft_loaded(node, native), loaded(node, restore, Family.IPV4, "legacy"):
        seen = what_counts(node.exchange([probe]).get(probe.token, []))
    assert seen is not None
    assert seen.dst in ("10.244.1.1", "10.244.1.2")


def test_chances(plain: tuple[Node, Host]) -> None:
    text = (
        "table ip a { chain one { type nat hook prerouting priority -100\n"
        "udp dport 80 dnat to numgen random mod 5 map { 0 : 10.244.1.1, 1-3 : 10.244.1.2, 4 : 10.244.1.3 }\n}\n}\n"
    )
    seen, told = fates(*plain, text, 400)
    assert set(seen) == set(told) == {"10.244.1.1", "10.244.1.2", "10.244.1.3"}
    assert sum(told.values()) == pytest.approx(1)
    for address, chance in told.items():
        spread = (400 * chance * (1 - chance)) ** 0.5
        assert abs(seen[address] - 400 * chance) < 7 * spread


def test_sets_are_remembered(plain: tuple[Node, Host]) -> None:
    """What one packet adds to a set, the next one finds there."""
    node, host = plain
    text = (
        "table ip a { set affinity { type ipv4_addr; flags dynamic,timeout; timeout 1h; }\n"
        "chain one { type nat hook prerouting priority -100\n udp dport 80 jump service\n}\n"
        "chain service { ip saddr @affinity dnat to 10.244.1.1\n goto endpoint\n}\n"
        "chain endpoint { update @affinity { ip saddr }\n meta l4proto udp dnat to 10.244.1.2\n}\n}\n"
    )
    index = index_ruleset((), nftables=parse_nft(text), family=Family.IPV4)
    packets = Packets(Random(5), Family.IPV4)
    found = []
    with nft_loaded(node, text):
        for _ in range(2):
            probe = packets.packet("c1", CLIENT, SERVICE, 80, "udp")
            (outcome,) = trace(index, host, probe.packet).outcomes
            seen = what_counts(node.exchange([probe]).get(probe.token, []))
            assert seen is not None
            assert outcome.dst == f"{seen.dst}:80"
            found.append(seen.dst)
            host = dataclasses.replace(host, elements=outcome.elements)
    assert found == ["10.244.1.2", "10.244.1.1"]
