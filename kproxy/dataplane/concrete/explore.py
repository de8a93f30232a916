"""All paths of a packet, with their chances.

Paths that come to the same cursor in the same state are followed once: the nodes and forks make a graph without cycles,
however many paths lead through it. Chance is pushed through that graph from its root, node by node. A fork whose
chances are unknown is different: each of its branches has a distribution of its own, and what is certain of an outcome
is the least that any branch gives it. What is certain of no outcome is INDETERMINATE. So an unknown that decides
nothing changes nothing, and one that decides only among some outcomes leaves the others alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import reduce
from typing import Final, NamedTuple

from kproxy.dataplane.concrete.graph import End, Fork, Node, Step
from kproxy.dataplane.concrete.hooks import PacketPath
from kproxy.dataplane.concrete.state import State
from kproxy.dataplane.model.conntrack import ORIGINAL, Connection
from kproxy.dataplane.model.errors import DataplaneError
from kproxy.dataplane.model.packet import Packet
from kproxy.dataplane.model.verdict import DROP, INDETERMINATE, REJECT
from kproxy.netfilter.iptables.codec import UINT32

MAX_NODES: Final = 50_000
"""Paths beyond this many nodes are not followed; what they lead to counts as INDETERMINATE."""
MAX_PATHS: Final = 100_000

CAUSE_OPEN: Final = "the cause is open"
"""The reason of a packet that is certain to be lost, but not where."""

Steps = tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Arrival:
    """One outcome: how the packet ended, its chance, and the steps of the likeliest path there. `possible` are the ends
    that an INDETERMINATE one may turn out to be, `reasons` what that depends on."""

    end: End
    chance: Fraction
    steps: Steps
    reasons: tuple[str, ...] = ()
    possible: tuple[End, ...] = ()


EndKey = tuple[object, ...]
Distribution = dict[EndKey, Arrival]
_SURE: Final = Fraction(1)
_TOO_MANY: Final = "too many ways to follow: tell more of the packet, the host or the connection"
_MAX_REASONS: Final = 64


def end_key(end: End) -> EndKey:
    """What makes two ends different outcomes.

    Not the path there, nor the marks, nor the state of the connection, which cannot be seen from outside; that there is
    none shows in the reply.
    """
    packet, entry = end.state.packet, end.state.connection
    tuples = (entry.original, entry.reply) if entry.translated else ()
    return (
        end.verdict, end.hook, end.via, end.reject, end.reason, packet.src, packet.sport, packet.dst, packet.dport,
        packet.out_interface, end.marked, end.state.masqueraded, end.state.has_connection, entry.dnat, entry.snat,
        entry.ipvs, tuples,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Arc:
    """An edge of the graph: `to` is the number of a node, or an end."""

    chance: Fraction | None
    to: int | End
    steps: Steps


@dataclass(frozen=True, slots=True)
class _Vertex:
    """A node of the graph: what comes after it."""

    steps: Steps
    arcs: tuple[_Arc, ...]
    why: str

    @property
    def unknown(self) -> bool:
        """Whether it is a fork whose chances are unknown."""
        return len(self.arcs) > 1 and any(arc.chance is None for arc in self.arcs)


class _Trail(NamedTuple):
    """The steps to a node, linked to those before them."""

    before: _Trail | None
    steps: Steps


def _steps_of(trail: _Trail | None) -> Steps:
    parts: list[Steps] = []
    while trail is not None:
        parts.append(trail.steps)
        trail = trail.before
    return tuple(step for part in reversed(parts) for step in part)


class Exploration:
    """The graph of one packet's paths. Nodes are numbered as they are found, so that each is hashed only once."""

    def __init__(self, pipeline: PacketPath, start: State) -> None:
        self._pipeline = pipeline
        self._numbers: dict[Node, int] = {}
        self._nodes: list[Node | Fork] = []
        self._vertices: dict[int, _Vertex] = {}
        self._solved: dict[int, Distribution] = {}
        self._root = self._vertex(pipeline.start(start))
        for number in _below(self._root, self._expand):
            if self._vertices[number].unknown:
                self._solved[number] = self._combine(self._vertices[number])

    def _vertex(self, fork: Fork) -> _Vertex:
        arcs = (_Arc(edge.chance, self._end_or_number(edge.to), edge.steps) for edge in fork.edges)
        return _Vertex(fork.steps, tuple(arcs), fork.why)

    def _end_or_number(self, to: Node | Fork | End) -> int | End:
        if isinstance(to, End):
            return to
        if isinstance(to, Node):
            known = self._numbers.get(to)
            if known is not None:
                return known
            if len(self._nodes) >= MAX_NODES:
                return End(INDETERMINATE, "", to.state, reason=_TOO_MANY)
            self._numbers[to] = len(self._nodes)
        self._nodes.append(to)
        return len(self._nodes) - 1

    def _expand(self, number: int) -> tuple[_Arc, ...]:
        """Follow a node of the graph."""
        found = self._nodes[number]
        vertex = self._vertices[number] = self._vertex(
            found if isinstance(found, Fork) else self._pipeline.advance(found)
        )
        return vertex.arcs

    def distribution(self) -> list[Arrival]:
        """The outcomes, the likeliest first."""
        if self._root.unknown:
            found = _with_prefix(self._combine(self._root), self._root.steps)
        else:
            found = self._flow(self._root)
        return sorted(found.values(), key=lambda item: (-float(item.chance), _sort_key(item.end)))

    def paths(self) -> list[Arrival]:
        """Every path by itself, in the order of the rules. Below an unknown, one path per outcome."""
        if self._root.unknown:
            return self.distribution()
        found: list[Arrival] = []
        pending: list[tuple[_Vertex, Fraction, Steps]] = [(self._root, _SURE, ())]
        while pending:
            vertex, chance, before = pending.pop()
            following: list[tuple[_Vertex, Fraction, Steps]] = []
            for arc in vertex.arcs:
                steps = before + vertex.steps + arc.steps
                share = chance * (_SURE if arc.chance is None else arc.chance)
                if isinstance(arc.to, End):
                    found.append(Arrival(arc.to, share, steps, _reasons(arc.to)))
                elif arc.to in self._solved:
                    found += [
                        replace(item, chance=item.chance * share, steps=steps + item.steps)
                        for item in self._solved[arc.to].values()
                    ]
                else:
                    following.append((self._vertices[arc.to], share, steps))
            pending += reversed(following)
            if len(found) + len(pending) > MAX_PATHS:
                raise DataplaneError(f"more than {MAX_PATHS} paths: ask for merged outcomes")
        return found

    def _combine(self, vertex: _Vertex) -> Distribution:
        """What is certain whichever branch of an unknown fork is taken."""
        branches = [self._flow(_Vertex((), (replace(arc, chance=_SURE),), "")) for arc in vertex.arcs]
        certain = _common(branches)
        rest = [_without(branch, certain) for branch in branches]
        for source in (False, True):
            rest = [_opened(branch, source=source) for branch in rest]
            found = _common(rest)
            rest = [_without(branch, found) for branch in rest]
            for item in found.values():
                _add(certain, replace(item, reasons=(vertex.why, *item.reasons)) if source and vertex.why else item)
        missing = _SURE - sum((item.chance for item in certain.values()), Fraction(0))
        if missing:
            arrival = _open_end(vertex.why, branches, missing)
            _add(certain, arrival)
        return _with_prefix(certain, vertex.steps)

    def _flow(self, root: _Vertex) -> Distribution:
        """Push chance from a vertex through all decided forks below it."""
        mass: dict[int, Fraction] = {}
        best: dict[int, tuple[Fraction, _Trail | None]] = {}
        found: Distribution = {}

        def spread(vertex: _Vertex, share: Fraction, trail: _Trail | None) -> None:
            for arc in vertex.arcs:
                part = share if arc.chance is None or arc.chance == 1 else share * arc.chance
                steps = vertex.steps + arc.steps
                onward = _Trail(trail, steps) if steps else trail
                if isinstance(arc.to, End):
                    _add(found, Arrival(arc.to, part, _steps_of(onward), _reasons(arc.to)))
                    continue
                other = mass.get(arc.to)
                mass[arc.to] = part if other is None else other + part
                if other is None or best[arc.to][0] < part:
                    best[arc.to] = (part, onward)

        spread(root, _SURE, None)
        down_to_unknown = _below(root, lambda number: () if number in self._solved else self._vertices[number].arcs)
        for number in reversed(down_to_unknown):
            share, trail = mass[number], best[number][1]
            if number in self._solved:
                for item in self._solved[number].values():
                    _add(found, replace(item, chance=item.chance * share, steps=_steps_of(trail) + item.steps))
            else:
                spread(self._vertices[number], share, trail)
        return found


