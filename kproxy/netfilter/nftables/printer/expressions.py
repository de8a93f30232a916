"""Printing expressions, constants and elements."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from kproxy.netfilter.nftables.constant import write_constant, write_duration
from kproxy.netfilter.nftables.datatype import INTEGER, DataType, Form
from kproxy.netfilter.nftables.element import Element, Elements
from kproxy.netfilter.nftables.expression import (
    AnonymousMap,
    AnonymousSet,
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
    OpaqueExpression,
    Osf,
    Payload,
    RawPayload,
    Rt,
    SetReference,
    Socket,
    Symhash,
)
from kproxy.netfilter.nftables.order import has_intervals, listing_order
from kproxy.netfilter.nftables.printer.stateful import print_stateful
from kproxy.netfilter.nftables.printer.style import Style
from kproxy.netfilter.nftables.protocol import EXTENSION_HEADERS
from kproxy.netfilter.nftables.typeof import type_of, types_of
from kproxy.netfilter.nftables.value import CATCH_ALL, InterfacePrefix, Prefix, Range, Single, Value, Verdict

UNQUALIFIED: Final = frozenset(
    {
        "iif", "iifname", "iiftype", "oif", "oifname", "oiftype", "iifgroup", "oifgroup",
    }
)  # fmt: skip
"""Keys of meta that nft prints without `meta`."""

_PRECEDENCE: Final = {"|": 1, "^": 2, "&": 3, "<<": 4, ">>": 4}
_CONSTANTS: Final = (int, str, Prefix, Range, InterfacePrefix, tuple)


def print_verdict(verdict: Verdict) -> str:
    """A verdict."""
    return verdict.kind if verdict.chain is None else f"{verdict.kind} {verdict.chain}"


def print_value(value: Value, types: Sequence[DataType], *, separator: str = ",") -> str:
    """A constant; the parts of a concatenation have a type each."""
    if isinstance(value, tuple):
        kinds = types if len(types) == len(value) else [INTEGER] * len(value)
        return " . ".join(
            write_constant(part, kind, separator=separator) for part, kind in zip(value, kinds, strict=True)
        )
    return write_constant(value, types[0] if types else INTEGER, separator=separator)


def _print_raw_constant(value: Single) -> str:
    if isinstance(value, int):
        return f"0x{value:x}"
    if isinstance(value, Range):
        return f"0x{value.first:x}-0x{value.last:x}"
    return write_constant(value, INTEGER)


def _is_raw(base: Expression, style: Style, *, computed: bool) -> bool:
    """Whether numbers beside an expression are hexadecimal; 1.1.3 prints them so, too, when it computes with a header's
    field."""
    if isinstance(base, RawPayload):
        return True
    return style.newer and computed and isinstance(base, Payload) and type_of(base).name == "integer"


def print_operand(value: Expression, beside: Expression, style: Style, *, inside: bool = False) -> str:
    """What stands on the right of an operator, a constant of the left side's type or an expression."""
    if isinstance(value, _CONSTANTS):
        base = beside
        while isinstance(base, Binary):
            base = base.left
        if _is_raw(base, style, computed=base is not beside or inside) and not isinstance(value, tuple):
            return _print_raw_constant(value)
        return print_value(value, types_of(beside))
    return print_expression(value, style)


def print_element(
    element: Element, types: Sequence[DataType], data_types: Sequence[DataType], style: Style, *, objects: bool = False
) -> str:
    """An element of a set or map."""
    key = element.key
    if not style.newer and isinstance(key, Range) and types[0].name == "mark":
        key = _mark_prefix(key)
    text = "*" if key is CATCH_ALL else print_value(key, types, separator=" | ")
    if element.stateful or element.timeout is not None or element.expires is not None or element.comment is not None:
        text += _print_extras(element, style)
    data = element.data
    if data is None:
        return text
    if isinstance(data, Verdict):
        return f"{text} : {print_verdict(data)}"
    if objects:
        return f'{text} : "{data}"'
    return f"{text} : {print_value(data, data_types, separator=' | ')}"


def _mark_prefix(key: Range) -> Range | Prefix:
    """A range of marks as 1.0.6 prints it: as a prefix if it is one."""
    size = key.last - key.first + 1
    if size & (size - 1) or key.first % size:
        return key
    return Prefix(key.first, 33 - size.bit_length(), 32)


def _print_extras(element: Element, style: Style) -> str:
    text = ""
    for stateful in element.stateful:
        text += " " + print_stateful(stateful, style)
    if element.timeout is not None:
        text += f" timeout {write_duration(element.timeout)}"
    if element.expires is not None and not style.stateless:
        text += f" expires {write_duration(element.expires)}"
    if element.comment is not None:
        text += f' comment "{element.comment}"'
    return text


