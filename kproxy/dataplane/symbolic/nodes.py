"""Functions over packet space as decision diagrams, in which equal functions are the same number.

Theory: docs/symbolic.md, "Diagrams".

A diagram is a node: it asks one variable of the packet (its *level*), has intervals of that variable's values, and a
child for each interval. Levels grow on the way down, neighbouring intervals have different children, no node has a
single child, and a table holds every node once. So two diagrams are the same number exactly if they are the same
function of all variables: whether two rule sets are alike is one comparison of integers, and where they differ is found
by walking the two diagrams side by side. (These are Bryant's reduced ordered decision diagrams, with intervals instead
of bits.)

Wide variables are cut into chunks of 16 or 8 bits, most significant first, so that a single address is two nodes and a
single port is too, and laying one address over a large diagram copies one path and shares the rest.

Leaves are `FALSE` and `TRUE` for conditions; for outcomes, `ZERO` (nothing), `MISS` (no rule has decided yet) and
numbers that the user of the diagrams gives a meaning (`Diagrams.leaf`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import eq
from typing import Final

FALSE: Final = 0
TRUE: Final = 1
ZERO: Final = 2
MISS: Final = 3

LEAF: Final = 1 << 30
"""The level of leaves: below every variable."""

_CACHE_LIMIT: Final = 60_000
_CHECK_EVERY: Final = 1 << 12

Node = int


class Nodes:
    """The table of all nodes.

    `sizes` gives the number of values of each level; `add_level` appends more. `check` is called again and again as
    the table grows, and may raise.
    """

    def __init__(self, sizes: Iterable[int] = ()) -> None:
        self.sizes = list(sizes)
        self.check: Callable[[], None] = lambda: None
        self.level: list[int] = []
        self.bounds: list[tuple[int, ...]] = []
        self.children: list[tuple[int, ...]] = []
        self._deepest: list[int] = []
        self._misses: list[bool] = []
        self._table: dict[tuple[int, tuple[int, ...], tuple[int, ...]], Node] = {}
        self._leaves: dict[object, Node] = {}
        self._values: dict[Node, object] = {}
        self._caches: dict[object, dict[object, Node]] = {}
        for name in ("FALSE", "TRUE", "ZERO", "MISS"):
            self.leaf(name)

    def add_level(self, size: int) -> int:
        """A new level below all others."""
        self.sizes.append(size)
        return len(self.sizes) - 1

    def __len__(self) -> int:
        return len(self.level)

    # making nodes

    def leaf(self, value: object) -> Node:
        """The leaf that stands for a value."""
        node = self._leaves.get(value)
        if node is None:
            node = self._leaves[value] = self._append(LEAF, (), ())
            self._values[node] = value
            self._misses[node] = node == MISS
        return node

    def value(self, node: Node) -> object:
        """What a leaf stands for."""
        return self._values[node]

    def _append(self, level: int, bounds: tuple[int, ...], children: tuple[int, ...]) -> Node:
        node = len(self.level)
        if not node % _CHECK_EVERY:
            self.check()
        self.level.append(level)
        self.bounds.append(bounds)
        self.children.append(children)
        deepest = -1 if level == LEAF else level
        misses = False
        for child in children:
            if self._deepest[child] > deepest:
                deepest = self._deepest[child]
            misses = misses or self._misses[child]
        self._deepest.append(deepest)
        self._misses.append(misses)
        return node

    def node(self, level: int, bounds: Sequence[int], children: Sequence[Node]) -> Node:
        """The node with these intervals, neighbours that agree joined. `bounds` are the intervals' ends, exclusive."""
        if any(map(eq, children, children[1:])):
            new_bounds: list[int] = []
            new_children: list[Node] = []
            last = -1
            for bound, child in zip(bounds, children, strict=True):
                if child == last:
                    new_bounds[-1] = bound
                else:
                    new_bounds.append(bound)
                    new_children.append(child)
                    last = child
            bounds, children = new_bounds, new_children
        if len(children) == 1:
            return children[0]
        key = (level, tuple(bounds), tuple(children))
        found = self._table.get(key)
        if found is None:
            found = self._table[key] = self._append(*key)
        return found

    def among(
        self, level: int, intervals: Iterable[tuple[int, int]], inside: Node = TRUE, outside: Node = FALSE
    ) -> Node:
        """Asks whether a variable lies in one of some ascending disjoint intervals (ends included)."""
        return self.pieces(level, ((first, last + 1, inside) for first, last in intervals), outside)

    def pieces(self, level: int, pieces: Iterable[tuple[int, int, Node]], outside: Node) -> Node:
        """The node with a child for each of some ascending disjoint intervals (start and end, exclusive)."""
        bounds: list[int] = []
        children: list[Node] = []
        start = 0
        for first, end, child in pieces:
            if first > start:
                bounds.append(first)
                children.append(outside)
            bounds.append(end)
            children.append(child)
            start = end
        assert start <= self.sizes[level], "a number that is too large for one level"
        if start < self.sizes[level]:
            bounds.append(self.sizes[level])
            children.append(outside)
        return self.node(level, bounds, children)

    def equals(self, level: int, value: int, inside: Node = TRUE, outside: Node = FALSE) -> Node:
        """Asks whether a variable has one value."""
        size = self.sizes[level]
        assert value < size, "a number that is too large for one level"
        if inside == outside or size == 1:
            return inside
        key: tuple[int, tuple[int, ...], tuple[int, ...]]
        if value == 0:
            key = level, (1, size), (inside, outside)
        elif value == size - 1:
            key = level, (value, size), (outside, inside)
        else:
            key = level, (value, value + 1, size), (outside, inside, outside)
        found = self._table.get(key)
        if found is None:
            found = self._table[key] = self._append(*key)
        return found

    def point(self, values: Sequence[tuple[int, int]]) -> Node:
        """Asks whether variables have these values: ascending pairs of level and value."""
        node = TRUE
        for level, value in reversed(values):
            node = self.equals(level, value, node)
        return node

    # looking at nodes

    def is_closed(self, node: Node) -> bool:
        """Whether `MISS` is not among the leaves."""
        return not self._misses[node]

    def reaches(self, node: Node, level: int) -> bool:
        """Whether the function depends on a variable at this level or below it."""
        return self._deepest[node] >= level

    def parts(self, node: Node, level: int) -> tuple[tuple[int, ...], tuple[Node, ...]]:
        """The intervals and children of a node seen from a level at or above its own."""
        if self.level[node] == level:
            return self.bounds[node], self.children[node]
        return (self.sizes[level],), (node,)

    def at(self, node: Node, values: Mapping[int, int]) -> Node:
        """The leaf that is reached with these values; a level that is not there counts as 0."""
        while self.level[node] != LEAF:
            node = self.children[node][bisect_right(self.bounds[node], values.get(self.level[node], 0))]
        return node

    def at_level(self, node: Node, values: Mapping[int, int]) -> Node:
        """The child that is reached with these values."""
        return self.children[node][bisect_right(self.bounds[node], values.get(self.level[node], 0))]

    def support(self, node: Node) -> frozenset[int]:
        """The levels that the function depends on."""
        return frozenset(self.level[item] for item in self._below(node)) - {LEAF}

    def leaves(self, node: Node) -> frozenset[Node]:
        """All leaves that can be reached."""
        return frozenset(item for item in self._below(node) if self.level[item] == LEAF)

    def _below(self, node: Node) -> set[Node]:
        seen, pending = {node}, [node]
        while pending:
            fresh = set(self.children[pending.pop()]) - seen
            seen |= fresh
            pending += fresh
        return seen

    def joint(self, one: Node, other: Node, level: int) -> Iterator[tuple[int, int, Node, Node]]:
        """The common intervals of two nodes at a level: start, end (exclusive) and both children."""
        bounds, children = self.parts(one, level)
        other_bounds, other_children = self.parts(other, level)
        position = beside = start = 0
        while start < self.sizes[level]:
            stop = min(bounds[position], other_bounds[beside])
            yield start, stop, children[position], other_children[beside]
            position += bounds[position] == stop
            beside += other_bounds[beside] == stop
            start = stop

    def cache(self, key: object) -> dict[object, Node]:
        """A memory for results, by operation; emptied when it has grown large."""
        found = self._caches.get(key)
        if found is None or len(found) > _CACHE_LIMIT:
            found = self._caches[key] = {}
        return found

    def forget(self) -> None:
        """Drop all remembered results."""
        self._caches.clear()
