"""The hook pipeline as one function per origin and connection state, built from its end to its beginning.

Theory: docs/symbolic.md, "Backwards".

It is the pipeline of `model.pipeline` as `concrete.hooks` and `concrete.input` follow it, for every host at once:
whether an address is the host's own, and by which interface a packet leaves, are variables. What else a host may do to
a packet on its own (refuse to forward it, say) depends on the packet alone and not on the rules, so it can only make
more packets alike; the functions are those of a host that lets everything pass.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Final

from kproxy.dataplane.model.host import MULTICAST_NETWORKS
from kproxy.dataplane.model.pipeline import BaseChain, Source, StageKind, pattern_of
from kproxy.dataplane.model.pipeline import Stage as PipelineStage
from kproxy.dataplane.model.verdict import ACCEPT
from kproxy.dataplane.symbolic.ask import asked_of_packet
from kproxy.dataplane.symbolic.cases import CONNTRACK_CASES, LO, ConntrackCase, refused_by_all
from kproxy.dataplane.symbolic.chains import Evaluator
from kproxy.dataplane.symbolic.free_variables import AFTER, BEFORE, FreeVariable, Stage
from kproxy.dataplane.symbolic.leaves import Outcome, Outcomes
from kproxy.dataplane.symbolic.nat import Continuation
from kproxy.dataplane.symbolic.nftables.evaluator import NftEvaluator
from kproxy.dataplane.symbolic.nodes import ZERO, Node
from kproxy.dataplane.symbolic.side import HostSide
from kproxy.dataplane.symbolic.targets import Targets
from kproxy.dataplane.symbolic.variables import BROADCAST, LOCAL, Variables
from kproxy.netfilter.condition import In, Under
from kproxy.netfilter.family import Family
from kproxy.netfilter.hooks import CONNTRACK_HOOKS, NAT_PRIORITIES, ChainType, Hook, Variant

MULTICAST: Final = FreeVariable("multicast", "multicast is for this host, not to be passed on")
"""The evaluator does not follow multicast; here it goes either way, so that a difference on it is not missed."""
NFT: Final = FreeVariable("variant", "these are rules of iptables-nft, not of iptables-legacy")
NATIVE: Final = "nftables"
"""Stands for all native tables where tables of iptables are named."""


class Segment(Enum):
    """The parts of a hook, in order: before connection tracking, before the NAT core, after it."""

    UNTRACKED = auto()
    BEFORE_NAT = auto()
    AFTER_NAT = auto()


@dataclass(frozen=True)
class Features:
    """What the rules of either side use, so that the rest need not be followed. `stateful` are the tables of iptables
    with rules that ask for the connection, and `NATIVE`."""

    ttl: bool
    tproxy: bool
    untracking: bool
    stateful: frozenset[str]


class HookPipeline:
    """Builds the functions of both sides."""

    def __init__(
        self,
        variables: Variables,
        outcomes: Outcomes,
        targets: Targets,
        evaluator: Evaluator,
        native: NftEvaluator,
        features: Features,
    ) -> None:
        self._variables = variables
        self._diagrams = variables.diagrams
        self._outcomes = outcomes
        self._targets = targets
        self._translation = targets.translation
        self._evaluator = evaluator
        self._native = native
        self._features = features
        self._stages: dict[tuple[object, ...], Stage] = {}
        self._continuations: dict[tuple[object, ...], Continuation] = {}
        self._end = outcomes.sure(Outcome(ACCEPT))
        self._to_multicast = variables.address_under(variables.dst, MULTICAST_NETWORKS[variables.family])

    def function(self, side: HostSide, origin: str, state: ConntrackCase) -> Node:
        """What becomes of a packet of this origin and state."""
        variables, diagrams = self._variables, self._diagrams
        hook = "PREROUTING" if origin == "arriving" else "OUTPUT"
        node = self._tracked(side, origin, state)
        if self._features.untracking and state.name != "UNTRACKED":
            other = self._outcomes.change_header(self._tracked(side, origin, CONNTRACK_CASES[-1]), "not tracked")
            node = diagrams.ite(diagrams.equals(variables.untracked, 1), other, node)
        raw = ConntrackCase("before", "INVALID", False, False)
        node = self._segment(side, Hook(hook), Segment.UNTRACKED, raw, node)
        if origin == "arriving" and variables.family is Family.IPV6:
            loopback = diagrams.either(variables.between(variables.src, 1, 1), variables.between(variables.dst, 1, 1))
            node = diagrams.ite(loopback, self._dropped(), node)
        if origin == "arriving":
            node = self._segment(side, Hook.INGRESS, Segment.AFTER_NAT, raw, node)
        node = diagrams.restrict(node, ((variables.untracked, 0), (variables.assigned, 0)))
        return self._outcomes.forget_marks_of_dropped(node) if state.fresh else node

    def _dropped(self) -> Node:
        return self._translation.with_destination(self._targets.drop, 0)

    def _segment(
        self,
        side: HostSide,
        hook: Hook,
        segment: Segment,
        state: ConntrackCase,
        node: Node,
        *,
        local: bool = False,
        looped: bool = False,
        variant: Variant | None = None,
    ) -> Node:
        """The chains of one part of a hook, NAT's apart: from the last to the first."""
        part = Segment.UNTRACKED if hook in CONNTRACK_HOOKS else Segment.BEFORE_NAT
        if hook not in NAT_PRIORITIES:
            part = Segment.AFTER_NAT
        parts = []
        for stage in side.pipeline.stages(hook, variant):
            if stage.kind is StageKind.CONNTRACK:
                part = Segment.BEFORE_NAT
            elif stage.kind is StageKind.NAT:
                part = Segment.AFTER_NAT
            elif part is segment:
                parts.append(stage)
        before = hook in (Hook.PREROUTING, Hook.OUTPUT) and segment is not Segment.AFTER_NAT and not looped
        before = before or (hook is Hook.INGRESS and not looped)
        phase = BEFORE if before else AFTER
        for stage in reversed(parts):
            node = self._in_some_order(
                side, stage, hook, node,
                lambda base, after: self._where_it_hangs(base, self._run(
                    side, base, segment, state, phase, Continuation(_NOWHERE, after), local=local, looped=looped
                ), after),
            )  # fmt: skip
        return node

    def _where_it_hangs(self, base: BaseChain, chain: Node, past: Node) -> Node:
        """A chain of single devices is met by packets that come in, or leave, by one of them."""
        if base.hook not in (Hook.INGRESS, Hook.EGRESS):
            return chain
        variables, diagrams = self._variables, self._diagrams
        if not base.devices:
            return diagrams.ite(variables.free(FreeVariable("devices", f"{base} hangs on the device")), chain, past)
        level = variables.in_interface if base.hook is Hook.INGRESS else variables.out_interface
        node = past
        for name in base.devices:
            node = diagrams.ite(variables.interface_fits(level, pattern_of(name)), chain, node)
        return node

    def _in_some_order(
        self, side: HostSide, stage: PipelineStage, hook: Hook, end: Node, run: Callable[[BaseChain, Node], Node]
    ) -> Node:
        """The chains of a stage; in each order, if it is not known which was registered first."""
        result = None
        for order in stage.orders:
            node = end
            for index in reversed(order):
                node = run(stage.chains[index], node)
            if result is None:
                result = node
                continue
            names = " before ".join(str(stage.chains[index]) for index in order)
            result = self._diagrams.ite(self._variables.free(FreeVariable("order", f"{hook}: {names}")), node, result)
        return end if result is None else result

    def _nat(
        self,
        side: HostSide,
        hook: Hook,
        state: ConntrackCase,
        accept: Node,
        onward: Node,
        rerouted: Node = ZERO,
        *,
        local: bool = False,
        variant: Variant | None = None,
    ) -> Node:
        """The NAT core: the chains of type nat, until one of them translates."""
        stages = side.pipeline.stages(hook, variant)
        stage = next(stage for stage in stages if stage.kind is StageKind.NAT)
        phase = BEFORE if hook in (Hook.PREROUTING, Hook.OUTPUT) else AFTER
        return self._in_some_order(
            side, stage, hook, accept,
            lambda base, after: self._run(
                side, base, Segment.BEFORE_NAT, state, phase,
                Continuation(_NOWHERE, after, onward, rerouted, accept), local=local,
            ),
        )  # fmt: skip

    def _run(
        self,
        side: HostSide,
        base: BaseChain,
        segment: Segment,
        state: ConntrackCase,
        phase: str,
        continuation: Continuation,
        *,
        local: bool = False,
        looped: bool = False,
    ) -> Node:
        """One base chain."""
        native = base.source is Source.NFTABLES
        if (NATIVE if native else base.table) not in self._features.stateful and state.fresh:
            state = CONNTRACK_CASES[0]  # no rule of the table can tell, so that the results are shared
        table = base.table
        if native:
            early = segment is Segment.UNTRACKED or base.hook is Hook.INGRESS
            table = "nat" if base.type is ChainType.NAT else "raw" if early else "filter"
        hook = base.hook
        stage_key = (hook, table, state, phase, local, looped)
        stage = self._stages.get(stage_key)
        if stage is None:
            stage = self._stages[stage_key] = Stage(
                hook.value,
                table,
                state.ctstate,
                state.tracked,
                state.fresh,
                phase,
                input=hook in (Hook.INGRESS, Hook.PREROUTING, Hook.INPUT, Hook.FORWARD)
                or (hook in (Hook.POSTROUTING, Hook.EGRESS) and not local),
                output=hook in (Hook.OUTPUT, Hook.FORWARD, Hook.POSTROUTING, Hook.EGRESS),
                looped=looped,
            )
        key = (stage, continuation.accept, continuation.onward, continuation.rerouted, continuation.kept)
        found = self._continuations.get(key)
        if found is None:
            found = self._continuations[key] = replace(continuation, stage=stage)
        chain, policy = side.chain(base)
        if native:
            return self._native.base_chain(chain, policy, found)
        return self._evaluator.table(chain, policy, found)

    def _tracked(self, side: HostSide, origin: str, state: ConntrackCase) -> Node:
        """From conntrack to the end."""
        if origin == "local":
            straight, rerouted = self._out(side, state)
            node = self._destination(side, Hook.OUTPUT, state, straight, rerouted)
            return self._segment(side, Hook.OUTPUT, Segment.BEFORE_NAT, state, node)
        after = self._segment(side, Hook.PREROUTING, Segment.AFTER_NAT, state, self._routed(side, state))
        node = self._destination(side, Hook.PREROUTING, state, after, after)
        return self._segment(side, Hook.PREROUTING, Segment.BEFORE_NAT, state, node)

    def _destination(self, side: HostSide, hook: Hook, state: ConntrackCase, onward: Node, rerouted: Node) -> Node:
        """The nat table where it translates destinations."""
        variables, diagrams = self._variables, self._diagrams
        if not state.fresh:
            if state.tracked:
                onward = diagrams.ite(self.translated(destination=True), self._elsewhere(rerouted), onward)
            return self._translation.with_destination(onward, 0)
        untranslated = diagrams.restrict(onward, ((variables.dnat, 0),))
        accept = self._translation.with_destination(untranslated, 0)
        node = self._nat(side, hook, state, accept, onward, rerouted)
        for key, level in list(variables.free_variables.items()):
            if isinstance(key.where, (In, Under)):
                # known where the packet still has what rules asked about
                held = asked_of_packet(variables, key.where)
                if held is not None:
                    yes, no = (diagrams.restrict(node, ((level, value),)) for value in (1, 0))
                    node = diagrams.ite(held, yes, no)
        return node

    def translated(self, *, destination: bool) -> Node:
        """Whether the connection translates the destination (or source) of a packet of its direction."""
        variables, diagrams = self._variables, self._diagrams
        forward, backward = (variables.dnat, variables.snat) if destination else (variables.snat, variables.dnat)
        return diagrams.ite(
            diagrams.equals(variables.reply, 1), diagrams.equals(backward, 1), diagrams.equals(forward, 1)
        )

    def _elsewhere(self, node: Node) -> Node:
        """The function for a packet whose destination the connection translates to an unknown one."""
        variables = self._variables
        now, translated = (variables.dst, variables.dport), (variables.translated_dst, variables.translated_dport)
        return self._with_unknown_address(node, now, translated, {variables.dst_kind: variables.translated_kind})

    # after PREROUTING

    def _routed(self, side: HostSide, state: ConntrackCase) -> Node:
        variables, diagrams = self._variables, self._diagrams
        onward = self._forward(side, state)
        inward = self._input(side, state)
        here = diagrams.among(variables.dst_kind, ((LOCAL, BROADCAST),))
        here = diagrams.ite(self._to_multicast, variables.free(MULTICAST), here)
        node = diagrams.ite(here, inward, onward)
        return diagrams.ite(refused_by_all(variables), self._targets.drop, node)

    def _input(self, side: HostSide, state: ConntrackCase) -> Node:
        """The chains of INPUT. Which of nat and security comes first depends on the variant of iptables."""
        result = None
        for variant in side.pipeline.variants(Hook.INPUT):
            after = self._segment(side, Hook.INPUT, Segment.AFTER_NAT, state, self._end, variant=variant)
            node = self._source(side, Hook.INPUT, state, after, after, variant=variant)
            node = self._segment(side, Hook.INPUT, Segment.BEFORE_NAT, state, node, variant=variant)
            if result is None:
                result = node
            else:  # legacy comes first
                result = self._diagrams.ite(self._variables.free(NFT), node, result)
        assert result is not None
        return result

    def _source(
        self,
        side: HostSide,
        hook: Hook,
        state: ConntrackCase,
        same: Node,
        after: Node,
        *,
        local: bool = False,
        variant: Variant | None = None,
    ) -> Node:
        """The NAT core where it translates sources: `same` is the function of a packet that keeps its own."""
        diagrams, variables = self._diagrams, self._variables
        if state.fresh:
            accept = diagrams.restrict(same, ((variables.snat, 0),))
            return self._nat(side, hook, state, accept, after, local=local, variant=variant)
        if state.tracked:
            return diagrams.ite(self.translated(destination=False), self._other_source(after), same)
        return same

    def _other_source(self, node: Node) -> Node:
        """The function for a packet whose source the connection translates to an unknown one."""
        variables = self._variables
        now, translated = (variables.src, variables.sport), (variables.translated_src, variables.translated_sport)
        return self._with_unknown_address(node, now, translated, {variables.src_kind: variables.translated_src_kind})

    def _with_unknown_address(
        self, node: Node, now: tuple[int, int], translated: tuple[int, int], kinds: dict[int, int]
    ) -> Node:
        """The function with an address and port, given by their first levels, called by levels of their own."""
        moved = {now[0] + chunk: translated[0] + chunk for chunk in range(self._variables.chunks)}
        moved |= {now[1]: translated[1], now[1] + 1: translated[1] + 1}
        return self._diagrams.permute(node, moved | kinds)

    def _forward(self, side: HostSide, state: ConntrackCase) -> Node:
        variables, diagrams = self._variables, self._diagrams
        node = self._postrouting(side, state, self._end, local=False)
        node = self._segment(side, Hook.FORWARD, Segment.AFTER_NAT, state, node)
        if self._features.ttl:
            node = self._targets.decremented(node)
        if self._features.tproxy:
            node = diagrams.ite(diagrams.equals(variables.assigned, 1), self._targets.drop, node)
        return node

    def _postrouting(self, side: HostSide, state: ConntrackCase, end: Node, *, local: bool) -> Node:
        end = self._segment(side, Hook.EGRESS, Segment.AFTER_NAT, state, end, local=local)
        after = self._segment(side, Hook.POSTROUTING, Segment.AFTER_NAT, state, end, local=local)
        same = self._translation.same_source(after) if local else after
        node = self._source(side, Hook.POSTROUTING, state, same, after, local=local)
        return self._segment(side, Hook.POSTROUTING, Segment.BEFORE_NAT, state, node, local=local)

    # after OUTPUT's nat table

    def _out(self, side: HostSide, state: ConntrackCase) -> tuple[Node, Node]:
        """From OUTPUT's filter table on: for a packet that keeps its destination, and for one that is routed again.

        Only POSTROUTING sees the interface that routing chose the second time (way._route_again).
        """
        variables, diagrams = self._variables, self._diagrams
        back = diagrams.restrict(self._loop(side, state), ((variables.in_interface, LO),))
        end = diagrams.ite(diagrams.equals(variables.out_interface, LO), back, self._end)
        after = self._postrouting(side, state, end, local=True)
        elsewhere = diagrams.permute(after, {variables.out_interface: variables.translated_out})
        again = diagrams.ite(
            diagrams.equals(variables.dst_kind, LOCAL),
            diagrams.restrict(after, ((variables.out_interface, LO),)),
            elsewhere,
        )
        straight, rerouted = after, again
        straight, rerouted = (
            self._segment(side, Hook.OUTPUT, Segment.AFTER_NAT, state, node) for node in (straight, rerouted)
        )
        by_lo = diagrams.restrict(straight, ((variables.out_interface, LO),))
        straight = diagrams.ite(diagrams.equals(variables.dst_kind, LOCAL), by_lo, straight)
        return straight, rerouted

    def _loop(self, side: HostSide, state: ConntrackCase) -> Node:
        """The way back in, by the loopback interface: the nat tables are not walked again."""
        node = self._end
        for hook in (Hook.INPUT, Hook.PREROUTING):
            for segment in (Segment.AFTER_NAT, Segment.BEFORE_NAT, Segment.UNTRACKED):
                node = self._segment(side, hook, segment, state, node, looped=True)
        return self._segment(side, Hook.INGRESS, Segment.AFTER_NAT, state, node, looped=True)


_NOWHERE: Final = Stage("", "", "", False, False, AFTER, False, False)
"""Takes the place of a stage in a continuation that has none yet."""
