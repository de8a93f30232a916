"""What holds between variables once addresses are known: one address is of one kind, and has one way out.

Diagrams treat the kinds of the destination, the new destination and the source as variables of their own. Where two of
these are the same address, their kinds are the same. That depends on all translated destinations, so it is not in the
functions; it is put in here, for one destination at a time, before a difference is believed.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Final

from kproxy.dataplane.compare.witness import Values
from kproxy.dataplane.symbolic.ask import of_packet
from kproxy.dataplane.symbolic.build import Setup
from kproxy.dataplane.symbolic.cases import ConntrackCase
from kproxy.dataplane.symbolic.free_variables import Listed
from kproxy.dataplane.symbolic.nodes import TRUE, ZERO, Node
from kproxy.dataplane.symbolic.variables import Variables
from kproxy.netfilter.condition import In, Under


def correlated(setup: Setup, node: Node, state: ConntrackCase, values: Mapping[int, int] | None = None) -> Node:
    """A function below the translated destination, with these correlations put in: for the destination and port among
    the values, or without values those that hold for all destinations.

    A translated destination that is the packet's own counts as none, and what becomes of packets that go no further is
    put together.
    """
    variables, diagrams, translation = setup.variables, setup.variables.diagrams, setup.translation
    read = Values(variables, values or {})
    dst, port = (None, 0) if values is None else read.destination
    moved = state.known
    parts: dict[int, Node] = {}
    start = 0
    for end, child in zip(*diagrams.parts(node, variables.destination), strict=True):
        for position in range(start, end) if child != ZERO else ():
            destination = translation.destinations[position]
            address = destination.address
            if moved:
                address = -1 if dst is None else read.number(variables.translated_dst)
            result = child
            if address >= 0 and address == dst:
                result = diagrams.permute(result, {variables.translated_kind: variables.dst_kind})
                result = diagrams.permute(result, {variables.translated_out: variables.out_interface})
            elif address >= 0 and diagrams.reaches(result, variables.translated_kind):
                same = diagrams.permute(result, {variables.translated_kind: variables.src_kind})
                result = diagrams.ite(variables.address_is(variables.src, address), same, result)
            if moved and dst is not None:
                result = _rewritten_source(setup, result, dst, address)
            own = (
                dst is not None
                and destination.address in (dst, -1)
                and destination.port in (port, -1)
                and not destination.text
            )
            where = 0 if own else position
            parts[where] = setup.outcomes.add_all([parts[where], result]) if where in parts else result
        start = end
    result = _ends_together(setup, parts)
    if dst is None:
        return result
    same = diagrams.permute(result, {variables.src_kind: variables.dst_kind})
    return diagrams.ite(variables.address_is(variables.src, dst), same, result)


def _rewritten_source(setup: Setup, node: Node, dst: int, new_dst: int) -> Node:
    """The function of a packet of a known connection in which the new source is of the destination's kind, or of the
    new destination's, where it is that address."""
    variables, diagrams = setup.variables, setup.variables.diagrams
    if not diagrams.reaches(node, variables.translated_src_kind):
        return node
    is_new = variables.address_is(variables.translated_src, new_dst)
    is_new = diagrams.both(is_new, setup.pipeline.translated(destination=True))
    for held, kind in (
        (is_new, variables.translated_kind if new_dst != dst else variables.dst_kind),
        (variables.address_is(variables.translated_src, dst), variables.dst_kind),
    ):
        node = diagrams.ite(held, diagrams.permute(node, {variables.translated_src_kind: kind}), node)
    return node


def _ends_together(setup: Setup, parts: Mapping[int, Node]) -> Node:
    """The function with these parts by translated destination, in which packets that go no further have none, and no
    new source: what became of them is the same wherever they were going."""
    outcomes = setup.outcomes
    going: dict[int, Node] = {}
    ends = [ZERO]
    for position, part in parts.items():
        going[position], ended = outcomes.parted(part)
        ends.append(outcomes.map_outcomes(ended, "stops", lambda outcome: outcome._replace(source="")))
    going[0] = outcomes.add_all([going.get(0, ZERO), *ends])
    pieces = ((position, position + 1, part) for position, part in sorted(going.items()))
    return setup.variables.diagrams.pieces(setup.variables.destination, pieces, ZERO)


def tuples_fit(variables: Variables) -> Node:
    """Of a packet whose connection is known: what rules ask about the connection's tuples is what the packet's own
    addresses and ports say, and those that the connection translates them to."""
    diagrams = variables.diagrams
    result = TRUE
    for key, level in list(variables.free_variables.items()):
        if not isinstance(key.where, (In, Under)):
            continue
        asked, ports = key.where, key.where.field.endswith("port")
        seen = {place: of_packet(asked, variables, port if ports else place) for place, port in _PORTS.items()}
        forward, backward = _TUPLES[asked.field.removesuffix("port")]
        ways = []
        for position, translated in (forward, backward):
            now = seen[position]
            if translated:
                moved = diagrams.equals(getattr(variables, translated), 1)
                now = diagrams.ite(moved, seen[f"translated_{position}"], now)
            ways.append(now)
        held = diagrams.ite(diagrams.equals(variables.reply, 1), ways[1], ways[0])
        yes = diagrams.equals(level, 1)
        result = diagrams.both(result, diagrams.ite(held, yes, diagrams.negate(yes)))
    return result


def lists_fit(variables: Variables) -> Node:
    """What a list of `-m recent` can say of one address at one moment: who was seen so often in a short time was in a
    longer one, and who was seen more often was seen less often, too."""
    diagrams = variables.diagrams
    asked = [(key.where, level) for key, level in variables.free_variables.items() if isinstance(key.where, Listed)]
    result = TRUE
    for (one, level), (other, beside) in itertools.permutations(asked, 2):
        if one._replace(seconds=None, hits=1) != other._replace(seconds=None, hits=1) or one.hits < other.hits:
            continue
        if other.seconds is None or (one.seconds is not None and one.seconds <= other.seconds):
            implied = diagrams.ite(diagrams.equals(level, 1), diagrams.equals(beside, 1), TRUE)
            result = diagrams.both(result, implied)
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
