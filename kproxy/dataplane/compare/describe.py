"""Where two functions differ in words: one box of packet space around a witness.

The box is grown from the witness: one variable after the other is widened to all values for which the rule sets still
differ, given what was chosen before. Values that no packet can have do not count. So a box says "from anywhere" exactly
if the difference does not depend on the source, and every packet in the box is treated differently.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from kproxy.dataplane.symbolic.nodes import FALSE, TRUE, Node
from kproxy.dataplane.symbolic.quantify import for_all
from kproxy.dataplane.symbolic.table import TABLE, PacketVariables, Row, Shape, Widen
from kproxy.dataplane.symbolic.variables import ADDRESS_KINDS, LOCAL, UNICAST, Variables
from kproxy.netfilter.address import format_address
from kproxy.netfilter.family import Family
from kproxy.words import listed

_MAX_PARTS: Final = 4


class Group(NamedTuple):
    """Levels that are one thing to a reader, of this row of the table; of none: a free variable."""

    row: Row | None
    levels: Sequence[int]


def groups_of(variables: Variables) -> list[Group]:
    """The groups in the order in which a box is widened.

    What kind an address is comes before the address: else a set would take in addresses that cannot be of this kind.
    """
    groups: list[Group] = []
    together = [variables.levels[row.name] for row in TABLE if row.widen is Widen.TOGETHER]
    for row in sorted(TABLE, key=lambda row: row.widen.value):
        levels = variables.levels[row.name]
        if row.shape is Shape.MARK:
            groups += [Group(row, range(level, level + 1)) for level in levels]
        elif row.widen is Widen.TOGETHER:
            if levels == together[0]:
                groups.append(Group(row, range(levels[0], together[-1][-1] + 1)))
        elif row.widen is not Widen.NEVER:
            groups.append(Group(row, levels))
    return groups + [Group(None, range(level, level + 1)) for level in variables.free_variables.values()]


class Side(NamedTuple):
    """What a box says about one group: the condition, and which values there can be at all."""

    group: Group
    condition: Node
    possible: Node


def box_around(variables: Variables, different: Node, possible: Node, values: Mapping[int, int]) -> list[Side]:
    """The widest box around some values inside a condition; groups that are free are left out.

    What is not `possible` does not count.
    """
    diagrams = variables.diagrams
    inside = diagrams.either(different, diagrams.negate(possible))
    support = diagrams.support(inside)
    used = [group for group in groups_of(variables) if any(level in support for level in group.levels)]
    box = []
    for position, group in enumerate(used):
        others = [level for other in used[position + 1 :] for level in other.levels]
        fixed = tuple((level, values.get(level, 0)) for level in sorted(others))
        chosen = diagrams.restrict(inside, fixed)
        if chosen != TRUE:
            others = [level for other in used if other is not group for level in other.levels]
            point = tuple((level, values.get(level, 0)) for level in sorted(others))
            box.append(Side(group, chosen, diagrams.restrict(possible, point)))
        inside = for_all(diagrams, inside, group.levels, chosen)
    return box


class BoxWords(NamedTuple):
    """A box in words. `to_host`: destinations are the host's own addresses, which `conditions` do not say."""

    sources: str
    conditions: str
    to_host: bool


def box_text(variables: Variables, box: Iterable[Side]) -> BoxWords:
    """A box in words."""
    sources, to_host = "anywhere", False
    rest: list[str] = []
    bits: dict[str, list[tuple[int, int]]] = {}
    for group, condition, possible in box:
        row, level = group.row, group.levels[0]
        if row is PacketVariables.src:
            sources = address_set(variables, level, condition, possible)
        elif row is not None and row.shape is Shape.MARK:
            wanted = int(variables.diagrams.at(condition, {level: 1}) == TRUE)
            bits.setdefault(row.words, []).append((31 - variables.levels[row.name].index(level), wanted))
        elif row is PacketVariables.dst_kind and _is_host(variables, level, condition):
            to_host = True
        else:
            text = _condition_text(variables, group, condition, possible)
            if text:
                rest.append(text)
    for words, found in bits.items():
        mask = sum(1 << bit for bit, _ in found)
        value = sum(wanted << bit for bit, wanted in found)
        rest.append(f"{words} 0x{value:x}/0x{mask:x}")
    return BoxWords(sources, ", ".join(rest), to_host)


def _is_host(variables: Variables, level: int, condition: Node) -> bool:
    """Whether a condition on the kind of an address holds of the host's own, and not of other hosts'."""
    at = variables.diagrams.at
    return at(condition, {level: LOCAL}) == TRUE and at(condition, {level: UNICAST}) != TRUE


