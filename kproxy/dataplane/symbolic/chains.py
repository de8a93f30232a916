"""Chains as functions: what a chain does to every packet at once.

Theory: docs/symbolic.md, "Backwards".

Evaluation runs backwards. Given the function that says what becomes of a packet *after* a rule, the rule gives that for
a packet *before* it: a condition chooses between two functions, a probability mixes them, MARK substitutes mark bits,
DNAT fixes the destination and keeps the result for its translated destination. So a jump needs no stack and no state:
the called chain is evaluated for what comes after the jump.

A rule is its steps one after the other (`normalize`): what it asks first is one condition, then each effect changes the
function of what follows. Rules of both languages are the same here; what nftables looks up in maps and sets that change
is in `nftables.statements`.

Three things keep this linear on large rule sets. Conditions that fix a variable fix it in what comes after, before the
rule's target is evaluated, so that inside a service's chain everything is small. Runs of rules of which nothing falls
through (`Diagrams.is_closed`), as in a dispatch chain or among a service's endpoints, are merged pairwise. And results
are remembered by chain number, so that what both sides share is evaluated once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, lru_cache
from typing import Final

from kproxy.dataplane.symbolic.ask import OpaqueError
from kproxy.dataplane.symbolic.conditions import RecentCheck
from kproxy.dataplane.symbolic.effects import Effects, Situation
from kproxy.dataplane.symbolic.free_variables import Stage
from kproxy.dataplane.symbolic.leaves import Outcomes
from kproxy.dataplane.symbolic.nat import Continuation
from kproxy.dataplane.symbolic.nftables.comparisons import Comparisons
from kproxy.dataplane.symbolic.nftables.statements import Place, Statements
from kproxy.dataplane.symbolic.nftables.structure import nats_of, verdicts_of
from kproxy.dataplane.symbolic.nftables.text import text_of
from kproxy.dataplane.symbolic.nodes import FALSE, MISS, TRUE, Node
from kproxy.dataplane.symbolic.normalize import Call, NormalizedChain, NormalizedRule, Structure, is_question
from kproxy.dataplane.symbolic.restrictions import Fixed, fixed_by, joined
from kproxy.dataplane.symbolic.translated import Destination, destinations_of, simple_destination
from kproxy.dataplane.symbolic.variables import Variables
from kproxy.netfilter.condition import Chance
from kproxy.netfilter.effect import Nat, Queue, Reject, SetBits, Told, Unknown, Verdict
from kproxy.netfilter.iptables.matches import (
    MarkMatch,
    Match,
    MultiportMatch,
    SctpMatch,
    StatisticMatch,
    TcpMatch,
    UdpMatch,
)
from kproxy.netfilter.iptables.rule import Rule
from kproxy.netfilter.nftables import statement as nft

_CERTAIN: Final = Fraction(1)
_MAX_REMEMBERED: Final = 300_000
_SHORT: Final = 3
_MAX_DENOMINATOR: Final = 10_000
_MAX_DESTINATIONS: Final = 64
_OF_THE_PACKET: Final = (MarkMatch, MultiportMatch, SctpMatch, StatisticMatch, TcpMatch, UdpMatch)
_GOING_ON: Final = (SetBits, Told)
_ENDING: Final = (Nat, Queue, Reject, Verdict)


@dataclass(frozen=True, slots=True)
class PreparedRule:
    """A rule ready for evaluation: what it asks first, and the `rest` of its steps. If `plain`, all that it asks is in
    `condition` and `chance`; else `asked` holds it one by one, in order. `ends`: perhaps nothing falls through it; of
    nftables that is not asked, since maps stand for runs of such rules."""

    condition: Node
    chance: Fraction
    plain: bool
    asked: tuple[Node | Chance | RecentCheck, ...]
    rest: tuple[object, ...]
    ends: bool
    fixed: Fixed


class Evaluator:
    """Evaluates the chains of both sides over the same variables.

    With `simple_chances`, a probability is the simple fraction that iptables rounded to 31 bits.
    """

    def __init__(
        self, structure: Structure, variables: Variables, outcomes: Outcomes, comparisons: Comparisons,
        effects: Effects, timeouts: dict[str, int], *, simple_chances: bool = False,
    ) -> None:  # fmt: skip
        self._structure = structure
        self._simple_chances = simple_chances
        self._variables = variables
        self._diagrams = variables.diagrams
        self._outcomes = outcomes
        self._conditions = comparisons.conditions
        self._effects = effects
        self._statements = Statements(self, comparisons, outcomes, effects, timeouts)
        self._rules: dict[tuple[int, Stage | None], list[PreparedRule | None]] = {}
        self._same_everywhere = cache(self._asks_the_same_everywhere)
        self._results: dict[tuple[object, ...], Node] = {}
        self._destinations = cache(self._all_destinations)
        self._may_end = cache(self._ends)

    def base_chain(self, number: int, policy: str, continuation: Continuation) -> Node:
        """A base chain: the function for a packet that comes to it."""
        return self.chain(number, self._effects.policy(policy, continuation), (), continuation)

    def chain(self, number: int, back: Node, fixed: Fixed, continuation: Continuation) -> Node:
        """A chain, when `back` is what becomes of packets that leave it at its end or by return."""
        if not self._is_worth_remembering(number):
            return self._evaluate(number, back, fixed, continuation)
        key: tuple[object, ...] = (number, back, fixed, self._reached(number, fixed, continuation))
        found = self._results.get(key)
        if found is None:
            if len(self._results) > _MAX_REMEMBERED:
                self._results.clear()
            found = self._results[key] = self._evaluate(number, back, fixed, continuation)
        return found

    def _is_worth_remembering(self, number: int) -> bool:
        """Endpoints' chains and the like of iptables are short, many, and hardly ever come up twice for the same
        packets."""
        chain = self._structure.chains[number]
        return (
            chain.table is not None
            or len(chain.rules) > _SHORT
            or any(isinstance(rule.steps[-1], Call) and self._may_end(rule.steps[-1].number) for rule in chain.rules)
        )

    def _reached(self, number: int, fixed: Fixed, continuation: Continuation) -> object:
        """What a chain can see of what comes after its base chain: everything, or for a service's chain only how its
        endpoints are treated, which is the same in many circumstances."""
        inside = self._destinations(number)
        if not inside or not {level for level, _ in fixed}.issuperset(self._variables.levels["dst"]):
            return continuation
        treated = tuple(self._effects.translation.treated(each, continuation) for each in inside)
        seen = (continuation.accept, continuation.onward, continuation.kept)
        return continuation.stage, treated, tuple(self._diagrams.restrict(each, fixed) for each in seen)

    def _all_destinations(self, number: int) -> tuple[Destination, ...] | None:
        """Where a chain and those that it leads to send packets; None: to many places, or it rewrites sources."""
        chain, inside, family = self._structure.chains[number], dict[Destination, None](), self._variables.family
        for rule in chain.rules:
            for step in rule.steps:
                below = [step.number] if isinstance(step, Call) else []
                if isinstance(step, (Nat, nft.Nat)):
                    nats = [step] if isinstance(step, Nat) else nats_of(step, chain.table, family)
                    for each in nats:
                        if each.kind not in ("dnat", "redirect"):
                            return None
                        simple = simple_destination(each)
                        inside |= dict.fromkeys([simple] if simple else destinations_of(each, family))
                elif isinstance(step, nft.VerdictMap):
                    verdicts = verdicts_of(step, chain.table)
                    below = [chain.callees[each.chain] for each in verdicts if each.chain is not None]
                for callee in below:
                    reached = self._destinations(callee)
                    if reached is None:
                        return None
                    inside |= dict.fromkeys(reached)
                if len(inside) > _MAX_DESTINATIONS:
                    return None
        return tuple(inside)

    def _ends(self, number: int) -> bool:
        """Whether a chain holds any rule that ends a packet's way through the base chain."""
        return any(
            self._may_end(step.number) if isinstance(step, Call) else not isinstance(step, _GOING_ON)
            for rule in self._structure.chains[number].rules
            for step in rule.steps
            if not is_question(step)
        )

    def _ready(self, number: int, stage: Stage) -> list[PreparedRule | None]:
        """A chain's rules at a stage; those of nftables are made ready when they are evaluated."""
        key = (number, None if self._same_everywhere(number) else stage)
        found = self._rules.get(key)
        if found is None:
            chain = self._structure.chains[number]
            native = chain.table is not None
            found = [None if native else self._prepare(rule, chain, stage) for rule in chain.rules]
            self._rules[key] = found
        return found

    def _asks_the_same_everywhere(self, number: int) -> bool:
        """Whether what a chain of iptables asks does not depend on the hook, the table or the connection's state."""
        chain = self._structure.chains[number]
        return chain.table is None and all(
            step.in_interface is None and step.out_interface is None
            if isinstance(step, Rule)
            else isinstance(step, _OF_THE_PACKET) or not is_question(step)
            for rule in chain.rules
            for step in rule.steps
        )

    def _prepare(self, rule: NormalizedRule, chain: NormalizedChain, stage: Stage) -> PreparedRule:
        condition, chance, plain = TRUE, _CERTAIN, True
        asked: list[Node | Chance | RecentCheck] = []
        for step in rule.steps:
            if not is_question(step) or (asked and chain.table is not None):
                break  # of nftables, a question makes variables only where those before it hold
            answer = self.ask(step, rule.role, chain, stage)
            asked.append(answer)
            if isinstance(answer, Chance):
                chance *= simple_chance(answer.chance) if self._simple_chances else answer.chance
            elif isinstance(answer, RecentCheck):
                plain = False
            else:
                condition = self._diagrams.both(condition, answer)
        rest = rule.steps[len(asked) :]
        last = rest[-1] if rest and chain.table is None else None
        ends = self._may_end(last.number) if isinstance(last, Call) else isinstance(last, _ENDING)
        fixed = fixed_by(self._variables, condition) if plain else ()
        return PreparedRule(condition, chance, plain, () if plain else tuple(asked), rest, ends, fixed)

    def ask(self, step: object, role: object, chain: NormalizedChain, stage: Stage) -> Node | Chance | RecentCheck:
        """What a question is: a condition, a chance, or a list that is looked at and changed."""
        if isinstance(step, Rule):
            return self._conditions.head(step, stage)
        if isinstance(step, Match):
            return self._conditions.match(step, stage, role)
        return self._statements.ask(step, chain, stage)

    def _evaluate(self, number: int, back: Node, fixed: Fixed, continuation: Continuation) -> Node:
        diagrams, chain = self._diagrams, self._structure.chains[number]
        rules = self._ready(number, continuation.stage)
        after = back
        closed: list[Node] = []  # of a run of rules of which nothing falls through; the last rule first
        mixed: list[tuple[Fraction, Node]] = []  # of a run of rules that apply by chance alone; the last rule first
        for position in range(len(rules) - 1, -1, -1):
            rule = rules[position]
            if rule is None:
                rule = rules[position] = self._prepare(chain.rules[position], chain, continuation.stage)
            condition = diagrams.restrict(rule.condition, fixed) if fixed else rule.condition
            if condition == FALSE and rule.plain:
                continue
            inside = joined(fixed, rule.fixed)
            place = Place(chain, rule.rest, (number, position), back, inside, continuation)
            if rule.plain and rule.ends and (condition != TRUE or rule.chance != 1):
                result = self.rest(place, 0, MISS)
                if diagrams.is_closed(result):
                    if rule.chance == 1:
                        after, mixed = self._mixed(after, mixed), []
                        closed.append(diagrams.ite(condition, result, MISS))
                        continue
                    if condition == TRUE:
                        after, closed = self._dispatched(after, closed), []
                        mixed.append((rule.chance, result))
                        continue
            after = self._mixed(self._dispatched(after, closed), mixed)
            closed, mixed = [], []
            after = self._rule(rule, condition, after, place)
        return self._mixed(self._dispatched(after, closed), mixed)

    def _dispatched(self, after: Node, closed: list[Node]) -> Node:
        if not closed:
            return after
        return self._diagrams.override(self._diagrams.override_all(closed[::-1]), after)

    def _mixed(self, after: Node, mixed: list[tuple[Fraction, Node]]) -> Node:
        if not mixed:
            return after
        weights, rest = _shares(tuple(chance for chance, _ in mixed))
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

    def _mix(self, chance: Fraction, yes: Node, no: Node) -> Node:
        if chance == 1 or yes == no:
            return yes
        if chance == 0:
            return no
        if self._diagrams.is_closed(yes) and self._diagrams.is_closed(no):
            return self._outcomes.add_all([self._outcomes.scale(yes, chance), self._outcomes.scale(no, 1 - chance)])
        return MISS  # only asked whether something falls through: it does

    def _rule(self, rule: PreparedRule, condition: Node, after: Node, place: Place) -> Node:
        diagrams = self._diagrams
        result = self.rest(place, 0, diagrams.restrict(after, place.fixed))
        if rule.plain:
            return diagrams.ite(condition, self._mix(rule.chance, result, after), after)
        for answer in reversed(rule.asked):
            result = self._asked(answer, result, after, place)
        return result

    def _asked(self, answer: Node | Chance | RecentCheck, yes: Node, no: Node, place: Place) -> Node:
        if isinstance(answer, Chance):
            return self._mix(answer.chance, yes, no)
        if isinstance(answer, RecentCheck):
            return self._effects.seen(answer, yes, no, place.continuation.stage)
        return self._diagrams.ite(answer, yes, no)

    def rest(self, place: Place, position: int, after: Node) -> Node:
        """A rule from one of its steps on, for packets that come there; `after` is the function of the next rule."""
        if position == len(place.rest):
            return after
        step = place.rest[position]
        if isinstance(step, Call):
            return self.call(step, place, after)
        if isinstance(step, Verdict) and step.kind in ("return", "continue"):
            if step.kind == "return":
                return self._diagrams.restrict(place.back, place.fixed)
            return self.rest(place, position + 1, after)
        if is_question(step):
            answer = self.ask(step, place.role, place.chain, place.continuation.stage)
            if isinstance(answer, Chance | RecentCheck):
                return self._asked(answer, self.rest(place, position + 1, after), after, place)
            return self.inside(answer, place, after, lambda inner, rest: self.rest(inner, position + 1, rest))
        if type(step) in Statements.KINDS:
            try:
                return self._statements.apply(step, place, position, after)
            except OpaqueError:
                step = Unknown("", text_of(step, place.chain.native))
        following = after if isinstance(step, _ENDING) else self.rest(place, position + 1, after)
        return self._effects.apply(step, Situation(following, after, place.fixed, place.continuation))

    def call(self, call: Call, place: Place, after: Node) -> Node:
        """A chain that a rule leads to."""
        onward = self._diagrams.restrict(place.back if call.goto else after, place.fixed)
        return self.chain(call.number, onward, place.fixed, place.continuation)

    def inside(self, condition: Node, place: Place, after: Node, then: Callable[[Place, Node], Node]) -> Node:
        """`then` where a condition holds, with the variables that the condition fixes fixed; `after` elsewhere."""
        diagrams = self._diagrams
        condition = diagrams.restrict(condition, place.fixed)
        if condition == FALSE:
            return after
        more = fixed_by(self._variables, condition)
        inner = place._replace(fixed=joined(place.fixed, more)) if more else place
        return diagrams.ite(condition, then(inner, diagrams.restrict(after, more) if more else after), after)


@lru_cache(1 << 12)
def _shares(chances: tuple[Fraction, ...]) -> tuple[list[Fraction], Fraction]:
    """The weights of rules that apply by chance, the last rule first, and what is left over."""
    rest = Fraction(1)
    weights = []
    for chance in reversed(chances):
        weights.append(rest * chance)
        rest *= 1 - chance
    return weights[::-1], rest


def simple_chance(chance: Fraction) -> Fraction:
    """The simplest fraction that iptables rounds to this chance: 1/3 for 715827883/2147483648."""
    near = chance.limit_denominator(_MAX_DENOMINATOR)
    return near if abs(near - chance) < Fraction(1, 1 << 31) else chance
