"""`--verify`: witnesses sent through the kernel, in two namespaces, one with each mode's rules."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

from kproxy.cluster.migrate.analysis import Found, behind_firewall
from kproxy.cluster.migrate.report import KernelAnswer
from kproxy.cluster.migrate.steps import iptables_rules, nftables_rules
from kproxy.cluster.node import NodeFacts
from kproxy.cluster.rendered import nftables_text
from kproxy.dataplane.symbolic.host_rules import SideRules
from kproxy.linux.testbed.confirm import Confirmation, Kernels, KernelVerdict
from kproxy.linux.testbed.host import RuleText
from kproxy.netfilter import print_save
from kproxy.netfilter.hooks import Variant


class Verifier:
    """Asks the kernel. Namespaces of a node are made when its first witness comes. Use it as a context manager.

    Raises:
        LinuxError: root, a program or a module is missing, or the kernel refuses the rules.
    """

    def __init__(self, *, to_nftables: bool) -> None:
        self._to_nftables = to_nftables
        self._stack = ExitStack()
        self._kernels: dict[tuple[object, ...], Kernels] = {}

    def __enter__(self) -> Verifier:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def confirm(self, facts: NodeFacts, found: Found) -> KernelAnswer:
        """What the kernel does with a finding's witness."""
        witness = found.witness
        assert witness is not None
        if found.with_dump:
            return KernelAnswer(KernelVerdict.NOT_SENT.value, reason="it meets the rules of the dump")
        confirmed = self._of(facts, found).confirm(*witness)
        return self._answer(confirmed)

    def _answer(self, confirmed: Confirmation) -> KernelAnswer:
        today, then = confirmed.seen if self._to_nftables else confirmed.seen[::-1]
        return KernelAnswer(confirmed.verdict.value, today, then, confirmed.reason)

    def _of(self, facts: NodeFacts, found: Found) -> Kernels:
        guarded = found.reason.firewall
        key = (facts.target.node_name, facts.family, guarded)
        if key not in self._kernels:
            sides = (iptables_rules(facts), nftables_rules(facts))
            if guarded:
                sides = behind_firewall(facts, *sides)
            texts = (_texts(sides[0]), [*_texts(sides[1]), RuleText(nftables_text(facts.state, facts.nftables))])
            self._kernels[key] = self._stack.enter_context(Kernels(facts.family, *texts))
        return self._kernels[key]


def _texts(rules: SideRules) -> Sequence[RuleText]:
    """Rules of iptables as input for iptables-restore."""
    return [RuleText(print_save(ruleset), Variant.NFT) for ruleset in rules.rulesets]
