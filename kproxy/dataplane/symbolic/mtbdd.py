"""Operations on decision diagrams: choices, sums, restriction, composition, renaming.

Theory: docs/symbolic.md, "Diagrams". The nodes themselves are in `nodes`. Every operation remembers its results.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence

from kproxy.dataplane.symbolic.nodes import FALSE, LEAF, MISS, TRUE, ZERO, Node, Nodes


class Diagrams(Nodes):
    """What can be done with functions."""

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

    def all_of(self, conditions: Iterable[Node]) -> Node:
        """The conjunction of several conditions; those that ask for lower variables are put in later."""
        result = TRUE
        for condition in sorted(conditions, key=self.level.__getitem__):
            result = self.both(result, condition)
        return result

    def any_of(self, conditions: Iterable[Node]) -> Node:
        """The disjunction of several conditions; joined pairwise, so that large ones are not copied again and again."""
        return _pairwise(list(conditions) or [FALSE], self.either)

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
        """The first of many that decides."""
        return _pairwise(list(nodes) or [MISS], self.override)

    def add_all(self, nodes: Sequence[Node], join: Callable[[Node, Node], Node]) -> Node:
        """The sum of many."""
        return _pairwise(list(nodes) or [ZERO], lambda one, other: self.add(one, other, join))

    def restrict(self, node: Node, values: tuple[tuple[int, int], ...]) -> Node:
        """The function with some variables fixed: ascending pairs of level and value."""
        at = 0
        while at < len(values) and self._deepest[node] >= values[at][0]:
            level, value = values[at]
            if self.level[node] < level:
                return self._restrict(node, values[at:], self.cache(("restrict", level)))
            if self.level[node] == level:
                node = self.children[node][bisect_right(self.bounds[node], value)]
            at += 1
        return node

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
        if not self.reaches(node, first):
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
        cache = self.cache(("permute", tuple(levels.items())))
        return self._permute(node, levels, min(levels), max(levels), cache)

    def _permute(self, node: Node, levels: dict[int, int], first: int, last: int, cache: dict[object, Node]) -> Node:
        level = self.level[node]
        if level > last or not self.reaches(node, first):
            return node
        found = cache.get(node)
        if found is None:
            children = [self._permute(child, levels, first, last, cache) for child in self.children[node]]
            found = cache[node] = self.compose_node(levels.get(level, level), self.bounds[node], children)
        return found

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


def _pairwise(pending: list[Node], join: Callable[[Node, Node], Node]) -> Node:
    """Many nodes joined two at a time, so that large ones are not copied again and again."""
    while len(pending) > 1:
        odd = pending[-1:] if len(pending) % 2 else []
        pending = [*map(join, pending[::2], pending[1::2]), *odd]
    return pending[0]


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