def _below(root: _Vertex, arcs_of: Callable[[int], tuple[_Arc, ...]]) -> list[int]:
    """The nodes that a vertex leads to, every node after those it leads to itself."""
    seen: set[int] = set()
    order: list[int] = []
    stack: list[tuple[int, Iterator[_Arc]]] = [(-1, iter(root.arcs))]
    while stack:
        number, arcs = stack[-1]
        arc = next(arcs, None)
        if arc is None:
            stack.pop()
            if number >= 0:
                order.append(number)
        elif isinstance(arc.to, int) and arc.to not in seen:
            seen.add(arc.to)
            stack.append((arc.to, iter(arcs_of(arc.to))))
    return order


def _common(branches: list[Distribution]) -> Distribution:
    """What is certain whichever branch is taken: of each outcome the least that any branch gives it."""
    certain: Distribution = {}
    for key, item in branches[0].items():
        rivals = [branch.get(key) for branch in branches[1:]]
        if item.end.verdict != INDETERMINATE and None not in rivals:
            least = min(other.chance for other in (item, *rivals) if other is not None)
            merged = item
            ways = [item.steps, *(other.steps for other in rivals if other is not None)]
            for other in rivals:
                merged = merged if other is None else _join(merged, other)
            causes = {steps[-1:] for steps in ways}
            if item.end.verdict in (DROP, REJECT) and not item.end.reason and (len(causes) > 1 or () in causes):
                merged = replace(merged, end=replace(merged.end, reason=CAUSE_OPEN), steps=reduce(_shared, ways))
            certain[key] = replace(merged, chance=least)
    return certain


