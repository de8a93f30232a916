"""Diagrams: an interval is one node, and what does not change a function is found; the engines agree on the rest."""

from __future__ import annotations

import itertools
from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from kproxy.dataplane.symbolic.mtbdd import Diagrams
from kproxy.dataplane.symbolic.nodes import FALSE, TRUE, ZERO, Node
from kproxy.dataplane.symbolic.quantify import unaffected

SIZES = (3, 2, 4)
POINTS = list(itertools.product(*map(range, SIZES)))
Table = tuple[int, ...]

numbers = st.lists(st.integers(0, 3), min_size=len(POINTS), max_size=len(POINTS)).map(tuple)


def build(diagrams: Diagrams, leaf: Callable[[int], Node]) -> Node:
    """The function that has `leaf(position)` at the point with this position in `POINTS`."""

    def at(level: int, position: int) -> Node:
        if level == len(SIZES):
            return leaf(position)
        below = 1
        for size in SIZES[level + 1 :]:
            below *= size
        children = [at(level + 1, position + value * below) for value in range(SIZES[level])]
        return diagrams.node(level, range(1, SIZES[level] + 1), children)

    return at(0, 0)


def amounts(diagrams: Diagrams, table: Table, missing: Node) -> Node:
    return build(diagrams, lambda position: diagrams.leaf((table[position],)) if table[position] else missing)


def test_an_interval_is_one_node_however_it_is_made() -> None:
    diagrams = Diagrams((256,))
    whole = diagrams.among(0, ((3, 9),))
    assert whole == diagrams.either(diagrams.among(0, ((3, 5),)), diagrams.among(0, ((6, 9),)))
    assert diagrams.among(0, ((0, 255),)) == TRUE
    assert diagrams.negate(whole) == diagrams.among(0, ((0, 2), (10, 255)))


@given(numbers)
def test_unaffected(table: Table) -> None:
    diagrams = Diagrams(SIZES)
    node = amounts(diagrams, table, ZERO)
    for levels in ((0,), (1,), (2,), (0, 2), (1, 2)):
        found = unaffected(diagrams, node, levels)
        assert not diagrams.support(found) & set(levels)
        for position, point in enumerate(POINTS):
            same = {
                table[other]
                for other, beside in enumerate(POINTS)
                if all(beside[level] == point[level] for level in range(len(SIZES)) if level not in levels)
            }
            at = diagrams.at(found, dict(enumerate(point)))
            assert at == (TRUE if len(same) == 1 else FALSE), (position, levels)
