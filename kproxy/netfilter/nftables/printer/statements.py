"""Printing rules and their statements."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from kproxy.netfilter.nftables.constant import write_constant, write_duration
from kproxy.netfilter.nftables.datatype import DATATYPES, IFNAME, INET_SERVICE, INTEGER, DataType, Form
from kproxy.netfilter.nftables.expression import Binary, Expression, ExtensionField, Fib, MapLookup, RawPayload
from kproxy.netfilter.nftables.printer.expressions import (
    print_expression,
    print_map,
    print_operand,
    print_value,
    print_verdict,
)
from kproxy.netfilter.nftables.printer.stateful import print_stateful
from kproxy.netfilter.nftables.printer.style import Style
from kproxy.netfilter.nftables.ruleset import Rule, TableFamily
from kproxy.netfilter.nftables.sets import Set
from kproxy.netfilter.nftables.stateful import ConnectionLimit, Counter, Last, Limit, Quota
from kproxy.netfilter.nftables.statement import (
    DEFAULT_REJECTS,
    Dup,
    FlowAdd,
    Fwd,
    Log,
    Mangle,
    Match,
    Nat,
    Notrack,
    ObjectReference,
    OpaqueStatement,
    Operator,
    Queue,
    Reject,
    ResetOption,
    SetUpdate,
    Statement,
    Synproxy,
    Tproxy,
    VerdictMap,
    Xt,
)
from kproxy.netfilter.nftables.typeof import type_of, types_of
from kproxy.netfilter.nftables.value import InterfacePrefix, Prefix, Range, Verdict

_ADDRESS: Final = {"ip": DATATYPES["ipv4_addr"], "ip6": DATATYPES["ipv6_addr"]}
_CONSTANTS: Final = (int, str, Prefix, Range, InterfacePrefix, tuple)
_NAT_FLAGS: Final = ("random", "fully-random", "persistent", "netmap")
_LOG_FLAGS: Final = ("tcp sequence", "tcp options", "ip options", "skuid", "ether")
_STATELESS: Final = Style(stateless=True)
_SET_OF: Final = {"ct helper": "ct helper set", "ct timeout": "ct timeout set", "ct expectation": "ct expectation set"}


class RulePrinter:
    """Prints the rules of one table: `family` decides what goes without saying, `sets` are the table's, for the types
    of maps' data."""

    __slots__ = ("_cache", "family", "sets", "style")

    def __init__(self, family: TableFamily, style: Style, sets: Mapping[str, Set] | None = None) -> None:
        self.family = family
        self.style = style
        self.sets = sets or {}
        self._cache: dict[Statement, str] = {}

    def rule(self, rule: Rule) -> str:
        """A rule on one line."""
        parts = [self.statement(statement) for statement in rule.statements]
        if rule.comment is not None:
            parts.append(f'comment "{rule.comment}"')
        if self.style.handles and rule.handle is not None:
            parts.append(f"# handle {rule.handle}")
        return " ".join(parts)

    def statement(self, statement: Statement) -> str:
        """A statement."""
        return _PRINTERS[type(statement)](self, statement)

    def expression(self, expression: Expression, kind: DataType) -> str:
        """An expression or a constant of a type."""
        if isinstance(expression, _CONSTANTS):
            return print_value(expression, (kind,), separator=",")
        return print_expression(expression, self.style)


def _print_match(printer: RulePrinter, match: Match) -> str:
    left, operator, right = match.left, match.operator, match.right
    style = printer.style
    kinds = types_of(left)
    flags = len(kinds) == 1 and kinds[0].form is Form.FLAGS
    if isinstance(left, Binary) and flags and isinstance(right, int) and isinstance(left.right, int):
        return _print_masked_flags(left, operator, right, style)
    if isinstance(left, Binary) and not style.newer and isinstance(right, int):
        length = _prefix_of_mark(left, right, kinds[0])
        if length and operator in (Operator.EQ, Operator.NE):
            sign = "" if operator is Operator.EQ else "!= "
            return f"{print_expression(left.left, style)} {sign}{write_constant(right, kinds[0])}/{length}"
    shown = print_expression(left, style)
    if style.newer and kinds[0].name in ("icmp_code", "icmpv6_code") and isinstance(right, int):
        return f"{shown} {'' if operator is Operator.EQ else operator.value + ' '}{right}"
    if isinstance(left, (ExtensionField, Fib)) and right in (0, 1) and kinds[0].name == "boolean":
        value = "exists" if right else "missing"
    else:
        value = print_operand(right, left, style)
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


