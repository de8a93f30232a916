"""What can become of a packet, each thing once."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from fractions import Fraction
from typing import TypeVar

from kproxy.dataplane import Outcome, TraceResult

Key = TypeVar("Key", bound=Hashable)


def shares(result: TraceResult, key: Callable[[Outcome], Key]) -> dict[Key, Fraction]:
    """The probability of outcomes for which `key` is the same, in the order in which they are met."""
    found: dict[Key, Fraction] = {}
    for outcome in result.outcomes:
        name = key(outcome)
        found[name] = found.get(name, Fraction(0)) + outcome.probability
    return found
