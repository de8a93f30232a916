"""Functions over packet space as decision diagrams, in which equal functions are the same number.

A diagram is a node: it asks one field of the packet (its *level*), has intervals of that field's values, and a child
for each interval. Levels grow on the way down, neighbouring intervals have different children, no node has a single
child, and a table holds every node once. So two diagrams are the same number exactly if they are the same function of
all fields: whether two rule sets are alike is one comparison of integers, and where they differ is found by walking
the two diagrams side by side. (The idea is Bryant's reduced ordered decision diagrams, with intervals instead of bits.)

Wide fields are cut into chunks of 16 or 8 bits, most significant first, so that a single address is two nodes and a
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
"""The level of leaves: below every field."""

_CACHE_LIMIT: Final = 60_000

Node = int


class Diagrams:
    """The table of all nodes, and what can be done with them.

    `sizes` gives the number of values of each level; `add_level` appends more.
    """

    def __init__(self, sizes: Iterable[int] = ()) -> None:
        self.sizes = list(sizes)
        self.level: list[int] = []
        self.cuts: list[tuple[int, ...]] = []
        self.kids: list[tuple[int, ...]] = []
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

    def _append(self, level: int, cuts: tuple[int, ...], kids: tuple[int, ...]) -> Node:
        node = len(self.level)
        self.level.append(level)
        self.cuts.append(cuts)
        self.kids.append(kids)
        deepest = -1 if level == LEAF else level
        misses = False
        for kid in kids:
            if self._deepest[kid] > deepest:
                deepest = self._deepest[kid]
            misses = misses or self._misses[kid]
        self._deepest.append(deepest)
        self._misses.append(misses)
        return node

    def node(self, level: int, cuts: Sequence[int], kids: Sequence[Node]) -> Node:
        """The node with these intervals, neighbours that agree joined. `cuts` are the intervals' ends, exclusive."""
        if any(map(eq, kids, kids[1:])):
            new_cuts: list[int] = []
            new_kids: list[Node] = []
            last = -1
            for cut, kid in zip(cuts, kids, strict=True):
                if kid == last:
                    new_cuts[-1] = cut
                else:
                    new_cuts.append(cut)
                    new_kids.append(kid)
                    last = kid
            cuts, kids = new_cuts, new_kids
        if len(kids) == 1:
            return kids[0]
        key = (level, tuple(cuts), tuple(kids))
        found = self._table.get(key)
        if found is None:
            found = self._table[key] = self._append(*key)
        return found

    def among(
        self, level: int, intervals: Iterable[tuple[int, int]], inside: Node = TRUE, outside: Node = FALSE
    ) -> Node:
        """Asks whether a field lies in one of some ascending disjoint intervals (ends included)."""
        cuts: list[int] = []
        kids: list[Node] = []
        start = 0
        for first, last in intervals:
            if first > start:
                cuts.append(first)
                kids.append(outside)
            cuts.append(last + 1)
            kids.append(inside)
            start = last + 1
        if start < self.sizes[level]:
            cuts.append(self.sizes[level])
            kids.append(outside)
        return self.node(level, cuts, kids)

    def equals(self, level: int, value: int, inside: Node = TRUE, outside: Node = FALSE) -> Node:
        """Asks whether a field has one value."""
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
        """Whether the function depends on a field at this level or below it."""
        return self._deepest[node] >= level

    def parts(self, node: Node, level: int) -> tuple[tuple[int, ...], tuple[Node, ...]]:
        """The intervals and children of a node seen from a level at or above its own."""
        if self.level[node] == level:
            return self.cuts[node], self.kids[node]
        return (self.sizes[level],), (node,)

    def at(self, node: Node, values: Mapping[int, int]) -> Node:
        """The leaf that is reached with these values; a level that is not there counts as 0."""
        while self.level[node] != LEAF:
            node = self.kids[node][bisect_right(self.cuts[node], values.get(self.level[node], 0))]
        return node

    def at_level(self, node: Node, values: Mapping[int, int]) -> Node:
        """The child that is reached with these values."""
        return self.kids[node][bisect_right(self.cuts[node], values.get(self.level[node], 0))]

    def support(self, node: Node) -> frozenset[int]:
        """The levels that the function depends on."""
        seen, found, pending = {node}, set(), [node]
        while pending:
            item = pending.pop()
            if self.level[item] != LEAF:
                found.add(self.level[item])
                fresh = set(self.kids[item]) - seen
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
                fresh = set(self.kids[item]) - seen
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

    def choose(self, condition: Node, yes: Node, no: Node) -> Node:
        """`yes` where the condition holds, `no` elsewhere."""
        if condition == TRUE or yes == no:
            return yes
        if condition == FALSE:
            return no
        return self._choose(condition, yes, no, self.cache("choose"))

    def _choose(self, condition: Node, yes: Node, no: Node, cache: dict[object, Node]) -> Node:
        if condition == TRUE or yes == no:
            return yes
        if condition == FALSE:
            return no
        key = (condition, yes, no)
        found = cache.get(key)
        if found is not None:
            return found
        level = min(self.level[condition], self.level[yes], self.level[no])
        cuts, kids = self.parts(condition, level)
        yes_cuts, yes_kids = self.parts(yes, level)
        no_cuts, no_kids = self.parts(no, level)
        out_cuts: list[int] = []
        out_kids: list[Node] = []
        start = 0
        for end, kid in zip(cuts, kids, strict=True):
            if kid == TRUE:
                _copy(yes_cuts, yes_kids, start, end, out_cuts, out_kids)
            elif kid == FALSE:
                _copy(no_cuts, no_kids, start, end, out_cuts, out_kids)
            else:
                place, other = bisect_right(yes_cuts, start), bisect_right(no_cuts, start)
                while start < end:
                    stop = min(yes_cuts[place], no_cuts[other], end)
                    out_cuts.append(stop)
                    first, second = yes_kids[place], no_kids[other]
                    out_kids.append(first if first == second else self._choose(kid, first, second, cache))
                    place += yes_cuts[place] == stop
                    other += no_cuts[other] == stop
                    start = stop
            start = end
        found = cache[key] = self.node(level, out_cuts, out_kids)
        return found

    def both(self, one: Node, other: Node) -> Node:
        """The conjunction of two conditions."""
        return self.choose(one, other, FALSE)

    def either(self, one: Node, other: Node) -> Node:
        """The disjunction of two conditions."""
        return self.choose(one, TRUE, other)

    def negate(self, condition: Node) -> Node:
        """The opposite of a condition."""
        return self.choose(condition, FALSE, TRUE)

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
        cuts, kids = self.parts(one, level)
        other_cuts, other_kids = self.parts(other, level)
        out_cuts: list[int] = []
        out_kids: list[Node] = []
        if len(cuts) <= len(other_cuts):
            narrow, wide = (cuts, kids), (other_cuts, other_kids)
        else:
            narrow, wide = (other_cuts, other_kids), (cuts, kids)
        swapped = narrow[0] is other_cuts and narrow[1] is other_kids
        start = 0
        for end, kid in zip(*narrow, strict=True):
            if kid == neutral:
                _copy(*wide, start, end, out_cuts, out_kids)
            else:
                place = bisect_right(wide[0], start)
                while start < end:
                    stop = min(wide[0][place], end)
                    beside = wide[1][place]
                    pair = (beside, kid) if swapped else (kid, beside)
                    out_cuts.append(stop)
                    out_kids.append(self._merge(*pair, neutral, cache, join))
                    place += 1
                    start = stop
            start = end
        found = cache[key] = self.node(level, out_cuts, out_kids)
        return found

    def override_all(self, nodes: Sequence[Node]) -> Node:
        """The first of many that decides, merged pairwise so that large nodes are not copied again and again."""
        pending = list(nodes) or [MISS]
        while len(pending) > 1:
            pending = [
                self.override(pending[place], pending[place + 1]) if place + 1 < len(pending) else pending[place]
                for place in range(0, len(pending), 2)
            ]
        return pending[0]

    def add_all(self, nodes: Sequence[Node], join: Callable[[Node, Node], Node]) -> Node:
        """The sum of many, merged pairwise."""
        pending = list(nodes) or [ZERO]
        while len(pending) > 1:
            pending = [
                self.add(pending[place], pending[place + 1], join) if place + 1 < len(pending) else pending[place]
                for place in range(0, len(pending), 2)
            ]
        return pending[0]

    def assign(self, node: Node, values: tuple[tuple[int, int], ...]) -> Node:
        """The function with some fields fixed: ascending pairs of level and value."""
        while values and self.level[node] >= values[0][0]:
            if self.level[node] == values[0][0]:
                node = self.kids[node][bisect_right(self.cuts[node], values[0][1])]
            values = values[1:]
        if not values or not self.reaches(node, values[0][0]):
            return node
        cache = self.cache(("assign", values[0][0]))
        return self._assign(node, values, cache)

    def _assign(self, node: Node, values: tuple[tuple[int, int], ...], cache: dict[object, Node]) -> Node:
        key = (node, values)
        found = cache.get(key)
        if found is None:
            kids = [self.assign(kid, values) for kid in self.kids[node]]
            found = cache[key] = self.node(self.level[node], self.cuts[node], kids)
        return found

    def replace(self, node: Node, first: int, name: object, change: Callable[[int, Node], Node | None]) -> Node:
        """Rebuild the part of a diagram at level `first` and below.

        `change(level, node)` gives the replacement of a node, or None to go on into its children; it must be the same
        function for the same `name`.
        """
        return self._replace(node, first, self.cache(name), change)

    def _replace(
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
                kids = [self._replace(kid, first, cache, change) for kid in self.kids[node]]
                made = self.rebuilt(level, self.cuts[node], kids)
        cache[node] = made
        return made

    def rebuilt(self, level: int, cuts: Sequence[int], kids: Sequence[Node]) -> Node:
        """As `node`, for children that may ask fields above this level."""
        if all(self.level[kid] > level for kid in kids):
            return self.node(level, cuts, kids)
        result = kids[-1]
        start = 0
        for cut, kid in zip(cuts[:-1], kids[:-1], strict=True):
            result = self.choose(self.among(level, ((start, cut - 1),)), kid, result)
            start = cut
        return result

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
            kids = [self._map_leaves(kid, cache, change) for kid in self.kids[node]]
            made = self.node(self.level[node], self.cuts[node], kids)
        cache[node] = made
        return made

    def differing(self, one: Node, other: Node) -> Iterator[tuple[dict[int, tuple[int, int]], Node, Node]]:
        """Where two diagrams differ: regions, as an interval (ends included) per level, with both leaves. Disjoint, and
        together everything."""
        yield from self._differing(one, other, {})

    def _differing(
        self, one: Node, other: Node, path: dict[int, tuple[int, int]]
    ) -> Iterator[tuple[dict[int, tuple[int, int]], Node, Node]]:
        if one == other:
            return
        level = min(self.level[one], self.level[other])
        if level == LEAF:
            yield dict(path), one, other
            return
        for start, stop, kid, beside in self.joint(one, other, level):
            if kid != beside:
                path[level] = (start, stop - 1)
                yield from self._differing(kid, beside, path)
                del path[level]

    def where_different(self, one: Node, other: Node, ignored: int) -> Node:
        """The condition that two functions differ, for some value of the `ignored` level."""
        cache = self.cache(("different", ignored))
        return self._where_different(one, other, ignored, cache)

    def _where_different(self, one: Node, other: Node, ignored: int, cache: dict[object, Node]) -> Node:
        if one == other:
            return FALSE
        level = min(self.level[one], self.level[other])
        if level == LEAF:
            return TRUE
        key = (one, other)
        found = cache.get(key)
        if found is None:
            cuts, kids = [], []
            for _, stop, kid, beside in self.joint(one, other, level):
                cuts.append(stop)
                kids.append(self._where_different(kid, beside, ignored, cache))
            if level == ignored:
                found = FALSE
                for kid in kids:
                    found = self.either(found, kid)
            else:
                found = self.node(level, cuts, kids)
            cache[key] = found
        return found

    def for_all(self, condition: Node, levels: range, within: Node) -> Node:
        """The condition that holds for all values of some levels for which `within`, which asks only those, holds."""
        return self.negate(self.exists(self.both(within, self.negate(condition)), levels))

    def unaffected(self, node: Node, levels: Iterable[int]) -> Node:
        """The condition, asking none of some levels, that these do not change the function's value."""
        asked = sorted(self.support(node) & set(levels))
        result = TRUE
        for level in asked:
            alone = self._unaffected(node, level, self.cache(("unaffected", level)))
            for other in asked:  # a step at a time leads from any values of these levels to any others
                alone = self.for_all(alone, range(other, other + 1), TRUE)
            result = self.both(result, alone)
        return result

    def _unaffected(self, node: Node, level: int, cache: dict[object, Node]) -> Node:
        if not self.reaches(node, level):
            return TRUE
        found = cache.get(node)
        if found is None:
            kids = self.kids[node]
            if self.level[node] == level:
                found = TRUE
                for kid in kids[1:]:
                    found = self.both(found, self.negate(self.where_different(kids[0], kid, LEAF)))
            else:
                below = [self._unaffected(kid, level, cache) for kid in kids]
                found = self.node(self.level[node], self.cuts[node], below)
            cache[node] = found
        return found

    def exists(self, condition: Node, levels: range) -> Node:
        """The condition that holds for some values of some levels."""
        cache = self.cache(("exists", levels.start, levels.stop))
        return self._exists(condition, levels, cache)

    def _exists(self, condition: Node, levels: range, cache: dict[object, Node]) -> Node:
        if not self.reaches(condition, levels.start) or self.level[condition] >= levels.stop:
            return condition
        found = cache.get(condition)
        if found is None:
            kids = [self._exists(kid, levels, cache) for kid in self.kids[condition]]
            level = self.level[condition]
            if level in levels:
                found = FALSE
                for kid in kids:
                    found = self.either(found, kid)
            else:
                found = self.node(level, self.cuts[condition], kids)
            cache[condition] = found
        return found

    def joint(self, one: Node, other: Node, level: int) -> Iterator[tuple[int, int, Node, Node]]:
        """The common intervals of two nodes at a level: start, end (exclusive) and both children."""
        cuts, kids = self.parts(one, level)
        other_cuts, other_kids = self.parts(other, level)
        place = beside = start = 0
        while start < self.sizes[level]:
            stop = min(cuts[place], other_cuts[beside])
            yield start, stop, kids[place], other_kids[beside]
            place += cuts[place] == stop
            beside += other_cuts[beside] == stop
            start = stop


def _copy(
    cuts: tuple[int, ...], kids: tuple[Node, ...], start: int, end: int, out_cuts: list[int], out_kids: list[Node]
) -> None:
    """Append the part of a node from `start` to `end`."""
    first = bisect_right(cuts, start)
    last = bisect_left(cuts, end)
    out_cuts += cuts[first:last]
    out_cuts.append(end)
    out_kids += kids[first : last + 1]