def _print_masked_flags(left: Binary, operator: Operator, right: int, style: Style) -> str:
    kind = type_of(left)
    base = print_expression(left.left, style)
    mask = left.right
    assert isinstance(mask, int)
    if style.newer or (mask in kind.names and right == mask) or operator not in (Operator.EQ, Operator.NE):
        bits = write_constant(mask, kind, separator=" | ")
        bits = f"({bits})" if " | " in bits else bits
        return f"{base} & {bits} {operator.value} {write_constant(right, kind, separator=' | ')}"
    sign = "" if operator is Operator.EQ else f"{operator.value} "
    return f"{base} {sign}{write_constant(right, kind)} / {write_constant(mask, kind)}"


def _print_mangle(printer: RulePrinter, mangle: Mangle) -> str:
    target = print_expression(mangle.target, printer.style)
    kind = type_of(mangle.target)
    if isinstance(mangle.target, RawPayload) and isinstance(mangle.value, int):
        return f"{target} set 0x{mangle.value:x}"
    return f"{target} set {printer.expression(mangle.value, kind)}"


def _print_vmap(printer: RulePrinter, vmap: VerdictMap) -> str:
    return f"{print_expression(vmap.key, printer.style)} vmap {print_map(vmap.map, printer.style)}"


def _print_nat(printer: RulePrinter, nat: Nat) -> str:
    text = nat.kind
    special = nat.concatenated or nat.prefix or nat.interval
    if nat.family is not None and (special or printer.family.value != nat.family):
        text += f" {nat.family}"
    text += " addr . port" if nat.concatenated and not isinstance(nat.address, MapLookup) else ""
    text += " prefix" if nat.prefix else " interval" if nat.interval else ""
    target = _print_target(printer, nat.family, nat.address, nat.port, concatenated=nat.concatenated)
    if target:
        text += f" to {target}"
    flags = ",".join(flag for flag in _NAT_FLAGS if flag in nat.flags)
    return f"{text} {flags}" if flags else text


def _print_target(
    printer: RulePrinter,
    family: str | None,
    address: Expression | None,
    port: Expression | None,
    *,
    concatenated: bool = False,
) -> str:
    kind = _ADDRESS.get(family or printer.family.value, INTEGER)
    text = ""
    if address is not None:
        if concatenated and isinstance(address, tuple):
            text = print_value(address, (kind, INET_SERVICE))
        else:
            text = printer.expression(address, kind)
            if port is not None and kind.form is Form.IPV6 and isinstance(address, (int, Prefix, Range)):
                text = "-".join(f"[{part}]" for part in text.split("-"))
    if port is not None:
        text += ":" + printer.expression(port, INET_SERVICE)
    return text


def _print_tproxy(printer: RulePrinter, tproxy: Tproxy) -> str:
    family = f" {tproxy.family}" if tproxy.family is not None and tproxy.family != printer.family.value else ""
    kind = _ADDRESS.get(tproxy.family or printer.family.value, INTEGER)
    text = "" if tproxy.address is None else printer.expression(tproxy.address, kind)
    if kind.form is Form.IPV6 and isinstance(tproxy.address, int):
        text = f"[{text}]"
    if tproxy.port is not None:
        text += ":" + printer.expression(tproxy.port, INET_SERVICE)
    return f"tproxy{family} to {text}"


def _print_reject(printer: RulePrinter, reject: Reject) -> str:
    if reject.kind == "tcp reset":
        return "reject with tcp reset"
    if reject == DEFAULT_REJECTS[printer.family.value]:
        return "reject"
    code = write_constant(reject.code, DATATYPES[f"{reject.kind}_code"])
    return f"reject with {reject.kind} {code}"


def _print_log(_printer: RulePrinter, log: Log) -> str:
    text = "log"
    if log.prefix is not None:
        text += f' prefix "{log.prefix}"'
    if log.group is not None:
        text += f" group {log.group}"
    if log.snaplen is not None:
        text += f" snaplen {log.snaplen}"
    if log.queue_threshold is not None:
        text += f" queue-threshold {log.queue_threshold}"
    if log.level is not None:
        text += f" level {log.level}"
    if log.flags >= set(_LOG_FLAGS):
        return f"{text} flags all"
    tcp = [flag[4:] for flag in _LOG_FLAGS[:2] if flag in log.flags]
    if tcp:
        text += f" flags tcp {','.join(tcp)}"
    for flag in _LOG_FLAGS[2:]:
        if flag in log.flags:
            text += f" flags {flag}"
    return text


