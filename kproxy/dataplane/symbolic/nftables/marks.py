"""Marks that nftables computes, bit by bit: exclusive ors of bits, which is what MARK and CONNMARK make, too.

Theory: docs/symbolic.md, "Leaves".
"""

from __future__ import annotations

from kproxy.dataplane.symbolic.ask import OpaqueError
from kproxy.dataplane.symbolic.leaves import ONE, Expression
from kproxy.dataplane.symbolic.variables import Variables
from kproxy.netfilter.nftables.expression import Binary
from kproxy.netfilter.nftables.lowering import key_of

_ZERO = Expression()
_SET = Expression({ONE})


def linear_bits(variables: Variables, value: object) -> list[Expression]:
    """The 32 bits of a number, the highest first.

    Raises:
        OpaqueError: it is not made of marks and constants, or not linear.
    """
    key = key_of(value)
    if key is None and isinstance(value, Binary):
        parts = linear_bits(variables, value.left), linear_bits(variables, value.right)
        return [_joined(value.operator, one, other) for one, other in zip(*parts, strict=True)]
    if key is None or key.field not in ("mark", "connmark", ""):
        raise OpaqueError
    found = []
    for bit in range(31, -1, -1):
        from_field = key.mask >> bit & 1 and 0 <= bit + key.shift < 32
        held = Expression({variables.levels[key.field][31 - bit - key.shift]}) if from_field else _ZERO
        found.append(held ^ _SET if key.flip >> bit & 1 else held)
    return found


def _joined(operator: str, one: Expression, other: Expression) -> Expression:
    if operator == "^":
        return one ^ other
    for first, second in ((one, other), (other, one)):
        if operator in "&|" and first in (_ZERO, _SET):
            return second if (first == _SET) == (operator == "&") else first
    if operator in "&|" and one == other:
        return one
    raise OpaqueError
