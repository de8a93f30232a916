"""What a rule asks of a packet, as data: one meaning for rules of every language and for every engine.

A row of a match's options says which condition its value is (`iptables.option.Option.asks`).
`dataplane.concrete.answer` asks a condition of one packet, `dataplane.symbolic.ask` makes it the set of all packets of
which it holds. That is how Batfish does it: rules of all vendors become one match expression, which has one evaluator
and one translation to sets.
"""

from __future__ import annotations

import typing
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from kproxy.netfilter.field import PORT_PROTOCOLS

Interval = tuple[int, int]
"""The numbers from the first to the second, both included."""


@dataclass(frozen=True, slots=True)
class In:
    """The value of a field is in one of these intervals. No interval: it never is."""

    field: str
    intervals: tuple[Interval, ...]


@dataclass(frozen=True, slots=True)
class Under:
    """`field & mask == value`; a value with bits outside its mask never is."""

    field: str
    value: int
    mask: int


@dataclass(frozen=True, slots=True)
class Among:
    """The value of a field is one of these names."""

    field: str
    names: frozenset[str]


@dataclass(frozen=True, slots=True)
class Open:
    """What neither packet nor host tells: yes or no, the same for the same kind and text.

    `what` names it in an answer. Of some kinds each rule has its own (`each`).
    """

    kind: str
    text: str
    what: str
    each: bool = False


@dataclass(frozen=True, slots=True)
class Chance:
    """By chance, with this probability; or, of each `every` packets that are asked, packet number `packet` (from 0), or
    if `negated` the others."""

    chance: Fraction
    every: int = 0
    packet: int = 0
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Not:
    """The opposite of a condition."""

    part: Condition


@dataclass(frozen=True, slots=True)
class All:
    """All parts hold; with no part it always holds."""

    parts: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class Any:
    """One of the parts holds; with no part it never holds."""

    parts: tuple[Condition, ...]


Condition = In | Under | Among | Open | Chance | Not | All | Any
Asks = Callable[[typing.Any], Condition]
"""Of an option's value, without its `!`: the condition that it is."""
ALWAYS: Final = All(())
NEVER: Final = Any(())
PORTS: Final = In("protocol", tuple((number, number) for number in sorted(PORT_PROTOCOLS)))
"""The protocol has ports."""
V4: Final = In("family", ((2, 2),))
V6: Final = In("family", ((10, 10),))
TRACKED: Final = In("tracked", ((1, 1),))
"""The packet belongs to a connection that conntrack has seen."""


def nothing(_value: typing.Any) -> Condition:
    """Nothing is asked."""
    return ALWAYS


def within(*fields: str) -> Asks:
    """One of the fields is in a range, or in one of several."""

    def condition(value: typing.Any) -> Condition:
        ranges = value if isinstance(value, tuple) else (value,)
        intervals = tuple((each.first, each.last) for each in ranges if each.first <= each.last)
        parts = tuple(In(field, intervals) for field in fields)
        return parts[0] if len(parts) == 1 else Any(parts)

    return condition


def under(field: str) -> Asks:
    """The field has a value under a mask."""
    return lambda value: Under(field, value.value, value.mask)


def network(field: str) -> Asks:
    """The field is an address of a network."""
    return lambda value: Under(field, value.address & value.mask, value.mask)


def among(field: str) -> Asks:
    """The field is one of some names."""
    return lambda value: Among(field, value)


def named(field: str) -> Asks:
    """The field is a name, or begins with it if it ends in `+`."""
    return lambda value: Among(field, frozenset({value}))


def bits(field: str, mask: int, shift: int = 0) -> Asks:
    """So many bits of the field have a value, which a shift brings to their place."""
    return lambda value: Under(field, value << shift, mask)


def equals(field: str) -> Asks:
    """The field has a value."""
    return lambda value: In(field, ((value, value),))


def fields_of(condition: Condition) -> Iterator[tuple[str, int]]:
    """The fields that a condition reads, each with the bits of it that matter (-1: all)."""
    match condition:
        case In(field, _) | Among(field, _):
            yield field, -1
        case Under(field, _, mask):
            yield field, mask
        case Not(part):
            yield from fields_of(part)
        case All(parts) | Any(parts):
            for part in parts:
                yield from fields_of(part)


def all_of(parts: Iterable[Condition]) -> Condition:
    """The condition that all of these hold, as short as it can be said."""
    kept = tuple(inner for part in parts for inner in (part.parts if isinstance(part, All) else (part,)))
    return kept[0] if len(kept) == 1 else All(kept)
