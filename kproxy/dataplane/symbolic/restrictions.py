"""Variables that a condition fixes: they are fixed in what follows before that is evaluated, so that it is small.

Theory: docs/symbolic.md, "Backwards".
"""

from __future__ import annotations

from kproxy.dataplane.symbolic.nodes import FALSE, TRUE, Node
from kproxy.dataplane.symbolic.variables import Variables

Fixed = tuple[tuple[int, int], ...]
"""Variables that are fixed on the way into a chain: ascending pairs of level and value."""


def fixed_by(variables: Variables, condition: Node) -> Fixed:
    """The variables that a condition fixes to one value, if they come first and no target changes it."""
    diagrams = variables.diagrams
    fixed = []
    while condition > TRUE:
        children = diagrams.children[condition]
        inside = [position for position, child in enumerate(children) if child != FALSE]
        if len(inside) != 1:
            break
        position = inside[0]
        level, bounds = diagrams.level[condition], diagrams.bounds[condition]
        start = bounds[position - 1] if position else 0
        if bounds[position] - start == 1 and variables.dst <= level < variables.destination:
            fixed.append((level, start))
        condition = children[position]
    return tuple(fixed)


def joined(fixed: Fixed, more: Fixed) -> Fixed:
    """Both together."""
    if not more:
        return fixed
    return tuple(sorted({**dict(fixed), **dict(more)}.items())) if fixed else more
