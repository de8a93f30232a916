"""The hook pipeline as one function per origin and connection state, built from its end to its beginning.

Theory: docs/symbolic.md, "Backwards".

It is the pipeline of `model.pipeline` as `concrete.hooks` and `concrete.delivery` follow it, for every host at once:
whether an address is the host's own, and by which interface a packet leaves, are variables. What else a host may do to
a packet on its own (refuse to forward it, say) depends on the packet alone and not on the rules, so it can only make
more packets alike; the functions are those of a host that lets everything pass.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum, auto
from functools import cache
from typing import Final

from kproxy.dataplane.model.host import MULTICAST_NETWORKS
from kproxy.dataplane.model.pipeline import BaseChain, Source, StageKind, pattern_of
from kproxy.dataplane.model.pipeline import Stage as PipelineStage
from kproxy.dataplane.model.verdict import ACCEPT
from kproxy.dataplane.symbolic.ask import asked_of_packet
from kproxy.dataplane.symbolic.cases import CONNTRACK_CASES, LO, ConntrackCase, refused_by_all
from kproxy.dataplane.symbolic.chains import Evaluator
from kproxy.dataplane.symbolic.effects import Effects
from kproxy.dataplane.symbolic.free_variables import AFTER, BEFORE, FreeVariable, Stage
from kproxy.dataplane.symbolic.host_rules import HostSide
from kproxy.dataplane.symbolic.ipvs import Balancing
from kproxy.dataplane.symbolic.leaves import Outcome, Outcomes
from kproxy.dataplane.symbolic.nat import Continuation
from kproxy.dataplane.symbolic.nodes import ZERO, Node
from kproxy.dataplane.symbolic.variables import BROADCAST, LOCAL, Variables
from kproxy.netfilter.condition import In, Under
from kproxy.netfilter.family import Family
from kproxy.netfilter.hooks import CONNTRACK_HOOKS, NAT_PRIORITIES, ChainType, Hook, Variant

MULTICAST: Final = FreeVariable("multicast", "multicast is for this host, not to be passed on")
"""The evaluator does not follow multicast; here it goes either way, so that a difference on it is not missed."""
SERVED: Final = "delivered to this host, which has the address for virtual servers"
"""What becomes of a packet to an address that only one side's host may have."""
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


@dataclass(frozen=True)
class _Way:
    """Whose packets are followed, and how far they are on their way.

    Attributes:
        local: the packet is made by this host.
        looped: it has come in again.
        balanced: IPVS sent it to OUTPUT.
        variant: of iptables, where both are looked at.
    """

    side: HostSide
    state: ConntrackCase
    local: bool = False
    looped: bool = False
    variant: Variant | None = None
    balanced: bool = False


