"""Golden packets, sent for real: what does the kernel do to them, with the rules that it printed?

The rules are loaded into a host of `kproxy.linux.testbed`, a namespace that has the node's addresses and interfaces,
and each packet is sent as if it were the first one. What is seen of it must be among the outcomes that packets.yaml
names: for ACCEPT, the packet on its way to that endpoint, with the client's address or, masqueraded, with another; for
DROP, nothing; for REJECT, an ICMP error or a reset. Which of several endpoints gets it is chance, so it is sent several
times.

Left out, and counted: what the testbed cannot make (fragments, packets that arrive by lo).
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from kproxy.cluster.hosts import node_host
from kproxy.dataplane import Host
from kproxy.dataplane.query.expectation import Expectation, Expected
from kproxy.linux.testbed.host import RuleText, ScratchHost, UnsendableError
from kproxy.linux.testbed.wire import Observed, address_text
from kproxy.netfilter.hooks import Variant
from kproxy.render.nftables.names import TABLE, nft_family
from kproxy.services import IPFamily
from vagrant.checks.scenario import NFTABLES, Scenario

TRIES = 4
"""How often a packet is sent for each of its outcomes, if it has several."""
CLIENT_PORT = 40000
"""The source port of packets that have none in packets.yaml."""


class Sent(NamedTuple):
    """How many golden packets were sent, how many could not be, and what was wrong, as lines by packet."""

    sent: int
    left_out: int
    wrong: Mapping[str, Sequence[str]]


def send_packets(scenario: Scenario, variant: str, dumps: Mapping[int, str]) -> dict[int, Sent]:
    """Load the rules of each family into a host and send the golden packets of that family through it.

    Raises:
        LinuxError: the host could not be made, or the rules were refused.
    """
    return {family: _send_family(scenario, variant, family, text) for family, text in dumps.items()}


def _send_family(scenario: Scenario, variant: str, family: int, text: str) -> Sent:
    mine = scenario.packets(variant, family)
    if not mine:
        return Sent(0, 0, {})
    kind = mine[0].question.packet.family
    host = node_state(node_host(scenario.node, scenario.config, kind), variant, family, text)
    sent, wrong = 0, {}
    with ScratchHost(kind, [RuleText(text, None if variant == NFTABLES else Variant(variant))]) as bed:
        for expectation in mine:
            try:
                lines = send(bed, host, expectation)
            except UnsendableError:
                continue
            sent += 1
            if lines:
                wrong[expectation.name] = lines
    return Sent(sent, len(mine) - sent, wrong)


def node_state(host: Host, variant: str, family: int, text: str) -> Host:
    """The node as the first packet finds it: lists and sets of recent clients, which the rules name, are empty."""
    if variant != NFTABLES:
        return replace(host, recent={name: {} for name in re.findall(r" --name (\S+)", text)})
    table = f"{nft_family(IPFamily(family))} {TABLE}"
    sets: dict[tuple[str, str], Mapping[Hashable, Hashable]] = {
        (table, name): {} for name in re.findall(r"\tset (affinity-\S+) \{", text)
    }
    # In nftables mode kube-proxy leaves route_localnet as the kernel has it.
    return replace(host, elements=sets, sysctls={**host.sysctls, "net.ipv4.conf.all.route_localnet": 0})


def send(bed: ScratchHost, host: Host, expectation: Expectation) -> list[str]:
    """Send a packet, several times if its outcome is chance; what was wrong, as lines.

    Raises:
        UnsendableError: it cannot be made.
    """
    question = expectation.question
    packet, outcomes = question.packet, expectation.outcomes
    if packet.has_ports and packet.sport is None:
        packet = replace(packet, sport=CLIENT_PORT)
    source = packet.src or 0
    sets, lists = dict(host.elements), dict(host.recent or {})
    sets.update({key: {source: True} for key in sets if key[1] in question.recent})
    lists.update({name: {source: (0,)} for name in lists if name in question.recent})
    host = replace(host, elements=sets, recent=lists)
    tries = 1 if len(outcomes) == 1 else TRIES * len(outcomes)
    seen = dict.fromkeys(bed.send(host, packet, question.connection, tries))
    client, own = address_text(packet.family, source), bool(host.is_local(packet.family, source))
    wrong = [item for item in seen if not any(agrees(item, outcome, client, own) for outcome in outcomes)]
    return [*(f"- {item}" for item in outcomes), *sorted(f"+ {words(item)}" for item in wrong)] if wrong else []


def agrees(seen: Observed | None, outcome: Expected, client: str, own: bool) -> bool:
    """Whether what was seen of a client's packet is the outcome; `own`: the client is the node."""
    if seen is None or seen.kind != "packet":
        return outcome.verdict == ("DROP" if seen is None else "REJECT")
    if outcome.verdict != "ACCEPT" or outcome.to != destination(seen):
        return False
    # Marked or not, what stays on the node does not pass POSTROUTING's masquerading. Of the node's addresses that may
    # choose the one that the packet had.
    return seen.where == "local" or (own and bool(outcome.masquerade)) or (seen.src != client) == outcome.masquerade


def destination(seen: Observed) -> str:
    """Where a packet was going, as packets.yaml writes it."""
    if seen.dport is None:
        return seen.dst
    return f"[{seen.dst}]:{seen.dport}" if ":" in seen.dst else f"{seen.dst}:{seen.dport}"


def words(seen: Observed | None) -> str:
    """What was seen, in words."""
    if seen is None:
        return "DROP"
    return f"ACCEPT to {destination(seen)}, from {seen.src}" if seen.kind == "packet" else f"REJECT ({seen.kind})"


def describe(sent: Mapping[int, Sent]) -> Iterator[str]:
    """What was wrong, as lines."""
    for item in sent.values():
        for name, lines in item.wrong.items():
            yield name
            yield from (f"  {line}" for line in lines)
