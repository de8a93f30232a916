"""Values: the constants that rules compare with and that sets and maps hold.

A value is made for lookups by number, not for reading text again:

- a number (`int`): addresses in network order, ports, protocols, marks, ICMP types, conntrack states as bits, interface
  indexes; durations in milliseconds;
- a string (`str`): an interface name (also after `iif` and `oif`, where nft prints the name of the index);
- a tuple of values: a concatenation, one item a part (`10.0.0.1 . tcp . 80` is `(0x0A000001, 6, 80)`);
- a `Prefix` or a `Range` of numbers, or an `InterfacePrefix`: many values at once. Inside a tuple they stand for one
  part.

What a number means, and how it is printed, is the data type of the expression or set beside it (`datatype.py`). So an
element's key is what a packet's own key is compared with: equal, and with an equal hash.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final, TypeAlias

from kproxy.netfilter.iptables.codec import Range as Range


@dataclass(frozen=True, slots=True)
class Prefix:
    """The numbers of `bits` bits that agree with `address` in the first `length` bits; the other bits of `address` are
    0."""

    address: int
    length: int
    bits: int

    @property
    def mask(self) -> int:
        """The mask of the bits that count."""
        return ((1 << self.length) - 1) << (self.bits - self.length)

    @property
    def first(self) -> int:
        """The lowest number."""
        return self.address

    @property
    def last(self) -> int:
        """The highest number."""
        return self.address | (1 << (self.bits - self.length)) - 1


@dataclass(frozen=True, slots=True)
class InterfacePrefix:
    """The interface names that start with `prefix`: `eth*` in nft's words."""

    prefix: str

    def contains(self, name: str) -> bool:
        """Whether the name starts so."""
        return name.startswith(self.prefix)


class CatchAll(enum.Enum):
    """The element `*` of a set or map, which stands for every key that no other element holds."""

    CATCH_ALL = "*"


CATCH_ALL: Final = CatchAll.CATCH_ALL

Single: TypeAlias = int | str | Prefix | Range | InterfacePrefix
"""One value, without concatenation."""


def bounds(constant: object) -> tuple[int, int] | None:
    """The first and last number of a constant, None if it is no number."""
    if isinstance(constant, (Prefix, Range)):
        return constant.first, constant.last
    return (constant, constant) if isinstance(constant, int) else None


Value: TypeAlias = Single | tuple[Single, ...]
"""A constant of a rule, or the key or data of an element."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What happens to the packet: `kind` is accept, drop, continue, return, jump or goto; `chain`, a chain of the same
    table, stands with the last two. A verdict is a statement, and the data of a verdict map."""

    kind: str
    chain: str | None = None


ACCEPT: Final = Verdict("accept")
DROP: Final = Verdict("drop")
RETURN: Final = Verdict("return")
