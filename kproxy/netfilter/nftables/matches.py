"""Statements that start with an expression: a match, a verdict map, a mangle."""

from __future__ import annotations

from typing import Final

from kproxy.netfilter.nftables.constant import write_constant
from kproxy.netfilter.nftables.cursor import Cursor
from kproxy.netfilter.nftables.datatype import VERDICT, DataType, Form
from kproxy.netfilter.nftables.elements import read_elements
from kproxy.netfilter.nftables.expression import (
    AnonymousMap,
    AnonymousSet,
    Binary,
    Ct,
    Expression,
    ExtensionField,
    Fib,
    Meta,
    Payload,
    RawPayload,
    type_of,
    types_of,
)
from kproxy.netfilter.nftables.operand import (
    argument_text,
    print_expression,
    print_map,
    print_operand,
    read_argument,
    read_key,
    read_map,
    read_reference,
    read_right,
)
from kproxy.netfilter.nftables.order import merge_intervals
from kproxy.netfilter.nftables.statement import Mangle, Match, ObjectReference, Operator, Statement, VerdictMap
from kproxy.netfilter.nftables.style import Scope
from kproxy.netfilter.nftables.value import CATCH_ALL, Prefix

_OPERATORS: Final = {item.value: item for item in Operator if item is not Operator.ANY} | {
    item.name.lower(): item for item in Operator if item not in (Operator.ANY, Operator.NONE)
}
_PREFIXED: Final = frozenset({Form.IPV4, Form.IPV6})


def read_expression_statement(cursor: Cursor) -> Statement:
    """A match, a verdict map or a mangle."""
    left = read_key(cursor)
    token = cursor.peek()
    if token == "vmap":
        return _read_vmap(cursor, left)
    if token == "map":
        left = read_map(cursor, left)
        token = cursor.peek()
    if token == "set":
        return _read_mangle(cursor, left)
    operator = _OPERATORS.get(token)
    if operator is not None:
        cursor.i += 1
    if cursor.at_stop():
        cursor.fail("a value expected")
    return _read_match(cursor, left, operator)


def _read_vmap(cursor: Cursor, key: Expression) -> VerdictMap:
    cursor.i += 1
    found = read_reference(cursor)
    types = types_of(key)
    return VerdictMap(key, found or AnonymousMap(read_elements(cursor, types, (VERDICT,)), types, (VERDICT,)))


def _read_mangle(cursor: Cursor, target: Expression) -> Statement:
    index = cursor.i
    cursor.i += 1
    if isinstance(target, Ct) and target.direction is None and cursor.peek()[:1] == '"' and target.key == "helper":
        return ObjectReference("ct helper", cursor.string("the name of a helper"))
    if not isinstance(target, (Meta, Ct, Payload, RawPayload, ExtensionField)):
        cursor.fail("an operator or a value expected", index)
    return Mangle(target, read_argument(cursor, type_of(target)))


def _read_match(cursor: Cursor, left: Expression, operator: Operator | None) -> Match:
    index = cursor.i
    if isinstance(left, ExtensionField) and left.field is None and cursor.peek() not in ("exists", "missing", "0", "1"):
        cursor.fail("exists or missing expected")
    right = read_right(cursor, left)
    flags = len(types_of(left)) == 1 and type_of(left).form is Form.FLAGS
    if flags and cursor.accept("/"):
        mask = read_right(cursor, left)
        if not isinstance(mask, int) or not isinstance(right, int) or operator not in (None, Operator.EQ, Operator.NE):
            cursor.fail("flags and their mask expected", index)
        return Match(Binary("&", left, mask), operator or Operator.EQ, right)
    if operator is None:
        operator = Operator.ANY if flags and isinstance(right, int) and not isinstance(left, Binary) else Operator.EQ
    return normalize_match(left, operator, right)


def normalize_match(left: Expression, operator: Operator, right: Expression) -> Match:
    """A match in the one form that the kernel's lister shows.

    `FLAGS & MASK != 0` becomes "any of MASK" and `== 0` "none of MASK"; an address under a mask without holes a prefix;
    a set of one value that value; intervals in a set are joined where they touch.
    """
    exact = operator in (Operator.EQ, Operator.NE)
    if exact and isinstance(right, AnonymousSet) and len(right.types) == 1:
        elements = merge_intervals(right.elements, right.types[0])
        # Several that join to one stay a set.
        if len(right.elements) == 1 and elements[0].key is not CATCH_ALL:
            only = elements[0].key
            flags = right.types[0].form is Form.FLAGS and isinstance(only, int) and operator is Operator.EQ
            return normalize_match(left, Operator.ANY if flags else operator, only)
        right = AnonymousSet(elements, right.types)
    if isinstance(right, Prefix) and type_of(left).form not in _PREFIXED and exact:
        return Match(Binary("&", left, right.mask), operator, right.address)
    if not (isinstance(left, Binary) and left.operator == "&" and isinstance(left.right, int) and exact):
        return Match(left, operator, right)
    kind = type_of(left)
    if right == 0 and kind.form is Form.FLAGS:
        return Match(left.left, Operator.ANY if operator is Operator.NE else Operator.NONE, left.right)
    if kind.form in _PREFIXED and isinstance(right, int) and kind.bits:
        length = left.right.bit_count()
        found = Prefix(right, length, kind.bits)
        if length and left.right == found.mask and right & ~found.mask == 0:
            return Match(left.left, operator, found)
    return Match(left, operator, right)


