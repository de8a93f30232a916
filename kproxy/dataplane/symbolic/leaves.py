"""Leaves of outcome functions: distributions over what can become of a packet, and what is done to whole functions.

Theory: docs/symbolic.md, "Leaves".

An `Outcome` is everything about a packet's end but its destination, which is a level of the diagram
(`Variables.destination`). Weights are exact fractions. A leaf of weight less than one is no mistake: it is the part of
the distribution that belongs to one translated destination.

Marks that no rule of either side tests cannot change the way of a packet, only what others (routing policy, traffic
control, the next packet of the connection) make of it. They are not followed bit by bit: an outcome holds how the mark
at the end follows from the marks at the beginning, for each bit as an exclusive or of bits.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from fractions import Fraction
from functools import cache
from typing import Final, NamedTuple

from kproxy.dataplane.model.verdict import ACCEPT, INDETERMINATE, FinalVerdict
from kproxy.dataplane.symbolic.nodes import FALSE, LEAF, TRUE, ZERO, Node
from kproxy.dataplane.symbolic.quantify import where_different
from kproxy.dataplane.symbolic.variables import Variables
from kproxy.netfilter.effect import place_of

Expression = frozenset[int]
"""An exclusive or: levels of mark bits, and -1 for the constant one."""

ONE: Final = -1

Bits = tuple[tuple[int, Expression], ...]
"""For levels of mark bits, what they become, ascending; a level that is not there keeps its value."""

Fields = tuple[tuple[str, tuple[int, ...]], ...]
"""For header fields by name, sorted, what each value becomes; one that is not there keeps its value."""


class Outcome(NamedTuple):
    """What becomes of a packet.

    Attributes:
        verdict: ACCEPT, DROP, REJECT or INDETERMINATE.
        detail: REJECT's answer; why it is indeterminate.
        source: how the source is rewritten, as in the rule (`MASQUERADE`, `SNAT 10.0.0.1`), or empty.
        headers: other changes to the packet, in order.
        fields: how header fields end, of those that are variables of one level.
        effects: what the packet leaves behind: entries in lists and sets, copies sent elsewhere.
        marks: how the marks that matter end.
        balanced: IPVS sent it to a real server; only while the function of a hook is made (`symbolic.ipvs`).
    """

    verdict: FinalVerdict
    detail: str = ""
    source: str = ""
    headers: tuple[str, ...] = ()
    effects: frozenset[str] = frozenset()
    marks: Bits = ()
    fields: Fields = ()
    balanced: bool = False

    @property
    def goes_on(self) -> bool:
        """Whether the packet goes on, or may."""
        return self.verdict in (ACCEPT, INDETERMINATE)


Entry = tuple[int, int]


class Outcomes:
    """Makes and changes leaves. Outcomes and weights are kept once and known by number.

    `watched` are the levels of mark bits whose end an outcome tells: the packet's, then the connection's.
    """

    def __init__(self, variables: Variables, watched: Iterable[int] = ()) -> None:
        self.variables = variables
        kept = frozenset(watched)
        self._watched_connmark = tuple(each for each in variables.levels["connmark"] if each in kept)
        self.watched = (*(each for each in variables.levels["mark"] if each in kept), *self._watched_connmark)
        self._at_leaves = self._leaves_differ  # one object, by which results are remembered
        self._outcomes: list[Outcome] = []
        self._outcome_numbers: dict[Outcome, int] = {}
        self._weights: list[Fraction] = []
        self._weight_numbers: dict[Fraction, int] = {}
        self._product = cache(lambda one, other: self._weight(self._weights[one] * self._weights[other]))
        self._sum = cache(lambda one, other: self._weight(self._weights[one] + self._weights[other]))
        self._one = self._weight(Fraction(1))
        self._has_fields = False

    def _weight(self, value: Fraction) -> int:
        number = self._weight_numbers.get(value)
        if number is None:
            number = self._weight_numbers[value] = len(self._weights)
            self._weights.append(value)
        return number

    def _number(self, outcome: Outcome) -> int:
        number = self._outcome_numbers.get(outcome)
        if number is None:
            number = self._outcome_numbers[outcome] = len(self._outcomes)
            self._outcomes.append(outcome)
        return number

    def sure(self, outcome: Outcome) -> Node:
        """The leaf of one outcome with certainty."""
        return self.variables.diagrams.leaf(((self._number(outcome), self._one),))

    def entries(self, leaf: Node) -> list[tuple[Outcome, Fraction]]:
        """The distribution of a leaf."""
        if leaf == ZERO:
            return []
        value = self.variables.diagrams.value(leaf)
        assert isinstance(value, tuple), value
        return [(self._outcomes[outcome], self._weights[weight]) for outcome, weight in value]

    def _raw(self, leaf: Node) -> tuple[Entry, ...]:
        value = self.variables.diagrams.value(leaf)
        assert isinstance(value, tuple), value
        return value

    def _leaf(self, entries: Iterable[Entry]) -> Node:
        kept = tuple(sorted(entries))
        return self.variables.diagrams.leaf(kept) if kept else ZERO

    def join(self, one: Node, other: Node) -> Node:
        """The sum of two leaves."""
        total = dict(self._raw(one))
        for outcome, weight in self._raw(other):
            held = total.get(outcome)
            total[outcome] = weight if held is None else self._sum(*sorted((held, weight)))
        return self._leaf(total.items())

    def add_all(self, nodes: list[Node]) -> Node:
        """The sum of several functions."""
        return self.variables.diagrams.add_all(nodes, self.join)

    def scale(self, node: Node, factor: Fraction) -> Node:
        """A function times a number from 0 to 1."""
        if factor == 1:
            return node
        if factor == 0:
            return ZERO
        number = self._weight(factor)

        def change(leaf: Node) -> Node:
            raw = self._raw(leaf) if leaf != ZERO else ()
            return self._leaf((outcome, self._product(weight, number)) for outcome, weight in raw)

        return self.variables.diagrams.map_leaves(node, ("scale", number), change)

    def map_outcomes(self, node: Node, name: Hashable, change: Callable[[Outcome], Outcome | None]) -> Node:
        """Change every outcome; None takes it away. `change` must be the same function for the same `name`."""

        def change_leaf(leaf: Node) -> Node:
            if leaf <= 3:
                return leaf
            result = ZERO
            for outcome, weight in self._raw(leaf):
                changed = change(self._outcomes[outcome])
                if changed is not None:
                    part = self._leaf(((self._number(changed), weight),))
                    result = part if result == ZERO else self.join(result, part)
            return result

        return self.variables.diagrams.map_leaves(node, ("map", name), change_leaf)

    def parted(self, node: Node) -> tuple[Node, Node]:
        """A function's packets that go on, or may, and those that go no further."""
        goes = self.map_outcomes(node, "goes", lambda outcome: outcome if outcome.goes_on else None)
        ends = self.map_outcomes(node, "ends", lambda outcome: None if outcome.goes_on else outcome)
        return goes, ends

    # what rules do to an outcome function: given the function for the packet afterwards, the one for it before

    def _change_accepted(self, node: Node, name: Hashable, change: Callable[[Outcome], Outcome]) -> Node:
        """Change the outcomes of packets that go on."""
        return self.map_outcomes(node, name, lambda each: change(each) if each.verdict == ACCEPT else each)

    def rewrite_source(self, node: Node, text: str, *, always: bool = False) -> Node:
        """The source is rewritten; unless the packet goes no further anyway, or `always`."""
        if always:
            return self.map_outcomes(node, ("any source", text), lambda outcome: outcome._replace(source=text))
        return self._change_accepted(node, ("source", text), lambda outcome: outcome._replace(source=text))

    def change_header(self, node: Node, text: str) -> Node:
        """Something else in the packet is rewritten."""
        return self._change_accepted(
            node, ("header", text), lambda outcome: outcome._replace(headers=(text, *outcome.headers))
        )

    def change_field(self, node: Node, name: str, values: tuple[int, ...]) -> Node:
        """A header field becomes `values[field]`: for later rules, and at the end of a packet that goes on."""
        diagrams, same, level = self.variables.diagrams, tuple(range(len(values))), self.variables.levels[name][0]
        self._has_fields = True

        def change(outcome: Outcome) -> Outcome:
            held = dict(outcome.fields)
            later = held.pop(name, same)
            ends = tuple(later[value] for value in values)
            if ends != same:
                held[name] = ends
            return outcome._replace(fields=tuple(sorted(held.items())))

        def replace(at: int, found: Node) -> Node | None:
            if at != level:
                return None
            children = [diagrams.restrict(found, ((level, value),)) for value in values]
            return diagrams.node(level, range(1, len(values) + 1), children)

        node = self._change_accepted(node, ("field", level, values), change)
        return diagrams.compose(node, level, ("remap", level, values), replace)

    @property
    def has_ends(self) -> bool:
        """Whether outcomes tell how marks or fields end, so that equal functions may be two nodes."""
        return bool(self.watched) or self._has_fields

    def tell(self, node: Node, text: str) -> Node:
        """Something that packets of the model do not have is changed: the text says what, the last one of its place
        counts (`netfilter.effect`). Unless the packet goes no further anyway."""
        place = place_of(text)

        def change(outcome: Outcome) -> Outcome:
            told = any(place_of(held) == place for held in outcome.effects)
            return outcome if told else outcome._replace(effects=outcome.effects | {text})

        return self._change_accepted(node, ("told", text), change)

    def leave_behind(self, node: Node, text: str, unless: str = "") -> Node:
        """The packet leaves something behind, whatever becomes of it; `unless` is a later effect that undoes it."""

        def change(outcome: Outcome) -> Outcome:
            return outcome if unless in outcome.effects else outcome._replace(effects=outcome.effects | {text})

        return self.map_outcomes(node, ("effect", text, unless), change)

    def compose_marks(self, node: Node, change: Bits) -> Node:
        """Mark bits change, all at once."""
        if not change:
            return node
        if self.watched:
            node = self.map_outcomes(node, ("marks", change), lambda outcome: self._before(outcome, change))
        return self.variables.diagrams.compose(node, change[0][0], ("bits", change), self._bit_changer(change))

    def _bit_changer(self, change: Bits) -> Callable[[int, Node], Node | None]:
        diagrams, table, first = self.variables.diagrams, dict(change), change[0][0]

        def replace(level: int, found: Node) -> Node | None:
            expression = table.get(level)
            if expression is None:
                return None
            no, yes = (diagrams.compose(child, first, ("bits", change), replace) for child in diagrams.children[found])
            return diagrams.ite(self.expression(expression), yes, no)

        return replace

    def _watched_of(self, outcome: Outcome) -> Iterable[int]:
        """The mark bits whose end matters: of a packet that goes no further, only its connection's."""
        return self.watched if outcome.goes_on else self._watched_connmark

    def _before(self, outcome: Outcome, change: Bits) -> Outcome:
        """`outcome.marks` says how the marks end, from those after the change; now from those before it."""
        table, after = dict(change), dict(outcome.marks)
        marks: list[tuple[int, Expression]] = []
        for level in self._watched_of(outcome):
            expression: Expression = frozenset()
            for bit in after.get(level, frozenset({level})):
                expression ^= table.get(bit, frozenset({bit}))
            if expression != {level}:
                marks.append((level, expression))
        return outcome._replace(marks=tuple(marks))

    def forget_marks_of_dropped(self, node: Node) -> Node:
        """A new connection whose first packet is dropped leaves no mark behind."""
        if not self.watched:
            return node
        return self.map_outcomes(
            node, "forget", lambda outcome: outcome if outcome.verdict == ACCEPT else outcome._replace(marks=())
        )

    def expression(self, expression: Expression) -> Node:
        """The condition that an exclusive or is one."""
        diagrams = self.variables.diagrams
        result = 1 if ONE in expression else 0
        for level in sorted(expression - {ONE}, reverse=True):
            result = diagrams.ite(diagrams.equals(level, 1), diagrams.negate(result), result)
        return result

    def settled(self, outcome: Outcome, values: Mapping[int, int]) -> Outcome:
        """The outcome with its marks and fields as they end for a packet with these values."""
        if outcome.fields:
            now = {name: values.get(self.variables.levels[name][0], 0) for name, _ in outcome.fields}
            ends = tuple((name, (ends[now[name]],)) for name, ends in outcome.fields if ends[now[name]] != now[name])
            outcome = outcome._replace(fields=ends)
        if not self.watched:
            return outcome
        held = dict(outcome.marks)
        marks = []
        for level in self._watched_of(outcome):
            bits = held.get(level, frozenset({level}))
            value = sum(1 if bit == ONE else values.get(bit, 0) for bit in bits) % 2
            marks.append((level, frozenset({ONE}) if value else frozenset()))
        return outcome._replace(marks=tuple(marks))

    def different(self, one: Node, other: Node, ignored: int = LEAF) -> Node:
        """The condition that two functions differ, for some value of the `ignored` level: also where only the values
        that marks and fields have at the end tell them apart. Marks are compared as expressions: a copy of a whole mark
        is a relation between bits, and no value is tried."""
        return where_different(self.variables.diagrams, one, other, ignored, self._at_leaves)

    def _leaves_differ(self, one: Node, other: Node) -> Node:
        """For which values of marks and fields two unequal leaves are different distributions."""
        if not self.has_ends:
            return TRUE
        diagrams, result = self.variables.diagrams, FALSE
        signed = [*self.entries(one), *((outcome, -weight) for outcome, weight in self.entries(other))]
        for outcome, _ in signed:
            terms = [
                (diagrams.negate(self._ends_differ(outcome, beside)), weight)
                for beside, weight in signed
                if _without_ends(beside) == _without_ends(outcome)
            ]
            result = diagrams.either(result, self._is_not_zero(terms))
        return result

    def _ends_differ(self, one: Outcome, other: Outcome) -> Node:
        """For which marks and fields at the beginning two outcomes end with different ones."""
        diagrams, held, beside, result = self.variables.diagrams, dict(one.marks), dict(other.marks), FALSE
        for level in reversed([*self._watched_of(one)]):
            expression = held.get(level, frozenset({level})) ^ beside.get(level, frozenset({level}))
            result = diagrams.either(self.expression(expression), result)
        for name in sorted({name for outcome in (one, other) for name, _ in outcome.fields}):
            level = self.variables.levels[name][0]
            same = tuple(range(diagrams.sizes[level]))
            ends = zip(dict(one.fields).get(name, same), dict(other.fields).get(name, same), strict=True)
            apart = [(value, value) for value, pair in enumerate(ends) if pair[0] != pair[1]]
            result = diagrams.either(diagrams.among(level, apart), result)
        return result

    def _is_not_zero(self, terms: Sequence[tuple[Node, Fraction]]) -> Node:
        """The condition that the weights of the conditions that hold do not add up to nothing."""
        diagrams = self.variables.diagrams
        weights: dict[Node, Fraction] = {}
        for condition, weight in terms:
            weights[condition] = weights.get(condition, Fraction(0)) + weight
        kept = tuple(sorted(each for each in weights.items() if each[0] != FALSE and each[1]))
        level = min((diagrams.level[condition] for condition, _ in kept), default=LEAF)
        if level == LEAF:
            return TRUE if kept else FALSE
        cache = diagrams.cache("weights")
        found = cache.get(kept)
        if found is None:
            children = [
                self._is_not_zero([(diagrams.restrict(each, ((level, value),)), weight) for each, weight in kept])
                for value in range(diagrams.sizes[level])
            ]
            found = cache[kept] = diagrams.node(level, range(1, len(children) + 1), children)
        return found


def _without_ends(outcome: Outcome) -> Outcome:
    return outcome._replace(marks=(), fields=())
