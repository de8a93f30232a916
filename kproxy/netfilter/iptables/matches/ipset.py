"""`-m set`: membership of an ipset."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

from kproxy.netfilter.family import Family
from kproxy.netfilter.iptables.matches.base import Match
from kproxy.netfilter.iptables.option import Codec, Negatable, Option


@dataclass(frozen=True, slots=True)
class SetReference:
    """A set by name, and for each of its dimensions whether the packet's src or dst part is looked up."""

    name: str
    directions: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.name} {','.join(self.directions)}"


def parse_reference(words: Sequence[str], _family: Family) -> SetReference:
    """Read `NAME src,dst`. Raises ValueError."""
    directions = tuple(words[1].split(","))
    if not all(word in ("src", "dst") for word in directions) or len(directions) > 6:
        raise ValueError(f"a comma-separated list of at most six src and dst expected, not {words[1]!r}")
    if not 0 < len(words[0]) < 32:
        raise ValueError(f"a set name of at most 31 characters expected, not {words[0]!r}")
    return SetReference(words[0], directions)


SET_REFERENCE: Final = Codec(parse_reference, str, arity=2)


@dataclass(frozen=True, slots=True)
class SetMatch(Match):
    """`--match-set`. What asks for the counters of the element (`--packets-gt`) is left to `OpaqueMatch`.

    `update_counters` and `update_subcounters` are False when switched off with `!`, else None.
    """

    match_set: Negatable[SetReference]
    return_nomatch: bool = False
    update_counters: bool | None = None
    update_subcounters: bool | None = None

    NAME: ClassVar[str] = "set"
    OPTIONS: ClassVar[tuple[Option, ...]] = (
        Option("--match-set", "match_set", SET_REFERENCE, negatable=True, aliases=("--set",)),
        Option("--return-nomatch", "return_nomatch"),
        Option("--update-counters", "update_counters", negatable=True, omit=True),
        Option("--update-subcounters", "update_subcounters", negatable=True, omit=True),
    )
