"""What an INDETERMINATE answer may turn out to be contains what the kernel does.

Random rule sets in the kernel; the model is not told all of them, of the host or of the packet. The longer run:

    pytest -m soak tests/kernel/dataplane/test_possible.py
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from random import Random

import pytest

from kproxy.cluster.evidence.opened import open_rules
from kproxy.cluster.evidence.unseen import Unseen
from kproxy.dataplane import Connection, Host, Index, Packet, RoutingRule, index_ruleset, trace
from kproxy.dataplane.model.pipeline import IptablesRules
from kproxy.netfilter import Family, canonical_ruleset
from kproxy.netfilter.nftables.text import parse_nft
from tests.support.examples import spread
from tests.support.kernel.dataplane_agree import Bench, Tally
from tests.support.kernel.dataplane_nft_rules import NftGenerator
from tests.support.kernel.dataplane_rules import Generator, Packets
from tests.support.kernel.dataplane_runs import VARIANTS, loaded, nft_loaded, node_with_sets
from tests.support.kernel.dataplane_wire import Node

pytestmark = pytest.mark.root


@pytest.fixture(scope="module")
def plain() -> Iterator[tuple[Node, Host]]:
    with node_with_sets("dq") as found:
        yield found


HOSTS: dict[str, Callable[[Host], Host]] = {
    "all of it": lambda host: host,
    "no sysctls": lambda host: dataclasses.replace(host, sysctls={}),
    "no interfaces": lambda host: dataclasses.replace(host, interfaces=None, local_addresses=None),
    "no ipsets": lambda host: dataclasses.replace(host, sets={}),
    "a rule of the routing policy that is not known": lambda host: dataclasses.replace(
        host, rules=(RoutingRule("", priority=5, other="l3mdev"), RoutingRule("main", priority=32766))
    ),
    "nothing of TPROXY's sockets": lambda host: dataclasses.replace(host, transparent=None),
}
PACKETS: dict[str, Callable[[Packet], Packet]] = {
    "all of it": lambda packet: packet,
    "no input interface": lambda packet: (
        packet.replace(in_interface=None, in_port=None, bridged=None) if packet.origin == "arriving" else packet
    ),
    "no mark": lambda packet: packet.replace(mark_known=0),
    "no ports": lambda packet: packet.replace(sport=None, tcp_flags=None, icmp_type=None, icmp_code=None),
    "no lengths": lambda packet: packet.replace(length=None, ttl=None, tos=None),
}
UNKNOWN = "-j SYNPROXY --mss 1400"
Change = Callable[[str, Random], str]
UNKNOWN_PARTS: dict[str, Change] = {
    "a target": lambda text, random: _some(r"-j (?:DROP|ACCEPT|RETURN)\b", UNKNOWN, text, random),
    "a target of nat": lambda text, random: _some(
        r"-j (?:MASQUERADE|[SD]NAT --to-\w+ \S+|REDIRECT --to-ports \S+|MARK --set-\w+ \S+)",
        "-j SYNPROXY --mss 1400",
        text,
        random,
    ),
    "user space": lambda text, random: _some(r"-j (?:DROP|ACCEPT)\b", "-j NFQUEUE --queue-num 1", text, random),
    "a match": lambda text, random: _some(r"(?m) -j ", " -m foo --bar 1 -j ", text, random),
}
"""What stands in the model's rules in place of some of the kernel's."""
UNKNOWN_STATEMENTS: dict[str, Change] = {
    "a verdict": lambda text, random: _some(r"(?<=\w )(?:drop|accept)$", "frobnicate", text, random),
    "an expression": lambda text, random: _some(r"(?<=[0-9] )(?=(?:drop|accept)$)", "meta frob 1 ", text, random),
    "any statement": lambda text, random: _some(
        r"(?:[sd]nat (?:ip6? )?(?:to|addr|prefix)\b|masquerade\b|redirect\b|meta mark set\b)[^\n|)]*$",
        "frobnicate",
        text,
        random,
    ),
}
TABLES = ("raw", "mangle", "nat", "filter")
KINDS = ("host", "packet", "connection", "part", "table", "variant")


def _some(pattern: str, by: str, text: str, random: Random) -> str:
    """Half of what fits replaced."""
    return re.sub(pattern, lambda found: by if random.random() < 0.5 else found[0], text, flags=re.MULTILINE)


def _less(kind: str, text: str, family: Family, variant: str, random: Random) -> tuple[str, Index]:
    """The rules as the model gets them, and what is left out of them."""
    if kind == "part":
        name = random.choice(sorted(UNKNOWN_PARTS))
        return name, index_ruleset(canonical_ruleset(UNKNOWN_PARTS[name](text, random), family), variant=variant)
    ruleset = canonical_ruleset(text, family)
    if kind == "variant":
        return kind, index_ruleset(ruleset)
    if kind == "table":
        name = random.choice(TABLES)
        rest = dataclasses.replace(ruleset, tables=tuple(each for each in ruleset.tables if each.name != name))
        unseen = [Unseen("node", "", f"{name} table", "left out", True)]
        return name, index_ruleset(open_rules([IptablesRules.of(rest, variant)], family, unseen), family=family)
    return "", index_ruleset(ruleset, variant=variant)


def run(node: Node, host: Host, seed: int, count: int, tally: Tally) -> None:
    """One rule set, in the kernel whole, and packets; each asked with something left out."""
    random = Random(seed)
    family = (Family.IPV4, Family.IPV6)[seed % 2]
    kind = KINDS[seed // 2 % len(KINDS)]
    native = seed % 5 == 0
    there: AbstractContextManager[None]
    if native:
        text = NftGenerator(random, family).ruleset()
        name, change = random.choice(sorted(UNKNOWN_STATEMENTS.items(), key=lambda each: each[0]))
        index = index_ruleset((), nftables=parse_nft(change(text, random)), family=family)
        label, there = f"nft, without {name}", nft_loaded(node, text)
    else:
        variant = VARIANTS[seed // 2 % 2]
        text = Generator(random, family).ruleset()
        name, index = _less(kind, text, family, variant, random)
        label, there = f"{variant}, without {kind} {name}", loaded(node, text, family, variant)
    known = HOSTS[random.choice(sorted(HOSTS)) if kind == "host" else "all of it"](host)
    packets = Packets(random, family)
    probes = [packets.one() for _ in range(count)]
    if known.interfaces is None:  # an interface of which nothing is known is taken to be no port of a bridge
        probes = [probe for probe in probes if not probe.packet.bridged]
    with there:
        seen = node.exchange(probes)
    for probe in probes:
        left = random.choice(sorted(PACKETS)) if kind == "packet" else "all of it"
        connection = Connection(None) if kind == "connection" else None
        result = trace(index, known, PACKETS[left](probe.packet), connection)
        tally.packets += 1
        Bench(node, index, known, tally, f"seed {seed} {label}: {left}").judge(probe, result, seen.get(probe.token, []))


def judged(plain: tuple[Node, Host], seeds: Iterable[int], count: int) -> Tally:
    """So many packets of each seed, none of which did what was not possible."""
    tally = Tally()
    for seed in seeds:
        run(*plain, seed, count, tally)
    assert not tally.disagreements, f"{tally}\n" + "\n".join(tally.disagreements[:5])
    return tally


@pytest.mark.parametrize("group", spread(range(24), 1, 1))
def test_what_the_kernel_does_is_possible(plain: tuple[Node, Host], group: int) -> None:
    tally = judged(plain, range(9000 + 30 * group, 9030 + 30 * group), 20)
    assert tally.open > tally.packets // 20


def test_what_the_longer_run_found_once(plain: tuple[Node, Host]) -> None:
    """A raw table that was not seen may keep packets from being tracked; of two ways to refuse, both are possible."""
    judged(plain, [70484, 70641, 70712, 70953], 40)
