"""The kernel agrees: packets sent through real rule sets meet the fate that the model gives them.

Every packet begins a connection of its own; one that comes out on a wire is answered, and the reply, with translation
undone, has to come back as the model says. The longer run:

    pytest -m soak tests/kernel/dataplane/test_model.py
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from random import Random

import pytest

from kproxy.dataplane import Host, Outcome, index_ruleset, parse_endpoint, trace
from kproxy.dataplane.concrete.reply import reply_to
from kproxy.linux.testbed.wire import REPLY, what_counts
from kproxy.netfilter import Family, canonical_ruleset
from tests.support.examples import spread
from tests.support.kernel.dataplane_agree import Tally
from tests.support.kernel.dataplane_rules import NODE, SERVICES, Generator, Packets
from tests.support.kernel.dataplane_runs import (
    KUBE_EXTRA,
    REFERENCE,
    VARIANTS,
    bench,
    loaded,
    node_with_sets,
    read_counters,
    run_kube,
    run_policy,
    run_random,
    zero_counters,
)
from tests.support.kernel.dataplane_wire import Node, Probe

pytestmark = pytest.mark.root

both_families = pytest.mark.parametrize("family", list(Family), ids=lambda family: f"v{family.version}")
both_variants = pytest.mark.parametrize("variant", spread(VARIANTS, 1, 1))


@pytest.fixture(scope="module")
def plain() -> Iterator[tuple[Node, Host]]:
    with node_with_sets("dp") as found:
        yield found


@pytest.fixture(scope="module")
def kube() -> Iterator[tuple[Node, Host]]:
    with node_with_sets("dk", KUBE_EXTRA, route_localnet=1) as (node, host):
        node.sysctl("net.ipv4.conf.all.route_localnet", 1)
        yield node, host


def agree(tally: Tally) -> None:
    assert not tally.disagreements, f"{tally}\n" + "\n".join(tally.disagreements[:5])


@pytest.mark.parametrize("group", spread(range(40), 1, 1))
def test_random_rule_sets(plain: tuple[Node, Host], group: int) -> None:
    tally = Tally()
    run_random(*plain, range(4000 + 8 * group, 4008 + 8 * group), 60, tally)
    agree(tally)
    assert tally.packets == 480
    assert tally.open <= tally.packets // 50


@pytest.mark.parametrize("group", spread(range(13), 1, 0))
def test_random_policies(plain: tuple[Node, Host], group: int) -> None:
    """All forms of `ip rule`, beside rules that copy marks."""
    tally = Tally()
    run_policy(*plain, range(4200 + 8 * group, 4208 + 8 * group), 30, tally)
    agree(tally)


RECORDED = sorted(path.name for path in (REFERENCE / "clusters").iterdir() if path.is_dir())


@both_variants
@both_families
@pytest.mark.parametrize("case", spread(RECORDED, 1, 1))
def test_recorded_kube_proxy_rules(kube: tuple[Node, Host], case: str, family: Family, variant: str) -> None:
    path = REFERENCE / "clusters" / case / f"kube-proxy.v{family.version}.restore"
    tally = Tally()
    run_kube(*kube, path.read_text(), family, variant, 80, tally, f"{case} ")
    agree(tally)


@both_families
@both_variants
def test_chance(plain: tuple[Node, Host], family: Family, variant: str) -> None:
    """Four of five targets have a chance of their own; what is left falls through."""
    node, host = plain
    bits = "10.244.1." if family is Family.IPV4 else "fd00:244:0:1::"
    service = "10.96.0.1" if family is Family.IPV4 else "fd00:96::1"
    shares = ("0.1", "0.33333333349", "0.5", "0.9")
    rules = [
        f"-A PREROUTING -m statistic --mode random --probability {share} -j DNAT --to-destination {bits}{n}"
        for n, share in enumerate(shares, 1)
    ]
    text = "\n".join(["*nat", *rules, "COMMIT", ""])
    packets = Packets(Random(7), family)
    probes = [packets.packet("c1", "10.245.0.5" if family is Family.IPV4 else "fd00:245::5", service, 80, "tcp")
              for _ in range(600)]  # fmt: skip
    with loaded(node, text, family, variant):
        index = index_ruleset(canonical_ruleset(text, family))
        result = trace(index, host, probes[0].packet)
        seen = node.exchange(probes)
    chances = {outcome.dst.rpartition(":")[0].strip("[]"): outcome.probability for outcome in result.outcomes}
    assert len(chances) == 5
    assert sum(chances.values()) == 1
    fates = [what_counts(seen.get(probe.token, [])) for probe in probes]
    counts = Counter(fate.dst for fate in fates if fate is not None)
    assert set(counts) <= set(chances)
    for address, chance in chances.items():
        assert plausible(counts[address], len(probes), chance), f"{address}: {counts[address]} with chance {chance}"


def plausible(count: int, total: int, chance: Fraction) -> bool:
    """Whether a binomial count is not as far out, on its side, as happens once in 10^9."""
    p = float(chance)
    weights = [math.comb(total, k) * p**k * (1 - p) ** (total - k) for k in range(total + 1)]
    return min(sum(weights[: count + 1]), sum(weights[count:])) > 1e-9


@both_families
@both_variants
def test_rule_by_rule(plain: tuple[Node, Host], family: Family, variant: str) -> None:
    """The counters of every rule, after one packet, are what the path of an outcome says."""
    node, host = plain
    compared = 0
    for seed in range(600, 606):
        random = Random(seed * 10 + family.version)
        text = Generator(random, family).ruleset()
        ruleset = canonical_ruleset(text, family)
        index = index_ruleset(ruleset, variant=variant)
        packets = Packets(random, family)
        with loaded(node, text, family, variant):
            for _ in range(8):
                probe = packets.one()
                result = trace(index, host, probe.packet, paths=True)
                if any(map(is_answered, result.outcomes)):
                    continue
                said = ""
                for _ in range(3):  # the node now and then says something of its own, about neighbours
                    zero_counters(node, family, variant, [table.name for table in ruleset.tables])
                    node.exchange([probe])
                    counted = read_counters(node, family, variant)
                    paths = [
                        dict(Counter((step.table, step.chain, step.rule) for step in outcome.path))
                        for outcome in result.outcomes
                    ]
                    if counted in paths:
                        break
                    said += f"counted {counted}\npaths {paths}\n"
                    node.forget()
                else:
                    pytest.fail(f"seed {seed} {probe}\n{said}")
                compared += 1
    assert compared >= 12


def is_answered(outcome: Outcome) -> bool:
    """Whether the node itself sends something on account of the packet, which the rules count, too: it answers what is
    rejected or delivered to it, and tells IPv6 senders of shorter ways."""
    packet = outcome.packet
    redirected = packet.family is Family.IPV6 and packet.in_interface == packet.out_interface
    return outcome.verdict == "REJECT" or outcome.via == "local" or redirected or outcome.reason.startswith("no route")


ODD_HOSTS: dict[str, dict[str, int]] = {
    "no-forwarding": {"net.ipv4.ip_forward": 0, "net.ipv6.conf.all.forwarding": 0},
    "strict-rp-filter": {"net.ipv4.conf.all.rp_filter": 1},
    "loose-rp-filter": {"net.ipv4.conf.all.rp_filter": 2},
    "route-localnet": {"net.ipv4.conf.all.route_localnet": 1},
    "accept-local": {"net.ipv4.conf.all.accept_local": 1},
    "bridge-without-iptables": {
        "net.bridge.bridge-nf-call-iptables": 0,
        "net.bridge.bridge-nf-call-ip6tables": 0,
    },
}


@both_families
@pytest.mark.parametrize("kind", ODD_HOSTS)
def test_other_hosts_and_forged_packets(kind: str, family: Family) -> None:
    """Sysctls, and packets with sources that do not belong where they come from."""
    sysctls = ODD_HOSTS[kind]
    tally = Tally()
    with node_with_sets("do", (), **sysctls) as (node, host):
        for name, value in sysctls.items():
            node.sysctl(name, value)
        for seed, variant in enumerate(VARIANTS):
            random = Random(seed)
            text = Generator(random, family).table("nat", ("PREROUTING", "INPUT", "OUTPUT", "POSTROUTING"))
            packets = Packets(random, family, forged=0.5)
            with loaded(node, text, family, variant):
                at = bench(node, host, canonical_ruleset(text, family), variant, tally, f"{kind} ")
                at.compare([packets.one() for _ in range(80)], replies=False)
    agree(tally)


@both_families
@both_variants
def test_lists_and_counters(plain: tuple[Node, Host], family: Family, variant: str) -> None:
    """`-m recent` and `-m statistic --mode nth`, packet after packet, with what the model is told of them."""
    node, host = plain
    six = family is Family.IPV6
    service, client = ("fd00:96::1", "fd00:245::5") if six else ("10.96.0.1", "10.245.0.5")
    one, two = ("fd00:244:0:1::1", "fd00:244:0:1::2") if six else ("10.244.1.1", "10.244.1.2")
    text = f"""*nat
