"""Whether a match holds: a comparison of an expression with a constant, a set or another expression."""

from __future__ import annotations

from fractions import Fraction
from typing import Any, Final

from kproxy.dataplane.concrete.matches.header import interface_answer
from kproxy.dataplane.concrete.nft.expressions import Sets, evaluate
from kproxy.dataplane.concrete.nft.values import (
    MISSING,
    Drawn,
    Open,
    Uniform,
    alternatives,
    bounds,
    fits,
    is_known,
)
from kproxy.dataplane.concrete.state import Answer, Split, State, View, by_chance, negate, open_question, unknown
from kproxy.netfilter.iptables.codec import UINT32
from kproxy.netfilter.iptables.option import Negatable
from kproxy.netfilter.nftables.expression import AnonymousSet, SetReference
from kproxy.netfilter.nftables.statement import Match, Operator
from kproxy.netfilter.nftables.value import InterfacePrefix

_NEGATED: Final = {
    Operator.NE: Operator.EQ,
    Operator.NONE: Operator.ANY,
    Operator.GE: Operator.LT,
    Operator.GT: Operator.LE,
}
"""Each operator that is the opposite of another."""
_INTERFACES: Final = ("in_interface", "out_interface")


def match_answer(match: Match, view: View, sets: Sets) -> Answer:
    """Whether the match holds. What the packet does not have never does, negated or not."""
    left = evaluate(match.left, view, sets)
    if left is MISSING:
        return False
    negated = match.operator in _NEGATED
    operator = _NEGATED.get(match.operator, match.operator)
    right: Any = match.right
    if not isinstance(right, (SetReference, AnonymousSet)):
        right = evaluate(right, view, sets)
        if right is MISSING:
            return False
        if isinstance(right, (Uniform, Drawn)):
            return unknown(view, "a number drawn at random is compared with another")
    if isinstance(left, (Uniform, Drawn)):
        answer = _drawn(left, operator, right, view, sets)
    else:
        found = holds(left, operator, right, view, sets)
        answer = found if found is not None else _question(left, operator, right, view)
    return negate(answer) if negated else answer


def holds(left: Any, operator: Operator, right: Any, view: View, sets: Sets) -> bool | None:
    """Whether a value compares so; None if an open part decides."""
    if isinstance(right, (SetReference, AnonymousSet)):
        return in_set(left, right, view, sets)
    if operator is Operator.EQ:
        return fits(left, right) if not isinstance(right, Open) else None
    if isinstance(right, Open) or not isinstance(right, int) or not isinstance(left, (int, Open)):
        return None
    if operator is Operator.ANY:
        if isinstance(left, int):
            return left & right != 0
        return True if left.value & left.known & right else None if right & ~left.known else False
    if isinstance(left, Open):
        return None
    return left < right if operator is Operator.LT else left <= right


def in_set(key: Any, which: SetReference | AnonymousSet, view: View, sets: Sets) -> bool | None:
    """Whether a set holds the key, with what packets changed in it."""
    elements = sets.elements(which)
    found = elements.holds(key)
    if not isinstance(which, SetReference):
        return found
    changed = sets.changed(view, which.name)
    if not changed:
        return found
    if is_known(key):
        if key in changed:
            return changed[key] is not None
        for other, data in changed.items():
            if fits(other, key) is not False and (data is not None) != found:  # type: ignore[arg-type]
                return None
        return found
    return None


def _drawn(left: Uniform | Drawn, operator: Operator, right: Any, view: View, sets: Sets) -> Answer:
    if isinstance(left, Uniform):
        chance = _chance(left, operator, right, sets)
        if chance is not None:
            return by_chance(view, chance)
    total: Fraction | None = Fraction(0)
    why = ""
    answers = []
    for value, chance in alternatives(left).items:
        found = holds(value, operator, right, view, sets)
        answers.append(found)
        if found is None or chance is None:
            total = None
            why = (left.why if isinstance(left, Drawn) else "") or "the random number is not known"
        elif found and total is not None:
            total += chance
    if all(answer is True for answer in answers) or all(answer is False for answer in answers):
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


def _question(left: Any, operator: Operator, right: Any, view: View) -> Answer:
    """The open question whether it holds; what an answer says of a mark or an interface is remembered."""
    part = left if isinstance(left, Open) else None
    if part is not None and part.field in _INTERFACES and isinstance(right, (str, InterfacePrefix)):
        pattern = right if isinstance(right, str) else f"{right.prefix}+"
        return interface_answer(view, str(part.field), Negatable(pattern))
    if part is not None and part.field in ("mark", "ctmark") and isinstance(right, int):
        return _mark_question(part, operator, right, view)
    if part is None and isinstance(left, tuple):
        part = next((each for each in left if isinstance(each, Open)), None)
    if part is None and isinstance(right, Open):
        part = right
    why = "a value is not known" if part is None else part.why
    field = part.field if part is not None and part is left else left
    return open_question(view, (field, operator, right), why)


def _mark_question(part: Open, operator: Operator, right: int, view: View) -> Answer:
    unknown_bits = ~part.known & UINT32
    if operator is Operator.ANY:
        unknown_bits &= right
    single = not unknown_bits & unknown_bits - 1
    states: list[State] = []
    for answer in (True, False):
        if operator is Operator.EQ:
            learnt = right & unknown_bits if answer else ~right & unknown_bits
            sure = answer or single
        else:
            learnt = unknown_bits if answer else 0
            sure = single or not answer
        states.append(_with_bits(view.state, str(part.field), learnt, unknown_bits) if sure else view.state)
    return Split(states[0], states[1], None, part.why)


def _with_bits(state: State, field: str, value: int, bits: int) -> State:
    if field == "mark":
        packet = state.packet
        return state.with_packet(mark=packet.mark & ~bits | value, mark_known=packet.mark_known | bits)
    entry = state.connection
    changed = entry.replace(mark=entry.mark & ~bits | value, mark_known=entry.mark_known | bits)
    return state._replace(connection=changed)
