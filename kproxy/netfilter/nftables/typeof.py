"""The data type of an expression, which says what the constants beside it mean."""

from __future__ import annotations

from typing import Final

from kproxy.netfilter.nftables.datatype import BOOLEAN, DATATYPES, INTEGER, STRING, DataType
from kproxy.netfilter.nftables.expression import (
    AnonymousMap,
    Binary,
    Concat,
    Ct,
    Expression,
    ExtensionField,
    Fib,
    Ipsec,
    Jhash,
    MapLookup,
    Meta,
    Numgen,
    Osf,
    Payload,
    RawPayload,
    Rt,
    Socket,
    Symhash,
)
from kproxy.netfilter.nftables.key import CT_KEYS, FIB_RESULTS, IPSEC_KEYS, META_KEYS, RT_KEYS, SOCKET_KEYS

_UINT32: Final = INTEGER.sized(32)


def type_of(expression: Expression) -> DataType:
    """The data type of an expression that is no concatenation; `integer` where the expression alone does not say it."""
    match expression:
        case Payload():
            return expression.row.type
        case Meta(key):
            return META_KEYS[key]
        case Ct(key):
            return CT_KEYS[key]
        case ExtensionField():
            row = expression.row
            return BOOLEAN if row is None else row.type
        case Fib(_, result, check):
            return BOOLEAN if check else FIB_RESULTS[result]
        case Rt(key):
            return RT_KEYS[key]
        case Socket(key):
            return SOCKET_KEYS[key]
        case RawPayload(_, _, bits):
            return INTEGER.sized(bits)
        case Numgen() | Jhash() | Symhash():
            return _UINT32
        case Ipsec(_, key):
            return IPSEC_KEYS[key]
        case Osf(key):
            return DATATYPES["osf_name"] if key == "name" else STRING
        case Binary(_, left):
            return type_of(left)
        case MapLookup(_, AnonymousMap(_, _, data_types)):
            return data_types[0] if data_types else INTEGER
        case _:
            return INTEGER


def types_of(expression: Expression) -> tuple[DataType, ...]:
    """The data types of an expression's parts: one, or those of a concatenation."""
    if isinstance(expression, Concat):
        return tuple(type_of(part) for part in expression.parts)
    if isinstance(expression, MapLookup) and isinstance(expression.map, AnonymousMap):
        return expression.map.data_types
    return (type_of(expression),)
