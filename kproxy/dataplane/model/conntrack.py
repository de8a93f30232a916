"""What connection tracking knows about a packet: its connection's state, its two tuples, and its mark.

A `Connection` is given with the packet, or left at its default: a connection that begins. The two tuples carry the
address translation: a packet of the original direction leaves the host as the reverse of `reply`, a packet of the reply
direction as the reverse of `original` (nf_nat_manip_pkt in the kernel). The nat tables are walked only while a
connection is NEW (nf_nat_inet_fn); after that the tuples decide.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Final, NamedTuple

from kproxy.dataplane.model.packet import Packet
from kproxy.netfilter.iptables.codec import UINT32

NEW: Final = "NEW"
ESTABLISHED: Final = "ESTABLISHED"
RELATED: Final = "RELATED"
INVALID: Final = "INVALID"
UNTRACKED: Final = "UNTRACKED"
ORIGINAL: Final = "ORIGINAL"
REPLY: Final = "REPLY"

MAX_CHOICES: Final = 64
"""Up to so many addresses or ports that a NAT target chooses from are told apart; of more, the choice is unknown."""


class FlowTuple(NamedTuple):
    """One direction of a connection; a port is None where the protocol has none or where it is open (chosen at random),
    an address is None where it is open."""

    src: int | None
    sport: int | None
    dst: int | None
    dport: int | None

    def reversed(self) -> FlowTuple:
        """The tuple of the other direction."""
        return FlowTuple(self.dst, self.dport, self.src, self.sport)


def tuple_of(packet: Packet) -> FlowTuple:
    """The tuple that a packet belongs to."""
    return FlowTuple(packet.src, packet.sport, packet.dst, packet.dport)


@dataclass(frozen=True, slots=True)
class Connection:
    """A conntrack entry as far as it is known.

    Attributes:
        state: NEW, ESTABLISHED, RELATED, INVALID or UNTRACKED, or None if left open.
        direction: of the packet: ORIGINAL or REPLY.
        original, reply: the tuples. None: as the packet has them, without address translation.
        dnat, snat: whether destination or source are translated.
        ipvs: whether IPVS translates the destination, which conntrack then only follows (ip_vs_update_conntrack).
        status: names of `netfilter.matches.STATUSES` that hold; None: what follows from the state, the rest open.
        settled: whether the translation is chosen for good, so that no nat table is walked even for a RELATED packet.
        mark, mark_known: the connection's mark, and which of its bits are known.
    """

    state: str | None = NEW
    direction: str = ORIGINAL
    original: FlowTuple | None = None
    reply: FlowTuple | None = None
    dnat: bool = False
    snat: bool = False
    ipvs: bool = False
    status: frozenset[str] | None = None
    settled: bool = False
    mark: int = 0
    mark_known: int = UINT32

    @classmethod
    def established(
        cls, original: FlowTuple, reply: FlowTuple, *, direction: str = ORIGINAL, state: str = ESTABLISHED
    ) -> Connection:
        """A known connection: the translation follows from the tuples."""
        dnat = (original.dst, original.dport) != (reply.src, reply.sport)
        snat = (original.src, original.sport) != (reply.dst, reply.dport)
        return cls(state, direction, original, reply, dnat, snat)

    @property
    def translated(self) -> bool:
        """Whether any address or port is translated."""
        return self.dnat or self.snat or self.ipvs

    def moved_from(self, packet: Packet) -> bool:
        """Whether the packet's destination address, apart from the port, is not the one that it came with."""
        seen = self.original if self.direction == ORIGINAL else self.reply
        return seen is not None and seen.dst != packet.dst

    def fits(self, packet: Packet) -> bool:
        """Whether conntrack finds this entry for a packet: not if a rule wrote other addresses or ports into it."""
        wanted = self.original if self.direction == ORIGINAL else self.reply
        pairs = zip(tuple_of(packet), wanted or (), strict=False)
        return all(seen is None or known is None or seen == known for seen, known in pairs)

    def known_as(self, packet: Packet) -> Connection:
        """The entry with both tuples filled in: what is missing follows from the packet, untranslated."""
        seen = tuple_of(packet)
        original, reply = self.original, self.reply
        if original is None:
            original = (
                reply.reversed() if reply is not None else seen if self.direction == ORIGINAL else seen.reversed()
            )
        if reply is None:
            reply = original.reversed()
        return self.replace(original=original, reply=reply)

    def replace(self, **changes: object) -> Connection:
        """A copy with some fields changed."""
        return dataclasses.replace(self, **changes)  # type: ignore[arg-type]

    def turned(self, state: str = ESTABLISHED) -> Connection:
        """The same connection as a packet of the other direction finds it."""
        return self.replace(state=state, direction=REPLY if self.direction == ORIGINAL else ORIGINAL, settled=True)