def _print_queue(printer: RulePrinter, queue: Queue) -> str:
    flags = ",".join(flag for flag in ("bypass", "fanout") if flag in queue.flags)
    text = f"queue flags {flags}" if flags else "queue"
    return f"{text} to {printer.expression(queue.number, INTEGER)}"


def _print_set_update(printer: RulePrinter, update: SetUpdate) -> str:
    found = printer.sets.get(update.set)
    text = f"{update.operation} @{update.set} {{ {print_expression(update.key, printer.style)}"
    if update.timeout is not None:
        text += f" timeout {write_duration(update.timeout)}"
    if update.comment is not None:
        text += f' comment "{update.comment}"'
    for stateful in update.stateful:
        text += " " + print_stateful(stateful, _STATELESS)
    if update.data is not None:
        types = found.data_types if found is not None and found.data_types else (INTEGER,)
        shown = (
            print_value(update.data, types)
            if isinstance(update.data, _CONSTANTS)
            else print_expression(update.data, printer.style)
        )
        text += f" : {shown}"
    return text + " }"


def _print_dup(printer: RulePrinter, dup: Dup) -> str:
    if dup.address is None:
        return f"dup to {printer.expression(dup.device or '', IFNAME)}"
    address = printer.expression(dup.address, _ADDRESS.get(printer.family.value, INTEGER))
    device = "" if dup.device is None else f" device {printer.expression(dup.device, IFNAME)}"
    return f"dup to {address}{device}"


def _print_fwd(printer: RulePrinter, fwd: Fwd) -> str:
    device = printer.expression(fwd.device, IFNAME)
    if fwd.address is None or fwd.family is None:
        return f"fwd to {device}"
    return f"fwd {fwd.family} to {printer.expression(fwd.address, _ADDRESS[fwd.family])} device {device}"


def print_synproxy_parts(synproxy: Synproxy) -> list[str]:
    """The parts of a synproxy."""
    parts = [] if synproxy.mss is None else [f"mss {synproxy.mss}"]
    if synproxy.wscale is not None:
        parts.append(f"wscale {synproxy.wscale}")
    flags = [flag for flag in ("timestamp", "sack-perm") if flag in synproxy.flags]
    return [*parts, " ".join(flags)] if flags else parts


def _print_object(printer: RulePrinter, reference: ObjectReference) -> str:
    name = (
        f'"{reference.name}"'
        if isinstance(reference.name, str)
        else f"{print_expression(reference.name.key, printer.style)} map "
        f"{print_map(reference.name.map, printer.style, objects=True)}"
    )
    return f"{_SET_OF.get(reference.kind) or f'{reference.kind} name'} {name}"


def _print_xt(_printer: RulePrinter, xt: Xt) -> str:
    return f"xt {xt.kind} {xt.name}"


def _stateful(printer: RulePrinter, item: Any) -> str:
    return print_stateful(item, printer.style)


_PRINTERS: Final[Mapping[type, Callable[[RulePrinter, Any], str]]] = MappingProxyType(
    dict.fromkeys((Counter, Limit, Quota, ConnectionLimit, Last), _stateful)
    | {
        Match: _print_match,
        Verdict: lambda _printer, verdict: print_verdict(verdict),
        VerdictMap: _print_vmap,
        Mangle: _print_mangle,
        Nat: _print_nat,
        Reject: _print_reject,
        Log: _print_log,
        Queue: _print_queue,
        SetUpdate: _print_set_update,
        Tproxy: _print_tproxy,
        Notrack: lambda _printer, _notrack: "notrack",
        Dup: _print_dup,
        Fwd: _print_fwd,
        Synproxy: lambda _printer, synproxy: " ".join(["synproxy", *print_synproxy_parts(synproxy)]),
        FlowAdd: lambda _printer, flow: f"flow add @{flow.flowtable}",
        ObjectReference: _print_object,
        ResetOption: lambda _printer, reset: f"reset tcp option {reset.option}",
        Xt: _print_xt,
        OpaqueStatement: lambda _printer, opaque: opaque.text,
    }
)
