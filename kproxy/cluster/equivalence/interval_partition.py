"""Ranges of numbers, as of addresses and ports, and which of them a number is in."""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Sequence

from kproxy.netfilter import Family
from kproxy.netfilter.address import Network

Interval = tuple[int, int]
"""First and last number of a range, both included."""


def interval_of(text: str, family: Family) -> Interval:
    """An address or a network, `10.0.0.0/8`. Raises ValueError."""
    return bounds(Network.parse(text, family))


def bounds(network: Network) -> Interval:
    """The addresses of a network whose mask has no holes."""
    first = network.address & network.mask
    return first, first | (network.family.full_mask & ~network.mask)


class IntervalPartition:
    """Which of some ranges numbers are in.

    Attributes:
        intervals: the ranges, each with a number, which is its place.
    """

    def __init__(self, intervals: Iterable[Interval], first: Sequence[Interval] = ()) -> None:
        """`first`: those that get the first numbers, in this order; the others have theirs by size."""
        self.intervals = (*first, *sorted({*intervals}.difference(first)))
        self._starts = sorted({edge for first, last in self.intervals for edge in (first, last + 1)})
        self._labels: dict[int, tuple[int, ...]] = {}

    def of(self, number: int) -> tuple[int, ...]:
        """The numbers of the ranges."""
        place = bisect.bisect_right(self._starts, number)
        found = self._labels.get(place)
        if found is None:
            inside = (place for place, (first, last) in enumerate(self.intervals) if first <= number <= last)
            found = self._labels[place] = tuple(inside)
        return found
