"""What holds between fields once addresses are known: one address is of one kind, and has one way out.

Diagrams treat the kinds of the destination, the new destination and the source as fields of their own. Where two of
these are the same address, their kinds are the same. That depends on all translated destinations, so it is not in the
functions; it is put in here, for one destination at a time, before a difference is believed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kproxy.dataplane.compare.witness import Values
from kproxy.dataplane.model.packet import PORT_PROTOCOLS
from kproxy.dataplane.symbolic.build import Setup
from kproxy.dataplane.symbolic.conditions import Question
from kproxy.dataplane.symbolic.hooks import ConntrackCase
from kproxy.dataplane.symbolic.leaves import ACCEPT, INDETERMINATE, Outcome
from kproxy.dataplane.symbolic.mtbdd import TRUE, ZERO, Node
from kproxy.dataplane.symbolic.variables import Fields
from kproxy.netfilter.address import Network


def correlated(setup: Setup, node: Node, state: ConntrackCase, values: Mapping[int, int] | None = None) -> Node:
    """A function below the translated destination, with these correlations put in: for the destination and port among
    the values, or without values those that hold for all destinations.

    A translated destination that is the packet's own counts as none, and what becomes of packets that go no further is
    put together.
    """
    fields, diagrams, translation = setup.fields, setup.fields.diagrams, setup.translation
    read = Values(fields, values or {})
    dst = None if values is None else read.address(fields.dst)
    port = read.port(fields.dport) if read.get(fields.protocol) in PORT_PROTOCOLS else 0
    moved = state.tracked and not state.fresh
    parts: dict[int, Node] = {}
    start = 0
    for end, child in zip(*diagrams.parts(node, fields.destination), strict=True):
        for place in range(start, end) if child != ZERO else ():
            destination = translation.destinations[place]
            address = destination.address
            if moved:
                address = -1 if dst is None else read.address(fields.translated_dst)
            result = child
            if address >= 0 and address == dst:
                result = diagrams.permute(result, {fields.translated_kind: fields.dst_kind})
                result = diagrams.permute(result, {fields.translated_out: fields.out_interface})
            elif address >= 0 and diagrams.reaches(result, fields.translated_kind):
                same = diagrams.permute(result, {fields.translated_kind: fields.src_kind})
                result = diagrams.ite(fields.address_is(fields.src, address), same, result)
            own = (
                dst is not None
                and destination.address in (dst, -1)
                and destination.port in (port, -1)
                and not destination.text
            )
            where = 0 if own else place
            parts[where] = setup.outcomes.add_all([parts[where], result]) if where in parts else result
        start = end
    result = _ends_together(setup, parts)
    if dst is None:
        return result
    same = diagrams.permute(result, {fields.src_kind: fields.dst_kind})
    return diagrams.ite(fields.address_is(fields.src, dst), same, result)


def _ends_together(setup: Setup, parts: Mapping[int, Node]) -> Node:
    """The function with these parts by translated destination, in which packets that go no further have none, and no
    new source: what became of them is the same wherever they were going."""
    outcomes = setup.outcomes
    going: dict[int, Node] = {}
    ends = [ZERO]
    for place, part in parts.items():
        going[place] = outcomes.map_outcomes(part, "goes", lambda outcome: outcome if _goes(outcome) else None)
        ends.append(
            outcomes.map_outcomes(
                part, "stops", lambda outcome: None if _goes(outcome) else outcome._replace(source="")
            )
        )
    going[0] = outcomes.add_all([going.get(0, ZERO), *ends])
    return _by_final(setup, going)


def _goes(outcome: Outcome) -> bool:
    return outcome.verdict in (ACCEPT, INDETERMINATE)


def _by_final(setup: Setup, parts: Mapping[int, Node]) -> Node:
    """The function with these parts by number of the translated destination."""
    fields, diagrams = setup.fields, setup.fields.diagrams
    bounds: list[int] = []
    children: list[Node] = []
    for place, child in sorted(parts.items()):
        if place > (bounds[-1] if bounds else 0):
            bounds.append(place)
            children.append(ZERO)
        bounds.append(place + 1)
        children.append(child)
    if not bounds or bounds[-1] < diagrams.sizes[fields.destination]:
        bounds.append(diagrams.sizes[fields.destination])
        children.append(ZERO)
    return diagrams.compose_node(fields.destination, bounds, children)


def tuples_fit(fields: Fields) -> Node:
    """Of a packet whose connection is known: what rules ask about the connection's tuples is what the packet's own
    addresses and ports say, and those that the connection translates them to."""
    diagrams = fields.diagrams
    result = TRUE
    for key, level in list(fields.questions.items()):
        if not isinstance(key, Question) or key.kind != "conntrack" or not isinstance(key.where, tuple):
            continue
        name, wanted = key.where
        seen = {
            place: fields.address_under(getattr(fields, place), wanted)
            if isinstance(wanted, Network)
            else fields.port_in(getattr(fields, _PORTS[place]), wanted)
            for place in _PORTS
        }
        forward, backward = _TUPLES[name.removesuffix("port")]
        ways = []
        for place, translated in (forward, backward):
            now = seen[place]
            if translated:
                moved = diagrams.equals(getattr(fields, translated), 1)
                now = diagrams.ite(moved, seen[f"translated_{place}"], now)
            ways.append(now)
        held = diagrams.ite(diagrams.equals(fields.reply, 1), ways[1], ways[0])
        yes = diagrams.equals(level, 1)
        result = diagrams.both(result, diagrams.ite(held, yes, diagrams.negate(yes)))
    return result


_PORTS: Final = {
    "src": "sport",
    "dst": "dport",
    "translated_src": "translated_sport",
    "translated_dst": "translated_dport",
}
_TUPLES: Final = {
    "ctorigsrc": (("src", ""), ("dst", "snat")),
    "ctorigdst": (("dst", ""), ("src", "dnat")),
    "ctreplsrc": (("dst", "dnat"), ("src", "")),
    "ctrepldst": (("src", "snat"), ("dst", "")),
}
"""For packets of the original and of the reply direction: which address of the packet it is, and what translates it."""
