"""`--verify`: witnesses sent through the kernel, in two namespaces, one with each mode's rules."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace

from kproxy.api.kubeproxyconfig.types import MODE_IPVS, MODE_NFTABLES
from kproxy.cluster.migrate.analysis import CLOSED, Found
from kproxy.cluster.migrate.report import KernelAnswer
from kproxy.cluster.migrate.switch import Switch, ipvs_rules
from kproxy.cluster.node import NodeFacts
from kproxy.cluster.rendered import host_in_mode
from kproxy.dataplane.compare.witness import Situation
from kproxy.linux.sync.ipvs_host import check_ipvs
from kproxy.linux.testbed.confirm import Kernels, KernelVerdict
from kproxy.linux.testbed.host import IPSETS, VIRTUAL_SERVERS, RuleText
from kproxy.netfilter.hooks import Variant
from kproxy.render import RenderedIpvs, RenderedTarget, render_state


class Verifier:
    """Asks the kernel. Namespaces of a node are made when its first witness comes. Use it as a context manager.

    Raises:
        LinuxError: root, a program or a module is missing, or the kernel refuses the rules.
    """

    def __init__(self, switch: Switch) -> None:
        self._switch = switch
        self._stack = ExitStack()
        self._kernels: dict[tuple[object, ...], Kernels] = {}
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
        if self._switch.from_ipvs and found.is_of_comparison:
            facts = self._switch.settled(facts)
        situations = [self._met(facts, *each) for each in zip(self._switch.modes, witness.candidate, strict=True)]
        confirmed = self._of(facts, found).confirm(situations, witness.traces)
        return KernelAnswer(confirmed.verdict.value, *self._switch.in_time(confirmed.seen), confirmed.reason)

    def _met(self, facts: NodeFacts, mode: str, situation: Situation) -> Situation:
        """What the packet meets in a mode, but for what its rules bring along."""
        host = situation.host
        if mode == MODE_IPVS:
            host = host_in_mode(ipvs_rules(facts), host)
        return replace(situation, host=replace(host, sets={}))

    def _of(self, facts: NodeFacts, found: Found) -> Kernels:
        closed = [RuleText(CLOSED, Variant.NFT)] if found.reason.firewall else []
        key = (facts.target.node_name, facts.family, found.is_of_comparison, *closed)
        if key not in self._kernels:
            one, other = ([*closed, *_texts(facts, mode)] for mode in self._switch.modes)
            self._kernels[key] = self._stack.enter_context(Kernels(facts.family, one, other))
        return self._kernels[key]


def _texts(facts: NodeFacts, mode: str) -> list[RuleText]:
    """A mode's rules on a node, as the programs take them."""
    options = facts.nftables if mode == MODE_NFTABLES else facts.iptables
    rendered = render_state(facts.state, options, mode)
    if isinstance(rendered, RenderedIpvs):
        return [
            RuleText(rendered.ipset_text, program=IPSETS),
            RuleText(rendered.save_text, Variant.NFT),
            RuleText(rendered.ipvsadm_text, program=VIRTUAL_SERVERS),
        ]
    if isinstance(rendered, RenderedTarget):
        return [RuleText(rendered.save_text, Variant.NFT)]
    return [RuleText(rendered.restore_text)]
