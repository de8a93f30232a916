"""What expressions evaluate to, for a packet in a state at a hook: keys, and what is worked out of them.

Every answer is the kernel's: the module of the kernel that a function follows is named beside it (nft_jhash). What was
not given is `Open`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any, Final, Protocol

from kproxy.dataplane.concrete.nft.keys import KEYS, value_of
from kproxy.dataplane.concrete.nft.sets import IndexedElements
from kproxy.dataplane.concrete.nft.values import (
    MAX_NUMBERS,
    MISSING,
    Drawn,
    Open,
    Uniform,
    Value,
    alternatives,
    is_known,
)
from kproxy.dataplane.concrete.state import View
from kproxy.netfilter.iptables.codec import UINT32
from kproxy.netfilter.nftables.element import Element
from kproxy.netfilter.nftables.expression import (
    AnonymousMap,
    AnonymousSet,
    Binary,
    Concat,
    Expression,
    Jhash,
    MapLookup,
    SetReference,
    Symhash,
)
from kproxy.netfilter.nftables.lowering import key_of
from kproxy.netfilter.nftables.value import bounds

MAX_ALTERNATIVES: Final = 64


class Sets(Protocol):
    """The sets and maps of a table."""

    def elements(self, which: SetReference | AnonymousSet | AnonymousMap) -> IndexedElements:
        """The elements as the rules have them."""

    def changed(self, view: View, name: str) -> Mapping[object, object | None]:
        """The elements of a named set that packets have changed: present with their data (True in a set), or None if
        deleted."""


def evaluate(expression: Expression, view: View, sets: Sets) -> Any:  # a Value, or a verdict of a verdict map
    """The value of an expression."""
    key = key_of(expression)
    if key is not None:
        return value_of(key, view)
    read = KEYS.get(type(expression))
    if read is not None:
        return read(expression, view)
    action = _ACTIONS.get(type(expression))
    return expression if action is None else action(expression, view, sets)


def _hash(item: Jhash | Symhash, view: View, sets: Sets) -> Any:
    """nft_hash: any of the numbers below the modulus; which one is not computed."""
    if isinstance(item, Jhash) and evaluate(item.key, view, sets) is MISSING:
        return MISSING
    name = "jhash" if isinstance(item, Jhash) else "symhash"
    why = f"{name} of the packet is not known"
    if item.modulus > MAX_ALTERNATIVES:
        return Open((name, item.modulus), why)
    if item.modulus == 1:
        return item.offset
    return Drawn(tuple((number, None) for number in range(item.offset, item.offset + item.modulus)), why)


def _binary(item: Binary, view: View, sets: Sets) -> Any:
    left, right = evaluate(item.left, view, sets), evaluate(item.right, view, sets)
    if left is MISSING or right is MISSING:
        return MISSING
    return combined([left, right], lambda parts: _operate(item.operator, parts[0], parts[1]))


def combined(values: list[Any], join: Callable[[list[Any]], Value]) -> Any:
    """`join` of values, of which some may be drawn."""
    if not any(isinstance(value, (Drawn, Uniform)) for value in values):
        return join(values)
    rows: list[tuple[list[Any], Fraction | None]] = [([], Fraction(1))]
    why = ""
    for value in values:
        drawn = alternatives(value)
        why = why or drawn.why
        rows = [
            ([*before, each], None if chance is None or share is None else chance * share)
            for before, chance in rows
            for each, share in drawn.items
        ]
        if len(rows) > MAX_NUMBERS:
            return Open(("drawn", len(rows)), "the random number is not known")
    return merged([(join(parts), chance) for parts, chance in rows], why)


def merged(items: list[tuple[Any, Fraction | None]], why: str) -> Any:
    """Alternatives with equal ones made one."""
    found: dict[Any, Fraction | None] = {}
    for value, chance in items:
        before = found.get(value, Fraction(0))
        found[value] = None if chance is None or before is None else before + chance
    if len(found) == 1:
        only: Value = next(iter(found))
        return only
    if None in found.values():
        found = dict.fromkeys(found, None)
    return Drawn(tuple(found.items()), why)


def _operate(operator: str, left: Any, right: Any) -> Any:
    one = left if isinstance(left, Open) else Open("", "", left, UINT32 if left <= UINT32 else -1)
    two = right if isinstance(right, Open) else Open("", "", right, UINT32 if right <= UINT32 else -1)
    a, b = one.value & one.known, two.value & two.known
    if operator in ("<<", ">>"):
        if isinstance(right, Open):
            return Open(("shift", left, right), right.why)
        if operator == "<<":
            value, known = a << right & UINT32, (one.known << right | (1 << right) - 1) & UINT32
        else:
            value, known = a >> right, one.known >> right | (UINT32 ^ UINT32 >> right)
    elif operator == "&":
        known = one.known & two.known | one.known & ~a | two.known & ~b
        value = a & b
    elif operator == "|":
        known = one.known & two.known | a | b
        value = a | b
    else:
        known, value = one.known & two.known, a ^ b
    if not isinstance(left, Open) and not isinstance(right, Open):
        return value
    if known & UINT32 == UINT32:
        return value & UINT32
    source = left if isinstance(left, Open) else right
    same = operator == "&" and not isinstance(right, Open)
    return Open(source.field if same else (operator, left, right), source.why, value & known, known)


def _concat(item: Concat, view: View, sets: Sets) -> Any:
    parts = [evaluate(part, view, sets) for part in item.parts]
    if MISSING in parts:
        return MISSING
    return combined(parts, lambda found: tuple(found))


def _map(item: MapLookup, view: View, sets: Sets) -> Any:
    key = evaluate(item.key, view, sets)
    if key is MISSING:
        return MISSING
    found: Value = look_up(item.map, key, view, sets)
    return found


def look_up(where: SetReference | AnonymousMap, key: Any, view: View, sets: Sets) -> Any:
    """The data that a map holds for a key: MISSING if there is none."""
    elements = sets.elements(where)
    if isinstance(key, Uniform):
        return _look_up_drawn(elements, key)
    if isinstance(key, Drawn):
        rows = [(look_up(where, value, view, sets), chance) for value, chance in key.items]
        if any(isinstance(value, Drawn) for value, _ in rows):
            return Open(("map", key), key.why)
        return merged(rows, key.why)
    changed = sets.changed(view, where.name) if isinstance(where, SetReference) else {}
    if is_known(key):
        if key in changed:
            data = changed[key]
            return MISSING if data is None else data
        element = elements.find(key)
        return MISSING if element is None else element.data
    found = [(element.data, sure) for element, sure in elements.candidates(key)]
    certain = any(sure for _, sure in found) or elements.catch_all is not None
    values: list[Any] = [data for data, _ in found]
    if elements.catch_all is not None:
        values.append(elements.catch_all.data)
    distinct = list(dict.fromkeys(values if certain else [*values, MISSING]))
    if len(distinct) == 1:
        return distinct[0]
    why = next(part.why for part in (key if isinstance(key, tuple) else (key,)) if isinstance(part, Open))
    if len(distinct) > MAX_ALTERNATIVES:
        return Open(("map", key), why)
    return Drawn(tuple((value, None) for value in distinct), why)


def _look_up_drawn(elements: IndexedElements, key: Uniform) -> Any:
    rows: list[tuple[Element, Fraction]] = []
    left = Fraction(1)
    for element, _ in elements.candidates(key):
        numbers = bounds(element.key)
        if numbers is not None:
            chance = key.chance(*numbers)
            left -= chance
            rows.append((element, chance))
    found: list[tuple[Any, Fraction | None]] = [(element.data, chance) for element, chance in rows if chance]
    if left > 0:
        rest = elements.catch_all
        found.append((MISSING if rest is None else rest.data, left))
    return merged(found, "")


_ACTIONS: Final[dict[type, Callable[[Any, View, Sets], Any]]] = {
    Jhash: _hash,
    Symhash: _hash,
    Binary: _binary,
    Concat: _concat,
    MapLookup: _map,
}
