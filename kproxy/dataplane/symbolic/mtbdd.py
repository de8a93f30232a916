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

from bisect import bisect_left, bisect_right
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

Node = int


class Diagrams:
    """The table of all nodes, and what can be done with them.

    `sizes` gives the number of values of each level; `add_level` appends more.
    """

    def __init__(self, sizes: Iterable[int] = ()) -> None:
        self.sizes = list(sizes)
        self.level: list[int] = []
        self.bounds: list[tuple[int, ...]] = []
        self.children: list[tuple[int, ...]] = []
        self._deepest: list[int] = []
        self._misses: list[bool] = []
        self._table: dict[tuple[int, tuple[int, ...], tuple[int, ...]], Node] = {}
        self._leaves: dict[object, Node] = {}
        self._values: dict[Node, object] = {}
        self._caches: dict[object, dict[object, Node]] = {}
        self._permutations: dict[object, Callable[[int, Node], Node | None]] = {}
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
        bounds: list[int] = []
        children: list[Node] = []
        start = 0
        for first, last in intervals:
            if first > start:
                bounds.append(first)
                children.append(outside)
            bounds.append(last + 1)
            children.append(inside)
            start = last + 1
        if start < self.sizes[level]:
            bounds.append(self.sizes[level])
            children.append(outside)
        return self.node(level, bounds, children)

    def equals(self, level: int, value: int, inside: Node = TRUE, outside: Node = FALSE) -> Node:
        """Asks whether a variable has one value."""
        size = self.sizes[level]
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
        seen, found, pending = {node}, set(), [node]
        while pending:
            item = pending.pop()
            if self.level[item] != LEAF:
                found.add(self.level[item])
                fresh = set(self.children[item]) - seen
                seen |= fresh
                pending += fresh
        return frozenset(found)

    def leaves(self, node: Node) -> frozenset[Node]:
        """All leaves that can be reached."""
        seen, found, pending = {node}, set(), [node]
        while pending:
            item = pending.pop()
            if self.level[item] == LEAF:
                found.add(item)
            else:
                fresh = set(self.children[item]) - seen
                seen |= fresh
                pending += fresh
        return frozenset(found)

    def cache(self, key: object) -> dict[object, Node]:
        """A memory for results, by operation; emptied when it has grown large."""
        found = self._caches.get(key)
        if found is None or len(found) > _CACHE_LIMIT:
            found = self._caches[key] = {}
        return found

    def forget(self) -> None:
        """Drop all remembered results."""
        self._caches.clear()

    # operations

    def ite(self, condition: Node, yes: Node, no: Node) -> Node:
        """`yes` where the condition holds, `no` elsewhere."""
        if condition == TRUE or yes == no:
            return yes
        if condition == FALSE:
            return no
        return self._ite(condition, yes, no, self.cache("ite"))

    def _ite(self, condition: Node, yes: Node, no: Node, cache: dict[object, Node]) -> Node:
        if condition == TRUE or yes == no:
            return yes
        if condition == FALSE:
            return no
        key = (condition, yes, no)
        found = cache.get(key)
        if found is not None:
            return found
        level = min(self.level[condition], self.level[yes], self.level[no])
        bounds, children = self.parts(condition, level)
        yes_bounds, yes_children = self.parts(yes, level)
        no_bounds, no_children = self.parts(no, level)
        out_bounds: list[int] = []
        out_children: list[Node] = []
        start = 0
        for end, child in zip(bounds, children, strict=True):
            if child == TRUE:
                _copy(yes_bounds, yes_children, start, end, out_bounds, out_children)
            elif child == FALSE:
                _copy(no_bounds, no_children, start, end, out_bounds, out_children)
            else:
                position, other = bisect_right(yes_bounds, start), bisect_right(no_bounds, start)
                while start < end:
                    stop = min(yes_bounds[position], no_bounds[other], end)
                    out_bounds.append(stop)
                    first, second = yes_children[position], no_children[other]
                    out_children.append(first if first == second else self._ite(child, first, second, cache))
                    position += yes_bounds[position] == stop
                    other += no_bounds[other] == stop
                    start = stop
            start = end
        found = cache[key] = self.node(level, out_bounds, out_children)
        return found

    def both(self, one: Node, other: Node) -> Node:
        """The conjunction of two conditions."""
        return self.ite(one, other, FALSE)

    def either(self, one: Node, other: Node) -> Node:
        """The disjunction of two conditions."""
        return self.ite(one, TRUE, other)

    def negate(self, condition: Node) -> Node:
        """The opposite of a condition."""
        return self.ite(condition, FALSE, TRUE)

    def override(self, first: Node, then: Node) -> Node:
        """`first`, and `then` where `first` has not decided (`MISS`)."""
        return self._merge(first, then, MISS, self.cache("override"), lambda one, _other: one)

    def add(self, one: Node, other: Node, join: Callable[[Node, Node], Node]) -> Node:
        """The sum, leaf by leaf; `ZERO` adds nothing and `join` adds any other two leaves."""
        return self._merge(one, other, ZERO, self.cache("add"), join)

    def _merge(
        self, one: Node, other: Node, neutral: Node, cache: dict[object, Node], join: Callable[[Node, Node], Node]
    ) -> Node:
        """Combine two diagrams; where one has the `neutral` leaf the result is the other's."""
        if one == neutral:
            return other
        if other == neutral:
            return one
        if self.level[one] == LEAF and (neutral == MISS or self.level[other] == LEAF):
            return join(one, other)
        if neutral == MISS and not self._misses[one]:
            return one
        key = (one, other)
        found = cache.get(key)
        if found is not None:
            return found
        level = min(self.level[one], self.level[other])
        bounds, children = self.parts(one, level)
        other_bounds, other_children = self.parts(other, level)
        out_bounds: list[int] = []
        out_children: list[Node] = []
        if len(bounds) <= len(other_bounds):
            narrow, wide = (bounds, children), (other_bounds, other_children)
        else:
            narrow, wide = (other_bounds, other_children), (bounds, children)
        swapped = narrow[0] is other_bounds and narrow[1] is other_children
        start = 0
        for end, child in zip(*narrow, strict=True):
            if child == neutral:
                _copy(*wide, start, end, out_bounds, out_children)
            else:
                position = bisect_right(wide[0], start)
                while start < end:
                    stop = min(wide[0][position], end)
                    beside = wide[1][position]
                    pair = (beside, child) if swapped else (child, beside)
                    out_bounds.append(stop)
                    out_children.append(self._merge(*pair, neutral, cache, join))
                    position += 1
                    start = stop
            start = end
        found = cache[key] = self.node(level, out_bounds, out_children)
        return found

    def override_all(self, nodes: Sequence[Node]) -> Node:
        """The first of many that decides, merged pairwise so that large nodes are not copied again and again."""
        pending = list(nodes) or [MISS]
        while len(pending) > 1:
            pending = [
                self.override(pending[position], pending[position + 1])
                if position + 1 < len(pending)
                else pending[position]
                for position in range(0, len(pending), 2)
            ]
        return pending[0]

    def add_all(self, nodes: Sequence[Node], join: Callable[[Node, Node], Node]) -> Node:
        """The sum of many, merged pairwise."""
        pending = list(nodes) or [ZERO]
        while len(pending) > 1:
            pending = [
                self.add(pending[position], pending[position + 1], join)
                if position + 1 < len(pending)
                else pending[position]
                for position in range(0, len(pending), 2)
            ]
        return pending[0]

    def restrict(self, node: Node, values: tuple[tuple[int, int], ...]) -> Node:
        """The function with some variables fixed: ascending pairs of level and value."""
        while values and self.level[node] >= values[0][0]:
            if self.level[node] == values[0][0]:
                node = self.children[node][bisect_right(self.bounds[node], values[0][1])]
            values = values[1:]
        if not values or not self.reaches(node, values[0][0]):
            return node
        cache = self.cache(("restrict", values[0][0]))
        return self._restrict(node, values, cache)

    def _restrict(self, node: Node, values: tuple[tuple[int, int], ...], cache: dict[object, Node]) -> Node:
        key = (node, values)
        found = cache.get(key)
        if found is None:
            children = [self.restrict(child, values) for child in self.children[node]]
            found = cache[key] = self.node(self.level[node], self.bounds[node], children)
        return found

    def compose(self, node: Node, first: int, name: object, change: Callable[[int, Node], Node | None]) -> Node:
        """Rebuild the part of a diagram at level `first` and below.

        `change(level, node)` gives the replacement of a node, or None to go on into its children; it must be the same
        function for the same `name`.
        """
        return self._compose(node, first, self.cache(name), change)

    def _compose(
        self, node: Node, first: int, cache: dict[object, Node], change: Callable[[int, Node], Node | None]
    ) -> Node:
        if not self.reaches(node, first) and first != LEAF:
            return node
        found = cache.get(node)
        if found is not None:
            return found
        level = self.level[node]
        made = change(level, node) if level >= first else None
        if made is None:
            if level == LEAF:
                made = node
            else:
                children = [self._compose(child, first, cache, change) for child in self.children[node]]
                made = self.compose_node(level, self.bounds[node], children)
        cache[node] = made
        return made

    def compose_node(self, level: int, bounds: Sequence[int], children: Sequence[Node]) -> Node:
        """As `node`, for children that may ask variables above this level."""
        if all(self.level[child] > level for child in children):
            return self.node(level, bounds, children)
        result = children[-1]
        start = 0
        for bound, child in zip(bounds[:-1], children[:-1], strict=True):
            result = self.ite(self.among(level, ((start, bound - 1),)), child, result)
            start = bound
        return result

    def permute(self, node: Node, levels: dict[int, int]) -> Node:
        """The function with some variables renamed: what was asked of a level is asked of the one it maps to."""
        if not levels:
            return node
        first = min(levels)
        if not self.reaches(node, first):
            return node
        name = ("permute", tuple(levels.items()))
        change = self._permutations.get(name)
        if change is None:

            def change(level: int, found: Node) -> Node | None:
                new = levels.get(level)
                if new is None:
                    return None
                children = [self.permute(child, levels) for child in self.children[found]]
                return self.compose_node(new, self.bounds[found], children)

            self._permutations[name] = change
        return self.compose(node, first, name, change)

    def map_leaves(self, node: Node, name: object, change: Callable[[Node], Node]) -> Node:
        """Replace every leaf; `change` must be the same function for the same `name`."""
        return self._map_leaves(node, self.cache(name), change)

    def _map_leaves(self, node: Node, cache: dict[object, Node], change: Callable[[Node], Node]) -> Node:
        found = cache.get(node)
        if found is not None:
            return found
        if self.level[node] == LEAF:
            made = change(node)
        else:
            children = [self._map_leaves(child, cache, change) for child in self.children[node]]
            made = self.node(self.level[node], self.bounds[node], children)
        cache[node] = made
        return made

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


def _copy(
    bounds: tuple[int, ...],
    children: tuple[Node, ...],
    start: int,
    end: int,
    out_bounds: list[int],
    out_children: list[Node],
) -> None:
    """Append the part of a node from `start` to `end`."""
    first = bisect_right(bounds, start)
    last = bisect_left(bounds, end)
    out_bounds += bounds[first:last]
    out_bounds.append(end)
    out_children += children[first : last + 1]