def _without(branch: Distribution, certain: Distribution) -> Distribution:
    """What a branch gives beyond what is certain."""
    left = {
        key: replace(item, chance=item.chance - certain[key].chance) if key in certain else item
        for key, item in branch.items()
    }
    return {key: item for key, item in left.items() if item.chance}


def _opened(branch: Distribution, *, source: bool) -> Distribution:
    """Outcomes that differ in the output interface alone as one, with that open, and all of them as possible; with
    `source`, those that differ in the source alone, too."""
    found: Distribution = {}
    for item in branch.values():
        if item.end.verdict == INDETERMINATE:
            continue
        state = item.end.state.with_packet(out_interface=None)
        if source:
            state = _with_any_source(state)
        possible = item.possible or (item.end,)
        _add(found, replace(item, end=replace(item.end, state=state), possible=possible))
    return found


def _with_any_source(state: State) -> State:
    """A state whose packet leaves with a source that is open; its connection translates it back, changed or not."""
    entry = state.connection
    if state.has_connection and entry.direction == ORIGINAL:
        entry = entry.known_as(state.packet)
        assert entry.reply is not None
        entry = entry.replace(snat=True, reply=entry.reply._replace(dst=None, dport=None))
    return state.with_packet(src=None, sport=None)._replace(connection=entry, masqueraded=False)


def _open_end(why: str, branches: list[Distribution], missing: Fraction) -> Arrival:
    items = [item for branch in branches for item in branch.values()]
    possible = [end for item in items for end in (item.possible or (item.end,))]
    reasons = [why] if why else []
    reasons += [reason for item in items for reason in item.reasons]
    return _indeterminate(possible, reasons, missing, ())


def _shared(one: Steps, other: Steps) -> Steps:
    """The steps of two paths until they part."""
    parted = (number for number, (first, second) in enumerate(zip(one, other, strict=False)) if first != second)
    return one[: next(parted, min(len(one), len(other)))]


def _reasons(end: End) -> tuple[str, ...]:
    return (end.reason,) if end.verdict == INDETERMINATE and end.reason else ()


