"""Whether a match holds that is no condition on fields of the packet: it compares a value with a set or another one."""

from __future__ import annotations

from fractions import Fraction
from typing import Any, Final

from kproxy.dataplane.concrete.nft.expressions import Sets, evaluate
from kproxy.dataplane.concrete.nft.values import MISSING, Drawn, Open, Uniform, alternatives, fits, is_known
from kproxy.dataplane.concrete.state import Answer, View, by_chance, negate, open_question, unknown
from kproxy.netfilter.nftables.expression import AnonymousSet, SetReference
from kproxy.netfilter.nftables.statement import Match, Operator
from kproxy.netfilter.nftables.value import bounds

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
