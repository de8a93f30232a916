"""`--verify`: witnesses sent through the kernel, in two namespaces, one with each mode's rules."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace

from kproxy.api.kubeproxyconfig.types import MODE_NFTABLES
from kproxy.cluster.migrate.analysis import CLOSED, Found
from kproxy.cluster.migrate.report import KernelAnswer
from kproxy.cluster.migrate.switch import Switch
from kproxy.cluster.node import NodeFacts
from kproxy.cluster.rendered import host_in_mode, rules_of
from kproxy.dataplane.symbolic.host_rules import SideRules
from kproxy.linux.sync.ipvs_host import check_ipvs
from kproxy.linux.testbed.confirm import Kernels, KernelVerdict
from kproxy.linux.testbed.host import RuleText, rule_texts
from kproxy.netfilter.hooks import Variant
from kproxy.render import render_state


class Verifier:
    """Asks the kernel. Namespaces of a node are made when its first witness comes. Use it as a context manager.

    Raises:
        LinuxError: root, a program or a module is missing, or the kernel refuses the rules.
    """

    def __init__(self, switch: Switch) -> None:
        self._switch = switch
        self._stack = ExitStack()
        self._made: dict[tuple[object, ...], tuple[list[SideRules], Kernels]] = {}
        if switch.from_ipvs:
            check_ipvs()

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
        sides, kernels = self._of(facts, found)
        hosts = (host_in_mode(side, each.host) for side, each in zip(sides, witness.candidate, strict=True))
        situations = [
            replace(each, host=replace(host, sets={}))  # the kernel has the sets of its rules
            for each, host in zip(witness.candidate, hosts, strict=True)
        ]
        confirmed = kernels.confirm(situations, witness.traces)
        return KernelAnswer(confirmed.verdict.value, *self._switch.in_time(confirmed.seen), confirmed.reason)

    def _of(self, facts: NodeFacts, found: Found) -> tuple[list[SideRules], Kernels]:
        """Both modes' rules, and two kernels that have them."""
        is_settled = self._switch.from_ipvs and found.is_of_comparison
        closed = [RuleText(CLOSED, Variant.NFT)] if found.reason.firewall else []
        key = (facts.target.node_name, facts.family, is_settled, *closed)
        if key not in self._made:
            facts = self._switch.settled(facts) if is_settled else facts
            options = {mode: facts.nftables if mode == MODE_NFTABLES else facts.iptables for mode in self._switch.modes}
            made = [render_state(facts.state, given, mode) for mode, given in options.items()]
            one, other = ([*rule_texts(each), *closed] for each in made)  # the last policies count
            kernels = self._stack.enter_context(Kernels(facts.family, one, other))
            self._made[key] = [rules_of(each) for each in made], kernels
        return self._made[key]
