"""The tables of nftables made ready for packets: chains by name, rules as steps, and the elements of sets and maps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, Final

from kproxy.dataplane.concrete.answer import answer
from kproxy.dataplane.concrete.effects import ACTS, Way
from kproxy.dataplane.concrete.nft.expressions import Sets, evaluate
from kproxy.dataplane.concrete.nft.sets import IndexedElements
from kproxy.dataplane.concrete.nft.statements import STATEMENTS
from kproxy.dataplane.concrete.nft.values import MISSING, Drawn, Open, Uniform, alternatives, fits, is_known
from kproxy.dataplane.concrete.state import Answer, Note, RuleRef, View, by_chance, negate, open_question, unknown
from kproxy.dataplane.concrete.steps import IndexedRule, RuleStep, RuleTable, acting
from kproxy.dataplane.model.errors import DataplaneError
from kproxy.dataplane.model.packet import Packet
from kproxy.netfilter.nftables.effects import lower
from kproxy.netfilter.nftables.expression import AnonymousMap, AnonymousSet, SetReference
from kproxy.netfilter.nftables.lowering import condition_of
from kproxy.netfilter.nftables.rule import RulePrinter
from kproxy.netfilter.nftables.ruleset import Chain, Rule, Table
from kproxy.netfilter.nftables.statement import Match, Operator
from kproxy.netfilter.nftables.style import BOOKWORM
from kproxy.netfilter.nftables.value import bounds


class NftChain:
    """A chain; the rules are made ready when a packet comes to them."""

    __slots__ = ("_rules", "_table", "chain", "policy")

    def __init__(self, table: NftTable, chain: Chain) -> None:
        self._table = table
        self._rules: dict[int, IndexedRule] = {}
        self.chain = chain
        self.policy = "DROP" if chain.base is not None and chain.base.policy == "drop" else "ACCEPT"

    def candidates(self, _packet: Packet) -> Sequence[int]:
        """The indexes, from 0 and in order, of the rules that may match the packet."""
        return range(len(self.chain.rules))

    def rule(self, index: int) -> IndexedRule:
        """The rule at an index, counted from 0."""
        found = self._rules.get(index)
        if found is None:
            rule, ref = self.chain.rules[index], RuleRef(self._table.name, self.chain.name, index + 1)
            steps = self._table.steps(rule)
            found = self._rules[index] = IndexedRule(ref, steps, lambda: self._table.described(ref, rule))
        return found


class NftTable(RuleTable):
    """A table. `name` is its family and name, `ip kube-proxy`."""

    def __init__(self, table: Table, note: Note | None = None) -> None:
        super().__init__(f"{table.family.value} {table.name}")
        self.table = table
        self._note = note
        self._sets: dict[str, IndexedElements] = {}
        self._printer = RulePrinter(table.family, BOOKWORM, {item.name: item for item in table.sets})
        self._anonymous: dict[int, tuple[object, IndexedElements]] = {}

    def indexed(self, name: str) -> NftChain | None:
        """A chain made ready for packets; None if the table has no such chain."""
        chain = self.table.chain(name)
        return None if chain is None else NftChain(self, chain)

    def has_chain(self, name: str) -> bool:
        """Whether the table has it."""
        return self.table.chain(name) is not None

    def elements(self, which: SetReference | AnonymousSet | AnonymousMap) -> IndexedElements:
        """The elements of a set or map. Raises DataplaneError if the table has no set of that name."""
        if isinstance(which, SetReference):
            known = self._sets.get(which.name)
            if known is None:
                found = self.table.set(which.name)
                if found is None:
                    raise DataplaneError(f"table {self.name}: no set or map @{which.name}")
                known = self._sets[which.name] = IndexedElements(found.elements)
            return known
        kept = self._anonymous.get(id(which))
        if kept is None or kept[0] is not which:
            kept = self._anonymous[id(which)] = (which, IndexedElements(which.elements))
        return kept[1]

    def changed(self, view: View, name: str) -> Mapping[object, object | None]:
        """The elements of a named set that packets have changed."""
        found = dict(view.host.elements.get((self.name, name), {}))
        found.update((key, data) for table, which, key, data in view.state.sets if (table, which) == (self.name, name))
        return found

    def steps(self, rule: Rule) -> list[RuleStep]:
        """What a rule asks and does."""
        family, text, steps = self.table.family.value, self._printer.statement, []
        for statement in rule.statements:
            for what in lower(statement, family, text):
                if type(what) in ACTS or type(what) in STATEMENTS:
                    steps.append(acting(what, statement))
                    continue
                asked = condition_of(what) or what if isinstance(what, Match) else what
                steps.append(RuleStep(asked, statement, acts=False, pure=True))
        return steps

    def ask(self, step: RuleStep, view: View) -> Answer:
        """Whether a comparison holds, or what nft asks beside."""
        return match_answer(step.what, view, self) if type(step.what) is Match else answer(step.what, view)

    def act(self, step: RuleStep, view: View) -> list[Way]:
        """What a statement may do."""
        action = ACTS.get(type(step.what))
        return STATEMENTS[type(step.what)](step.what, view, self) if action is None else action(step.what, view)

    def texts(self, step: RuleStep) -> tuple[str, ...]:
        """A statement as nft prints it, and the words in it by which it may be meant: `fib saddr . iif oif`, `fib`."""
        text = self._printer.statement(step.source)
        return (text, *text.split()) if isinstance(step.source, Match) else (text, text.split()[0])

    def described(self, ref: RuleRef, rule: Rule) -> tuple[str, str]:
        """A rule as nft prints it; and where it comes from, or else its comment, "" for neither."""
        note = self._note(self.name, ref.chain, ref.rule) if self._note is not None else None
        return self._printer.rule(rule), note or rule.comment or ""


_NEGATED: Final = {
    Operator.NE: Operator.EQ,
    Operator.NONE: Operator.ANY,
    Operator.GE: Operator.LT,
    Operator.GT: Operator.LE,
}
"""Each operator that is the opposite of another."""


def match_answer(match: Match, view: View, sets: Sets) -> Answer:
    """Whether the match holds. What the packet does not have never does, negated or not."""
    left = evaluate(match.left, view, sets)
    if left is MISSING:
        return False
    operator = _NEGATED.get(match.operator, match.operator)
    right: Any = match.right
    if not isinstance(right, (SetReference, AnonymousSet)):
        right = evaluate(right, view, sets)
        if right is MISSING:
            return False
        if isinstance(right, (Uniform, Drawn)):
            return unknown(view, "a number drawn at random is compared with another")
    if isinstance(left, (Uniform, Drawn)):
        found: Answer | None = _drawn(left, operator, right, view, sets)
    else:
        found = _holds(left, operator, right, view, sets)
    if found is None:
        parts = (*(left if isinstance(left, tuple) else (left,)), right)
        why = next((part.why for part in parts if isinstance(part, Open)), "a value is not known")
        found = open_question(view, (left, operator, right), why)
    return negate(found) if match.operator in _NEGATED else found


def _holds(left: Any, operator: Operator, right: Any, view: View, sets: Sets) -> bool | None:
    """Whether a value compares so; None if an open part decides."""
    if isinstance(right, (SetReference, AnonymousSet)):
        return _in_set(left, right, view, sets)
    if operator is Operator.EQ:
        return fits(left, right) if not isinstance(right, Open) else None
    if not isinstance(left, int) or not isinstance(right, int):
        return None
    return left & right != 0 if operator is Operator.ANY else left < right + (operator is Operator.LE)


def _in_set(key: Any, which: SetReference | AnonymousSet, view: View, sets: Sets) -> bool | None:
    """Whether a set holds the key, with what packets changed in it."""
    found = sets.elements(which).holds(key)
    changed = sets.changed(view, which.name) if isinstance(which, SetReference) else None
    if not changed:
        return found
    if not is_known(key):
        return None
    if key in changed:
        return changed[key] is not None
    for other, data in changed.items():
        if fits(other, key) is not False and (data is not None) != found:  # type: ignore[arg-type]
            return None
    return found


def _drawn(left: Uniform | Drawn, operator: Operator, right: Any, view: View, sets: Sets) -> Answer:
    if isinstance(left, Uniform):
        chance = _chance(left, operator, right, sets)
        if chance is not None:
            return by_chance(view, chance)
    total: Fraction | None = Fraction(0)
    why = ""
    answers = []
    for value, chance in alternatives(left).items:
        found = _holds(value, operator, right, view, sets)
        answers.append(found)
        if found is None or chance is None:
            total = None
            why = (left.why if isinstance(left, Drawn) else "") or "the random number is not known"
        elif found and total is not None:
            total += chance
    if all(each is True for each in answers) or all(each is False for each in answers):
        return answers[0] is True
    return unknown(view, why) if total is None else by_chance(view, total)


def _chance(left: Uniform, operator: Operator, right: Any, sets: Sets) -> Fraction | None:
    top = left.offset + left.modulus - 1
    if isinstance(right, AnonymousSet):
        found = [bounds(element.key) for element, _ in sets.elements(right).candidates(left)]
        return sum((left.chance(*item) for item in found if item is not None), Fraction(0))
    numbers = bounds(right)
    if numbers is None:
        return None
    if operator is Operator.EQ:
        return left.chance(*numbers)
    if operator is Operator.LT:
        return left.chance(0, numbers[0] - 1)
    return left.chance(0, min(numbers[0], top)) if operator is Operator.LE else None