def print_match(match: Match, scope: Scope) -> str:
    """A match as nft prints it."""
    left, operator, right = match.left, match.operator, match.right
    kinds = types_of(left)
    flags = len(kinds) == 1 and kinds[0].form is Form.FLAGS
    if isinstance(left, Binary) and flags and isinstance(right, int) and isinstance(left.right, int):
        return _print_masked_flags(left, operator, right, scope)
    if isinstance(left, Binary) and not scope.newer and isinstance(right, int):
        length = _prefix_of_mark(left, right, kinds[0])
        if length and operator in (Operator.EQ, Operator.NE):
            sign = "" if operator is Operator.EQ else "!= "
            return f"{print_expression(left.left, scope)} {sign}{write_constant(right, kinds[0])}/{length}"
    shown = print_expression(left, scope)
    if scope.newer and kinds[0].name in ("icmp_code", "icmpv6_code") and isinstance(right, int):
        return f"{shown} {'' if operator is Operator.EQ else operator.value + ' '}{right}"
    if isinstance(left, (ExtensionField, Fib)) and right in (0, 1) and kinds[0].name == "boolean":
        value = "exists" if right else "missing"
    else:
        value = print_operand(right, left, scope)
    if operator is Operator.EQ and not (flags and isinstance(right, int)) and not isinstance(left, Binary):
        return f"{shown} {value}"
    if operator is Operator.ANY:
        return f"{shown} {value}"
    if flags and isinstance(right, int) and operator in (Operator.EQ, Operator.NE):
        value = _print_exact_flags(operator, right, kinds[0])
    return f"{shown} {operator.value} {value}"


def _prefix_of_mark(left: Binary, right: int, kind: DataType) -> int:
    """The prefix length when 1.0.6 prints the comparison of a mark as `0x00010000/16`, else 0."""
    mask = left.right
    if left.operator != "&" or not isinstance(mask, int) or kind.name != "mark" or not mask or right & ~mask:
        return 0
    low = mask & -mask
    return kind.bits - low.bit_length() + 1 if low != 1 and mask | (low - 1) == kind.mask else 0


def _print_exact_flags(operator: Operator, number: int, kind: DataType) -> str:
    """Several flags that must be exactly these.

    nft lists `ct state == established,related` as `ct state established | related`, which it would read back as "one of
    these": there this is not nft's layout.
    """
    if kind.name == "tcp_flag" and number not in kind.names:
        return f"0x{number:x}"
    return write_constant(number, kind, separator="," if operator is Operator.EQ else " | ")


def _print_masked_flags(left: Binary, operator: Operator, right: int, scope: Scope) -> str:
    kind = type_of(left)
    base = print_expression(left.left, scope)
    mask = left.right
    assert isinstance(mask, int)
    if scope.newer or (mask in kind.names and right == mask) or operator not in (Operator.EQ, Operator.NE):
        bits = write_constant(mask, kind, separator=" | ")
        bits = f"({bits})" if " | " in bits else bits
        return f"{base} & {bits} {operator.value} {write_constant(right, kind, separator=' | ')}"
    sign = "" if operator is Operator.EQ else f"{operator.value} "
    return f"{base} {sign}{write_constant(right, kind)} / {write_constant(mask, kind)}"


def print_vmap(vmap: VerdictMap, scope: Scope) -> str:
    """A verdict map as nft prints it."""
    return f"{print_expression(vmap.key, scope)} vmap {print_map(vmap.map, scope)}"


def print_mangle(mangle: Mangle, scope: Scope) -> str:
    """A mangle as nft prints it."""
    target, value = mangle.target, mangle.value
    raw = isinstance(target, RawPayload) and isinstance(value, int)
    shown = f"0x{value:x}" if raw else argument_text(value, scope, type_of(target))
    return f"{print_expression(target, scope)} set {shown}"
