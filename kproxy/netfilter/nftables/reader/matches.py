"""Reading statements that start with an expression: a match, a verdict map, a mangle."""

from __future__ import annotations

from typing import Final

from kproxy.netfilter.nftables.datatype import DATATYPES, Form
from kproxy.netfilter.nftables.expression import (
    AnonymousMap,
    AnonymousSet,
    Binary,
    Ct,
    Expression,
    ExtensionField,
    Meta,
    Payload,
    RawPayload,
    SetReference,
)
from kproxy.netfilter.nftables.order import merge_intervals
from kproxy.netfilter.nftables.reader.cursor import Cursor
from kproxy.netfilter.nftables.reader.elements import read_elements
from kproxy.netfilter.nftables.reader.expressions import (
    read_argument,
    read_key,
    read_map,
    read_right,
)
from kproxy.netfilter.nftables.statement import (
    Mangle,
    Match,
    ObjectReference,
    Operator,
    Statement,
    VerdictMap,
)
from kproxy.netfilter.nftables.typeof import type_of, types_of
from kproxy.netfilter.nftables.value import CATCH_ALL, Prefix

OPERATORS: Final = {
    "==": Operator.EQ, "eq": Operator.EQ, "!=": Operator.NE, "ne": Operator.NE, "<": Operator.LT, "lt": Operator.LT,
    ">": Operator.GT, "gt": Operator.GT, "<=": Operator.LE, "le": Operator.LE, ">=": Operator.GE, "ge": Operator.GE,
    "!": Operator.NONE,
}  # fmt: skip

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
    operator = OPERATORS.get(token)
    if operator is not None:
        cursor.i += 1
    if cursor.at_stop():
        cursor.fail("a value expected")
    return _read_match(cursor, left, operator)


def _read_vmap(cursor: Cursor, key: Expression) -> VerdictMap:
    cursor.i += 1
    name = cursor.set_reference()
    if name is not None:
        return VerdictMap(key, SetReference(name))
    cursor.expect("{")
    types = types_of(key)
    verdict = (DATATYPES["verdict"],)
    return VerdictMap(key, AnonymousMap(read_elements(cursor, types, verdict), types, verdict))


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
