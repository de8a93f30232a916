"""Chains as functions: what a chain does to every packet at once.

Theory: docs/symbolic.md, "Backwards".

Evaluation runs backwards. Given the function that says what becomes of a packet *after* a rule, the rule gives that for
a packet *before* it: a condition chooses between two functions, a probability mixes them, MARK substitutes mark bits,
DNAT fixes the destination and keeps the result for its translated destination. So a jump needs no stack and no state:
the called chain is evaluated for what comes after the jump.

Three things keep this linear on large rule sets. Conditions that fix a variable fix it in what comes after, before the
rule's target is evaluated, so that inside a service's chain everything is small. Runs of rules of which nothing falls
through (`Diagrams.is_closed`), as in a dispatch chain or among a service's endpoints, are merged pairwise. And results
are remembered by chain number, so that what both sides share is evaluated once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from types import NoneType
from typing import Final

from kproxy.dataplane.symbolic.conditions import Conditions, RecentCheck
from kproxy.dataplane.symbolic.free_variables import Stage
from kproxy.dataplane.symbolic.leaves import Outcomes
from kproxy.dataplane.symbolic.nat import Continuation
from kproxy.dataplane.symbolic.nodes import FALSE, MISS, TRUE, ZERO, Node
from kproxy.dataplane.symbolic.normalize import NormalizedRule, Structure
from kproxy.dataplane.symbolic.restrictions import Fixed, fixed_by, joined
from kproxy.dataplane.symbolic.targets import Targets
from kproxy.dataplane.symbolic.translated import Destination, is_simple, simple_destination
from kproxy.dataplane.symbolic.variables import Variables
from kproxy.netfilter.condition import Chance
from kproxy.netfilter.iptables.matches import MarkMatch, MultiportMatch, SctpMatch, StatisticMatch, TcpMatch, UdpMatch
from kproxy.netfilter.iptables.targets import (
    ConnmarkTarget,
    DnatTarget,
    MarkTarget,
    MasqueradeTarget,
    NetmapTarget,
    RedirectTarget,
    SnatTarget,
    Verdict,
)

_MAX_REMEMBERED: Final = 300_000
_SHORT: Final = 3
_MAX_DENOMINATOR: Final = 10_000
_MAX_DESTINATIONS: Final = 64
_OF_THE_PACKET: Final = (MarkMatch, MultiportMatch, SctpMatch, StatisticMatch, TcpMatch, UdpMatch)
_GOING_ON: Final = (NoneType, MarkTarget, ConnmarkTarget)


@dataclass(frozen=True, slots=True)
class PreparedRule:
    """A rule ready for evaluation. If `plain`, all its matches are in `condition` and `chance`; else `steps` holds the
    matches one by one, in order."""

    normalized: NormalizedRule
    condition: Node
    chance: Fraction
    plain: bool
    steps: tuple[Node | Chance | RecentCheck, ...]
    fixed: Fixed


class Evaluator:
    """Evaluates the chains of both sides over the same variables.

    With `simple_chances`, a probability is the simple fraction that iptables rounded to 31 bits.
    """

    def __init__(
        self,
        structure: Structure,
        variables: Variables,
        outcomes: Outcomes,
        conditions: Conditions,
        targets: Targets,
        *,
        simple_chances: bool = False,
    ) -> None:
        self._structure = structure
        self._simple_chances = simple_chances
        self._variables = variables
        self._diagrams = variables.diagrams
        self._outcomes = outcomes
        self._conditions = conditions
        self._targets = targets
        self._rules: dict[tuple[int, Stage | None], list[PreparedRule]] = {}
        self._same_everywhere: dict[int, bool] = {}
        self._results: dict[tuple[object, ...], Node] = {}
        self._dnats: dict[int, tuple[bool, tuple[Destination, ...] | None]] = {}
        self._ends: dict[int, bool] = {}
        self._weights: dict[tuple[Fraction, ...], tuple[list[Fraction], Fraction]] = {}

    def table(self, chain: int, policy: str, continuation: Continuation) -> Node:
        """A built-in chain: the function for a packet that comes to it."""
        end = self._targets.verdict(policy, continuation)
        return self._chain(chain, end, (), continuation)

    def _chain(self, number: int, back: Node, fixed: Fixed, continuation: Continuation) -> Node:
        """A chain, when `back` is what becomes of packets that leave it at its end or by RETURN."""
        if not self._is_worth_remembering(number):
            return self._evaluate(self._ready(number, continuation.stage), back, fixed, continuation)
        key: tuple[object, ...] = (number, back, fixed, self._reached(number, fixed, continuation))
        found = self._results.get(key)
        if found is None:
            if len(self._results) > _MAX_REMEMBERED:
                self._results.clear()
            found = self._results[key] = self._evaluate(
                self._ready(number, continuation.stage), back, fixed, continuation
            )
        return found

    def _is_worth_remembering(self, number: int) -> bool:
        """Endpoints' chains and the like are short, many, and hardly ever come up twice for the same packets."""
        rules = self._structure.chains[number]
        return len(rules) > _SHORT or any(
            normalized.callee >= 0 and self._may_end(normalized.callee) for normalized in rules
        )

    def _reached(self, number: int, fixed: Fixed, continuation: Continuation) -> object:
        """What a chain can see of what comes after its table: everything, or for a service's chain only how its
        endpoints are treated, which is the same in many circumstances."""
        targets = self._destinations(number)
        if not targets:
            return continuation
        stage = continuation.stage
        reached = [self._targets.translation.treated(target, continuation) for target in targets]
        return stage, self._diagrams.restrict(continuation.accept, fixed), tuple(reached)

    def _destinations(self, number: int) -> tuple[Destination, ...]:
        """Where a chain sends packets through other chains, if to few destinations, by DNAT of the simplest kind only,
        and none in the chain itself; else nothing."""
        found = self._dnats.get(number)
        if found is None:
            found = self._dnats[number] = self._all_dnats(number)
        own, inside = found
        return () if own or inside is None or len(inside) > _MAX_DESTINATIONS else inside

    def _all_dnats(self, number: int) -> tuple[bool, tuple[Destination, ...] | None]:
        own = False
        inside: dict[Destination, None] | None = {}
        for normalized in self._structure.chains[number]:
            if isinstance(normalized.target, DnatTarget) and is_simple(normalized.target):
                own = True
                if inside is not None:
                    inside[simple_destination(normalized.target)] = None
            elif isinstance(
                normalized.target, (DnatTarget, RedirectTarget, NetmapTarget, SnatTarget, MasqueradeTarget)
            ):
                inside = None
            elif normalized.callee >= 0:
                self._destinations(normalized.callee)
                below = self._dnats[normalized.callee][1]
                if below is None or inside is None:
                    inside = None
                else:
                    inside |= dict.fromkeys(below)
            if inside is not None and len(inside) > _MAX_DESTINATIONS:
                inside = None
        return own, None if inside is None else tuple(inside)

    def _may_end(self, number: int) -> bool:
        """Whether a chain holds any rule that ends a packet's way through the table."""
        found = self._ends.get(number)
        if found is None:
            found = self._ends[number] = any(
                self._may_end(normalized.callee)
                if normalized.callee >= 0
                else not isinstance(normalized.target, _GOING_ON)
                for normalized in self._structure.chains[number]
            )
        return found

    def _ready(self, number: int, stage: Stage) -> list[PreparedRule]:
        same = self._same_everywhere.get(number)
        if same is None:
            rules = self._structure.chains[number]
            same = self._same_everywhere[number] = all(map(asks_the_same_everywhere, rules))
        key = (number, None if same else stage)
        found = self._rules.get(key)
        if found is None:
            found = [self._prepare(normalized, stage) for normalized in self._structure.chains[number]]
            self._rules[key] = found
        return found

    def _prepare(self, normalized: NormalizedRule, stage: Stage) -> PreparedRule:
        condition = self._conditions.head(normalized.rule, stage)
        chance = Fraction(1)
        steps: list[Node | Chance | RecentCheck] = []
        plain = True
        for match in normalized.matches:
            asked = self._conditions.match(match, stage, normalized.rank)
            steps.append(asked)
            if isinstance(asked, Chance):
                chance *= simple_chance(asked.chance) if self._simple_chances else asked.chance
            elif isinstance(asked, RecentCheck):
                plain = False
            else:
                condition = self._diagrams.both(condition, asked)
        if not plain:
            condition = self._conditions.head(normalized.rule, stage)
            steps = [condition, *steps]
        return PreparedRule(normalized, condition, chance, plain, tuple(steps), fixed_by(self._variables, condition))

    def _evaluate(self, rules: Sequence[PreparedRule], back: Node, fixed: Fixed, continuation: Continuation) -> Node:
        diagrams = self._diagrams
        after = back
        closed: list[Node] = []  # of a run of rules of which nothing falls through; the last rule first
        mixed: list[tuple[Fraction, Node]] = []  # of a run of rules that apply by chance alone; the last rule first
        for rule in reversed(rules):
            condition = diagrams.restrict(rule.condition, fixed) if fixed else rule.condition
            if condition == FALSE and rule.plain:
                continue
            if rule.plain and (self._may_end(rule.normalized.callee) if rule.normalized.callee >= 0 else True):
                inside = joined(fixed, rule.fixed)
                result = self._target(rule.normalized, MISS, back, inside, continuation)
                if diagrams.is_closed(result):
                    if rule.chance == 1:
                        after, mixed = self._mixed(after, mixed), []
                        if condition == TRUE:
                            closed = []
                            after = result
                        else:
                            closed.append(diagrams.ite(condition, result, MISS))
                        continue
                    if condition == TRUE:
                        after, closed = self._dispatched(after, closed), []
                        mixed.append((rule.chance, result))
                        continue
            after = self._mixed(self._dispatched(after, closed), mixed)
            closed, mixed = [], []
            after = self._rule(rule, condition, after, back, fixed, continuation)
        return self._mixed(self._dispatched(after, closed), mixed)

    def _dispatched(self, after: Node, closed: list[Node]) -> Node:
        if not closed:
            return after
        return self._diagrams.override(self._diagrams.override_all(closed[::-1]), after)

    def _mixed(self, after: Node, mixed: list[tuple[Fraction, Node]]) -> Node:
        if not mixed:
            return after
        if len(mixed) == 1 and mixed[0][0] == 1:
            return mixed[0][1]
        weights, rest = self._shares(tuple(chance for chance, _ in mixed))
        parts = [
            self._outcomes.scale(result, weight) for (_, result), weight in zip(mixed, weights, strict=True) if weight
        ]
        if rest:
            if not self._diagrams.is_closed(after):
                # What falls through has no weight of its own yet: mix the parts one by one.
                for chance, result in mixed:
                    after = self._mix(chance, result, after)
                return after
            parts.append(self._outcomes.scale(after, rest))
        return self._outcomes.add_all(parts)

    def _shares(self, chances: tuple[Fraction, ...]) -> tuple[list[Fraction], Fraction]:
        """The weights of rules that apply by chance, the last rule first, and what is left over."""
        found = self._weights.get(chances)
        if found is None:
            rest = Fraction(1)
            weights = []
            for chance in reversed(chances):
                weights.append(rest * chance)
                rest *= 1 - chance
            found = self._weights[chances] = weights[::-1], rest
        return found

    def _mix(self, chance: Fraction, yes: Node, no: Node) -> Node:
        if chance == 1 or yes == no:
            return yes
        if chance == 0:
            return no
        if self._diagrams.is_closed(yes) and self._diagrams.is_closed(no):
            return self._outcomes.add_all([self._outcomes.scale(yes, chance), self._outcomes.scale(no, 1 - chance)])
        return MISS  # only asked whether something falls through: it does

    def _target(
        self, normalized: NormalizedRule, after: Node, back: Node, fixed: Fixed, continuation: Continuation
    ) -> Node:
        """What a rule that applies makes of a packet: `after` is the next rule's function."""
        if normalized.callee >= 0:
            onward = back if normalized.goto else after
            return self._chain(normalized.callee, self._diagrams.restrict(onward, fixed), fixed, continuation)
        if isinstance(normalized.target, Verdict) and normalized.target.verdict == "RETURN":
            return self._diagrams.restrict(back, fixed)
        return self._targets.apply(normalized.target, self._diagrams.restrict(after, fixed), fixed, continuation)

    def _rule(
        self, rule: PreparedRule, condition: Node, after: Node, back: Node, fixed: Fixed, continuation: Continuation
    ) -> Node:
        diagrams = self._diagrams
        if rule.plain:
            result = self._target(rule.normalized, after, back, joined(fixed, rule.fixed), continuation)
            if rule.chance != 1:
                result = self._mix(rule.chance, result, after)
            return diagrams.ite(condition, result, after)
        result = self._target(rule.normalized, after, back, fixed, continuation)
        for step in reversed(rule.steps):
            if isinstance(step, Chance):
                result = self._mix(step.chance, result, after)
            elif isinstance(step, RecentCheck):
                result = self._targets.seen(step, result, after, continuation.stage)
            else:
                result = diagrams.ite(step, result, after)
        return result


def simple_chance(chance: Fraction) -> Fraction:
    """The simplest fraction that iptables rounds to this chance: 1/3 for 715827883/2147483648."""
    near = chance.limit_denominator(_MAX_DENOMINATOR)
    return near if abs(near - chance) < Fraction(1, 1 << 31) else chance


def asks_the_same_everywhere(normalized: NormalizedRule) -> bool:
    """Whether what a rule asks does not depend on the hook, the table or the connection's state."""
    plain = normalized.rule.in_interface is None and normalized.rule.out_interface is None
    return plain and all(isinstance(match, _OF_THE_PACKET) for match in normalized.matches)


__all__ = ["ZERO", "Evaluator", "PreparedRule"]
