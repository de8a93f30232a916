"""Address translation of a whole function of packets.

Theory: docs/symbolic.md, "Translated variables".

It fixes the destination in what comes after its hook (or, for addresses that rules do not name, renames it to a
variable of its own: `translated_dst` and the like) and keeps the result for its translated destination. Semantics are
those of `concrete.nat`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Final

from kproxy.dataplane.symbolic.free_variables import FreeVariable, Stage, asked_before
from kproxy.dataplane.symbolic.leaves import Outcomes
from kproxy.dataplane.symbolic.nodes import FALSE, TRUE, ZERO, Node
from kproxy.dataplane.symbolic.quantify import unaffected
from kproxy.dataplane.symbolic.restrictions import Fixed
from kproxy.dataplane.symbolic.translated import (
    KEEP,
    UNCHANGED,
    UNKNOWN,
    Destination,
    address_choices,
    port_choices,
    simple_destination,
)
from kproxy.dataplane.symbolic.variables import LOCAL, Variables
from kproxy.netfilter.effect import Nat
from kproxy.netfilter.iptables.codec import Range

KEPT: Final = FreeVariable("kept", "the source that is chosen is the one that the packet has")
KEPT_DESTINATION: Final = FreeVariable("kept", "REDIRECT takes the packet's own destination")
"""What MASQUERADE and the like choose is the host's business."""


@dataclass(frozen=True, eq=False)
class Continuation:
    """Where packets go from a table.

    Attributes:
        stage: the table and hook.
        accept: the function for a packet that the table accepts.
        onward: in the nat table, the function for a translated packet after the hook, for whatever destination.
        rerouted: as `onward`, for a packet whose destination address changed.
        kept: in a nat table, the function for a packet that a rule sends where it goes anyway: other chains of type nat
            are not asked then.
    """

    stage: Stage
    accept: Node
    onward: Node = ZERO
    rerouted: Node = ZERO
    kept: Node = ZERO


