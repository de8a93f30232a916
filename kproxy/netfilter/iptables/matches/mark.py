"""`-m mark` and `-m connmark`: the mark of the packet, or of its connection, under a mask."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from kproxy.netfilter.condition import TRACKED, Condition, under
from kproxy.netfilter.iptables.codec import Masked, masked
from kproxy.netfilter.iptables.matches.base import Match
from kproxy.netfilter.iptables.option import Negatable, Option

_MARK = masked(short=True)


@dataclass(frozen=True, slots=True)
class MarkMatch(Match):
    """Applies when `mark & mask == value`; a value with bits outside its mask therefore never applies."""

    mark: Negatable[Masked]

    NAME: ClassVar[str] = "mark"
    OPTIONS: ClassVar[tuple[Option, ...]] = (
        Option("--mark", "mark", _MARK, True, asks=under("mark"), listed="mark match ! {}"),
    )


@dataclass(frozen=True, slots=True)
class ConnmarkMatch(Match):
    """Like `MarkMatch`, with the mark of the packet's conntrack entry; without one it never applies (xt_connmark)."""

    mark: Negatable[Masked]

    NAME: ClassVar[str] = "connmark"
    FIRST: ClassVar[Condition] = TRACKED
    OPTIONS: ClassVar[tuple[Option, ...]] = (
        Option("--mark", "mark", _MARK, True, asks=under("connmark"), listed="connmark match  {}|connmark match ! {}"),
    )
