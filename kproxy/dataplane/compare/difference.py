"""One way in which two rule sets differ, and its cause: what is found of them, and how they are said."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeVar

import msgspec

from kproxy.dataplane.compare.witness import Situation
from kproxy.dataplane.concrete.trace import Outcome, TraceResult
from kproxy.dataplane.symbolic.cases import ORIGINS
from kproxy.netfilter.address import format_address
from kproxy.netfilter.family import Family, protocol_name
from kproxy.words import exact

_Item = TypeVar("_Item")


class Instead(msgspec.Struct, frozen=True):
    """What the other side has in place of a rule, or of an element; as in `Cause`."""

    rule: int
    text: str
    action: str


class Cause(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A rule that only one side has, or an element of a set or map that a rule of both asks; docs/diff.md has its JSON.

    Attributes:
        side: `a` or `b`; `a` if the other side has another rule, or element, in its place.
        rule: its number in the chain, from 1; of an element, the rule that asks for it.
        text: the rule's as iptables-save or nft prints it, or the element's.
        action: what the rule does, in words; of an element, what has it.
        same_but_chance: the other side has the rule, too, with another chance.
        set: the name of the set or map whose element it is; "" if it is the rule.
        instead: what the other side has in its place.
    """

    side: str
    table: str
    chain: str
    rule: int
    text: str
    action: str
    same_but_chance: bool
    set: str = ""
    instead: Instead | None = None

    def words(self) -> str:
        """`rule 3 of INPUT, jump to f2b-sshd, is only in A`."""
        one, other = ("A", "B") if self.side == "a" else ("B", "A")
        how = f"is only in {one}"
        if self.same_but_chance:
            how = f"has another chance in {other}"
        elif self.instead is not None:
            how = f"is changed in {other}"
        if self.set:
            return f"element `{self.text}` of {self.action} {how}"
        return f"rule {self.rule} of {self.chain}, {self.action}, {how}"

    @property
    def texts(self) -> tuple[str, str]:
        """What each side has; "" on the side that has nothing in its place."""
        other = "" if self.instead is None else self.instead.text
        return (self.text, other) if self.side == "a" else (other, self.text)

    @property
    def anywhere(self) -> Cause:
        """The same whatever the rules' numbers are."""
        instead = None if self.instead is None else msgspec.structs.replace(self.instead, rule=0)
        return msgspec.structs.replace(self, rule=0, instead=instead)


def by_cause(items: Iterable[_Item], cause_of: Callable[[_Item], Cause | None]) -> list[list[_Item]]:
    """Those of one cause together, in the order of the first of each; what has no cause is alone. The same rule of the
    same chain is one cause on several nodes, whatever its number there."""
    groups: list[list[_Item]] = []
    known: dict[Cause, list[_Item]] = {}
    for item in items:
        cause = cause_of(item)
        if cause is None:
            groups.append([item])
            continue
        key = cause.anywhere
        if key not in known:
            groups.append(known.setdefault(key, []))
        known[key].append(item)
    return groups


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
ALL: Final[Intervals] = ((0, Family.IPV6.full_mask),)
"""Every address."""


@dataclass(frozen=True, slots=True)
class Extent:
    """Which other packets show the same as a witness: those whose source and destination address are others; `origins`
    are those that they may have: `arriving`, `local`."""

    sources: Intervals = ALL
    destinations: Intervals = ALL
    origins: frozenset[str] = frozenset(ORIGINS)


def within(intervals: Intervals, address: int) -> bool:
    """Whether an address is in one of these."""
    return any(first <= address <= last for first, last in intervals)


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
    extent: Extent = field(default_factory=Extent, compare=False, repr=False)
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

    @property
    def record(self) -> dict[str, object]:
        """A difference as data for programs: its JSON in `kproxy diff -o json`."""
        packet, host = self.witness.packet, self.witness.host
        return {
            "destinations": self.destinations,
            "from": self.sources,
            "conditions": self.conditions,
            **({} if self.cause is None else {"cause": self.cause}),
            "a": self.one,
            "b": self.other,
            "witness": {
                "src": packet.source,
                "dst": packet.destination,
                "proto": protocol_name(packet.protocol),
                "origin": packet.origin,
                "in": packet.in_interface or "",
                "mark": packet.mark,
                "ctstate": self.witness.connection.state,
                "localAddresses": [
                    format_address(address, family)
                    for family, address in sorted(host.local_addresses or (), key=lambda pair: pair[1])
                ],
                "assumed": [{"match": question.text, "holds": answer} for question, answer in self.witness.assumed],
                "a": list(map(_outcome_record, self.traces[0].outcomes)),
                "b": list(map(_outcome_record, self.traces[1].outcomes)),
            },
        }


_OF_OUTCOME: Final = ("verdict", "src", "dst", "dnat", "masquerade", "hook")
_OF_STEP: Final = ("table", "chain", "rule", "text")


def _outcome_record(outcome: Outcome) -> dict[str, object]:
    return {
        "probability": exact(outcome.probability),
        **{name: getattr(outcome, name) for name in _OF_OUTCOME},
        "path": [{name: getattr(step, name) for name in _OF_STEP} for step in outcome.path],
    }