:KP-A - [0:0]
:KP-B - [0:0]
-A PREROUTING -d {service} -m recent --rcheck --seconds 60 --reap --name KP-A -j KP-A
-A PREROUTING -d {service} -m statistic --mode nth --every 3 --packet 1 -j KP-A
-A PREROUTING -d {service} -j KP-B
-A KP-A -m recent --name KP-A --set -j DNAT --to-destination {one}
-A KP-B -j DNAT --to-destination {two}
COMMIT
"""
    index = index_ruleset(canonical_ruleset(text, family))
    key = parse_endpoint(client)[1]
    packets = Packets(Random(3), family)
    rule = ("nat", "PREROUTING", 2)
    known = dataclasses.replace(host, nth={rule: 0}, recent={})
    with loaded(node, text, family, variant):
        fates = []
        for _ in range(7):
            probe = packets.packet("c1", client, service, 80, "udp")
            (outcome,) = trace(index, known, probe.packet).outcomes
            fate = what_counts(node.exchange([probe]).get(probe.token, []))
            assert fate is not None
            assert outcome.probability == 1
            assert fate.dst == outcome.dst.rpartition(":")[0].strip("[]")
            fates.append(fate.dst)
            met = Counter((step.table, step.chain, step.rule) for step in outcome.path)
            if met["nat", "KP-A", 1]:
                known = dataclasses.replace(known, recent={"KP-A": {key: (0,)}})
            elif ("nat", "PREROUTING", 3) in met or met[rule]:
                known = dataclasses.replace(known, nth={rule: known.nth[rule] + 1})
    assert one in fates


@both_families
@pytest.mark.parametrize("own", [False, True], ids=["a service", "an own address"])
@pytest.mark.parametrize("place", ["raw PREROUTING", "mangle INPUT"])
def test_a_reply_to_the_host_itself_comes_in_with_its_source_translated_back(
    plain: tuple[Node, Host], family: Family, place: str, own: bool
) -> None:
    """The host asks a service that is the host itself. Its reply, on the way in by lo, has the service's address in
    all tables, raw's too, and that address decides whether the source is LOCAL."""
    node, host = plain
    client, server, others = NODE[family][1], NODE[family][0], (SERVICES[family][0], NODE[family][2])
    service = others[own]
    to = f"[{server}]:8080" if family is Family.IPV6 else f"{server}:8080"
    table, hook = place.split()
    for matched in ("--src-type LOCAL", "! --src-type LOCAL"):
        text = f"""*nat
-A OUTPUT -d {service} -p udp -m udp --dport 80 -j DNAT --to-destination {to}
COMMIT
*{table}
-A {hook} -i lo -p udp -m udp --sport 80 -m addrtype {matched} -j DROP
COMMIT
"""
        index = index_ruleset(canonical_ruleset(text, family), variant="nft")
        asks = Packets(Random(matched), family).packet("node", client, service, 80, "udp")
        with loaded(node, text, family, "nft"):
            (outcome,) = trace(index, host, asks.packet).outcomes
            fate = what_counts(node.exchange([asks]).get(asks.token, []))
            assert fate is not None
            assert (fate.where, fate.dst, fate.dport) == ("local", server, 8080)
            answer, connection = reply_to(host, outcome)
            answer = answer.replace(length=None, ttl=64, tos=0)
            answers = Probe(answer, "node", asks.token | REPLY)
            (back,) = trace(index, host, answer, connection).outcomes
            fate = what_counts(node.exchange([answers]).get(answers.token, []))
        assert back.verdict == ("DROP" if own == (matched[0] != "!") else "ACCEPT")
        assert (fate is None) == (back.verdict == "DROP")
        if fate is not None:
            assert (fate.where, fate.src, fate.sport) == ("local", service, 80)
