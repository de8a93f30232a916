"""The hook pipeline: what comes after each table, and every routing decision.

    arriving   PREROUTING -> routing -> INPUT, or FORWARD -> POSTROUTING
    local      routing -> OUTPUT (routed again when mangle or nat change what routing looks at) -> POSTROUTING
               -> if the destination is this host: PREROUTING and INPUT on the loopback interface

Where chains hang on single devices, INGRESS comes before PREROUTING and EGRESS after POSTROUTING (`devices`). A local
packet keeps its conntrack entry on the loopback interface, so it is still NEW there, and the nat tables are not
walked a second time for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kproxy.dataplane.concrete import bridge, delivery, devices, ipvs, nat
from kproxy.dataplane.concrete.assumptions import Assumptions
from kproxy.dataplane.concrete.chains import Traversal
from kproxy.dataplane.concrete.graph import DONE, ENTRY, Cursor, Edge, End, Fork, Node, Step, either, entering, sure
from kproxy.dataplane.concrete.index import Index
from kproxy.dataplane.concrete.routing import OPEN, REFUSING, ROUTED, Query, RouteResult, possible_routes, source_for
from kproxy.dataplane.concrete.state import BRIDGED, SRC, TRACKED, UNSEEN, RuleRef, Split, State, View
from kproxy.dataplane.model.conntrack import ESTABLISHED, INVALID, NEW, ORIGINAL, RELATED, UNTRACKED, Connection
from kproxy.dataplane.model.host import Host
from kproxy.dataplane.model.packet import ACK, LOCAL, LOOPBACK, SYN, TCP
from kproxy.dataplane.model.pipeline import BaseChain, Pipeline, Stage, StageKind
from kproxy.dataplane.model.verdict import ACCEPT, DROP
from kproxy.netfilter.family import Family
from kproxy.netfilter.hooks import ChainType, Hook
from kproxy.netfilter.iptables.codec import UINT32

_LOOPBACK_V6: Final = 1
_MAX_NODES: Final = 1000


class PacketPath:
    """The hooks that packets pass on one host with one rule set."""

    def __init__(self, index: Index, host: Host, assumptions: Assumptions | None = None) -> None:
        self._host = host
        self._index = index
        self._pipeline = index.pipeline
        self._assumptions = assumptions or Assumptions()
        self._hooked = {hook for hook in (Hook.INGRESS, Hook.EGRESS) if self._pipeline.stages(hook)}

    def start(self, state: State) -> Fork:
        """The beginning: where the packet comes from decides its first hook."""
        packet = state.packet
        if packet.origin == LOCAL:
            state = state.with_packet(in_interface="", in_port="", out_port="")
            return self._route_out(state)
        state = state.with_packet(out_interface="", out_port="")
        if Hook.INGRESS not in self._hooked:
            return self._arrive(state)
        master = self._host.bridge_of(packet.in_interface)
        port, bridge_name = (packet.in_interface, master) if master else (packet.in_port, packet.in_interface)
        if port:
            state = state.with_packet(in_interface=port, in_port="")._replace(arrived=(bridge_name, port))
        return entering(Hook.INGRESS, state)

    def _arrive(self, state: State) -> Fork:
        """From the device to PREROUTING, or over the bridge that the device is a port of."""
        packet = state.packet
        if (
            packet.family is Family.IPV6
            and packet.in_interface != LOOPBACK
            and _LOOPBACK_V6 in (packet.src, packet.dst)
        ):
            return sure(End(DROP, Hook.PREROUTING, state, reason="a loopback address on another interface"))
        fork = bridge.arrive(self._host, state)
        hooks = set()
        edges = []
        for edge in fork.edges:
            to = edge.to
            assert not isinstance(to, Fork)
            over = to.state.packet
            switched = isinstance(to, End) and to.via == "bridged"
            if switched or over.in_port:
                onward = (Hook.FORWARD, Hook.POSTROUTING) if switched or over.bridged else (Hook.INPUT,)
                hooks |= {Hook.PREROUTING, *onward}
            if switched and Hook.EGRESS in self._hooked:
                edge = edge._replace(to=Node(Cursor(Hook.EGRESS), to.state.with_answer(BRIDGED, True)))
            edges.append(edge)
        stopped, why = devices.stopped_on_bridge(self._index.bridge_chains, hooks, self._assumptions)
        return devices.perhaps(Fork(fork.steps, tuple(edges), fork.why), stopped, why, Hook.PREROUTING, state)

    def advance(self, node: Node) -> Fork:
        """From a node to what comes next."""
        cursor, state = node
        if cursor.stage == ENTRY:
            return self._enter_hook(cursor, state)
        stages = self._pipeline.stages(cursor.hook, cursor.variant)
        if cursor.stage == len(stages):
            return self._leave_hook(cursor.hook, state)
        stage = stages[cursor.stage]
        if stage.kind is StageKind.CONNTRACK:
            return self._conntrack(cursor, state)
        if stage.kind is StageKind.IPVS_REQUESTS:
            return self._requests(cursor, state)
        if stage.kind is StageKind.IPVS_REPLIES:
            return self._answers(cursor, state)
        if not cursor.order:
            return self._enter_stage(cursor, stage, state)
        chain = stage.chains[cursor.order[0]]
        if cursor.frames == DONE:
            return self._leave_chain(cursor, stage, state, ())
        if not cursor.frames:
            cursor = cursor._replace(frames=((chain.chain, 0),), before=_routed_by(state))
            met = self._meets(chain, cursor, state) if cursor.hook in self._hooked else True
            if isinstance(met, Fork):
                return met
            if not met:
                return self._leave_chain(cursor, stage, state, ())
        found = Traversal(self._index, self._host, chain, cursor, state, self._assumptions).run()
        if isinstance(found, Fork):
            return found
        return self._leave_chain(cursor, stage, found.state, found.steps)

    def _enter_hook(self, cursor: Cursor, state: State) -> Fork:
        """To the first stage. Where it makes a difference which iptables wrote the rules, both are followed."""
        hook = cursor.hook
        variants = self._pipeline.variants(hook)
        if len(variants) == 1:
            return self._next_stage(cursor, state, ())
        edges = [Edge(None, Node(Cursor(hook, 0, variant=variant), state)) for variant in variants]
        return either(edges, "whether these are rules of iptables-nft or of iptables-legacy is not known")

    def _enter_stage(self, cursor: Cursor, stage: Stage, state: State) -> Fork:
        """To the first chain of a stage; in each order, if it is not known which chain was registered first."""
        if stage.kind is StageKind.NAT and not (
            stage.chains and state.walks_nat and not state.nat_done & nat.MANIP[cursor.hook]
        ):
            return self._leave_nat(cursor, state, ())
        orders = [order for order in stage.orders if self._may_be(stage, order)] or list(stage.orders)
        # What may do anything, or nothing, leaves the same possible if it comes first.
        orders = [order for order in orders if len(orders) > 1 and self._is_unseen(stage.chains[order[0]])] or orders
        edges = [Edge(None, Node(cursor._replace(order=order), state)) for order in orders]
        if len(edges) == 1:
            return either(edges, "")
        names = " and ".join(dict.fromkeys(str(chain) for chain in stage.chains))
        why = f"which was registered first at {cursor.hook} is not known: {names}"
        sources = list(dict.fromkeys(chain.source for chain in stage.chains))
        self._assumptions.explain(why, f"{sources[0]} before {sources[1]}")
        return either(edges, why)

    def _is_unseen(self, chain: BaseChain) -> bool:
        """Whether all rules of a chain stand for something that was not seen."""
        found = self._index.table(chain.source, chain.table).chain(chain.chain)
        rules = found.chain.rules
        return bool(rules) and found.policy == ACCEPT and all(found.rule(at).unseen for at in range(len(rules)))

    def _may_be(self, stage: Stage, order: tuple[int, ...]) -> bool:
        """Whether an order fits what is assumed of chains of equal priority."""
        for place, first in enumerate(order):
            for second in order[place + 1 :]:
                one, other = stage.chains[first], stage.chains[second]
                if one.priority == other.priority and one.source is not other.source:
                    said = self._assumptions.decide([f"{one.source} before {other.source}"])
                    turned = self._assumptions.decide([f"{other.source} before {one.source}"])
                    if said is False or turned is True:
                        return False
        return True

    def _meets(self, chain: BaseChain, cursor: Cursor, state: State) -> bool | Fork:
        """Whether the packet meets a chain of single devices."""
        met = devices.meets(chain, View(self._host, cursor.hook, RuleRef(chain.table, chain.chain, 0), state))
        if not isinstance(met, Split):
            return met
        why = f"{chain.table} {chain.chain}: {met.why}"
        self._assumptions.explain(why)
        inside, past = Node(cursor, met.yes or state), Node(cursor._replace(frames=DONE), met.no or state)
        return Fork((), (Edge(None, inside), Edge(None, past)), why)

    def _next_stage(self, cursor: Cursor, state: State, steps: tuple[Step, ...]) -> Fork:
        hook, following = cursor.hook, cursor.stage + 1
        if following < len(self._pipeline.stages(hook, cursor.variant)):
            return sure(Node(Cursor(hook, following, variant=cursor.variant), state), steps)
        return _after(steps, self._leave_hook(hook, state))

    def _conntrack(self, cursor: Cursor, state: State) -> Fork:
        hook = cursor.hook
        if state.tracking != UNSEEN:
            return self._next_stage(cursor, state, ())
        entry = state.connection
        if entry.state is None:
            edges = []
            for name in (NEW, ESTABLISHED, RELATED, INVALID):
                known = entry.replace(state=name)
                if name == NEW and not entry.mark_known:  # nothing can have marked it yet
                    known = known.replace(mark=0, mark_known=UINT32)
                chosen = state._replace(connection=known)
                edges.append(Edge(None, Node(cursor, chosen)))
            return Fork((), tuple(edges), "the connection's state is not known")
        entry = ipvs.recognised(self._index.ipvs, entry, state.packet.protocol)
        if entry.state == ESTABLISHED and not entry.fits(state.packet):
            answers = state.packet.protocol == TCP and (state.packet.tcp_flags or 0) & _ANSWER == _ANSWER
            entry = Connection(INVALID if answers else NEW)  # tcp_new: SYN and ACK begin no connection
        step = Step("conntrack", hook, entry.state or "")
        if entry.state in (INVALID, UNTRACKED):
            return self._next_stage(cursor, state._replace(tracking=entry.state), (step,))
        tracked = state._replace(tracking=TRACKED, connection=entry.known_as(state.packet))
        return self._next_stage(cursor, tracked, (step,))

    def _requests(self, cursor: Cursor, state: State) -> Fork:
        """IPVS sends what comes to a virtual server to a real one: by OUTPUT, past FORWARD (ip_vs_nat_send_or_cont),
        or, if that is this host, further along the hook."""
        found = None if self._index.ipvs is None else ipvs.schedule(self._index.ipvs, self._host, cursor.hook, state)
        if found is None:
            return self._next_stage(cursor, state, ())
        ways, why = found
        edges = []
        for way in ways:
            to = way.to if isinstance(way.to, End) else self._to_real_server(cursor, way.to)
            edges.append(Edge(way.chance, to, (way.step,)))
        return Fork((), tuple(edges), why)

    def _to_real_server(self, cursor: Cursor, state: State) -> Fork:
        packet = state.packet
        assert packet.dst is not None
        edges = []
        for route in possible_routes(self._host, Query(packet.family, packet.dst)):  # by the destination alone
            if route.kind in ("local", "broadcast"):  # RTCF_LOCAL, which routes of both kinds have
                here = self._next_stage(cursor, state, (Step("route", cursor.hook, "to this host"),))
                edges.append(Edge(None, here))
                continue
            refused = ipvs.not_sent(packet)
            if refused:
                edges.append(Edge(None, End(DROP, cursor.hook, state, reason=refused)))
                continue
            onward = state if packet.ttl is None else state.with_packet(ttl=packet.ttl - 1)
            edges.append(self._outward(onward, route, Cursor(Hook.OUTPUT)))
        return either(edges, ROUTED)

    def _answers(self, cursor: Cursor, state: State) -> Fork:
        """IPVS gives the answer of a real server the address that the client asked, and routes it anew
        (ip_vs_route_me_harder)."""
        found = ipvs.answer(cursor.hook, state)
        if found is None:
            return self._next_stage(cursor, state, ())
        state, step = found
        following = Cursor(cursor.hook, cursor.stage + 1, variant=cursor.variant)
        if cursor.hook is Hook.INPUT:
            return sure(Node(following, state), (step,))
        return _after((step,), self._route_again(state, following))

    def _leave_chain(self, cursor: Cursor, stage: Stage, state: State, steps: tuple[Step, ...]) -> Fork:
        hook, chain, rest = cursor.hook, stage.chains[cursor.order[0]], cursor.order[1:]
        if stage.kind is StageKind.NAT and state.nat_done & nat.MANIP[hook]:
            rest = ()
        routed_again = chain.type is ChainType.ROUTE and cursor.before != _routed_by(state)
        if rest:
            following = Cursor(hook, cursor.stage, order=rest, variant=cursor.variant)
        elif stage.kind is StageKind.NAT:
            return self._leave_nat(cursor, state, steps)
        else:
            following = Cursor(hook, cursor.stage + 1, variant=cursor.variant)
        if routed_again:
            return _after(steps, self._route_again(state, following))
        if rest:
            return sure(Node(following, state), steps)
        return self._next_stage(cursor, state, steps)

    def _leave_nat(self, cursor: Cursor, state: State, steps: tuple[Step, ...]) -> Fork:
        """The end of the NAT core's work at a hook: the packet is rewritten as its connection says."""
        hook = cursor.hook
        if not state.has_connection:
            return self._next_stage(cursor, state, steps)
        before = state.packet
        state = nat.translate(state._replace(nat_done=state.nat_done | nat.MANIP[hook]), hook)
        after = state.packet
        if (before.src, before.sport, before.dst, before.dport) != (after.src, after.sport, after.dst, after.dport):
            steps = (*steps, Step("translate", hook, f"{before.source} -> {before.destination} becomes "
                                  f"{after.source} -> {after.destination}"))  # fmt: skip
        entry = state.connection
        # nf_nat_ipv4_local_fn looks at the connection: a rule may have written the new destination before.
        moved = entry.original is not None and entry.reply is not None and entry.original.dst != entry.reply.src
        if hook is Hook.OUTPUT and (before.dst != after.dst or (moved and entry.direction == ORIGINAL)):
            following = Cursor(hook, cursor.stage + 1, variant=cursor.variant)
            return _after(steps, self._route_again(state, following))
        if hook is Hook.PREROUTING and state.looped and before.dst != after.dst:
            # The route that a packet brings along from OUTPUT is dropped (nf_nat_ipv4_pre_routing, nf_nat_ipv6_in).
            state = state._replace(rerouted=(None,))
        return self._next_stage(cursor, state, steps)

    def _leave_hook(self, hook: Hook, state: State) -> Fork:
        if hook is Hook.INGRESS:
            return self._leave_ingress(state)
        if hook is Hook.PREROUTING:
            if state.looped and state.rerouted is None:
                return entering(Hook.INPUT, state)
            return delivery.route(self._host, state._replace(rerouted=None))
        if hook is Hook.INPUT:
            marked = not state.looped and would_masquerade(self._pipeline, self.advance, state)
            return sure(End(ACCEPT, Hook.INPUT, state, via="local", marked=marked))
        if hook in (Hook.FORWARD, Hook.OUTPUT):
            if state.rerouted is not None:
                state = state.with_packet(out_interface=state.rerouted[0])._replace(rerouted=None)
            return entering(Hook.POSTROUTING, state)
        if hook is Hook.POSTROUTING and Hook.EGRESS in self._hooked:
            return entering(Hook.EGRESS, state)
        return self._leave(state)

    def _leave_ingress(self, state: State) -> Fork:
        if state.arrived is None:
            return entering(Hook.PREROUTING, state) if state.looped else self._arrive(state)
        name, port = state.arrived
        state = state.with_packet(in_interface=name, in_port=port)._replace(arrived=None)
        return self._arrive(state) if bridge.is_bridged(self._host, state.packet) else entering(Hook.INGRESS, state)

    def _leave(self, state: State) -> Fork:
        """The end of the last hook: out by a device, or in again by the loopback interface."""
        packet = state.packet
        if packet.out_interface == LOOPBACK and not state.looped:
            back = state.with_packet(in_interface=LOOPBACK, out_interface="", in_port="", out_port="")
            hook = Hook.INGRESS if Hook.INGRESS in self._hooked else Hook.PREROUTING
            return entering(hook, back._replace(looped=True))
        if state.tracking == UNSEEN:
            return sure(bridge.unseen(state))
        fork = sure(End(ACCEPT, Hook.POSTROUTING, state, via="out"))
        if (BRIDGED, True) in state.answers or not bridge.is_bridge(self._host, packet.out_interface or ""):
            return fork
        hooks = (Hook.OUTPUT, Hook.POSTROUTING)
        stopped, why = devices.stopped_on_bridge(self._index.bridge_chains, hooks, self._assumptions)
        return devices.perhaps(fork, stopped, why, Hook.POSTROUTING, state)

    def _route_out(self, state: State) -> Fork:
        """The routing of a packet that this host makes, before OUTPUT: it may choose the source."""
        packet = state.packet
        routes = self._route(state)
        edges = []
        for route in routes:
            chosen = state
            if packet.src is None and packet.dst is not None and route.kind not in REFUSING:
                chosen = state.with_packet(src=source_for(self._host, packet.family, route, packet.dst))
            edges.append(self._outward(chosen, route, Cursor(Hook.OUTPUT)))
        here = any(route.kind == "local" for route in routes)
        return either(edges, "whether the destination is this host is not known" if here else ROUTED)

    def _route_again(self, state: State, following: Cursor) -> Fork:
        """ip_route_me_harder: the source stays, the output interface may change.

        The rest of OUTPUT still sees the old interface, which the kernel noted when it entered the hook
        (nf_hook_state.out); POSTROUTING sees the new one.
        """
        return either([self._outward(state, route, following) for route in self._route(state, again=True)], ROUTED)

    def _route(self, state: State, *, again: bool = False) -> tuple[RouteResult, ...]:
        packet = state.packet
        if packet.dst is None:
            return OPEN
        query = Query.of(packet, "")
        # ip_route_me_harder asks with addresses, mark and TOS alone: rules for a protocol or ports do not apply.
        query = query._replace(protocol=0, sport=0, dport=0) if again else query
        return possible_routes(self._host, query)

    def _outward(self, state: State, route: RouteResult, following: Cursor) -> Edge:
        packet = state.packet
        if route.kind in REFUSING:
            return Edge(None, End(DROP, Hook.OUTPUT, state, reason=REFUSING[route.kind]))
        if route.kind == "multicast":
            found = (RouteResult("unicast"), RouteResult("local", LOOPBACK), RouteResult("none"))
            edges = tuple(self._outward(state, each, following) for each in found)
            return Edge(None, Fork((), edges, "multicast is not modelled"))
        step = Step("route", Hook.OUTPUT, f"leaves by {route.device or 'an interface that is not known'}")
        again = following != Cursor(Hook.OUTPUT)
        routed = state._replace(rerouted=(route.device,)) if again else state.with_packet(out_interface=route.device)
        if (
            packet.family is Family.IPV4
            and packet.src is not None
            and packet.src >> 24 == 127
            and route.kind != "local"
        ):
            # __mkroute_output: a loopback source may leave only by a device with route_localnet.
            allowed = self._host.flag("route_localnet", route.device)
            if not allowed:
                reason = "a loopback source on another interface"
                drop = End(DROP, Hook.OUTPUT, routed, reason=reason)
                if allowed == 0:
                    return Edge(None, drop, (step,))
                ways = (Edge(None, drop), Edge(None, Node(following, routed)))
                return Edge(None, Fork((), ways, f"{reason} (route_localnet?)"), (step,))
        return Edge(None, Node(following, routed), (step,))


