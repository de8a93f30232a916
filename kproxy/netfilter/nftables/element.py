"""Elements of sets and maps."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, TypeAlias

from kproxy.netfilter.nftables.stateful import Stateful
from kproxy.netfilter.nftables.value import CatchAll, Value, Verdict

Data: TypeAlias = Value | Verdict
"""What a map holds for a key. In a map of objects it is the object's name, a string."""


@dataclass(frozen=True, slots=True)
class Element:
    """An element: a key, in a map its data too, and what goes with it.

    `timeout` is how long it stays, in milliseconds, when it has a time of its own; `expires` the time that was left
    when the dump was made. `stateful` are the counters and limits of this element. `expires` does not take part in
    comparisons.
    """

    key: Value | CatchAll
    data: Data | None = None
    timeout: int | None = None
    expires: int | None = field(default=None, compare=False)
    comment: str | None = None
    stateful: tuple[Stateful, ...] = ()


class Elements(tuple[Element, ...]):
    """Elements in the order of the text; equal, with an equal hash, whatever the order is."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, tuple):
            return NotImplemented
        return len(self) == len(other) and (tuple.__eq__(self, other) or frozenset(self) == frozenset(other))

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(frozenset(self))


NO_ELEMENTS: Final = Elements()
