"""Packets that show a difference: each is sent through the concrete model of both modes, and counts if the answers
differ."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from fractions import Fraction
from typing import Final, NamedTuple

from kproxy.cluster.rendered import host_in_mode
from kproxy.dataplane import ACCEPT, Outcome, TraceResult, trace
from kproxy.dataplane.compare.observe import index_rules
from kproxy.dataplane.compare.outcome_words import summed
from kproxy.dataplane.compare.witness import Situation
from kproxy.dataplane.symbolic.host_rules import SideRules
from kproxy.netfilter import Family

Differs = Callable[[TraceResult, TraceResult], bool]

_DENOMINATOR: Final = 10_000
"""Chances are equal if they round to the same simple fraction: iptables rounds 1/3 to 31 bits, nftables to 32."""


Candidate = tuple[Situation, Situation]
"""A packet that may show a difference: what it meets in the first mode, and in the second. The two situations differ
only in what a host of that mode has and remembers."""


class Witness(NamedTuple):
    """A candidate with what becomes of it in the first mode, and in the second."""

    candidate: Candidate
    traces: tuple[TraceResult, TraceResult]


class Judge:
    """Sends candidates through both modes' rules."""

    def __init__(self, rules: tuple[SideRules, SideRules], family: Family) -> None:
        self._rules = [(each, index_rules(each, family)) for each in rules]

    def traced(self, candidate: Candidate) -> Witness:
        """The candidate, whether the modes treat it differently or not."""
        first, second = (
            trace(index, host_in_mode(rules, situation.host), situation.packet, situation.connection)
            for (rules, index), situation in zip(self._rules, candidate, strict=True)
        )
        return Witness(candidate, (first, second))

    def witness(self, candidate: Candidate, differs: Differs) -> Witness | None:
        """The candidate with its traces, if the modes treat it differently."""
        found = self.traced(candidate)
        return found if shows(found, differs) else None

    def find(self, candidates: Iterable[Candidate], differs: Differs, unless: Judge | None = None) -> Witness | None:
        """The first candidate that the modes treat differently, in what a reason is about; `unless` they do so with
        these rules, too."""
        found = (self.witness(each, differs) for each in candidates)
        known = (each for each in found if each is not None)
        return next((each for each in known if not unless or unless.witness(each.candidate, differs) is None), None)


def shows(traced: Witness, differs: Differs) -> bool:
    """Whether it is sure that the modes treat a packet differently."""
    return all(each.determined for each in traced.traces) and differs(*traced.traces)


def doubts(traced: Witness) -> tuple[set[str], set[str]]:
    """What decides in each mode whether a packet is accepted, and the model does not know."""
    first, second = (
        {
            reason
            for outcome in result.outcomes
            if any(end.verdict == ACCEPT for end in outcome.possible)
            for reason in outcome.reasons
        }
        for result in traced.traces
    )
    return first, second


def _by(key: Callable[[Outcome], tuple[object, ...]]) -> Differs:
    """Whether the shares of what `key` tells apart differ."""

    def rounded(result: TraceResult) -> dict[tuple[object, ...], Fraction]:
        found = summed((key(outcome), outcome.probability) for outcome in result.outcomes)
        return {end: chance.limit_denominator(_DENOMINATOR) for end, chance in found.items()}

    return lambda first, second: rounded(first) != rounded(second)


def _end(outcome: Outcome) -> tuple[object, ...]:
    if outcome.verdict != ACCEPT:
        return outcome.verdict, outcome.reject
    return outcome.verdict, outcome.via, outcome.dst, outcome.device


def _rewritten(outcome: Outcome) -> tuple[object, ...]:
    return *_end(outcome), outcome.snat


ends_differ: Final = _by(_end)
"""Whether verdicts or destinations differ; how the source is rewritten does not count."""
sources_differ: Final = _by(_rewritten)
"""Whether verdicts, destinations, or whether the source is rewritten differ."""
fates_differ: Final = _by(lambda outcome: (*_rewritten(outcome), outcome.snat and is_fully_random(outcome)))
"""Whether anything differs, also how the port of a rewritten source is chosen."""


def marks_differ(but: int) -> Differs:
    """Whether packets, or their connections, end with other marks; or may, in one mode. Bits of `but` do not count."""

    def marked(outcome: Outcome) -> tuple[object, ...]:
        packet, entry = outcome.packet, outcome.connection
        of_connection = (entry.mark, entry.mark_known) if entry else ()
        return *_rewritten(outcome), packet.mark & ~but, packet.mark_known & ~but, *of_connection

    return _by(marked)


def returns_differ(first: TraceResult, second: TraceResult) -> bool:
    """Whether what is sent back to its sender is masqueraded in one mode only."""
    one, other = (
        {each.snat for each in result.outcomes if each.verdict == ACCEPT and each.packet.dst == result.packet.src}
        for result in (first, second)
    )
    return one != other


def is_fully_random(outcome: Outcome) -> bool:
    """Whether the rule that rewrote the source has the kernel choose its port at random."""
    return any("random" in step.text and "ASQUERADE" in step.text.upper() for step in outcome.path)