_ANSWER: Final = SYN | ACK


def _routed_by(state: State) -> tuple[object, ...]:
    """What a packet is routed anew for in OUTPUT, if rules have changed it."""
    packet = state.packet
    return packet.src, packet.dst, packet.mark, packet.mark_known, packet.tos


def _after(steps: tuple[Step, ...], fork: Fork) -> Fork:
    return Fork((*steps, *fork.steps), fork.edges, fork.why)


def would_masquerade(pipeline: Pipeline, advance: Callable[[Node], Fork], state: State) -> bool:
    """Whether the nat chains of POSTROUTING would surely rewrite the source of this marked packet, if it left.

    One that is delivered to this host never comes there, but that it is marked says what kube-proxy wanted. `advance`
    goes from a node to what comes next.
    """
    packet = state.packet
    if not packet.mark or not state.walks_nat:
        return False
    stage = pipeline.nat_stage(Hook.POSTROUTING)
    leaving = state._replace(nat_done=state.nat_done & ~SRC).with_packet(out_interface=None, out_port="")
    pending = [Node(Cursor(Hook.POSTROUTING, stage), leaving)]
    for _ in range(_MAX_NODES):
        if not pending:
            return True
        for edge in advance(pending.pop()).edges:
            to = edge.to
            if isinstance(to, Node) and to.cursor.stage == stage:
                pending.append(to)
                continue
            if isinstance(to, Fork):
                return False
            if isinstance(to, End) and to.verdict is not ACCEPT:
                return False
            if not to.state.masqueraded:
                return False
    return False
