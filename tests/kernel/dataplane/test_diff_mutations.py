"""Single-rule changes to golden rule sets: `kproxy diff` reports each with a witness that both traces confirm, or the
kernel treats the same packets alike under both rule sets.

Where the answer is "alike", the changed rules are loaded into a kernel and judged by the model of the *unchanged* ones:
packets to all services, node ports and endpoints that either side names, and to what the changed rule is about, from
pods, the node and outside. 70 mutants in the normal run, and 2,000 with

    pytest -m soak tests/kernel/dataplane/test_diff_mutations.py
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from random import Random

import pytest

from kproxy.dataplane import Host
from kproxy.dataplane.compare.compare import Comparison, compare, trace_witness
from kproxy.dataplane.compare.examine import NOT_MODELLED
from kproxy.dataplane.compare.observe import observe
from kproxy.dataplane.compare.witness import Watch
from kproxy.netfilter import Family, Ruleset
from tests.support.dataplane.golden_mutants import KINDS, Mutant, mutants
from tests.support.kernel.dataplane_agree import Tally
from tests.support.kernel.dataplane_rules import Packets
from tests.support.kernel.dataplane_runs import (
    KUBE_EXTRA,
    VARIANTS,
    bench,
    endpoint_addresses,
    kube_targets,
    loaded,
    node_with_sets,
)
from tests.support.kernel.dataplane_wire import Node

pytestmark = pytest.mark.root

COUNT = 200
PER_SET = 40


@pytest.fixture(scope="module")
def node() -> Iterator[tuple[Node, Host]]:
    with node_with_sets("dm", KUBE_EXTRA, route_localnet=1) as (found, host):
        found.sysctl("net.ipv4.conf.all.route_localnet", 1)
        yield found, host


def confirm(mutant: Mutant, one: Ruleset, other: Ruleset, found: Comparison) -> None:
    """Every difference is one of its witness: the concrete evaluator, which shares no code with the comparison, gives
    it different fates, and the two traces that are shown differ."""
    names = re.findall(r"--name (\S+)", mutant.before + mutant.after)
    watch = Watch(0xFFFFFFFF, 0xFFFFFFFF, {name: name for name in names})
    for difference in found.differences:
        fates = observe(one, difference.situations[0], watch), observe(other, difference.situations[1], watch)
        assert fates[0] != fates[1], f"{mutant}: {difference}"
        assert all(sum(fate.values()) == 1 for fate in fates)
        traces = trace_witness((one, other), difference)
        assert shown(traces[0].outcomes) != shown(traces[1].outcomes), f"{mutant}: {difference}"


def shown(outcomes: Sequence[object]) -> Counter[tuple[object, ...]]:
    """What a trace shows of its outcomes, rule numbers apart."""
    result: Counter[tuple[object, ...]] = Counter()
    for outcome in outcomes:
        fields = ("probability", "verdict", "packet", "dnat", "snat", "reject", "connection")
        result[(*(getattr(outcome, field) for field in fields), texts(outcome))] += 1
    return result


def texts(outcome: object) -> tuple[str, ...]:
    """The rules that did something to the packet: an entry in a list is no part of an outcome."""
    path = getattr(outcome, "path", ())
    return tuple(step.text for step in path if "-m recent" in step.text)


def undisturbed(node: Node, host: Host, mutant: Mutant, variant: str, tally: Tally) -> None:
    """The kernel treats packets under the changed rules as the model says of the unchanged ones."""
    before, _ = mutant.rulesets
    family = mutant.family
    node_ips = ["192.168.0.2", "10.244.0.1", "127.0.0.1"] if family is Family.IPV4 else ["2001:db8::2", "fd00:244::1"]
    pods = endpoint_addresses(before)
    near = [item for item in pods if item.startswith(("10.244.0.", "fd00:244::"))]
    if near:
        node.settle(near)
    packets = Packets(Random(str(mutant)), family, [*targets(mutant, node_ips), *((pod, 8080, "tcp") for pod in pods)])
    with loaded(node, mutant.after, family, variant):
        bench(node, host, before, variant, tally, f"{mutant} ").compare([packets.one() for _ in range(PER_SET)])


def targets(mutant: Mutant, node_ips: Sequence[str]) -> list[tuple[str, int, str]]:
    """What both sides name, and three times what the changed rule does."""
    found = [target for ruleset in mutant.rulesets for target in kube_targets(ruleset, node_ips)]
    about = f"{mutant.rule} {mutant.became}"
    addresses = re.findall(r"-d (\S+)/(?:32|128) ", about) or node_ips
    ports = re.findall(r"--dport (\d+)", about)
    named = [(address, int(port), protocol) for address in addresses for port in ports
             for protocol in re.findall(r"-p (tcp|udp|sctp) ", about)]  # fmt: skip
    return found + named * 3


def run(node: tuple[Node, Host], seed: int, count: int) -> Counter[str]:
    """Compare and confirm mutants, all kinds by turns; count the answers."""
    answers: Counter[str] = Counter()
    tally = Tally()
    for number, mutant in enumerate(mutants(seed, count)):
        one, other = mutant.rulesets
        found = compare(one, other)
        unexpected = [item for item in found.undecided if item.reason != NOT_MODELLED]
        assert not unexpected, f"{mutant}: {unexpected}"
        if found.differences:
            confirm(mutant, one, other, found)
            answers[f"{mutant.kind} told"] += 1
        else:
            assert found.alike or found.undecided
            undisturbed(*node, mutant, VARIANTS[number % 2], tally)
            assert not tally.disagreements, f"{mutant} {tally}\n" + "\n".join(tally.disagreements[:3])
            answers[f"{mutant.kind} alike"] += 1
    assert tally.packets >= PER_SET * sum(number for name, number in answers.items() if name.endswith("alike"))
    return answers


def test_mutants(node: tuple[Node, Host]) -> None:
    answers = run(node, 19, 35)
    assert all(answers[f"{kind} told"] for kind in KINDS), answers
    assert any(name.endswith("alike") for name in answers), answers


@pytest.mark.slow
def test_the_kernel_is_a_judge_that_can_tell(node: tuple[Node, Host]) -> None:
    """Of mutants that are told, the same few packets show a good part in the kernel, too."""
    told = [mutant for mutant in mutants(21, 30) if not compare(*mutant.rulesets).alike][:12]
    seen = 0
    for number, mutant in enumerate(told):
        tally = Tally()
        undisturbed(*node, mutant, VARIANTS[number % 2], tally)
        seen += bool(tally.disagreements)
    assert seen >= len(told) // 4, f"{seen} of {len(told)}"


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(30, 40))
def test_many_mutants(node: tuple[Node, Host], seed: int) -> None:
    assert sum(run(node, seed, COUNT).values()) == COUNT
