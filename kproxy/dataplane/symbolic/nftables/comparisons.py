"""Comparisons of nftables as conditions: a key against a value, a set or a map.

Theory: docs/symbolic.md, "nftables".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction

from kproxy.dataplane.symbolic.free_variables import FreeVariable, Stage
from kproxy.dataplane.symbolic.nftables.expressions import Expressions
from kproxy.dataplane.symbolic.nftables.quantity import (
    Bits,
    Constant,
    Flags,
    OpaqueError,
    Quantity,
    Random,
    Small,
    any_of,
    stands_for,
)
from kproxy.dataplane.symbolic.nftables.text import positive, text_of
from kproxy.dataplane.symbolic.nodes import FALSE, TRUE, Node
from kproxy.netfilter.nftables.element import Element
from kproxy.netfilter.nftables.expression import (
    AnonymousMap,
    AnonymousSet,
    Concat,
    Expression,
    SetReference,
)
from kproxy.netfilter.nftables.ruleset import Table
from kproxy.netfilter.nftables.sets import Set
from kproxy.netfilter.nftables.statement import Match, Operator
from kproxy.netfilter.nftables.value import CatchAll, InterfacePrefix, Prefix, Range, Value


class Comparisons:
    """Reads comparisons; one for both sides, as `Expressions`, of which it has the quantities."""

    def __init__(self, expressions: Expressions) -> None:
        self.expressions = self._expressions = expressions
        self.variables = expressions.variables
        self.conditions = expressions.conditions
        self._sets: dict[tuple[object, ...], Node] = {}
        self._rows: dict[tuple[object, ...], list[tuple[Node, Element]]] = {}

    def key(self, expression: Expression, stage: Stage) -> tuple[Quantity, ...]:
        """The parts of a key."""
        if isinstance(expression, Concat):
            return tuple(self._expressions.quantity(part, stage) for part in expression.parts)
        if isinstance(expression, tuple):
            return tuple(self._expressions.quantity(part, stage) for part in expression)
        return (self._expressions.quantity(expression, stage),)

    def present(self, key: Iterable[Quantity]) -> Node:
        """All parts of a key have values."""
        result = TRUE
        for part in key:
            result = self.variables.diagrams.both(result, part.present)
        return result

    def holds(self, key: tuple[Quantity, ...], value: Value) -> Node:
        """The key is this constant, or in it."""
        parts = value if isinstance(value, tuple) else (value,)
        diagrams = self.variables.diagrams
        result = TRUE
        for quantity, part in sorted(zip(key, parts, strict=True), key=lambda pair: -getattr(pair[0], "level", 0)):
            result = diagrams.both(quantity.among((part,)), result)
        return result

    def in_set(self, key: tuple[Quantity, ...], elements: Iterable[Element], name: object) -> Node:
        """The key is one of a set's elements. `name` is the same for the same elements."""
        memory = (name, tuple(map(id, key)))
        found = self._sets.get(memory)
        if found is None:
            keys = [element.key for element in elements]
            if CatchAll.CATCH_ALL in keys:
                found = TRUE
            elif len(key) == 1:
                found = key[0].among([item for item in keys if not isinstance(item, (tuple, CatchAll))])
            else:
                nodes = (self.holds(key, item) for item in keys if not isinstance(item, CatchAll))
                found = any_of(self.variables.diagrams, nodes)
            self._sets[memory] = found
        return found

    # comparisons

    def match(self, match: Match, stage: Stage, table: Table, state_of: Callable[[Set, Match], Node | None]) -> Node:
        """The condition that a comparison holds. `state_of` gives that of a set whose elements change."""
        try:
            return self._match(match, stage, table, state_of)
        except OpaqueError:
            asked, negated = positive(match)
            held = self.variables.free(FreeVariable("opaque", text_of(asked, table), (stage.hook, stage.table)))
            return self.variables.diagrams.negate(held) if negated else held

    def _match(self, match: Match, stage: Stage, table: Table, state_of: Callable[[Set, Match], Node | None]) -> Node:
        diagrams, right = self.variables.diagrams, match.right
        key = self.key(match.left, stage)
        present = self.present(key)
        inside: Node | None
        if isinstance(right, (SetReference, AnonymousSet)):
            inside = self._member(key, match, right, table, state_of)
        elif isinstance(right, (int, str, Prefix, Range, InterfacePrefix, tuple)):
            inside = self._compared(key, match.operator, right)
        else:
            raise OpaqueError
        if match.operator in (Operator.NE, Operator.NONE):
            inside = diagrams.negate(inside)
        return diagrams.both(present, inside)

    def _member(
        self,
        key: tuple[Quantity, ...],
        match: Match,
        right: SetReference | AnonymousSet,
        table: Table,
        state_of: Callable[[Set, Match], Node | None],
    ) -> Node:
        if isinstance(right, AnonymousSet):
            return self.in_set(key, right.elements, id(right.elements))
        found = table.set(right.name)
        if found is None:
            raise OpaqueError
        state = state_of(found, match)
        return (
            self.in_set(key, found.elements, (table.family, table.name, found.name, id(found)))
            if state is None
            else state
        )

    def _compared(self, key: tuple[Quantity, ...], operator: Operator, right: Value) -> Node:
        if operator in (Operator.EQ, Operator.NE):
            return self.holds(key, right)
        if len(key) != 1 or not isinstance(right, int):
            raise OpaqueError
        quantity, last = key[0], (1 << key[0].bits) - 1
        if operator in (Operator.ANY, Operator.NONE):
            if isinstance(quantity, (Bits, Flags)):
                return quantity.any_bit(right)
            if isinstance(quantity, Small):
                return quantity.changed(lambda value: int(bool(value & right))).among((1,))
            raise OpaqueError
        first, end = {
            Operator.LT: (0, right - 1),
            Operator.LE: (0, right),
            Operator.GT: (right + 1, last),
            Operator.GE: (right, last),
        }[operator]
        return quantity.among((Range(first, end),)) if first <= end else FALSE

    def chance(self, drawn: Random, match: Match) -> Fraction:
        """The chance that a random number compares so. Raises OpaqueError."""
        fits = Fraction(0)
        for number, chance in drawn.chances:
            right = match.right
            if isinstance(right, AnonymousSet):
                inside = TRUE if self._holds_number(right, number) else FALSE
            elif isinstance(right, (int, str, Prefix, Range, InterfacePrefix, tuple)):
                inside = self._compared((Constant(number),), match.operator, right)
            else:
                raise OpaqueError
            negated = match.operator is Operator.NE
            fits += chance if (inside == TRUE) != negated else 0
        return fits

    def _holds_number(self, where: AnonymousSet, number: int) -> bool:
        keys = (element.key for element in where.elements)
        return any(
            isinstance(key, CatchAll) or (not isinstance(key, tuple) and stands_for(key, number)) for key in keys
        )

    # maps

    def select(
        self, expression: Expression, elements: Iterable[Element], stage: Stage
    ) -> tuple[Node, list[tuple[Fraction, list[tuple[Node, Element]]]]]:
        """What a key selects: the condition that it has a value, and for each outcome of chance, with its probability,
        the elements with the conditions that select them. Conditions of one outcome exclude one another."""
        key = self.key(expression, stage)
        drawn = [position for position, part in enumerate(key) if isinstance(part, Random)]
        if not drawn:
            name = (tuple(map(id, key)), id(elements))
            rows = self._rows.get(name)
            if rows is None:
                rows = [(self._selects(key, element), element) for element in elements]
                self._rows[name] = rows = _with_catch_all(rows)
            return self.present(key), [(Fraction(1), rows)]
        if len(drawn) > 1:
            raise OpaqueError
        position = drawn[0]
        draw = key[position]
        assert isinstance(draw, Random), draw
        result = []
        # A map of a thousand endpoints has as many numbers: each is compared with what may be it.
        plain, others = _by_number(elements, position)
        for number, chance in draw.chances:
            fixed = (*key[:position], Constant(number), *key[position + 1 :])
            rows = [(self._selects(fixed, element), element) for element in (*plain.get(number, ()), *others)]
            result.append((chance, _with_catch_all([row for row in rows if row[0] != FALSE])))
        return self.present(key), result

    def _selects(self, key: tuple[Quantity, ...], element: Element) -> Node:
        return TRUE if isinstance(element.key, CatchAll) else self.holds(key, element.key)


def _by_number(elements: Iterable[Element], position: int) -> tuple[Mapping[int, list[Element]], list[Element]]:
    """Elements by the number that they have in a place of their key, and those that have another value there."""
    plain: dict[int, list[Element]] = {}
    others = []
    for element in elements:
        part = element.key[position] if isinstance(element.key, tuple) else element.key
        if isinstance(part, int):
            plain.setdefault(part, []).append(element)
        else:
            others.append(element)
    return plain, others


def _with_catch_all(rows: list[tuple[Node, Element]]) -> list[tuple[Node, Element]]:
    """The element `*` last: it is selected where no other is."""
    return sorted(rows, key=lambda row: isinstance(row[1].key, CatchAll))


def elements_of(table: Table, where: SetReference | AnonymousMap) -> Iterable[Element]:
    """The elements of a map. Raises OpaqueError if there is no such map."""
    if isinstance(where, AnonymousMap):
        return where.elements
    found = table.set(where.name)
    if found is None:
        raise OpaqueError
    return found.elements
