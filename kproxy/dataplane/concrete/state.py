"""What changes while a packet goes through the host, and the answers that matches give about it."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, NamedTuple

from kproxy.dataplane.model.conntrack import INVALID, NEW, UNTRACKED, Connection
from kproxy.dataplane.model.host import Host
from kproxy.dataplane.model.packet import Packet
from kproxy.netfilter.effect import place_of
from kproxy.netfilter.hooks import Hook

DST: Final = 1
SRC: Final = 2

UNSEEN: Final = "unseen"
TRACKED: Final = "tracked"

BRIDGED: Final = "bridged"
"""The question whether the packet is bridged, as `State.answers` has it."""

MAX_ANSWERS: Final = 8
"""So many answers are remembered; an unknown after them is unknown each time anew, which tells less but stays true."""

RecentKey = tuple[str, int]


class State(NamedTuple):
    """Everything that what follows may depend on.

    Attributes:
        packet: as it is now. connection: as conntrack has it now.
        tracking: `unseen` before conntrack, then `tracked`, `UNTRACKED` or `INVALID`.
        nat_done: which of DST and SRC translation have been set up (nf_nat_initialized).
        masqueraded: whether a rule chose a source to rewrite to.
        looped: whether this packet of this host, to this host itself, has come in again.
        answers: how open questions that may come up again were answered.
        recent: the lists of `-m recent` as this packet changed them.
        nth: how often this packet met a rule in mode nth.
        sets: elements of nftables' sets that this packet changed: table, set, key, and data (True in a set; None if it
            was deleted).
        rerouted: the output interface that routing chose anew while the packet is still in OUTPUT, as a tuple of one;
            rules there go on seeing the first one. In PREROUTING: a looped packet is routed there after all.
        told: what rules did that the packet does not show (`netfilter.effect.Told`): each with whether it stays if the
            packet is dropped.
        ipvs: whether IPVS has had the packet, which it takes once (skb->ipvs_property); None: that is not known.
        assigned: whether TPROXY gave the packet to a socket.
        arrived: while the packet is at the ingress of a bridge port: the interface and the port to go on with.
    """

    packet: Packet
    connection: Connection
    tracking: str = UNSEEN
    nat_done: int = 0
    masqueraded: bool = False
    looped: bool = False
    answers: frozenset[tuple[Hashable, bool]] = frozenset()
    recent: frozenset[tuple[RecentKey, tuple[int, ...]]] = frozenset()
    nth: frozenset[tuple[tuple[str, str, int], int]] = frozenset()
    sets: frozenset[tuple[str, str, Hashable, Hashable]] = frozenset()
    rerouted: tuple[str | None] | None = None
    ipvs: bool | None = None
    assigned: bool = False
    arrived: tuple[str | None, str | None] | None = None
    told: frozenset[tuple[str, bool]] = frozenset()

    def with_packet(self, **changes: object) -> State:
        """The state with fields of the packet changed."""
        return self._replace(packet=self.packet.replace(**changes))

    def with_open_marks(self) -> State:
        """The state once something that is not known may have set the marks of packet and connection."""
        opened = self.connection.replace(mark=0, mark_known=0)
        return self.with_packet(mark=0, mark_known=0)._replace(connection=opened)

    def with_told(self, text: str, *, stays: bool) -> State:
        """The state after a statement that is known by its text."""
        place = place_of(text)
        return self._replace(told=frozenset(item for item in self.told if place_of(item[0]) != place) | {(text, stays)})

    def with_answer(self, key: Hashable, answer: bool) -> State:
        """The state in which an open question is answered."""
        return self._replace(answers=self.answers | {(key, answer)})

    @property
    def has_connection(self) -> bool:
        """Whether the packet belongs to a conntrack entry by now."""
        return self.tracking == TRACKED

    @property
    def ctstate(self) -> str | None:
        """The state that `-m conntrack` sees here; None if it is open.

        Before conntrack has seen a packet it counts as INVALID, because it has no entry yet (xt_conntrack).
        """
        if self.tracking == TRACKED:
            return self.connection.state
        return UNTRACKED if self.tracking == UNTRACKED else INVALID

    @property
    def walks_nat(self) -> bool:
        """Whether the packet is one for which the nat tables are walked: the first of its connection."""
        if self.tracking != TRACKED or self.connection.settled:
            return False
        return self.connection.state == NEW or (self.connection.state == "RELATED" and not self.packet.is_icmp_error)


Note = Callable[[str, str, int], str | None]
"""Provenance: given table, chain and rule number, a text about where the rule comes from, or None."""


class RuleRef(NamedTuple):
    """A rule: its table, chain and number, from 1, and among rules of several writers whose it is."""

    table: str
    chain: str
    rule: int
    source: str = ""

    def __str__(self) -> str:
        return f"{self.source} {self.table} {self.chain} rule {self.rule}".lstrip()


@dataclass(slots=True)
class View:
    """What a match or target may look at; `translates`: it is in a chain of type nat."""

    host: Host
    hook: Hook
    ref: RuleRef
    state: State
    limit: bool | None = None
    translates: bool = False


class Split(NamedTuple):
    """The answer of a match that is not simply yes or no: it may be both, or it changes the state.

    `yes` and `no` are the states in which the packet goes on if it matches or not; None: that cannot be. With both,
    `chance` is the probability of yes, or None if that is unknown, and `why` says why.
    """

    yes: State | None
    no: State | None
    chance: Fraction | None = None
    why: str = ""


Answer = bool | Split


def open_question(view: View, key: Hashable, why: str) -> Answer:
    """An unknown whose value is the same whenever the same `key` comes up again."""
    if (key, True) in view.state.answers:
        return True
    if (key, False) in view.state.answers:
        return False
    if len(view.state.answers) >= MAX_ANSWERS:
        return unknown(view, why)
    return Split(view.state.with_answer(key, True), view.state.with_answer(key, False), None, why)


def unknown(view: View, why: str) -> Split:
    """An unknown whose value may differ each time."""
    return Split(view.state, view.state, None, why)


def by_chance(view: View, chance: Fraction) -> Answer:
    """An answer that chance gives."""
    if chance <= 0:
        return False
    if chance >= 1:
        return True
    return Split(view.state, view.state, chance)


def negate(answer: Answer) -> Answer:
    """The opposite answer."""
    if isinstance(answer, Split):
        return Split(answer.no, answer.yes, None if answer.chance is None else 1 - answer.chance, answer.why)
    return not answer
