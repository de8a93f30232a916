"""What IPVS does to a whole function of packets: given the function for a packet that goes on, the one before IPVS.

Semantics are those of `concrete.ipvs`. A packet to a virtual server leaves its hook for another one, so its function
has a translated destination of its own beside that of packets that IPVS lets pass: outcomes of such packets are marked
(`Outcome.balanced`) until the hook's function is put together (`settled`).
"""

from __future__ import annotations

from functools import cached_property
from typing import Final

from kproxy.dataplane.model.host import LOOPBACK_NETWORKS
from kproxy.dataplane.model.ipvs import Ipvs, Service
from kproxy.dataplane.model.packet import SYN, TCP
from kproxy.dataplane.model.verdict import INDETERMINATE, REJECT
from kproxy.dataplane.symbolic.effects import Effects
from kproxy.dataplane.symbolic.free_variables import FreeVariable
from kproxy.dataplane.symbolic.leaves import Outcome, Outcomes
from kproxy.dataplane.symbolic.nodes import TRUE, ZERO, Node
from kproxy.dataplane.symbolic.translated import Destination
from kproxy.dataplane.symbolic.variables import BROADCAST, LOCAL, Variables
from kproxy.netfilter.family import Family

_REFUSAL: Final = {Family.IPV4: "icmp-port-unreachable", Family.IPV6: "icmp6-port-unreachable"}
_UNMODELLED: Final = "what comes after IPVS is not modelled"


def destinations_of(servers: Ipvs) -> set[Destination]:
    """The translated destinations of virtual servers."""
    return {
        Destination(each.address, each.port) for service in servers.services.values() for each in service.destinations
    }


