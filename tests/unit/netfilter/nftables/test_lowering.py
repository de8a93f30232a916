"""What comparisons of nftables ask, as conditions."""

from __future__ import annotations

from random import Random

import pytest

from kproxy.netfilter.condition import ALWAYS, NEVER, All, Among, Any, Condition, In, Not, Under
from kproxy.netfilter.nftables.expression import Binary, Expression, Meta, Payload
from kproxy.netfilter.nftables.lowering import Key, among, condition_of, key_of
from kproxy.netfilter.nftables.statement import Match, Operator
from kproxy.netfilter.nftables.text import parse_nft
from kproxy.netfilter.nftables.value import InterfacePrefix, Prefix, Range

TOS = Payload("ip", "dscp")


def holds(condition: Condition, value: int) -> bool:
    """Whether a condition on one field holds of a value."""
    match condition:
        case In("family" | "tracked" | "transport" | "protocol", _):
            return True
        case In(_, intervals):
            return any(first <= value <= last for first, last in intervals)
        case Under(_, wanted, mask):
            return value & mask == wanted
        case Not(part):
            return not holds(part, value)
        case All(parts):
            return all(holds(part, value) for part in parts)
        case Any(parts):
            return any(holds(part, value) for part in parts)
    raise AssertionError(condition)


def number(expression: Expression, value: int) -> int:
    """What an expression of nft computes of a mark."""
    if not isinstance(expression, Binary):
        return value
    left, right = number(expression.left, value), expression.right
    assert isinstance(right, int)
    match expression.operator:
        case "&":
            return left & right
        case "|":
            return left | right
        case "^":
            return left ^ right
        case "<<":
            return left << right & 0xFFFFFFFF
    return left >> right


COMPARED = {
    Operator.EQ: lambda left, right: left == right, Operator.NE: lambda left, right: left != right,
    Operator.LT: lambda left, right: left < right, Operator.GT: lambda left, right: left > right,
    Operator.LE: lambda left, right: left <= right, Operator.GE: lambda left, right: left >= right,
    Operator.ANY: lambda left, right: left & right != 0, Operator.NONE: lambda left, right: left & right == 0,
}  # fmt: skip


@pytest.mark.parametrize("seed", range(60))
def test_a_computed_key_compares_as_its_numbers_do(seed: int) -> None:
    random = Random(seed)
    expression: Expression = Meta("mark")
    for _ in range(random.randrange(4)):
        sign = random.choice(("&", "|", "^", "<<", ">>"))
        operand = random.randrange(9) if sign in ("<<", ">>") else random.choice((1, 0xFF, 0xF0F0, 0xFFFFFFFE))
        expression = Binary(sign, expression, operand)
    for operator in Operator:
        right = random.choice((0, 1, 5, 0xF0, 0xFFF, 0xFFFFFFFF))
        condition = condition_of(Match(expression, operator, right))
        assert condition is not None
        for value in (0, 1, 5, 0x10, 0xF0, 0xFF, 0x1234, 0xFFFFFFFF, random.randrange(1 << 32)):
            assert holds(condition, value) == COMPARED[operator](number(expression, value), right), (operator, value)


def test_ranges_prefixes_and_sets() -> None:
    for value in range(256):
        for first, last in ((0, 3), (5, 46), (63, 63)):
            inside = condition_of(Match(TOS, Operator.EQ, Range(first, last)))
            assert inside is not None
            assert holds(inside, value) == (first <= value >> 2 <= last)
    port = Payload("tcp", "dport")
    found = condition_of(Match(port, Operator.EQ, Range(80, 90)))
    assert found == All((In("protocol", ((6, 6),)), In("transport", ((1, 1),)), In("dport", ((80, 90),))))
    key = key_of(Payload("ip", "saddr"))
    assert key is not None
    assert among(key, (Prefix(0x0A000000, 8, 32), 7)) == In("src", ((0x0A000000, 0x0AFFFFFF), (7, 7)))
    assert condition_of(Match(Meta("iifname"), Operator.EQ, InterfacePrefix("eth"))) == Among(
        "in_interface", frozenset({"eth+"})
    )
    assert condition_of(Match(Meta("mark"), Operator.LT, 0)) == NEVER
    assert among(Key("", 0, 0, 7), (Range(5, 9),)) == ALWAYS
    assert among(Key("", 0, 0, 7), (1, 2)) == NEVER
    assert condition_of(Match(Meta("random"), Operator.EQ, 1)) is None


@pytest.mark.parametrize(
    ("text", "condition"),
    [
        ("ct state established,related", Not(Not(Among("ctstate", frozenset({"ESTABLISHED", "RELATED"}))))),
        ("ct state new", Not(Not(Among("ctstate", frozenset({"NEW"}))))),
        ("ct status & (seen-reply | dnat) == dnat", All((
            In("tracked", ((1, 1),)), Not(Among("ctstatus", frozenset({"SEEN_REPLY"}))),
            Among("ctstate", frozenset({"DNAT"})),
        ))),
        ("fib daddr . iif type local", In("dst_kind iif", ((2, 2),))),
        ("ct original ip saddr 10.0.0.0/8", All((
            In("tracked", ((1, 1),)), In("family", ((2, 2),)), In("ctorigsrc", ((0x0A000000, 0x0AFFFFFF),)),
        ))),
        ("meta cpu 3", In("meta cpu", ((3, 3),))),
    ],
)  # fmt: skip
def test_what_is_no_header(text: str, condition: Condition) -> None:
    (statement,) = parse_nft(f"table inet t {{ chain c {{ {text} }} }}").tables[0].chains[0].rules[0].statements
    assert isinstance(statement, Match)
    found = condition_of(statement)
    assert found is not None
    assert _flat(found) == _flat(condition)


def _flat(condition: Condition) -> Condition:
    """Without doubled negations and parts in parts."""
    match condition:
        case Not(Not(part)):
            return _flat(part)
        case Not(part):
            return Not(_flat(part))
        case All(parts):
            found = [each.parts if isinstance(each, All) else (each,) for each in map(_flat, parts)]
            return All(tuple(each for some in found for each in some))
    return condition
