"""The variables of a packet and of its surroundings as levels of a diagram, and conditions on them.

Theory: docs/symbolic.md, "The order of variables".

Which variables there are, and in which order, is in `table`.

`destination` is not a variable of the packet: it is the translated destination, where the packet ends up. An outcome
function maps a packet *and* a translated destination to the distribution of everything else (verdict, source rewrite,
...) restricted to this destination. Two outcome functions are equal exactly if the distributions are, and a service
with n endpoints takes n small branches where a distribution as a leaf would take n leaves of n entries. Destination 0
stands for "as the packet has it".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from kproxy.dataplane.model.host import LOOPBACK_NETWORKS, MULTICAST_NETWORKS
from kproxy.dataplane.symbolic.free_variables import FreeVariable
from kproxy.dataplane.symbolic.mtbdd import Diagrams
from kproxy.dataplane.symbolic.nodes import FALSE, TRUE, Node
from kproxy.dataplane.symbolic.table import TABLE, PacketVariables, Shape
from kproxy.netfilter.address import Network
from kproxy.netfilter.family import Family
from kproxy.netfilter.field import PORT_PROTOCOLS
from kproxy.netfilter.iptables.codec import Range
from kproxy.netfilter.iptables.option import Negatable

UNICAST: Final = 0
LOCAL: Final = 1
BROADCAST: Final = 2
MULTICAST: Final = 3
ADDRESS_KINDS: Final = ("UNICAST", "LOCAL", "BROADCAST", "MULTICAST")

CHUNK: Final = 16
"""Bits of a level of an address."""
NO_INTERFACE: Final = 0
"""The atom of "no interface": the input of a packet that the host makes, the output of one that is not routed yet."""

Interval = tuple[int, int]


class Interfaces:
    """The interface names that rules can tell apart: each name in play, what else fits each `+` pattern, the rest.

    Atom 0 is no interface and atom 1 is `lo`.
    """

    def __init__(self, patterns: Iterable[str]) -> None:
        self.patterns = sorted({*patterns, "lo"})
        names = [name for name in self.patterns if not name.endswith("+")]
        stems = [name[:-1] for name in self.patterns if name.endswith("+")]
        examples = [_example(stem, self.patterns) for stem in stems] + [_stranger(self.patterns)]
        self.names = ["", "lo"]
        seen = {self.signature("lo")}
        for name in [*names, *(example for example in examples if example)]:
            if name not in self.names and (name in names or self.signature(name) not in seen):
                self.names.append(name)
                seen.add(self.signature(name))

    def signature(self, name: str) -> tuple[bool, ...]:
        """Which patterns an interface fits."""
        return tuple(fits(pattern, name) for pattern in self.patterns)

    def atoms(self, pattern: str) -> list[Interval]:
        """The atoms that fit a pattern."""
        return [(position, position) for position, name in enumerate(self.names) if fits(pattern, name)]


def fits(pattern: str, name: str) -> bool:
    """Whether an interface has the name, or begins with it if the pattern ends in `+`; no interface is ""."""
    return name.startswith(pattern[:-1]) if pattern.endswith("+") else name == pattern


def _example(stem: str, patterns: Sequence[str]) -> str:
    """A short name that begins with the stem and fits no pattern that the stem itself does not."""
    wanted = [fits(pattern, stem) for pattern in patterns if pattern != stem]
    for tail in ("0", *"123456789", *"abcdefghijklmnopqrstuvwxyz"):
        name: str = stem + tail
        if name not in patterns and [fits(pattern, name) for pattern in patterns if pattern != stem] == wanted:
            return name[:15]
    return ""


def _stranger(patterns: Sequence[str]) -> str:
    """A name that fits no pattern but `+`."""
    known = [pattern for pattern in patterns if pattern != "+"]
    letters = "abcdefghijklmnopqrstuvwxyz"
    names = ("eth0", *(f"{one}{two}{three}0" for one in letters for two in letters for three in letters))
    return next((name for name in names if not any(fits(pattern, name) for pattern in known)), "")


class Variables(PacketVariables):
    """The levels for one family, and the diagrams that use them. `levels` has those of each variable by name.
    `served` are addresses that a host has for virtual servers alone, and else not.

    The bits of the two marks take turns, so that a copy of one to the other is a small diagram: `mark_shift` says by
    how many bits copies move them to the left on their way to the connection's mark.
    """

    def __init__(
        self,
        family: Family,
        interfaces: Interfaces,
        destinations: int,
        mark_shift: int = 0,
        served: frozenset[int] = frozenset(),
    ) -> None:
        self.family = family
        self.served = served
        self.interfaces = interfaces
        self.levels = {}
        self._rows: dict[int, tuple[Sequence[int], int]] = {}
        sizes: list[int] = []
        for row in TABLE:
            if row.shape is not Shape.MARK:
                start = len(sizes)
                sizes += row.sizes(family, len(interfaces.names), destinations)
                self.levels[row.name] = range(start, len(sizes))
        shifts = ("mark", mark_shift), ("connmark", 0)
        bits = [(bit + shift, name, bit) for name, shift in shifts for bit in range(32)]
        at = {key[1:]: len(sizes) + place for place, key in enumerate(sorted(bits, reverse=True))}
        sizes += [2] * len(at)
        for name in ("mark", "connmark"):
            self.levels[name] = tuple(at[name, bit] for bit in range(31, -1, -1))
        for row in TABLE:
            levels = self.levels[row.name]
            self._rows[levels[0]] = levels, row.chunk
            self.__dict__[row.name] = levels[0]  # found before the table's row is asked
        self.chunks = len(self.levels["dst"])
        self.diagrams = Diagrams(sizes)
        self.free_variables: dict[FreeVariable, int] = {}

    # values

    def levels_at(self, first: int) -> tuple[Sequence[int], int]:
        """The levels of the variable whose first level this is, and the bits of each."""
        return self._rows[first]

    def values_of(self, first: int, number: int) -> tuple[tuple[int, int], ...]:
        """One value of a variable as pairs of level and value, for `Diagrams.restrict`."""
        levels, bits = self._rows[first]
        mask = (1 << bits) - 1
        last = len(levels) - 1
        return tuple((level, number >> bits * (last - place) & mask) for place, level in enumerate(levels))

    # conditions

    def under(self, first: int, value: int, mask: int) -> Node:
        """The variable with this first level has a value under a mask; none has bits outside of it."""
        if value & ~mask:
            return FALSE
        levels, bits = self._rows[first]
        node, full = TRUE, (1 << bits) - 1
        for place, at in enumerate(reversed(levels)):
            asked = mask >> bits * place & full
            if asked:
                node = self.diagrams.among(at, masked_intervals(value >> bits * place & full, asked, bits), node)
        return node

    def address_under(self, level: int, network: Network) -> Node:
        """An address agrees with another under a mask."""
        return self.under(level, network.address, network.mask)

    def address_is(self, level: int, address: int) -> Node:
        """An address is this one."""
        return self.diagrams.point(self.values_of(level, address))

    def between(self, level: int, first: int, last: int) -> Node:
        """The variable with this first level lies between two numbers, both included."""
        if first > last:
            return FALSE
        levels, bits = self._rows[level]
        mask = (1 << bits) - 1
        low, high, inside = TRUE, TRUE, TRUE
        diagrams = self.diagrams
        for place, at in enumerate(reversed(levels)):
            shift = bits * place
            start, end, size = first >> shift & mask, last >> shift & mask, mask + 1
            if first >> shift + bits == last >> shift + bits:
                if start != end:
                    steps = ((start, FALSE), (start + 1, low), (end, TRUE), (end + 1, high), (size, FALSE))
                    inside = diagrams.node(at, *_steps(steps))
                else:
                    inside = diagrams.equals(at, start, inside)
            low = diagrams.node(at, *_steps(((start, FALSE), (start + 1, low), (size, TRUE))))
            high = diagrams.node(at, *_steps(((end, TRUE), (end + 1, high), (size, FALSE))))
        return inside

    def port_in(self, level: int, ports: Range) -> Node:
        """A port lies in a range."""
        return self.between(level, ports.first, ports.last)

    def has_ports(self) -> Node:
        """The protocol is one with ports."""
        return self.diagrams.among(self.protocol, [(number, number) for number in sorted(PORT_PROTOCOLS)])

    def interface_fits(self, level: int, pattern: str) -> Node:
        """An interface fits a name or pattern."""
        return self.diagrams.among(level, self.interfaces.atoms(pattern))

    def signed(self, condition: Node, wanted: Negatable[Any]) -> Node:
        """A condition, or its opposite if the option asks for that."""
        return self.diagrams.negate(condition) if wanted.negated else condition

    def free(self, key: FreeVariable) -> Node:
        """Something that the variables do not hold and that is yes or no: the same for the same key."""
        level = self.free_variables.get(key)
        if level is None:
            level = self.free_variables[key] = self.diagrams.add_level(2)
        return self.diagrams.equals(level, 1)

    def possible(self, level: int, kind: int) -> Node:
        """What is certain about the kind of an address without knowing the host: loopback addresses are local, and so
        on (`concrete.routing.address_type`)."""
        diagrams = self.diagrams
        result = diagrams.among(kind, ((UNICAST, BROADCAST if self.family is Family.IPV4 else LOCAL),))
        for first, last, certain in _CERTAIN[self.family]:
            result = diagrams.ite(self.between(level, first, last), diagrams.equals(kind, certain), result)
        served = diagrams.any_of([self.address_is(level, each) for each in self.served])
        return diagrams.ite(served, diagrams.equals(kind, UNICAST), result)

    def certain_kind(self, address: int) -> int | None:
        """The kind of an address if it is certain without knowing the host."""
        if address in self.served:
            return UNICAST
        return next((kind for first, last, kind in _CERTAIN[self.family] if first <= address <= last), None)


def _ends(network: Network) -> Interval:
    return network.address, network.address | (network.mask ^ network.family.full_mask)


_CERTAIN: Final = {
    Family.IPV4: (
        (0, 0, BROADCAST),
        (1, 0x00FFFFFF, UNICAST),  # which kernels take for an address, and nobody gives to a host
        (*_ends(LOOPBACK_NETWORKS[Family.IPV4]), LOCAL),
        (*_ends(MULTICAST_NETWORKS[Family.IPV4]), MULTICAST),
        (0xFFFFFFFF, 0xFFFFFFFF, BROADCAST),
    ),
    # IPv6 has no kind for multicast in `addrtype`; it is not one of the host's own addresses.
    Family.IPV6: (
        (*_ends(LOOPBACK_NETWORKS[Family.IPV6]), LOCAL),
        (*_ends(MULTICAST_NETWORKS[Family.IPV6]), UNICAST),
    ),
}
"""First and last addresses whose kind is the same for every host."""


def masked_intervals(value: int, mask: int, bits: int) -> list[Interval]:
    """The numbers of so many bits that have a value under a mask, as ascending intervals."""
    full = (1 << bits) - 1
    mask &= full
    free = ~mask & full
    low = 0
    while low < bits and free >> low & 1:
        low += 1
    size = (1 << low) - 1
    high = free & ~size
    found = []
    part = 0
    while True:
        found.append((value | part, value | part | size))
        if part == high:
            return found
        part = (part - high) & high  # the next subset of the free bits, in ascending order


def _steps(steps: Iterable[tuple[int, Node]]) -> tuple[list[int], list[Node]]:
    """Ends and children, intervals without values left out."""
    bounds: list[int] = []
    children: list[Node] = []
    start = 0
    for end, child in steps:
        if end > start:
            bounds.append(end)
            children.append(child)
            start = end
    return bounds, children
