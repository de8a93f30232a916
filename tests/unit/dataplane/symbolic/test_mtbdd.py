"""Diagrams: equal functions are one node, and every operation does point by point what it says."""

from __future__ import annotations

import itertools
from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from kproxy.dataplane.symbolic.mtbdd import Diagrams
from kproxy.dataplane.symbolic.nodes import FALSE, MISS, TRUE, ZERO, Node
from kproxy.dataplane.symbolic.quantify import exists, for_all, unaffected, where_different

SIZES = (3, 2, 4)
POINTS = list(itertools.product(*map(range, SIZES)))
Table = tuple[int, ...]

conditions = st.lists(st.booleans(), min_size=len(POINTS), max_size=len(POINTS)).map(tuple)
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


def values(diagrams: Diagrams, node: Node) -> list[Node]:
    """The leaf at every point."""
    return [diagrams.at(node, dict(enumerate(point))) for point in POINTS]


def condition(diagrams: Diagrams, table: Table) -> Node:
    return build(diagrams, lambda position: TRUE if table[position] else FALSE)


def leaf_sum(diagrams: Diagrams) -> Callable[[Node, Node], Node]:
    return lambda one, other: diagrams.leaf(diagrams.value(one) + diagrams.value(other))  # type: ignore[operator]


def amounts(diagrams: Diagrams, table: Table, missing: Node) -> Node:
    return build(diagrams, lambda position: diagrams.leaf((table[position],)) if table[position] else missing)


@given(conditions, conditions, conditions)
def test_conditions(one: Table, other: Table, third: Table) -> None:
    diagrams = Diagrams(SIZES)
    a, b, c = (condition(diagrams, table) for table in (one, other, third))
    assert (a == b) == (one == other)
    assert [leaf == TRUE for leaf in values(diagrams, diagrams.both(a, b))] == [x and y for x, y in zip(one, other)]  # noqa: B905
    assert [leaf == TRUE for leaf in values(diagrams, diagrams.either(a, b))] == [x or y for x, y in zip(one, other)]  # noqa: B905
    chosen = values(diagrams, diagrams.ite(a, b, c))
    assert [leaf == TRUE for leaf in chosen] == [y if x else z for x, y, z in zip(one, other, third, strict=True)]
    assert diagrams.negate(diagrams.negate(a)) == a


@given(numbers, numbers)
def test_override_and_sum(one: Table, other: Table) -> None:
    diagrams = Diagrams(SIZES)
    a, b = (amounts(diagrams, table, MISS) for table in (one, other))
    expected = build(
        diagrams,
        lambda position: (
            diagrams.leaf((one[position] or other[position],)) if one[position] or other[position] else MISS
        ),
    )
    assert diagrams.override(a, b) == expected
    assert diagrams.is_closed(a) == all(one)
    a, b = (amounts(diagrams, table, ZERO) for table in (one, other))
    total = values(diagrams, diagrams.add(a, b, leaf_sum(diagrams)))
    for position, leaf in enumerate(total):
        parts = tuple(table[position] for table in (one, other) if table[position])
        assert leaf == (diagrams.leaf(parts) if parts else ZERO)


@given(numbers, st.tuples(*(st.integers(0, size - 1) for size in SIZES)), st.sets(st.integers(0, 2)))
def test_restrict(table: Table, point: tuple[int, ...], levels: set[int]) -> None:
    diagrams = Diagrams(SIZES)
    node = amounts(diagrams, table, ZERO)
    fixed = tuple((level, point[level]) for level in sorted(levels))
    result = diagrams.restrict(node, fixed)
    assert not diagrams.support(result) & levels
    for other in POINTS:
        position = tuple(dict(fixed).get(level, value) for level, value in enumerate(other))
        assert diagrams.at(result, dict(enumerate(other))) == diagrams.at(node, dict(enumerate(position)))


@given(conditions, st.integers(0, 2))
def test_quantifiers(table: Table, level: int) -> None:
    diagrams = Diagrams(SIZES)
    node = condition(diagrams, table)
    held = dict(zip(POINTS, table, strict=True))
    some, every = (
        exists(diagrams, node, range(level, level + 1)),
        for_all(diagrams, node, range(level, level + 1), TRUE),
    )
    for point in POINTS:
        line = [held[(*point[:level], value, *point[level + 1 :])] for value in range(SIZES[level])]
        assert (diagrams.at(some, dict(enumerate(point))) == TRUE) == any(line)
        assert (diagrams.at(every, dict(enumerate(point))) == TRUE) == all(line)


@given(numbers, numbers)
def test_where_different(one: Table, other: Table) -> None:
    diagrams = Diagrams(SIZES)
    a, b = (amounts(diagrams, table, ZERO) for table in (one, other))
    wanted = {point for point, x, y in zip(POINTS, one, other, strict=True) if x != y}
    where = where_different(diagrams, a, b, 1)
    for point in POINTS:
        differs = any((point[0], value, point[2]) in wanted for value in range(SIZES[1]))
        assert (diagrams.at(where, dict(enumerate(point))) == TRUE) == differs


@given(numbers, st.sets(st.integers(0, 2)), st.booleans())
def test_permute(table: Table, moved: set[int], back: bool) -> None:
    diagrams = Diagrams((*SIZES, *SIZES))
    node = amounts(diagrams, table, ZERO)
    levels = {level: level + 3 for level in moved} | ({level + 3: level for level in moved} if back else {})
    if back:  # swaps: a function of both halves
        node = diagrams.ite(diagrams.equals(4, 1), diagrams.permute(node, {0: 3}), node)
    result = diagrams.permute(node, levels)
    for first, second in itertools.product(POINTS, POINTS[::5]):
        point = dict(enumerate((*first, *second)))
        before = {level: point[levels.get(level, level)] for level in point}
        assert diagrams.at(result, point) == diagrams.at(node, before)


def test_composition_puts_levels_back_in_order() -> None:
    diagrams = Diagrams(SIZES)
    lower = diagrams.equals(2, 1)

    def swap(level: int, node: Node) -> Node | None:
        return diagrams.compose_node(0, (1, 3), diagrams.children[node][:2]) if level == 2 else None

    # "variable 2 is 1" becomes a question about variable 0, below a question about variable 1.
    node = diagrams.equals(1, 1, lower)
    result = diagrams.compose(node, 2, "swap", swap)
    assert diagrams.level[result] == 0
    assert values(diagrams, result).count(TRUE) == 2 * 4


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
