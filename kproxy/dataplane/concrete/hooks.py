"""The hook pipeline: what comes after each table, and every routing decision.

    arriving   PREROUTING -> routing -> INPUT, or FORWARD -> POSTROUTING
    local      routing -> OUTPUT (routed again when mangle or nat change what routing looks at) -> POSTROUTING
               -> if the destination is this host: PREROUTING and INPUT on the loopback interface

A local packet keeps its conntrack entry on the loopback interface, so it is still NEW there, and the nat tables are not
walked a second time for it.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Final

from kproxy.dataplane.concrete import bridge, input, nat
from kproxy.dataplane.concrete.chains import DONE, HOOKS, ORDERS, Cursor, Edge, End, Fork, Node, Step, traverse
from kproxy.dataplane.concrete.index import Index
from kproxy.dataplane.concrete.masquerade import would_masquerade
from kproxy.dataplane.concrete.routing import Query, RouteResult, Unknown, lookup, source_for
from kproxy.dataplane.concrete.state import TRACKED, UNSEEN, State
from kproxy.dataplane.model.conntrack import ESTABLISHED, INVALID, NEW, RELATED, UNTRACKED
from kproxy.dataplane.model.host import Host
from kproxy.dataplane.model.packet import LOCAL, LOOPBACK
from kproxy.netfilter.family import Family

_SURE: Final = Fraction(1)
_LOOPBACK_V6: Final = 1


class HookPipeline:
    """The hooks that packets pass on one host with one rule set."""

    def __init__(self, index: Index, host: Host, limit: bool | None = None) -> None:
        self._host = host
        self._index = index
        self._limit = limit

    def start(self, state: State) -> Fork:
        """The beginning: where the packet comes from decides its first hook."""
        packet = state.packet
        if packet.origin == LOCAL:
            state = state.with_packet(in_interface="", in_port="", out_port="")
            return self._route_out(state, "OUTPUT")
        if (
            packet.family is Family.IPV6
            and packet.in_interface != LOOPBACK
            and _LOOPBACK_V6 in (packet.src, packet.dst)
        ):
            return _one(End("DROP", "PREROUTING", state, reason="a loopback address on another interface"))
        return bridge.arrive(self._host, state.with_packet(out_interface="", out_port=""))

    def advance(self, node: Node) -> Fork:
        """From a node to what comes next."""
        cursor, state = node
        if cursor.hook == "INPUT" and not cursor.order:
            return self._enter_input(cursor, state)
        if cursor.operation == "conntrack":
            return self._conntrack(cursor, state)
        if cursor.frames == DONE:
            return self._leave_table(cursor, state, ())
        if not cursor.frames:
            if not self._enters(cursor, state):
                return self._leave_table(cursor, state, ())
            packet = state.packet
            before = (packet.src, packet.dst, packet.mark, packet.mark_known, packet.tos)
            cursor = cursor._replace(frames=((cursor.hook, 0),), before=before)
        found = traverse(self._index, self._host, cursor, state, self._limit)
        if isinstance(found, Fork):
            return found
        return self._leave_table(cursor, found.state, found.steps)

    def _enter_input(self, cursor: Cursor, state: State) -> Fork:
        """Which of security and nat comes first depends on the variant of iptables, if there are rules in both."""
        orders = [self._index.variant] if self._index.variant else list(ORDERS)
        if not all(self._index.has_rules(table, "INPUT") for table in ("security", "nat")):
            orders = orders[:1]
        edges = [Edge(None, Node(cursor._replace(order=order), state)) for order in orders]
        return _alternatives(edges, "whether these are rules of iptables-nft or of iptables-legacy is not known")

    def _enters(self, cursor: Cursor, state: State) -> bool:
        if not self._index.has_chain(cursor.operation, cursor.hook):
            return False
        return cursor.operation != "nat" or (state.walks_nat and not state.nat_done & nat.MANIP[cursor.hook])

    def _conntrack(self, cursor: Cursor, state: State) -> Fork:
        hook = cursor.hook
        following = Cursor(hook, cursor.stage + 1)
        if state.tracking != UNSEEN:
            return Fork((), (Edge(_SURE, Node(following, state)),))
        entry = state.connection
        if entry.state is None:
            edges = []
            for name in (NEW, ESTABLISHED, RELATED, INVALID):
                chosen = state._replace(connection=entry.replace(state=name))
                edges.append(Edge(None, Node(cursor, chosen)))
            return Fork((), tuple(edges), "the connection's state is not known")
        step = Step("conntrack", hook, entry.state)
        if entry.state in (INVALID, UNTRACKED):
            return Fork((step,), (Edge(_SURE, Node(following, state._replace(tracking=entry.state))),))
        tracked = state._replace(tracking=TRACKED, connection=entry.known_as(state.packet))
        return Fork((step,), (Edge(_SURE, Node(following, tracked)),))

    def _leave_table(self, cursor: Cursor, state: State, steps: tuple[Step, ...]) -> Fork:
        hook, operation = cursor.hook, cursor.operation
        routed_again = False
        if operation == "nat" and state.has_connection:
            before = state.packet
            state = nat.translate(state._replace(nat_done=state.nat_done | nat.MANIP[hook]), hook)
            after = state.packet
            if (before.src, before.sport, before.dst, before.dport) != (after.src, after.sport, after.dst, after.dport):
                steps = (*steps, Step("translate", hook, f"{before.source} -> {before.destination} becomes "
                                      f"{after.source} -> {after.destination}"))  # fmt: skip
            routed_again = hook == "OUTPUT" and before.dst != after.dst
        elif operation == "mangle" and hook == "OUTPUT" and cursor.before:
            packet = state.packet
            routed_again = cursor.before != (packet.src, packet.dst, packet.mark, packet.mark_known, packet.tos)
        if cursor.stage + 1 < len(HOOKS[hook]):
            following = Cursor(hook, cursor.stage + 1, order=cursor.order)
            if routed_again:
                return _after(steps, self._route_again(state, following))
            return Fork(steps, (Edge(_SURE, Node(following, state)),))
        return _after(steps, self._leave_hook(hook, state))

    def _leave_hook(self, hook: str, state: State) -> Fork:
        if hook == "PREROUTING":
            if state.looped:
                return _to("INPUT", state)
            return input.route(self._host, state)
        if hook == "INPUT":
            marked = not state.looped and would_masquerade(self._index, self._host, state)
            return _one(End("ACCEPT", "INPUT", state, via="local", marked=marked))
        if hook in ("FORWARD", "OUTPUT"):
            if state.rerouted is not None:
                state = state.with_packet(out_interface=state.rerouted[0])._replace(rerouted=None)
            return _to("POSTROUTING", state)
        if state.packet.out_interface == LOOPBACK and not state.looped:
            back = state.with_packet(in_interface=LOOPBACK, out_interface="", in_port="", out_port="")
            return _to("PREROUTING", back._replace(looped=True))
        return _one(End("ACCEPT", "POSTROUTING", state, via="out"))

    def _route_out(self, state: State, hook: str) -> Fork:
        """The routing of a packet that this host makes, before OUTPUT: it may choose the source."""
        packet = state.packet
        routes = self._route(state)
        edges = []
        for route in routes:
            chosen = state
            if route is None:
                edges.append(Edge(None, End("DROP", hook, state, reason="no route to the destination")))
                continue
            if packet.src is None and packet.dst is not None:
                chosen = state.with_packet(src=source_for(self._host, packet.family, route, packet.dst))
            edges.append(self._outward(chosen, route, Cursor("OUTPUT", 0)))
        return _alternatives(edges, "whether the destination is this host is not known")

    def _route_again(self, state: State, following: Cursor) -> Fork:
        """ip_route_me_harder: the source stays, the output interface may change.

        The rest of OUTPUT still sees the old interface, which the kernel noted when it entered the hook
        (nf_hook_state.out); POSTROUTING sees the new one.
        """
        edges = []
        for route in self._route(state):
            if route is None:
                edges.append(Edge(None, End("DROP", "OUTPUT", state, reason="no route to the new destination")))
            else:
                edges.append(self._outward(state, route, following))
        return _alternatives(edges, "where the packet is routed is not known")

    def _route(self, state: State) -> list[RouteResult | None]:
        packet = state.packet
        found: RouteResult | Unknown | None
        if packet.dst is None:
            return [RouteResult("local", LOOPBACK), RouteResult("unicast")]
        found = lookup(
            self._host, Query(packet.family, packet.dst, packet.src, packet.mark, packet.mark_known, in_interface="")
        )
        if isinstance(found, Unknown):
            return [RouteResult("local", LOOPBACK), RouteResult("unicast")]
        return [found]

    def _outward(self, state: State, route: RouteResult, following: Cursor) -> Edge:
        packet = state.packet
        if route.kind in ("blackhole", "unreachable", "prohibit"):
            return Edge(None, End("DROP", "OUTPUT", state, reason=f"a route of kind {route.kind}"))
        if route.kind == "multicast":
            return Edge(None, End("INDETERMINATE", "OUTPUT", state, reason="multicast is not modelled"))
        step = Step("route", "OUTPUT", f"leaves by {route.device or 'an interface that is not known'}")
        again = following != Cursor("OUTPUT", 0)
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
                verdict = "DROP" if allowed == 0 else "INDETERMINATE"
                reason = "a loopback source on another interface" + ("" if allowed == 0 else " (route_localnet?)")
                return Edge(None, End(verdict, "OUTPUT", routed, reason=reason), (step,))
        return Edge(None, Node(following, routed), (step,))


def _one(end: End) -> Fork:
    return Fork((), (Edge(_SURE, end),))


def _to(hook: str, state: State) -> Fork:
    return Fork((), (Edge(_SURE, Node(Cursor(hook, 0), state)),))


def _after(steps: tuple[Step, ...], fork: Fork) -> Fork:
    return Fork((*steps, *fork.steps), fork.edges, fork.why)


def _alternatives(edges: list[Edge], why: str) -> Fork:
    if len(edges) == 1:
        return Fork((), (edges[0]._replace(chance=_SURE),))
    return Fork((), tuple(edges), why)
