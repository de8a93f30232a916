"""What a rule asks of a packet, as data: one meaning for rules of every language and for every engine.

A row of a match's options says which condition its value is (`iptables.option.Option.asks`).
`dataplane.concrete.answer` asks a condition of one packet, `dataplane.symbolic.ask` makes it the set of all packets of
which it holds. That is how Batfish does it: rules of all vendors become one match expression, which has one evaluator
and one translation to sets.
"""

from __future__ import annotations

import typing
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

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

    `what` names it in an answer.
    """

    kind: str
    text: str
    what: str


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


Condition = In | Under | Among | Open | Not | All | Any
Asks = Callable[[typing.Any], Condition]
"""Of an option's value, without its `!`: the condition that it is."""
ALWAYS: Final = All(())
PORTS: Final = In("protocol", tuple((number, number) for number in (6, 17, 33, 132, 136)))
"""The protocol has ports: TCP, UDP, DCCP, SCTP, UDP-Lite."""
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


def bits(field: str, mask: int, shift: int = 0) -> Asks:
    """So many bits of the field have a value, which a shift brings to their place."""
    return lambda value: Under(field, value << shift, mask)


def equals(field: str) -> Asks:
    """The field has a value."""
    return lambda value: In(field, ((value, value),))


def all_of(parts: Iterable[Condition]) -> Condition:
    """The condition that all of these hold, as short as it can be said."""
    kept = tuple(part for part in parts if part != ALWAYS)
    return kept[0] if len(kept) == 1 else All(kept)
