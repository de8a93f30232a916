"""Marks that nftables computes, bit by bit: exclusive ors of bits, which is what MARK and CONNMARK make, too.

Theory: docs/symbolic.md, "Leaves".
"""

from __future__ import annotations

from typing import NamedTuple

from kproxy.dataplane.symbolic.leaves import ONE, Expression
from kproxy.dataplane.symbolic.nftables.quantity import OpaqueError
from kproxy.dataplane.symbolic.variables import Variables
from kproxy.netfilter.iptables.codec import UINT32
from kproxy.netfilter.nftables.expression import Binary, Concat, Ct, Jhash, MapLookup, Meta
from kproxy.netfilter.nftables.statement import Mangle, Match, Nat, SetUpdate, Statement, VerdictMap


class MarkUse(NamedTuple):
    """Bits of the mark and of the connection's mark that a statement tests, reads, or may change."""

    tested: int = 0
    changed: int = 0
    connection_read: int = 0
    connection_changed: int = 0


def marks_of(statement: Statement) -> MarkUse:
    """What a statement does with marks."""
    if isinstance(statement, Mangle):
        target, value = statement.target, statement.value
        key = value.key if isinstance(value, MapLookup) else None
        if isinstance(target, Meta) and target.key == "mark":
            changed = changed_bits(value, Meta)
            return MarkUse(read_bits(key, Meta), changed, read_bits(value if key is None else key, Ct))
        if isinstance(target, Ct) and target.key == "mark":
            return MarkUse(read_bits(key, Meta), 0, read_bits(key, Ct), UINT32)
        return MarkUse(read_bits(value, Meta), 0, read_bits(value, Ct))
    read: tuple[object, ...] = ()
    if isinstance(statement, Match):
        read = statement.left, statement.right
    elif isinstance(statement, (VerdictMap, SetUpdate)):
        read = (statement.key,)
    elif isinstance(statement, Nat):
        read = statement.address, statement.port
    return MarkUse(read_bits(read, Meta), 0, read_bits(read, Ct))


def shift_of(statement: Statement) -> int | None:
    """By how many bits a copy between the marks moves them, to the left on the way to the connection's; None if the
    statement copies none."""
    if not isinstance(statement, Mangle) or getattr(statement.target, "key", "") != "mark":
        return None
    value, shift = statement.value, 0
    while isinstance(value, Binary):
        if isinstance(value.right, int):
            shift += {"<<": value.right, ">>": -value.right}.get(value.operator, 0)
        value = value.left
    if not isinstance(value, (Meta, Ct)) or value.key != "mark" or isinstance(value, type(statement.target)):
        return None
    return shift if isinstance(statement.target, Ct) else -shift


_ZERO = Expression()
_SET = Expression({ONE})


def linear_bits(variables: Variables, value: object) -> list[Expression]:
    """The 32 bits of a number, the highest first.

    Raises:
        OpaqueError: it is not made of marks and constants, or not linear.
    """
    if isinstance(value, int):
        return [_SET if value >> bit & 1 else _ZERO for bit in range(31, -1, -1)]
    if isinstance(value, Meta) and value.key == "mark":
        return [Expression({level}) for level in variables.levels["mark"]]
    if isinstance(value, Ct) and value.key == "mark":
        return [Expression({level}) for level in variables.levels["connmark"]]
    if not isinstance(value, Binary):
        raise OpaqueError
    left = linear_bits(variables, value.left)
    if value.operator in ("<<", ">>"):
        if not isinstance(value.right, int):
            raise OpaqueError
        shift = min(value.right, 32)
        return [*left[shift:], *[_ZERO] * shift] if value.operator == "<<" else [*[_ZERO] * shift, *left[: 32 - shift]]
    right = linear_bits(variables, value.right)
    return [_joined(value.operator, one, other) for one, other in zip(left, right, strict=True)]


def _joined(operator: str, one: Expression, other: Expression) -> Expression:
    if operator == "^":
        return one ^ other
    for first, second in ((one, other), (other, one)):
        if operator == "&" and first in (_ZERO, _SET):
            return second if first == _SET else _ZERO
        if operator == "|" and first in (_ZERO, _SET):
            return _SET if first == _SET else second
    if one == other:
        return one
    raise OpaqueError


def changed_bits(value: object, part: type[Meta]) -> int:
    """The bits of the mark that may change when it is set to this value."""
    if isinstance(value, part) and value.key == "mark":
        return 0
    if isinstance(value, Binary) and isinstance(value.right, int):
        below = changed_bits(value.left, part)
        if value.operator == "&":
            return below | ~value.right & UINT32
        if value.operator in ("|", "^"):
            return below | value.right
    return UINT32


def read_bits(value: object, part: type[Meta] | type[Ct]) -> int:
    """The bits of a mark that an expression reads."""
    if isinstance(value, part) and value.key == "mark":
        return UINT32
    if isinstance(value, Binary):
        if value.operator == "&" and isinstance(value.right, int):
            return read_bits(value.left, part) & value.right
        return read_bits(value.left, part) | read_bits(value.right, part)
    if isinstance(value, Concat):
        return read_bits(value.parts, part)
    if isinstance(value, (MapLookup, Jhash)):
        return read_bits(value.key, part)
    result = 0
    for item in value if isinstance(value, tuple) else ():
        result |= read_bits(item, part)
    return result
