"""What the kernel and nft make of a set when it is loaded, besides what the script says.

- A set with a timeout of its own has the flag `timeout`.
- A set that a rule updates is dynamic, with room for 65535 elements unless it says otherwise (a map gets the room
  only).
- Statements of the set, such as `counter`, stand at each of its elements, and not in the rules that update it.
- Intervals are kept in one form; with `auto-merge` they are joined where they touch.

All of this is seen in `nft list` of 1.0.6 and 1.1.3, and done here, so that a script and the listing of what it loads
are equal.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Final

from kproxy.netfilter.nftables.element import Elements
from kproxy.netfilter.nftables.order import merge_intervals, same_intervals
from kproxy.netfilter.nftables.ruleset import Rule
from kproxy.netfilter.nftables.sets import Set
from kproxy.netfilter.nftables.statement import SetUpdate

DYNAMIC_SIZE: Final = 65535
"""The most elements of a set that rules update."""


def updated_sets(rules: Iterable[Rule]) -> set[str]:
    """The names of the sets that rules update."""
    return {statement.set for rule in rules for statement in rule.statements if type(statement) is SetUpdate}


def canonical_set(item: Set, *, updated: bool) -> Set:
    """A set as it is listed once it is loaded; `updated` says that a rule updates it."""
    flags, size, elements = item.flags, item.size, item.elements
    if item.timeout is not None:
        flags |= {"timeout"}
    if updated:
        flags |= {"dynamic"} if not item.is_map else set()
        size = DYNAMIC_SIZE if size is None else size
    if "interval" in flags:
        elements = same_intervals(elements, item.types)
        if item.auto_merge and not item.is_map and len(item.types) == 1:
            elements = merge_intervals(elements, item.types[0])
    if item.stateful and any(not element.stateful for element in elements):
        elements = Elements(
            element if element.stateful else dataclasses.replace(element, stateful=item.stateful)
            for element in elements
        )
    return dataclasses.replace(item, flags=flags, size=size, elements=elements)


def canonical_rule(rule: Rule, stateful: dict[str, Set]) -> Rule:
    """A rule as it is listed: without the statements that the sets it updates have anyway. `stateful` are these
    sets."""
    statements = tuple(
        dataclasses.replace(statement, stateful=())
        if type(statement) is SetUpdate
        and statement.set in stateful
        and stateful[statement.set].stateful == statement.stateful
        else statement
        for statement in rule.statements
    )
    return rule if statements == rule.statements else dataclasses.replace(rule, statements=statements)
