"""Packets that show a difference: each is sent through the concrete model of both modes, and counts if the answers
differ."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from kproxy.cluster.fates import shares
from kproxy.dataplane import ACCEPT, Index, Outcome, TraceResult, trace
from kproxy.dataplane.compare.observe import index_rules
from kproxy.dataplane.compare.witness import Situation
from kproxy.dataplane.symbolic.host_rules import SideRules
from kproxy.netfilter import Family

Differs = Callable[[TraceResult, TraceResult], bool]

_DENOMINATOR: Final = 10_000
"""Chances are equal if they round to the same simple fraction: iptables rounds 1/3 to 31 bits, nftables to 32."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A packet that may show a difference: what it meets in iptables mode, and in nftables mode. The two situations
    differ only in what a host of that mode remembers."""

    iptables: Situation
    nftables: Situation

    @classmethod
    def of(cls, situation: Situation) -> Candidate:
        """The same situation in both modes."""
        return cls(situation, situation)


@dataclass(frozen=True, slots=True)
class Witness:
    """A candidate whose traces differ; `by_marks` if they do so in marks alone."""

    candidate: Candidate
    iptables: TraceResult
    nftables: TraceResult
    by_marks: bool = False


class Judge:
    """Sends candidates through both modes' rules."""

    def __init__(self, iptables: SideRules, nftables: SideRules, family: Family) -> None:
        self._iptables: Index = index_rules(iptables, family)
        self._nftables: Index = index_rules(nftables, family)

    def find(self, candidates: Iterable[Candidate], differs: Differs, unless: Judge | None = None) -> Witness | None:
        """The first candidate that the modes treat differently, in what a reason is about; `unless` they do so with
        these rules, too."""
        for candidate in candidates:
            found = self.witness(candidate, differs)
            if found is not None and (unless is None or unless.witness(candidate, differs) is None):
                return found
        return None

    def witness(self, candidate: Candidate, differs: Differs) -> Witness | None:
        """The candidate with its traces, if the modes treat it differently."""
        first, second = (
            trace(index, situation.host, situation.packet, situation.connection)
            for index, situation in ((self._iptables, candidate.iptables), (self._nftables, candidate.nftables))
        )
        sure = first.determined and second.determined
        return Witness(candidate, first, second) if sure and differs(first, second) else None

    def doubts(self, candidate: Candidate) -> tuple[set[str], set[str]]:
        """What decides in each mode whether the candidate is accepted, and the model does not know."""
        first, second = (
            {
                reason
                for outcome in trace(index, situation.host, situation.packet, situation.connection).outcomes
                if any(end.verdict == ACCEPT for end in outcome.possible)
                for reason in outcome.reasons
            }
            for index, situation in ((self._iptables, candidate.iptables), (self._nftables, candidate.nftables))
        )
        return first, second


def ends_differ(first: TraceResult, second: TraceResult) -> bool:
    """Whether verdicts or destinations differ; how the source is rewritten does not count."""
    return _summed(first, _end) != _summed(second, _end)


def sources_differ(first: TraceResult, second: TraceResult) -> bool:
    """Whether verdicts, destinations, or whether the source is rewritten differ."""
    return _summed(first, _rewritten) != _summed(second, _rewritten)


def fates_differ(first: TraceResult, second: TraceResult) -> bool:
    """Whether anything differs, also how the port of a rewritten source is chosen."""
    return _summed(first, _fate) != _summed(second, _fate)


def marks_differ(but: int) -> Differs:
    """Whether packets, or their connections, end with other marks; or may, in one mode. Bits of `but` do not count."""

    def marked(outcome: Outcome) -> tuple[object, ...]:
        packet, entry = outcome.packet, outcome.connection
        of_connection = (entry.mark, entry.mark_known) if entry else ()
        return *_rewritten(outcome), packet.mark & ~but, packet.mark_known & ~but, *of_connection

    return lambda first, second: _summed(first, marked) != _summed(second, marked)


def returns_differ(first: TraceResult, second: TraceResult) -> bool:
    """Whether what is sent back to its sender is masqueraded in one mode only."""
    sets = [
        {
            outcome.snat
            for outcome in result.outcomes
            if outcome.verdict == ACCEPT and outcome.packet.dst == result.packet.src
        }
        for result in (first, second)
    ]
    return sets[0] != sets[1]


def _summed(result: TraceResult, key: Callable[[Outcome], tuple[object, ...]]) -> dict[tuple[object, ...], Fraction]:
    return {name: chance.limit_denominator(_DENOMINATOR) for name, chance in shares(result, key).items()}


def _end(outcome: Outcome) -> tuple[object, ...]:
    if outcome.verdict != ACCEPT:
        return outcome.verdict, outcome.reject
    return outcome.verdict, outcome.via, outcome.dst, outcome.device


def _rewritten(outcome: Outcome) -> tuple[object, ...]:
    return *_end(outcome), outcome.snat


def _fate(outcome: Outcome) -> tuple[object, ...]:
    return *_rewritten(outcome), outcome.snat and is_fully_random(outcome)


def is_fully_random(outcome: Outcome) -> bool:
    """Whether the rule that rewrote the source has the kernel choose its port at random."""
    return any("random" in step.text and "ASQUERADE" in step.text.upper() for step in outcome.path)