def _condition_text(variables: Variables, group: Group, condition: Node, possible: Node) -> str:
    row, level, diagrams = group.row, group.levels[0], variables.diagrams
    shape = row.shape if row is not None else None
    words = row.words if row is not None else ""
    if shape is Shape.PORT:
        return f"{words} {_some(range_texts(intervals_of(variables, level, condition)))}"
    if shape is Shape.ADDRESS:
        return f"{words} {address_set(variables, level, condition)}"
    if row is not None and row.widen is Widen.TOGETHER:
        return _translation_text(variables, condition, possible)
    wanted = condition if shape is Shape.ADDRESS_KIND else diagrams.both(condition, possible)
    values = [value for value in range(diagrams.sizes[level]) if diagrams.at(wanted, {level: value}) == TRUE]
    if row is None:
        text = next(key.text for key, position in variables.free_variables.items() if position == level)
        return f"where `{text}` {'holds' if values == [1] else 'does not hold'}"
    if shape is Shape.INTERFACE:
        names = variables.interfaces.names
        return f"{words} {' or '.join(names[value] for value in values if value) or 'no interface'}"
    if shape is Shape.ADDRESS_KIND:
        return _kind_text(words, values)
    if shape is Shape.FLAG:
        return words if values == [1] else f"not {words}"
    return f"{words} {_some(range_texts(intervals_of(variables, level, wanted)))}"


def _kind_text(name: str, values: list[int]) -> str:
    if UNICAST in values and LOCAL in values:
        return ""
    if LOCAL in values:
        return f"{name} is this host"
    if UNICAST in values:
        return f"{name} is not this host"
    return f"{name} is {' or '.join(ADDRESS_KINDS[value] for value in values)}"


def _translation_text(variables: Variables, condition: Node, possible: Node) -> str:
    """Which connections, by direction and translation: `reply`, `dnat` and `snat` are three levels in a row."""
    diagrams = variables.diagrams
    held = []
    for reply in (0, 1):
        for dnat in (0, 1):
            for snat in (0, 1):
                point = {variables.reply: reply, variables.dnat: dnat, variables.snat: snat}
                if diagrams.at(possible, point) == TRUE and diagrams.at(condition, point) == TRUE:
                    held.append((bool(snat if reply else dnat), reply, dnat, snat))
    if all(moved for moved, *_ in held):
        return "where the connection translates the destination"
    if not any(moved for moved, *_ in held):
        return ""  # so that it reads as for a new connection
    words = [
        f"{'reply' if reply else 'original'} direction"
        + ("" if not dnat and not snat else " with " + " and ".join(["DNAT"] * dnat + ["SNAT"] * snat))
        for _, reply, dnat, snat in held
    ]
    return f"connections in {' or '.join(words)}"


def range_texts(intervals: Iterable[tuple[int, int]]) -> list[str]:
    """`80`, `8000-8080`."""
    return [str(first) if first == last else f"{first}-{last}" for first, last in intervals]


def _some(parts: Sequence[str]) -> str:
    return ", ".join(parts[:_MAX_PARTS]) + (", ..." if len(parts) > _MAX_PARTS else "")


def intervals_of(variables: Variables, first: int, condition: Node) -> list[tuple[int, int]]:
    """A condition on the variable with this first level, as ascending intervals; at most a few hundred."""
    diagrams = variables.diagrams
    levels, bits = variables.levels_at(first)
    found: list[tuple[int, int]] = []

    def add(start: int, end: int, below: int) -> None:
        start, last = start << bits * below, (end << bits * below) - 1
        if found and found[-1][1] + 1 == start:
            start = found.pop()[0]
        found.append((start, last))

    def walk(node: Node, level: int, prefix: int) -> None:
        if len(found) > 300 or node == FALSE:
            return
        if node == TRUE:
            add(prefix, prefix + 1, levels[-1] + 1 - level)
            return
        start = 0
        for end, child in zip(*diagrams.parts(node, level), strict=True):
            if child == TRUE:
                add(prefix << bits | start, (prefix << bits | end - 1) + 1, levels[-1] - level)
            elif child != FALSE:
                for value in range(start, min(end, start + 300)):
                    walk(child, level + 1, prefix << bits | value)
            start = end

    walk(condition, first, 0)
    return found


def address_set(variables: Variables, level: int, condition: Node, possible: Node = TRUE) -> str:
    """A set of addresses in words: whichever is shorter of what it holds and what it leaves out. Addresses that are not
    possible may count as either."""
    diagrams = variables.diagrams

    def parts(node: Node) -> list[str]:
        return _networks(intervals_of(variables, level, node), variables.family)

    widest = diagrams.either(condition, diagrams.negate(possible))
    if widest == TRUE:
        return "anywhere"
    narrowest = diagrams.both(condition, possible)
    left = parts(diagrams.negate(widest))
    kept = min(parts(narrowest), parts(widest), key=len)
    if len(left) < len(kept):
        return "anywhere but " + listed(left, _MAX_PARTS)
    return listed(kept, _MAX_PARTS)


def _networks(intervals: list[tuple[int, int]], family: Family) -> list[str]:
    parts = []
    for first, last in intervals:
        size = last - first + 1
        if size & (size - 1) == 0 and first % size == 0:
            length = family.bits - size.bit_length() + 1
            text = format_address(first, family)
            parts.append(text if size == 1 else f"{text}/{length}")
        else:
            parts.append(f"{format_address(first, family)}-{format_address(last, family)}")
    return parts
