"""Quantifiers over the variables of a diagram: for some values, for all values, whether a variable matters.

Theory: docs/symbolic.md, "Diagrams".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kproxy.dataplane.symbolic.mtbdd import Diagrams
from kproxy.dataplane.symbolic.nodes import FALSE, LEAF, TRUE, Node


def where_different(
    diagrams: Diagrams,
    one: Node,
    other: Node,
    ignored: int,
    at_leaves: Callable[[Node, Node], Node] = lambda _one, _other: TRUE,
) -> Node:
    """The condition that two functions differ, for some value of the `ignored` level. `at_leaves` is the condition for
    two unequal leaves, and must be the same function in all calls that have it at all."""
    cache = diagrams.cache(("different", ignored, at_leaves))

    def walk(one: Node, other: Node) -> Node:
        if one == other:
            return FALSE
        level = min(diagrams.level[one], diagrams.level[other])
        if level == LEAF:
            return at_leaves(one, other)
        found = cache.get((one, other))
        if found is None:
            parts = [(stop, walk(*pair)) for _, stop, *pair in diagrams.joint(one, other, level)]
            bounds, children = zip(*parts, strict=True)
            if level == ignored:
                found = diagrams.any_of(children)
            else:
                found = diagrams.compose_node(level, bounds, children)
            cache[one, other] = found
        return found

    return walk(one, other)


def for_all(diagrams: Diagrams, condition: Node, levels: Iterable[int], within: Node) -> Node:
    """The condition that holds for all values of some levels for which `within`, which asks only those, holds."""
    return diagrams.negate(exists(diagrams, diagrams.both(within, diagrams.negate(condition)), levels))


def unaffected(diagrams: Diagrams, node: Node, levels: Iterable[int]) -> Node:
    """The condition, asking none of some levels, that these do not change the function's value."""
    asked = sorted(diagrams.support(node) & set(levels))
    if not asked:
        return TRUE
    at_zero = diagrams.restrict(node, tuple((level, 0) for level in asked))
    return diagrams.negate(exists(diagrams, where_different(diagrams, node, at_zero, LEAF), asked))


def exists(diagrams: Diagrams, condition: Node, levels: Iterable[int]) -> Node:
    """The condition that holds for some values of some levels."""
    chosen = frozenset(levels)
    first, last, cache = min(chosen), max(chosen), diagrams.cache(("exists", chosen))

    def walk(condition: Node) -> Node:
        level = diagrams.level[condition]
        if not diagrams.reaches(condition, first) or level > last:
            return condition
        found = cache.get(condition)
        if found is None:
            children = [walk(child) for child in diagrams.children[condition]]
            if level in chosen:
                found = diagrams.any_of(children)
            else:
                found = diagrams.node(level, diagrams.bounds[condition], children)
            cache[condition] = found
        return found

    return walk(condition)
