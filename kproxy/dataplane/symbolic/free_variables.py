"""Free variables: what the variables of a packet do not hold, asked at a stage of its way.

Theory: docs/symbolic.md, "The function".
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final, NamedTuple

from kproxy.netfilter.iptables.matches import RecentMatch, SetReference
from kproxy.netfilter.iptables.option import Negatable

BEFORE: Final = "before"
"""Before the destination of a new connection is translated; `AFTER` thereafter."""
AFTER: Final = "after"
LOOPED: Final = "looped"
"""After the source is rewritten, too, of a packet that the host sends to itself."""


@dataclass(frozen=True, eq=False)
class Stage:
    """What is certain at a table of a hook. One object per stage: stages are compared by identity.

    Attributes:
        hook, table: where.
        ctstate: what `-m conntrack` sees; the connection's state or INVALID or UNTRACKED.
        tracked: whether the packet has a conntrack entry here.
        fresh: whether it is the first packet of its connection, for which the nat tables are walked.
        phase: `BEFORE` or `AFTER` the translation of the destination.
        input, output: whether the packet has an input and an output interface here.
        looped: whether this is the way back in.
        source_done: whether the nat chains that translate sources are behind.
        balanced: whether IPVS has had the packet.
    """

    hook: str
    table: str
    ctstate: str
    tracked: bool
    fresh: bool
    phase: str
    input: bool
    output: bool
    looped: bool = False
    source_done: bool = False
    balanced: bool = False


class FreeVariable(NamedTuple):
    """The key of a free variable. `text` is what is asked, as in the rule; `kind` says whose answer it is:

    `opaque` (a match that stays open, with a class or without), `set`, `rate`, `recent`, `owner`, `physdev`,
    `conntrack`, `header`, `onward` (whether a packet goes on past what is not known), `hash` (a bit of a mark).
    """

    kind: str
    text: str
    where: Hashable = ""


def set_moment(reference: SetReference, stage: Stage) -> tuple[str, ...]:
    """When the packet has the addresses that a set is asked for."""
    sides = {"src": "source", "dst": "dest"}
    return tuple(moment(sides[direction], stage) for direction in reference.directions)


class Listed(NamedTuple):
    """What a free variable of kind `recent` is about."""

    name: str
    side: str
    mask: int
    seconds: int | None
    hits: int
    moment: str


def moment(side: str, stage: Stage) -> str:
    """When the packet has the address that a list is asked for."""
    if side == "source":
        return LOOPED if stage.source_done else BEFORE
    return stage.phase


def recent_variable(match: RecentMatch, stage: Stage) -> FreeVariable:
    """Whether a list holds the packet's address, recently and often enough."""
    plain = RecentMatch(
        Negatable("rcheck"), match.name, match.mask, match.side, match.seconds, False, match.hitcount, match.rttl
    )
    if match.rttl:
        return FreeVariable("opaque", plain.to_save(), moment(match.side, stage))
    when = moment(match.side, stage)
    about = Listed(match.name, match.side, match.mask.value, match.seconds, match.hitcount or 1, when)
    return FreeVariable("recent", plain.to_save(), about)


def asked_before(variable: FreeVariable) -> FreeVariable | None:
    """The variable of a looped packet's source asked before the source might be rewritten; None for any other."""
    where = variable.where
    if isinstance(where, Listed) and where.moment == LOOPED:
        return variable._replace(where=where._replace(moment=BEFORE))
    if variable.kind == "set" and isinstance(where, tuple) and LOOPED in where[1]:
        return variable._replace(where=(where[0], tuple(BEFORE if item == LOOPED else item for item in where[1])))
    return None
