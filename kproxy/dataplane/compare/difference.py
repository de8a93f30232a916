"""One way in which two rule sets differ: what is found of it, and how it is said."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from kproxy.dataplane.compare.causes import Cause
from kproxy.dataplane.compare.witness import Situation
from kproxy.dataplane.concrete.trace import TraceResult
from kproxy.dataplane.symbolic.cases import ORIGINS
from kproxy.netfilter.family import Family


class Place(NamedTuple):
    """Destinations as they are told: in words, as `10.96.0.10:53/udp` or `port 30053/udp of any other address`, and
    what of them is one value.

    Attributes:
        address, protocol: "" if it is more than one.
        port: 0 if it is more than one.
        is_loopback: whether all addresses are of 127.0.0.0/8, or ::1.
        own: the words where only the host's own of these addresses are meant.
        is_own: whether they are.
    """

    text: str
    address: str = ""
    port: int = 0
    protocol: str = ""
    is_loopback: bool = False
    own: str = ""
    is_own: bool = False

    def of_host(self) -> Place:
        """The host's own of these addresses."""
        return self._replace(text=self.own, is_own=True)

    @property
    def rank(self) -> int:
        """The fewer, the more usual: one address, as a ClusterIP; others, as those of node ports; one of the host's
        own that rules name; loopback's."""
        if self.address:
            return 2 if self.is_own else 0
        return 3 if self.is_loopback else 1


Intervals = tuple[tuple[int, int], ...]
"""First and last addresses."""


@dataclass(frozen=True, slots=True)
class Extent:
    """Which other packets show the same as a witness: those whose source and destination address are others.

    Attributes:
        sources, destinations: None for any.
        origins: where they may come from: `arriving`, `local`.
    """

    sources: Intervals | None = None
    destinations: Intervals | None = None
    origins: frozenset[str] = frozenset(ORIGINS)

    def has_source(self, address: int) -> bool:
        """Whether a packet from an address shows the same."""
        return _has(self.sources, address)

    def has_destination(self, address: int) -> bool:
        """Whether a packet to an address shows the same."""
        return _has(self.destinations, address)


ANY: Final = Extent()
"""Whatever the addresses are."""


def _has(intervals: Intervals | None, address: int) -> bool:
    return intervals is None or any(first <= address <= last for first, last in intervals)


@dataclass(frozen=True, slots=True)
class Difference:
    """One way in which the rule sets differ.

    Attributes:
        places: where packets go to for which they differ, one for each service or address, the usual ones first.
        sources: where those come from, in words (`anywhere`).
        conditions: what else must hold of them, in words; may be empty.
        one, other: what each rule set does.
        situations: a packet, its host and its connection, for which they differ, as the one and the other side meet it:
            the host may remember other things there.
        cause: the rule of one side alone that makes the difference, if there is one.
        traces: of the witness, through the one and the other.
        extent: what of the witness may be another for the same difference.
        oddness: the greater, the fewer packets fulfil the conditions.
        ends: what becomes of the witness under each, if that is certain: `dropped`, `rejected`, `sent`; else "".
        source_only: whether they differ only in how the source is rewritten.
        general: `one` and `other` in words that do not name the packet's own destination.
        to_host: whether only the host's own addresses are meant.
        is_usual: whether the witness goes to an address that hosts have, and its connection is not translated yet.
    """

    sources: str
    conditions: str
    one: str
    other: str
    situations: tuple[Situation, Situation]
    places: tuple[Place, ...] = ()
    cause: Cause | None = None
    traces: tuple[TraceResult, ...] = field(default=(), compare=False, repr=False)
    extent: Extent = field(default=ANY, compare=False, repr=False)
    oddness: int = field(default=0, compare=False, repr=False)
    ends: tuple[str, str] = field(default=("", ""), compare=False, repr=False)
    source_only: bool = field(default=False, compare=False, repr=False)
    general: tuple[str, str] = field(default=("", ""), compare=False, repr=False)
    to_host: bool = field(default=False, compare=False, repr=False)
    is_usual: bool = field(default=True, compare=False, repr=False)

    @property
    def rank(self) -> tuple[int, bool]:
        """The less, the more usual packets meet it: to one address, as a Service's, under few conditions; among those,
        what one side accepts and the other drops or refuses comes first."""
        usual = min((each.rank for each in self.places), default=0) + self.oddness
        return usual, not ("sent" in self.ends and {"dropped", "rejected"} & set(self.ends))

    @property
    def witness(self) -> Situation:
        """What the first side meets."""
        return self.situations[0]

    @property
    def family(self) -> Family:
        """That of its packets."""
        return self.witness.packet.family

    @property
    def destinations(self) -> tuple[str, ...]:
        """The places in words."""
        return tuple(each.text for each in self.places)

    @property
    def wording(self) -> tuple[object, ...]:
        """Equal for differences at one place that read alike."""
        return self.sources, self.conditions, self.one, self.other, self.to_host

    def statement(self, one: str = "A", other: str = "B", max_shown: int = 3) -> str:
        """The difference in one sentence."""
        shown = ", ".join(self.destinations[:max_shown])
        if len(self.destinations) > max_shown:
            more = len(self.destinations) - max_shown
            shown += f" and {more:,} more destination{'' if more == 1 else 's'}"
        conditions = f", {self.conditions}" if self.conditions else ""
        return f"{shown} from {self.sources}{conditions}: {one} {self.one}; {other} {self.other}"
