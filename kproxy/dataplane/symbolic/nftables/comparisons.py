"""Comparisons and look-ups of nftables as conditions on the variables.

Theory: docs/symbolic.md, "nftables".

What is bits of a packet's fields is lowered to a condition (`netfilter.nftables.lowering`); sets, maps and random
numbers are here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction

from kproxy.dataplane.symbolic.ask import OpaqueError, ask
from kproxy.dataplane.symbolic.conditions import Conditions
from kproxy.dataplane.symbolic.free_variables import FreeVariable, Stage
from kproxy.dataplane.symbolic.nftables.text import positive, text_of
from kproxy.dataplane.symbolic.nodes import FALSE, TRUE, Node
from kproxy.netfilter.nftables.element import Element
from kproxy.netfilter.nftables.expression import (
    AnonymousMap,
    AnonymousSet,
    Concat,
    Expression,
    Numgen,
    SetReference,
)
from kproxy.netfilter.nftables.lowering import Key, among, condition_of, key_of
from kproxy.netfilter.nftables.ruleset import Table
from kproxy.netfilter.nftables.sets import Set
from kproxy.netfilter.nftables.statement import Match, Operator
from kproxy.netfilter.nftables.value import CatchAll, Single, Value


@dataclass(frozen=True)
class Random:
    """`numgen`: each number with its chance, whatever the packet."""

    chances: tuple[tuple[int, Fraction], ...]


Part = Key | Random | None
"""What a part of a key is; None: the variables do not hold it."""


class Comparisons:
    """Reads comparisons; one for both sides, so that equal comparisons are equal conditions.

    With `simple_chances`, a random number has each value with the same chance, as its writer meant it.
    """

    def __init__(self, conditions: Conditions, *, simple_chances: bool = False) -> None:
        self.conditions = conditions
        self.variables = conditions.variables
        self._simple_chances = simple_chances
        self._readers: dict[tuple[Key, Stage], Callable[[Single], Node]] = {}
        self._sets: dict[tuple[object, ...], Node] = {}
        self._rows: dict[tuple[object, ...], list[tuple[Node, Element]]] = {}

    def parts(self, expression: Expression) -> tuple[Part, ...]:
        """The parts of a key."""
        parts = expression.parts if isinstance(expression, Concat) else (expression,)
        return tuple(self._random(part) if isinstance(part, Numgen) else key_of(part) for part in parts)

    def _random(self, expression: Numgen) -> Random:
        modulus, offset = expression.modulus, expression.offset
        if expression.mode == "random" and not self._simple_chances:
            return Random(random_chances(modulus, offset))
        # `inc` takes one number after the other, so that each comes up once in `modulus` packets.
        return Random(tuple((number + offset, Fraction(1, modulus)) for number in range(modulus)))

    def _reader(self, part: Part, stage: Stage) -> Callable[[Single], Node]:
        """For which packets a part is a constant, or in it."""
        if not isinstance(part, Key):
            raise OpaqueError
        found = self._readers.get((part, stage))
        if found is None:
            known: dict[Single, Node] = {}

            def found(value: Single, part: Key = part) -> Node:
                node = known.get(value)
                if node is None:
                    node = known[value] = ask(among(part, (value,)), self.variables, stage)
                return node

            self._readers[part, stage] = found
        return found

    def _present(self, parts: tuple[Part, ...], stage: Stage) -> Node:
        """All parts of a key have values."""
        asked = [ask(part.present, self.variables, stage) for part in parts if isinstance(part, Key)]
        return self.variables.diagrams.all_of(asked)

    def _holding(self, parts: tuple[Part, ...], stage: Stage) -> Callable[[Value], Node]:
        """For which packets the key is a constant, or in it."""
        levels = self.variables.levels
        order = sorted(range(len(parts)), key=lambda at: -levels.get(getattr(parts[at], "field", ""), (0,))[0])
        readers = [(at, self._reader(parts[at], stage)) for at in order]
        both = self.variables.diagrams.both

        def holds(value: Value) -> Node:
            values = value if isinstance(value, tuple) else (value,)
            result = TRUE
            for at, read in readers:
                result = both(read(values[at]), result)
            return result

        return holds

    def _in_set(self, parts: tuple[Part, ...], elements: Iterable[Element], name: object, stage: Stage) -> Node:
        """The key is one of a set's elements. `name` is the same for the same elements."""
        memory = (name, parts, stage)
        found = self._sets.get(memory)
        if found is None:
            keys = [element.key for element in elements]
            plain = [key for key in keys if not isinstance(key, CatchAll)]
            if len(plain) < len(keys):
                found = TRUE
            elif len(parts) == 1 and isinstance(parts[0], Key):
                found = ask(among(parts[0], plain), self.variables, stage)  # type: ignore[arg-type]
            else:
                found = self.variables.diagrams.any_of(map(self._holding(parts, stage), plain))
            self._sets[memory] = found
        return found

    def match(self, match: Match, stage: Stage, table: Table, state_of: Callable[[Set, Match], Node | None]) -> Node:
        """The condition that a comparison holds. `state_of` gives that of a set whose elements change."""
        try:
            condition = condition_of(match)
            if condition is not None:
                return ask(condition, self.variables, stage)
            return self._member(match, stage, table, state_of)
        except OpaqueError:
            asked, negated = positive(match)
            held = self.variables.free(FreeVariable("opaque", text_of(asked, table), (stage.hook, stage.table)))
            return self.variables.diagrams.negate(held) if negated else held

    def _member(self, match: Match, stage: Stage, table: Table, state_of: Callable[[Set, Match], Node | None]) -> Node:
        right, parts = match.right, self.parts(match.left)
        present = self._present(parts, stage)
        if isinstance(right, AnonymousSet):
            inside = self._in_set(parts, right.elements, id(right.elements), stage)
        else:
            found = table.set(right.name) if isinstance(right, SetReference) else None
            if found is None:
                raise OpaqueError
            state = state_of(found, match)
            name = (table.family, table.name, found.name, id(found))
            inside = self._in_set(parts, found.elements, name, stage) if state is None else state
        if match.operator is Operator.NE:
            inside = self.variables.diagrams.negate(inside)
        return self.variables.diagrams.both(present, inside)

    def chance(self, drawn: Random, match: Match, stage: Stage) -> Fraction:
        """The chance that a random number compares so. Raises OpaqueError."""
        fits = Fraction(0)
        for number, chance in drawn.chances:
            condition = condition_of(dataclasses.replace(match, left=number))
            if condition is None:
                raise OpaqueError
            fits += chance if ask(condition, self.variables, stage) == TRUE else 0
        return fits

    def select(
        self, expression: Expression, elements: Iterable[Element], stage: Stage
    ) -> tuple[Node, list[tuple[Fraction, list[tuple[Node, Element]]]]]:
        """What a key selects: the condition that it has a value, and for each outcome of chance, with its probability,
        the elements with the conditions that select them. Conditions of one outcome exclude one another."""
        parts = self.parts(expression)
        drawn = [position for position, part in enumerate(parts) if isinstance(part, Random)]
        present = self._present(parts, stage)
        if not drawn:
            name = (parts, stage, id(elements))
            rows = self._rows.get(name)
            if rows is None:
                rows = self._rows[name] = self._selected(parts, elements, stage)
            return present, [(Fraction(1), rows)]
        if len(drawn) > 1:
            raise OpaqueError
        position = drawn[0]
        draw = parts[position]
        assert isinstance(draw, Random), draw
        result = []
        # A map of a thousand endpoints has as many numbers: each is compared with what may be it.
        plain, others = _by_number(elements, position)
        for number, chance in draw.chances:
            fixed = (*parts[:position], key_of(number), *parts[position + 1 :])
            rows = self._selected(fixed, (*plain.get(number, ()), *others), stage)
            result.append((chance, [row for row in rows if row[0] != FALSE]))
        return present, result

    def _selected(
        self, parts: tuple[Part, ...], elements: Iterable[Element], stage: Stage
    ) -> list[tuple[Node, Element]]:
        """Elements with the conditions that select them; the element `*` last: it is selected where no other is."""
        holds = self._holding(parts, stage)
        rows = [(TRUE if isinstance(element.key, CatchAll) else holds(element.key), element) for element in elements]
        return sorted(rows, key=lambda row: isinstance(row[1].key, CatchAll))


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


def elements_of(table: Table, where: SetReference | AnonymousMap) -> Iterable[Element]:
    """The elements of a map. Raises OpaqueError if there is no such map."""
    if isinstance(where, AnonymousMap):
        return where.elements
    found = table.set(where.name)
    if found is None:
        raise OpaqueError
    return found.elements


def random_chances(modulus: int, offset: int) -> tuple[tuple[int, Fraction], ...]:
    """The chances of `numgen random mod N`: the kernel takes the upper half of a 32-bit random number times N
    (`reciprocal_scale`), so that the numbers' shares of 2^32 are not quite equal unless N is a power of two."""
    edges = [-(-(number << 32) // modulus) for number in range(modulus + 1)]
    return tuple((number + offset, Fraction(edges[number + 1] - edges[number], 1 << 32)) for number in range(modulus))