class Translation:
    """Translates addresses. `destinations` lists the translated destinations of both sides, `UNCHANGED` first."""

    def __init__(self, variables: Variables, outcomes: Outcomes, destinations: tuple[Destination, ...]) -> None:
        self._variables = variables
        self._diagrams = variables.diagrams
        self._outcomes = outcomes
        self.destinations = destinations
        self._numbers = {destination: number for number, destination in enumerate(destinations)}
        self._ports_of: dict[int, list[int]] = {}
        self._addresses_of: dict[int, list[int]] = {}
        for destination in destinations:
            if destination.address >= 0 and destination.port >= 0:
                self._ports_of.setdefault(destination.address, []).append(destination.port)
                self._addresses_of.setdefault(destination.port, []).append(destination.address)
        self._sent_from: dict[Destination, tuple[Node, Node]] = {}
        self._of_new_destination = {variables.translated_kind, variables.translated_out}
        names = ("translated_src", "translated_sport", "translated_src_kind")
        self._of_new_source = {level for name in names for level in variables.levels[name]}

    def with_destination(self, node: Node, number: int) -> Node:
        """The function of packets that end at this translated destination: those that go no further have none."""
        if number == 0:
            return self.at_destination(node, 0)
        goes, ends = self._outcomes.parted(node)
        if ends == ZERO:
            return self.at_destination(goes, number)
        # Where it depends on what kind of address the new destination is, the end belongs to this destination only.
        loose, bound = self._split(ends, self._of_new_destination)
        return self._outcomes.add_all(
            [self.at_destination(self._outcomes.add_all([goes, bound]), number), self.at_destination(loose, 0)]
        )

    def _split(self, node: Node, levels: set[int]) -> tuple[Node, Node]:
        """A function where some levels do not change it, and the rest."""
        diagrams = self._diagrams
        if not diagrams.support(node) & levels:
            return node, ZERO
        same = unaffected(diagrams, node, levels)
        loose = diagrams.ite(same, node, ZERO)
        return diagrams.restrict(loose, tuple((level, 0) for level in sorted(levels))), diagrams.ite(same, ZERO, node)

    def at_destination(self, node: Node, number: int) -> Node:
        """The function for one translated destination, `ZERO` for the others."""
        diagrams, level = self._diagrams, self._variables.destination
        if diagrams.level[node] > level:
            return diagrams.equals(level, number, node, ZERO)
        return diagrams.ite(diagrams.equals(level, number), node, ZERO)

    def source(self, nat: Nat, continuation: Continuation) -> Node:
        """SNAT, MASQUERADE, or NETMAP where sources are translated."""
        if nat.ports is None or nat.at_random or (nat.kind == "snat" and nat.addresses is None):
            return self._source(nat, continuation)
        # A port in the range stays, as it does without a range.
        stays = self._variables.port_in(self._variables.sport, Range(*nat.ports))
        kept = self._source(replace(nat, ports=None), continuation)
        return self._diagrams.ite(stays, kept, self._source(nat, continuation))

    def _source(self, nat: Nat, continuation: Continuation) -> Node:
        variables, diagrams = self._variables, self._diagrams
        later = continuation.onward
        moved = {variables.sport: variables.translated_sport, variables.sport + 1: variables.translated_sport + 1}
        wanted = _one_address(nat)
        if wanted is None:
            moved |= {variables.src + chunk: variables.translated_src + chunk for chunk in range(variables.chunks)}
            if nat.kind == "masquerade":  # takes one of the host's own
                later = diagrams.restrict(later, ((variables.src_kind, LOCAL),))
            else:
                moved[variables.src_kind] = variables.translated_src_kind
        else:
            later = diagrams.restrict(later, variables.values_of(variables.src, wanted))
            later = self._kind_of(later, variables.src_kind, variables.translated_src_kind, wanted)
            if nat.ports is None and not nat.at_random:
                moved = {}
        later = self._diagrams.permute(diagrams.restrict(later, ((variables.snat, 1),)), moved)
        unmoved = self.same_source(later)
        if unmoved != later:
            # With another port of the address that it has anyway: what is asked of that address was asked before.
            later = diagrams.ite(self._keeps_address(nat), unmoved, later)
        same = diagrams.restrict(continuation.onward, ((variables.snat, 0),))
        if same != diagrams.restrict(continuation.onward, ((variables.snat, 1),)):
            # Given the source that it has anyway, a packet does not count as translated, and some rule asks that.
            later = diagrams.ite(self._keeps_source(nat), self.same_source(same), later)
        text = nat.text()
        loose, bound = self._split(later, self._of_new_source)
        rewritten = self._outcomes.rewrite_source(loose, text)
        if bound == ZERO:
            return rewritten
        return self._outcomes.add_all([rewritten, self._outcomes.rewrite_source(bound, text, always=True)])

    def same_source(self, node: Node) -> Node:
        """The function for a packet whose source address was not rewritten: what is asked of it later is what is asked
        now."""
        moved = {}
        for key, level in list(self._variables.free_variables.items()):
            earlier = asked_before(key)
            if earlier is not None:
                self._variables.free(earlier)
                moved[level] = self._variables.free_variables[earlier]
        node = self._outcomes.map_outcomes(
            node,
            "same source",
            lambda outcome: (
                outcome._replace(
                    effects=frozenset(text.replace("the source as rewritten", "the source") for text in outcome.effects)
                )
                if outcome.effects
                else outcome
            ),
        )
        return self._diagrams.permute(node, moved)

    def _keeps_address(self, nat: Nat) -> Node:
        """Whether the new source address is the one that the packet has."""
        variables, wanted = self._variables, _one_address(nat)
        if nat.kind == "snat" and nat.addresses is None:
            return TRUE
        return variables.free(KEPT) if wanted is None else variables.between(variables.src, wanted, wanted)

    def _keeps_source(self, nat: Nat) -> Node:
        """Whether the new source is the one that the packet has."""
        variables, diagrams = self._variables, self._diagrams
        here = self._keeps_address(nat)
        if nat.ports is not None:
            return diagrams.both(here, variables.port_in(variables.sport, Range(*nat.ports)))
        return diagrams.both(here, diagrams.negate(variables.has_ports())) if nat.at_random else here

    def _kind_of(self, node: Node, kind: int, translated: int, address: int) -> Node:
        certain = self._variables.certain_kind(address)
        if certain is not None:
            return self._diagrams.restrict(node, ((kind, certain),))
        return self._diagrams.permute(node, {kind: translated})

    def destination(self, nat: Nat, fixed: Fixed, continuation: Continuation) -> Node:
        """DNAT, REDIRECT or NETMAP: one part per way to translate, with its chance."""
        variables = self._variables
        simple = simple_destination(nat)
        if simple is not None:
            return self._sent_to(simple, fixed, continuation)
        if nat.kind == "netmap":
            inside = variables.address_under(variables.dst, nat.network)  # is mapped to itself
            return self._sent_to(Destination(UNKNOWN, KEEP, nat.text()), fixed, continuation, there=inside)
        addresses = address_choices(nat, variables.family, continuation.stage.hook)
        parts = [self._ports(nat, address, text, fixed, continuation) for address, text in addresses]
        return self._one_of(parts)

    def _one_of(self, nodes: list[Node]) -> Node:
        """Several functions that have the same chance."""
        return self._outcomes.add_all([self._outcomes.scale(node, Fraction(1, len(nodes))) for node in nodes])

    def _ports(self, nat: Nat, address: int, text: str, fixed: Fixed, continuation: Continuation) -> Node:
        ports = nat.ports
        destinations = (
            Destination(address, port, " ".join(filter(None, (text, about)))) for port, about in port_choices(nat)
        )
        result = self._one_of([self._sent_to(destination, fixed, continuation) for destination in destinations])
        if ports is not None and ports[0] != ports[1] and nat.base is None and not nat.at_random:
            stays = self._diagrams.restrict(self._variables.port_in(self._variables.dport, Range(*ports)), fixed)
            kept = self._sent_to(Destination(address, KEEP, text), fixed, continuation) if stays != FALSE else result
            result = self._diagrams.ite(stays, kept, result)
        return result

    def _sent_to(
        self, destination: Destination, fixed: Fixed, continuation: Continuation, there: Node | None = None
    ) -> Node:
        """The function for a packet that is sent to a translated destination; `there` says which packets have its
        address already, if that does not follow from the address."""
        variables, diagrams = self._variables, self._diagrams
        if destination == UNCHANGED:
            return diagrams.restrict(self.with_destination(continuation.onward, 0), fixed)
        sent = self._with_exact_destination(self.treated(destination, continuation), destination)
        if there is None:
            there = self._has_address(destination)
        there = diagrams.restrict(there, fixed)
        # Sent to where it goes anyway, a packet does not count as translated; to another port there, it is not routed
        # again.
        if there == FALSE or destination.port == UNKNOWN:
            return diagrams.restrict(sent, fixed)
        if destination.port == KEEP:
            stays = continuation.kept
        else:
            same = Destination(KEEP, destination.port)
            other_port = self.send(same, continuation.onward)
            stays = self._with_exact_destination(other_port, same if destination.address == UNKNOWN else destination)
            here = variables.port_in(variables.dport, Range(destination.port, destination.port))
            stays = diagrams.ite(here, continuation.kept, stays)
        return diagrams.restrict(diagrams.ite(there, stays, sent), fixed)

    def _has_address(self, destination: Destination) -> Node:
        """Which packets have a translated destination's address already."""
        variables = self._variables
        if destination.address == KEEP:
            return TRUE
        if destination.address != UNKNOWN:
            return variables.address_is(variables.dst, destination.address)
        if destination.text.startswith("REDIRECT"):
            return self._diagrams.equals(variables.dst_kind, LOCAL, variables.free(KEPT_DESTINATION))
        return FALSE  # of a large range: the kernel's hash decides, which nobody knows

    def treated(self, destination: Destination, continuation: Continuation) -> Node:
        """The function for a packet that is sent on to a destination, in terms of the packet before."""
        start = continuation.rerouted if destination.address != KEEP else continuation.onward
        if start != self._sent_from.get(destination, (-1, ZERO))[0]:
            self._sent_from[destination] = start, self.send(destination, start)
        return self._sent_from[destination][1]

    def number(self, destination: Destination) -> int:
        """Its place among the translated destinations."""
        return self._numbers[destination]

    def send(self, destination: Destination, after: Node) -> Node:
        """The function for a packet that is sent to a destination, in terms of the packet before."""
        variables, diagrams = self._variables, self._diagrams
        moved: dict[int, int] = {}
        fixed: Fixed = ()
        if destination.address >= 0:
            fixed += variables.values_of(variables.dst, destination.address)
            certain = variables.certain_kind(destination.address)
            if certain is None:
                moved[variables.dst_kind] = variables.translated_kind
            else:
                fixed += ((variables.dst_kind, certain),)
        elif destination.address == UNKNOWN:
            moved |= {variables.dst + chunk: variables.translated_dst + chunk for chunk in range(variables.chunks)}
            if destination.text.startswith("REDIRECT"):
                fixed += ((variables.dst_kind, LOCAL),)
            else:
                moved[variables.dst_kind] = variables.translated_kind
        if destination.port >= 0:
            fixed += variables.values_of(variables.dport, destination.port)
        elif destination.port == UNKNOWN:
            moved |= {variables.dport: variables.translated_dport, variables.dport + 1: variables.translated_dport + 1}
        return self._diagrams.permute(diagrams.restrict(after, tuple(sorted(fixed))), moved)

    def _with_exact_destination(self, after: Node, destination: Destination) -> Node:
        """The function of translated packets for the most exact destination: where the port is known, an address whose
        port stays is both."""
        variables, diagrams = self._variables, self._diagrams
        after = diagrams.restrict(after, ((variables.dnat, 1),))
        result = self.with_destination(after, self._numbers[destination])
        if destination.address >= 0 and destination.port == KEEP:
            for port in self._ports_of.get(destination.address, ()):
                exact = self.with_destination(after, self._numbers[Destination(destination.address, port)])
                result = diagrams.ite(variables.port_in(variables.dport, Range(port, port)), exact, result)
        elif destination.address == KEEP and destination.port >= 0:
            for address in self._addresses_of.get(destination.port, ()):
                exact = self.with_destination(after, self._numbers[Destination(address, destination.port)])
                result = diagrams.ite(variables.address_is(variables.dst, address), exact, result)
        return result


def _one_address(nat: Nat) -> int | None:
    """The source that a translation gives to all packets, None if there is none."""
    if nat.kind != "snat" or nat.addresses is None or nat.addresses[0] != nat.addresses[1]:
        return None
    return nat.addresses[0]