def _with_prefix(found: Distribution, steps: Steps) -> Distribution:
    return {key: replace(item, steps=steps + item.steps) for key, item in found.items()} if steps else found


def _add(found: Distribution, arrival: Arrival) -> None:
    """Add an outcome; all INDETERMINATE ones are one outcome, so that there is one number for what is not known."""
    if arrival.end.verdict == INDETERMINATE:
        key: EndKey = ("INDETERMINATE",)
        other = found.get(key)
        if other is None:
            found[key] = arrival
            return
        possible = [*(other.possible or (other.end,)), *(arrival.possible or (arrival.end,))]
        joined = _indeterminate(possible, [*other.reasons, *arrival.reasons], other.chance + arrival.chance, ())
        found[key] = replace(joined, steps=_shared(other.steps, arrival.steps))
        return
    key = end_key(arrival.end)
    other = found.get(key)
    found[key] = arrival if other is None else _join(other, arrival, other.chance + arrival.chance)


def _join(one: Arrival, other: Arrival, chance: Fraction | None = None) -> Arrival:
    """Two paths to the same outcome as one, with the likelier one's steps; marks keep the bits they agree on."""
    chosen = other if other.chance > one.chance else one
    packet, rival = one.end.state.packet, other.end.state.packet
    end = chosen.end
    changes: dict[str, object] = {}
    if (packet.mark, packet.mark_known) != (rival.mark, rival.mark_known):
        changes = _marks_of_both(packet, rival)
    if packet.in_interface != rival.in_interface:
        changes["in_interface"] = None
    if changes:
        end = replace(end, state=end.state.with_packet(**changes))
    entry, its_rival = one.end.state.connection, other.end.state.connection
    opened: dict[str, object] = {} if entry.state == its_rival.state else {"state": None}
    if (entry.mark, entry.mark_known) != (its_rival.mark, its_rival.mark_known):
        opened |= _marks_of_both(entry, its_rival)
    if opened:
        end = replace(end, state=end.state._replace(connection=end.state.connection.replace(**opened)))
    several = (item.possible or (item.end,) for item in (one, other) if one.possible or other.possible)
    possible = {end_key(each): each for ends in several for each in ends}
    return Arrival(
        end, one.chance if chance is None else chance, chosen.steps, chosen.reasons, tuple(possible.values())
    )


def _marks_of_both(one: Packet | Connection, other: Packet | Connection) -> dict[str, object]:
    """The bits that two marks agree on, as the only known ones."""
    known = one.mark_known & other.mark_known & ~(one.mark ^ other.mark) & UINT32
    return {"mark": one.mark & known, "mark_known": known}


def _indeterminate(possible: list[End], reasons: list[str], chance: Fraction, steps: Steps) -> Arrival:
    """One INDETERMINATE outcome; or a certain loss, if every possible end loses the packet in the same way. Its packet
    has the fields on which all the possible ends agree."""
    ends = {end_key(end): end for end in possible if end.verdict != INDETERMINATE}
    first = (list(ends.values()) or possible)[0]
    packet = first.state.packet.common(end.state.packet for end in possible)
    hooks = {end.hook for end in possible}
    masqueraded = all(end.state.masqueraded for end in possible)
    state = first.state._replace(packet=packet, masqueraded=masqueraded)
    names = tuple(dict.fromkeys(reasons))
    hook = first.hook if len(hooks) == 1 else ""
    lost = {(end.verdict, end.reject) for end in possible}
    if len(lost) == 1 and first.verdict in (DROP, REJECT):
        why = first.reason if first.reason and len({end.reason for end in possible}) == 1 else CAUSE_OPEN
        end = End(first.verdict, hook, state, reject=first.reject, reason=why)
    else:
        end = End(INDETERMINATE, hook, state, reason=names[0] if names else "")
    listed = tuple(sorted(ends.values(), key=_sort_key))
    return Arrival(end, chance, steps, names[:_MAX_REASONS], listed)


def _sort_key(end: End) -> tuple[str, ...]:
    packet = end.state.packet
    return (end.verdict, end.hook, packet.destination, packet.source, end.via, end.reject, end.reason)