def print_elements(
    elements: Elements,
    types: Sequence[DataType],
    data_types: Sequence[DataType],
    style: Style,
    *,
    objects: bool = False,
) -> str:
    """An anonymous set or map, in braces."""
    ordered = listing_order(elements, types, interval=has_intervals(elements))
    return "{ " + ", ".join(print_element(item, types, data_types, style, objects=objects) for item in ordered) + " }"


def print_map(found: SetReference | AnonymousMap, style: Style, *, objects: bool = False) -> str:
    """The map of a look-up."""
    if isinstance(found, SetReference):
        return f"@{found.name}"
    return print_elements(found.elements, found.types, found.data_types, style, objects=objects)


def _print_meta(expression: Meta, _style: Style) -> str:
    return expression.key if expression.key in UNQUALIFIED else f"meta {expression.key}"


def _print_ct(expression: Ct, _style: Style) -> str:
    return f"ct {expression.direction} {expression.key}" if expression.direction else f"ct {expression.key}"


def _print_extension(expression: ExtensionField, style: Style) -> str:
    header = EXTENSION_HEADERS[expression.kind, expression.header]
    if expression.field is None:
        return f"exthdr {header.name}" if expression.kind == "ip6" else header.keyword
    return f"{header.keyword} {expression.field}"


def _print_socket(expression: Socket, _style: Style) -> str:
    return f"socket {expression.key}" + (f" level {expression.level}" if expression.level is not None else "")


def _print_fib(expression: Fib, _style: Style) -> str:
    return f"fib {' . '.join(expression.selectors)} {expression.result}"


def _print_offset(offset: int) -> str:
    return f" offset {offset}" if offset else ""


def _print_numgen(expression: Numgen, _style: Style) -> str:
    return f"numgen {expression.mode} mod {expression.modulus}{_print_offset(expression.offset)}"


def _print_jhash(expression: Jhash, style: Style) -> str:
    seed = "" if expression.seed is None else f" seed 0x{expression.seed:x}"
    key = print_expression(expression.key, style)
    return f"jhash {key} mod {expression.modulus}{seed}{_print_offset(expression.offset)}"


def _print_symhash(expression: Symhash, _style: Style) -> str:
    return f"symhash mod {expression.modulus}{_print_offset(expression.offset)}"


def _print_osf(expression: Osf, _style: Style) -> str:
    return f"osf ttl {expression.ttl} {expression.key}" if expression.ttl else f"osf {expression.key}"


def _print_ipsec(expression: Ipsec, _style: Style) -> str:
    number = f" spnum {expression.spnum}" if expression.spnum else ""
    return f"ipsec {expression.direction}{number} {expression.key}"


def _print_binary(expression: Binary, style: Style) -> str:
    level = _PRECEDENCE[expression.operator]
    left = print_expression(expression.left, style)
    if isinstance(expression.left, Binary) and _PRECEDENCE[expression.left.operator] < level:
        left = f"({left})"
    right = expression.right
    if isinstance(right, int) and expression.operator in ("<<", ">>"):
        shown = str(right)
    elif isinstance(right, int) and type_of(expression.left).form is Form.FLAGS:
        shown = print_value(right, types_of(expression.left), separator=" | ")
        shown = f"({shown})" if " | " in shown else shown
    else:
        shown = print_operand(right, expression.left, style, inside=True)
        if isinstance(right, Binary) and _PRECEDENCE[right.operator] <= level:
            shown = f"({shown})"
    return f"{left} {expression.operator} {shown}"


def _print_map_lookup(expression: MapLookup, style: Style) -> str:
    return f"{print_expression(expression.key, style)} map {print_map(expression.map, style)}"


_PRINTERS: Final[Mapping[type, Callable[[Any, Style], str]]] = MappingProxyType(
    {
        Payload: lambda expression, _style: f"{expression.protocol} {expression.field}",
        RawPayload: lambda expression, _style: f"@{expression.layer.value},{expression.offset},{expression.bits}",
        ExtensionField: _print_extension,
        Meta: _print_meta,
        Ct: _print_ct,
        Rt: lambda expression, _style: f"rt {expression.key}",
        Socket: _print_socket,
        Fib: _print_fib,
        Numgen: _print_numgen,
        Jhash: _print_jhash,
        Symhash: _print_symhash,
        Osf: _print_osf,
        Ipsec: _print_ipsec,
        Binary: _print_binary,
        Concat: lambda expression, style: " . ".join(print_expression(part, style) for part in expression.parts),
        MapLookup: _print_map_lookup,
        SetReference: lambda expression, _style: f"@{expression.name}",
        AnonymousSet: lambda expression, style: print_elements(expression.elements, expression.types, (), style),
        AnonymousMap: lambda expression, style: print_map(expression, style),
        OpaqueExpression: lambda expression, _style: expression.text,
    }
)


def print_expression(expression: Expression, style: Style) -> str:
    """An expression as nft prints it; a constant without a type beside it as a number."""
    printer = _PRINTERS.get(type(expression))
    if printer is None:
        return print_value(expression, (INTEGER,))  # type: ignore[arg-type]
    return printer(expression, style)