class Balancing:
    """The virtual servers of one side."""

    def __init__(self, servers: Ipvs, variables: Variables, outcomes: Outcomes, effects: Effects) -> None:
        self._servers = servers
        self._variables = variables
        self._diagrams = variables.diagrams
        self._outcomes = outcomes
        self._effects = effects

    def requests(self, here: Node, onward: Node, *, fresh: bool, tracked: bool) -> Node:
        """The function before IPVS takes requests.

        Args:
            here: for a packet that goes on along its hook; of a new destination, too, that is this host.
            onward: for one that is sent on, by its new destination.
            fresh, tracked: of the connection, as `ConntrackCase` has them.
        """
        variables, diagrams = self._variables, self._diagrams
        loopback = variables.address_under(variables.src, LOOPBACK_NETWORKS[variables.family])
        onward = diagrams.ite(loopback, self._effects.drop, onward)
        local = diagrams.among(variables.dst_kind, ((LOCAL, BROADCAST),))  # RTCF_LOCAL, which routes of both kinds have
        whole = diagrams.ite(local, here, onward)
        whole = diagrams.restrict(whole, ((variables.dnat, 0),))
        if not tracked:
            return self._scheduled(here, whole)
        if fresh:
            # A destination that rules have translated before is not followed through IPVS.
            unknown = self._outcomes.sure(Outcome(INDETERMINATE, _UNMODELLED))
            translated = diagrams.ite(self._taken(begins=True), unknown, here)
            return diagrams.ite(diagrams.equals(variables.dnat, 1), translated, self._scheduled(here, whole))
        moved = {variables.dst + chunk: variables.translated_dst + chunk for chunk in range(variables.chunks)}
        moved |= {variables.dport + chunk: variables.translated_dport + chunk for chunk in (0, 1)}
        moved[variables.dst_kind] = variables.translated_kind
        return diagrams.ite(self.known, diagrams.permute(whole, moved), here)

    @cached_property
    def known(self) -> Node:
        """The packets of known connections that IPVS sends to a real server."""
        diagrams, variables = self._diagrams, self._variables
        forth = diagrams.both(diagrams.equals(variables.reply, 0), diagrams.equals(variables.dnat, 1))
        return diagrams.both(forth, self._taken(begins=False))

    def answered(self, node: Node) -> Node:
        """The function before an answer of a known connection gets the virtual server's address."""
        diagrams, variables = self._diagrams, self._variables
        moved = {variables.src + chunk: variables.translated_src + chunk for chunk in range(variables.chunks)}
        moved |= {variables.sport + chunk: variables.translated_sport + chunk for chunk in (0, 1)}
        moved[variables.src_kind] = variables.translated_src_kind
        later = diagrams.permute(diagrams.restrict(node, ((variables.dnat, 0),)), moved)
        back = diagrams.both(diagrams.equals(variables.reply, 1), diagrams.equals(variables.dnat, 1))
        levels = (variables.translated_src, variables.translated_sport)
        return diagrams.ite(diagrams.both(back, self._any_of(levels, begins=False)), later, node)

    def settled(self, node: Node) -> Node:
        """The function of packets by their translated destination: of those that IPVS let pass there is none."""
        diagrams, outcomes, level = self._diagrams, self._outcomes, self._variables.destination
        moved = outcomes.map_outcomes(node, "balanced alone", lambda each: each if each.balanced else None)
        whole = diagrams.ite(diagrams.equals(level, 0), node, moved)
        return outcomes.map_outcomes(whole, "settled", lambda each: each._replace(balanced=False))

    # one virtual server, and all of them

    def _taken(self, *, begins: bool) -> Node:
        return self._any_of((self._variables.dst, self._variables.dport), begins=begins)

    def _any_of(self, levels: tuple[int, int], *, begins: bool) -> Node:
        return self._diagrams.any_of([self._is(key, levels, begins) for key in self._servers.services])

    def _is(self, key: tuple[int, int, int], levels: tuple[int, int], begins: bool) -> Node:
        """The packets to, or in the other direction from, a virtual server; those that begin a connection."""
        variables, diagrams = self._variables, self._diagrams
        protocol, address, port = key
        node = diagrams.both(variables.address_is(levels[0], address), diagrams.equals(variables.protocol, protocol))
        node = diagrams.both(node, variables.between(levels[1], port, port)) if port else node
        syn = variables.under(variables.tcp_flags, SYN, SYN) if begins and protocol == TCP else TRUE
        return diagrams.both(node, syn)

    def _scheduled(self, here: Node, whole: Node) -> Node:
        """The function of packets that begin a connection: to each real server with its chance."""
        variables, diagrams = self._variables, self._diagrams
        parts, levels = [], (variables.dst, variables.dport)
        for key, service in self._servers.services.items():
            condition = self._is(key, levels, True)
            parts.append(diagrams.ite(condition, self._to_servers(service, whole), ZERO))
        return self._outcomes.add_all([*parts, diagrams.ite(self._taken(begins=True), ZERO, here)])

    def _to_servers(self, service: Service, whole: Node) -> Node:
        family = self._variables.family
        refused = self._outcomes.sure(Outcome(REJECT, _REFUSAL[family]))
        if not service.is_masqueraded:
            return self._outcomes.sure(Outcome(INDETERMINATE, _UNMODELLED))
        ways = [(each.chance, self._to(Destination(each.address, each.port), whole)) for each in service.destinations]
        if not ways:
            return refused
        if all(chance is not None for chance, _ in ways):
            return self._outcomes.add_all([self._outcomes.scale(node, chance) for chance, node in ways if chance])
        result = refused if service.may_refuse else ways.pop()[1]
        for number, (_, node) in enumerate(ways):
            name = f"IPVS takes real server {number + 1} of {service.server.name}"
            result = self._diagrams.ite(self._variables.free(FreeVariable("opaque", name)), node, result)
        return result

    def _to(self, destination: Destination, whole: Node) -> Node:
        translation = self._effects.translation
        sent = translation.send(destination, whole)
        marked = self._outcomes.map_outcomes(sent, "balanced", lambda each: each._replace(balanced=True))
        return translation.with_destination(marked, translation.number(destination))
