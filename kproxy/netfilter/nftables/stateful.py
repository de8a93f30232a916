"""What counts and limits: in a rule, at each element of a set, or by itself as a named object of a table.

The kernel's own count (packets seen, bytes used) does not take part in comparisons, since two dumps of one rule set
differ in it; the limits do.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, TypeAlias


@dataclass(frozen=True, slots=True)
class Counter:
    """`counter`: counts packets and bytes, and lets every packet go on."""

    packets: int = field(default=0, compare=False)
    bytes: int = field(default=0, compare=False)


DEFAULT_BURST: Final = 5
"""The burst of a packet limit that gives none."""


@dataclass(frozen=True, slots=True)
class Limit:
    """`limit rate [over] 10/second [burst 5 packets]`: holds for packets within the rate, with `over` for those above
    it.

    `rate` and `burst` count packets, or bytes when `in_bytes`; `unit` is second, minute, hour, day or week.
    """

    rate: int
    unit: str
    burst: int
    over: bool = False
    in_bytes: bool = False


@dataclass(frozen=True, slots=True)
class Quota:
    """`quota [over] 10 mbytes [used 2 bytes]`: holds until `bytes` have passed, with `over` from then on."""

    bytes: int
    over: bool = False
    used: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class ConnectionLimit:
    """`ct count [over] N`: holds while there are at most `count` connections (of this set element, or of the rule),
    with `over` while there are more."""

    count: int
    over: bool = False


@dataclass(frozen=True, slots=True)
class Last:
    """`last [used TIME]`: remembers when a packet came by. `used` is milliseconds ago, None for never."""

    used: int | None = field(default=None, compare=False)


Stateful: TypeAlias = Counter | Limit | Quota | ConnectionLimit | Last
"""A statement that a set element can hold too."""
