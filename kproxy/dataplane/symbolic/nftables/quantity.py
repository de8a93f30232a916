"""What an nftables expression yields, for all packets at once: a number or a name as a function of the variables.

Theory: docs/symbolic.md, "nftables".

A quantity answers one thing: for which packets its value is one of some numbers or names. `present` is the condition
that there is a value at all; without one the rule ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, reduce
from typing import Final

from kproxy.dataplane.symbolic.mtbdd import Diagrams
from kproxy.dataplane.symbolic.nodes import FALSE, TRUE, Node
from kproxy.dataplane.symbolic.variables import Interval, Variables
from kproxy.netfilter.address import Network
from kproxy.netfilter.nftables.value import InterfacePrefix, Prefix, Range, Single

Values = tuple[Single, ...]
_MAX_ENUMERATED: Final = 1024


def numbers(value: Single) -> Interval | None:
    """The first and last number that a constant stands for; None for a name."""
    if isinstance(value, (Prefix, Range)):
        return value.first, value.last
    return (value, value) if isinstance(value, int) else None


def stands_for(value: Single, item: int | str) -> bool:
    """Whether a constant is this number or name, or holds it."""
    if isinstance(value, InterfacePrefix):
        return isinstance(item, str) and value.contains(item)
    if isinstance(value, (Prefix, Range)):
        return isinstance(item, int) and value.contains(item)
    return value == item


class Quantity:
    """A value that depends on the packet. `bits` is the width of its numbers, 0 for names."""

    present: Node = TRUE
    bits: int = 32

    def among(self, values: Sequence[Single]) -> Node:
        """For which packets the value is one of these. It need not be asked where it is not `present`."""
        raise NotImplementedError


@dataclass(frozen=True)
class Constant(Quantity):
    """The same number or name for every packet."""

    value: int | str

    def among(self, values: Sequence[Single]) -> Node:
        return TRUE if any(stands_for(value, self.value) for value in values) else FALSE


@dataclass(frozen=True)
class Small(Quantity):
    """A function of one level: `items` has its value for each value of the level."""

    variables: Variables
    level: int
    items: tuple[int | str, ...]
    present: Node = TRUE
    bits: int = 32

    def among(self, values: Sequence[Single]) -> Node:
        found: set[int] = set()
        for value in values:
            if isinstance(value, (int, str)):
                found.update(self._positions.get(value, ()))
            else:
                found.update(position for position, item in enumerate(self.items) if stands_for(value, item))
        if not found:
            return FALSE
        inside: list[Interval] = []
        for position in sorted(found):
            if inside and inside[-1][1] == position - 1:
                inside[-1] = (inside[-1][0], position)
            else:
                inside.append((position, position))
        return self.variables.diagrams.among(self.level, inside)

    @cached_property
    def _positions(self) -> dict[int | str, list[int]]:
        """The values of the level that make each item."""
        result: dict[int | str, list[int]] = {}
        for position, item in enumerate(self.items):
            result.setdefault(item, []).append(position)
        return result

    def changed(self, change: Callable[[int], int]) -> Small:
        """The quantity computed from this one."""
        items = tuple(change(item) if isinstance(item, int) else item for item in self.items)
        return Small(self.variables, self.level, items, self.present, self.bits)


@dataclass(frozen=True)
class Wide(Quantity):
    """A variable of several levels, an address or a port, under a mask."""

    variables: Variables
    level: int
    mask: int
    present: Node = TRUE
    bits: int = 32

    def among(self, values: Sequence[Single]) -> Node:
        variables, diagrams = self.variables, self.variables.diagrams
        found = []
        for value in values:
            interval = numbers(value)
            if interval is None:
                continue
            first, last = interval
            if self.mask == (1 << self.bits) - 1:
                found.append(variables.between(self.level, first, last))
            elif last - first < _MAX_ENUMERATED:
                found += [self._under(number) for number in range(first, last + 1)]
            else:
                raise OpaqueError
        return any_of(diagrams, found)

    def _under(self, number: int) -> Node:
        if number & ~self.mask:
            return FALSE
        variables = self.variables
        if self.bits == variables.family.bits:
            return variables.address_under(self.level, Network(variables.family, number, self.mask))
        parts = [
            variables.between(self.level, candidate, candidate)
            for candidate in range(1 << self.bits)
            if candidate & self.mask == number
        ]
        return any_of(variables.diagrams, parts)


@dataclass(frozen=True)
class Bits(Quantity):
    """A number whose bits are conditions, the highest first."""

    variables: Variables
    nodes: tuple[Node, ...]
    present: Node = TRUE
    bits: int = 32

    def among(self, values: Sequence[Single]) -> Node:
        diagrams = self.variables.diagrams
        found = []
        for value in values:
            interval = numbers(value)
            if interval is not None:
                found.append(diagrams.both(self._bound(interval[0], above=True), self._bound(interval[1], above=False)))
        return any_of(diagrams, found)

    def _bound(self, edge: int, *, above: bool) -> Node:
        """The number is at least the edge, or at most."""
        diagrams = self.variables.diagrams
        result = TRUE if edge < 1 << self.bits or not above else FALSE
        for bit, node in enumerate(reversed(self.nodes)):
            if edge >> bit & 1:
                result = diagrams.ite(node, result, FALSE if above else TRUE)
            else:
                result = diagrams.ite(node, TRUE if above else FALSE, result)
        return result

    def any_bit(self, mask: int) -> Node:
        """At least one of these bits is set."""
        set_bits = [node for bit, node in enumerate(reversed(self.nodes)) if mask >> bit & 1]
        return any_of(self.variables.diagrams, set_bits)


@dataclass(frozen=True)
class Flags(Quantity):
    """A number of which each bit is a condition of its own: `ask` gives that of one bit. Only what a rule asks for is
    made."""

    variables: Variables
    ask: Callable[[int], Node]
    mask: int
    present: Node = TRUE
    bits: int = 32

    def among(self, values: Sequence[Single]) -> Node:
        asked = (1 << bit & self.mask for bit in range(self.bits - 1, -1, -1))
        nodes = tuple(self.ask(bit) if bit else FALSE for bit in asked)
        return Bits(self.variables, nodes, self.present, self.bits).among(values)

    def any_bit(self, mask: int) -> Node:
        """At least one of these bits is set."""
        asked = (1 << bit & self.mask & mask for bit in range(self.bits))
        return any_of(self.variables.diagrams, (self.ask(bit) for bit in asked if bit))


@dataclass(frozen=True)
class Cases(Quantity):
    """A number that conditions decide: the first that holds."""

    variables: Variables
    cases: tuple[tuple[Node, int], ...]
    present: Node = TRUE
    bits: int = 32

    def among(self, values: Sequence[Single]) -> Node:
        diagrams = self.variables.diagrams
        result = FALSE
        for condition, number in reversed(self.cases):
            inside = TRUE if any(stands_for(value, number) for value in values) else FALSE
            result = diagrams.ite(condition, inside, result)
        return result


@dataclass(frozen=True)
class Random(Quantity):
    """`numgen`: each number with its chance, whatever the packet."""

    chances: tuple[tuple[int, Fraction], ...]

    def among(self, values: Sequence[Single]) -> Node:
        raise OpaqueError


@dataclass(frozen=True)
class Opaque(Quantity):
    """A value that the variables do not hold."""

    present: Node = TRUE

    def among(self, values: Sequence[Single]) -> Node:
        raise OpaqueError


class OpaqueError(Exception):
    """A quantity cannot be compared so: the whole match is unknown."""


def any_of(diagrams: Diagrams, nodes: Iterable[Node]) -> Node:
    """One of many conditions holds; joined pairwise, so that large ones are not copied again and again."""
    pending = list(nodes) or [FALSE]
    while len(pending) > 1:
        pending = [reduce(diagrams.either, pending[at : at + 2]) for at in range(0, len(pending), 2)]
    return pending[0]


def random_chances(modulus: int, offset: int) -> tuple[tuple[int, Fraction], ...]:
    """The chances of `numgen random mod N`: the kernel takes the upper half of a 32-bit random number times N
    (`reciprocal_scale`), so that the numbers' shares of 2^32 are not quite equal unless N is a power of two."""
    edges = [-(-(number << 32) // modulus) for number in range(modulus + 1)]
    return tuple((number + offset, Fraction(edges[number + 1] - edges[number], 1 << 32)) for number in range(modulus))