class PathFunctions:
    """Builds the functions of both sides."""

    def __init__(
        self,
        variables: Variables,
        outcomes: Outcomes,
        effects: Effects,
        evaluator: Evaluator,
        features: Features,
    ) -> None:
        self._variables = variables
        self._diagrams = variables.diagrams
        self._outcomes = outcomes
        self._effects = effects
        self._translation = effects.translation
        self._evaluator = evaluator
        self._features = features
        self._stage = cache(Stage)  # one object for each, since they are compared by identity
        self._continuations: dict[tuple[object, ...], Continuation] = {}
        self._end = outcomes.sure(Outcome(ACCEPT))
        self._balancings: dict[int, Balancing] = {}
        self._to_multicast = variables.address_under(variables.dst, MULTICAST_NETWORKS[variables.family])

    def function(self, side: HostSide, origin: str, state: ConntrackCase) -> Node:
        """What becomes of a packet of this origin and state."""
        variables, diagrams, way = self._variables, self._diagrams, _Way(side, state, local=origin == "local")
        node = self._tracked(way)
        if self._features.untracking and state.name != "UNTRACKED":
            other = self._outcomes.change_header(self._tracked(replace(way, state=CONNTRACK_CASES[-1])), "not tracked")
            node = diagrams.ite(diagrams.equals(variables.untracked, 1), other, node)
        raw = replace(way, state=ConntrackCase("before", "INVALID", False, False))
        node = self._segment(raw, Hook.OUTPUT if way.local else Hook.PREROUTING, Segment.UNTRACKED, node)
        if not way.local and variables.family is Family.IPV6:
            loopback = diagrams.either(variables.between(variables.src, 1, 1), variables.between(variables.dst, 1, 1))
            node = diagrams.ite(loopback, self._translation.with_destination(self._effects.drop, 0), node)
        if not way.local:
            node = self._segment(raw, Hook.INGRESS, Segment.AFTER_NAT, node)
        node = diagrams.restrict(node, ((variables.untracked, 0), (variables.assigned, 0)))
        node = self._with_own_addresses(way, node)
        return self._outcomes.forget_marks_of_dropped(node) if state.fresh else node

    def _with_own_addresses(self, way: _Way, node: Node) -> Node:
        """The function on a host that has addresses for virtual servers, which the other side's host need not have."""
        variables, diagrams = self._variables, self._diagrams
        for levels, kind in ((variables.dst, variables.dst_kind), (variables.src, variables.src_kind)):
            if not way.side.rules.own:
                return node
            own = self._own(way, levels)
            fixed = [(kind, LOCAL)]
            if way.local and kind == variables.dst_kind:
                fixed.append((variables.out_interface, LO))
            node = diagrams.ite(own, diagrams.restrict(node, tuple(sorted(fixed))), node)
        return node

    def _segment(self, way: _Way, hook: Hook, segment: Segment, node: Node) -> Node:
        """The chains of one part of a hook, NAT's apart: from the last to the first."""
        part = Segment.UNTRACKED if hook in CONNTRACK_HOOKS else Segment.BEFORE_NAT
        if hook not in NAT_PRIORITIES:
            part = Segment.AFTER_NAT
        parts = []
        for stage in way.side.pipeline.stages(hook, way.variant):
            if stage.kind is StageKind.CONNTRACK:
                part = Segment.BEFORE_NAT
            elif stage.kind is StageKind.NAT:
                part = Segment.AFTER_NAT
            elif part is segment:
                parts.append(stage)
        before = hook is Hook.INGRESS or (hook in (Hook.PREROUTING, Hook.OUTPUT) and segment is not Segment.AFTER_NAT)
        phase = BEFORE if before and not way.looped and not way.balanced else AFTER

        def run(base: BaseChain, after: Node) -> Node:
            chain = self._run(way, base, segment, phase, Continuation(_NOWHERE, after))
            return self._where_it_hangs(base, chain, after)

        for stage in reversed(parts):
            node = self._in_some_order(stage, hook, node, run)
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
        self, stage: PipelineStage, hook: Hook, end: Node, run: Callable[[BaseChain, Node], Node]
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

    def _nat(self, way: _Way, hook: Hook, accept: Node, onward: Node, rerouted: Node = ZERO) -> Node:
        """The NAT core: the chains of type nat, until one of them translates."""
        stages = way.side.pipeline.stages(hook, way.variant)
        stage = next(stage for stage in stages if stage.kind is StageKind.NAT)
        phase = BEFORE if hook in (Hook.PREROUTING, Hook.OUTPUT) else AFTER

        def run(base: BaseChain, after: Node) -> Node:
            continuation = Continuation(_NOWHERE, after, onward, rerouted, accept)
            return self._run(way, base, Segment.BEFORE_NAT, phase, continuation)

        return self._in_some_order(stage, hook, accept, run)

    def _run(self, way: _Way, base: BaseChain, segment: Segment, phase: str, continuation: Continuation) -> Node:
        """One base chain."""
        state = way.state
        native = base.source is Source.NFTABLES
        if (NATIVE if native else base.table) not in self._features.stateful and state.fresh:
            state = CONNTRACK_CASES[0]  # no rule of the table can tell, so that the results are shared
        table = base.table
        if native:
            early = segment is Segment.UNTRACKED or base.hook is Hook.INGRESS
            table = "nat" if base.type is ChainType.NAT else "raw" if early else "filter"
        hook = base.hook
        stage = self._stage(
            hook.value, table, state.ctstate, state.tracked, state.fresh, phase,
            hook in (Hook.INGRESS, Hook.PREROUTING, Hook.INPUT, Hook.FORWARD)
            or (hook in (Hook.POSTROUTING, Hook.EGRESS) and not way.local),
            hook in (Hook.OUTPUT, Hook.FORWARD, Hook.POSTROUTING, Hook.EGRESS),
            way.looped,
            way.looped or (segment is Segment.AFTER_NAT and hook in (Hook.INPUT, Hook.POSTROUTING, Hook.EGRESS)),
            way.balanced,
        )  # fmt: skip
        key = (stage, continuation.accept, continuation.onward, continuation.rerouted, continuation.kept)
        found = self._continuations.get(key)
        if found is None:
            found = self._continuations[key] = replace(continuation, stage=stage)
        return self._evaluator.base_chain(*way.side.chain(base), found)

    def _tracked(self, way: _Way) -> Node:
        """From conntrack to the end."""
        if way.local:
            straight, rerouted = self._out(way)
            hook = Hook.OUTPUT
        else:
            straight = rerouted = self._segment(way, Hook.PREROUTING, Segment.AFTER_NAT, self._routed(way))
            hook = Hook.PREROUTING
        node = self._destination(way, hook, straight, rerouted)
        return self._segment(way, hook, Segment.BEFORE_NAT, node)

    def _destination(self, way: _Way, hook: Hook, onward: Node, rerouted: Node) -> Node:
        """The nat table where it translates destinations."""
        variables, diagrams = self._variables, self._diagrams
        balancing = self._balancing(way)
        if not way.state.fresh:
            if way.state.tracked:
                moved = self.translated(destination=True)
                if balancing is not None:
                    moved = diagrams.both(moved, diagrams.negate(balancing.known))
                onward = diagrams.ite(moved, self._elsewhere(rerouted), onward)
            elif balancing is not None:
                return balancing.settled(onward)
            return self._translation.with_destination(onward, 0)
        untranslated = diagrams.restrict(onward, ((variables.dnat, 0),))
        if balancing is None:
            accept = self._translation.with_destination(untranslated, 0)
        else:
            accept = balancing.settled(untranslated)
        node = self._nat(way, hook, accept, onward, rerouted)
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

    def _routed(self, way: _Way) -> Node:
        variables, diagrams = self._variables, self._diagrams
        onward, inward = self._forward(way), self._input(way)
        here = diagrams.among(variables.dst_kind, ((LOCAL, BROADCAST),))
        here = diagrams.ite(self._to_multicast, variables.free(MULTICAST), here)
        node = diagrams.ite(here, inward, onward)
        return diagrams.ite(refused_by_all(variables), self._effects.drop, node)

    def _delivered(self, way: _Way) -> Node:
        """The end of what this host gets: at an address that it has for virtual servers that tells it from others."""
        own = self._own(way, self._variables.dst)
        return self._diagrams.ite(own, self._outcomes.tell(self._end, SERVED), self._end)

    def _own(self, way: _Way, level: int) -> Node:
        return self._diagrams.any_of([self._variables.address_is(level, each) for each in way.side.rules.own])

    def _balancing(self, way: _Way) -> Balancing | None:
        """What IPVS does on a side; None where there are no virtual servers."""
        servers = way.side.rules.ipvs
        if servers is None:
            return None
        if id(servers) not in self._balancings:
            made = Balancing(servers, self._variables, self._outcomes, self._effects)
            self._balancings[id(servers)] = made
        return self._balancings[id(servers)]

    def _requests(self, way: _Way, here: Node) -> Node:
        """The function before IPVS takes requests; they go on by OUTPUT, from its beginning (`concrete.hooks`)."""
        balancing = self._balancing(way)
        if balancing is None or way.looped or way.balanced:
            return here
        on = replace(way, balanced=True)
        node = self._postrouting(on, self._end)
        for segment in (Segment.AFTER_NAT, Segment.BEFORE_NAT, Segment.UNTRACKED):
            node = self._segment(on, Hook.OUTPUT, segment, node)
        if self._features.ttl:
            node = self._effects.decremented(node)
        if way.local:  # it was routed to this host before
            node = self._diagrams.permute(node, {self._variables.out_interface: self._variables.translated_out})
        return balancing.requests(here, node, fresh=way.state.fresh, tracked=way.state.tracked)

    def _answered(self, way: _Way, node: Node) -> Node:
        """The function before IPVS gives answers the virtual server's address."""
        balancing = self._balancing(way)
        if balancing is None or way.looped or not way.state.tracked or way.state.fresh:
            return node
        return balancing.answered(node)

    def _input(self, way: _Way) -> Node:
        """The chains of INPUT. Which of nat and security comes first depends on the variant of iptables."""
        legacy, *nft = (
            self._with_source(replace(way, variant=variant), Hook.INPUT, self._delivered(way))
            for variant in way.side.pipeline.variants(Hook.INPUT)
        )
        return self._diagrams.ite(self._variables.free(NFT), nft[0], legacy) if nft else legacy

    def _with_source(self, way: _Way, hook: Hook, end: Node) -> Node:
        """A hook whose NAT core translates sources."""
        diagrams, variables, state = self._diagrams, self._variables, way.state
        after = self._segment(way, hook, Segment.AFTER_NAT, end)
        same = self._translation.same_source(after)  # of a packet that keeps its source
        if state.fresh:
            node = self._nat(way, hook, diagrams.restrict(same, ((variables.snat, 0),)), after)
        elif state.tracked:
            node = diagrams.ite(self.translated(destination=False), self._other_source(after), same)
        else:
            node = same
        if hook is Hook.INPUT:
            node = self._answered(way, self._requests(way, node))
        return self._segment(way, hook, Segment.BEFORE_NAT, node)

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

    def _forward(self, way: _Way) -> Node:
        variables, diagrams = self._variables, self._diagrams
        after = self._answered(way, self._postrouting(way, self._end))
        node = self._segment(way, Hook.FORWARD, Segment.AFTER_NAT, after)
        if self._features.ttl:
            node = self._effects.decremented(node)
        if self._features.tproxy:
            node = diagrams.ite(diagrams.equals(variables.assigned, 1), self._effects.drop, node)
        return node

    def _postrouting(self, way: _Way, end: Node) -> Node:
        return self._with_source(way, Hook.POSTROUTING, self._segment(way, Hook.EGRESS, Segment.AFTER_NAT, end))

    # after OUTPUT's nat table

    def _out(self, way: _Way) -> tuple[Node, Node]:
        """From OUTPUT's filter table on: for a packet that keeps its destination, and for one that is routed again.

        Only POSTROUTING sees the interface that routing chose the second time (way._route_again).
        """
        variables, diagrams = self._variables, self._diagrams
        back = diagrams.restrict(self._loop(way), ((variables.in_interface, LO),))
        end = diagrams.ite(diagrams.equals(variables.out_interface, LO), back, self._end)
        after = self._postrouting(way, end)
        elsewhere = diagrams.permute(after, {variables.out_interface: variables.translated_out})
        again = diagrams.ite(
            diagrams.equals(variables.dst_kind, LOCAL),
            diagrams.restrict(after, ((variables.out_interface, LO),)),
            elsewhere,
        )
        straight, rerouted = (self._segment(way, Hook.OUTPUT, Segment.AFTER_NAT, node) for node in (after, again))
        by_lo = diagrams.restrict(straight, ((variables.out_interface, LO),))
        straight = diagrams.ite(diagrams.equals(variables.dst_kind, LOCAL), by_lo, straight)
        if way.state.fresh:
            rerouted = self._requests(way, rerouted)
        return self._answered(way, self._requests(way, straight)), rerouted

    def _loop(self, way: _Way) -> Node:
        """The way back in, by the loopback interface: the nat tables are not walked again."""
        node, way = self._delivered(way), replace(way, looped=True)
        for hook in (Hook.INPUT, Hook.PREROUTING):
            for segment in (Segment.AFTER_NAT, Segment.BEFORE_NAT, Segment.UNTRACKED):
                node = self._segment(way, hook, segment, node)
        return self._segment(way, Hook.INGRESS, Segment.AFTER_NAT, node)


_NOWHERE: Final = Stage("", "", "", False, False, AFTER, False, False)
"""Takes the place of a stage in a continuation that has none yet."""
