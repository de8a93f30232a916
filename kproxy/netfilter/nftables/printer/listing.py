"""Printing tables and rule sets in the layout of `nft list ruleset`, which `nft -f` takes back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kproxy.netfilter.hooks import PRIORITY_NAMES
from kproxy.netfilter.nftables.constant import write_constant, write_duration
from kproxy.netfilter.nftables.datatype import DATATYPES
from kproxy.netfilter.nftables.element import Element
from kproxy.netfilter.nftables.objects import (
    CtExpectation,
    CtHelper,
    CtTimeout,
    Flowtable,
    NamedObject,
    OpaqueObject,
    Secmark,
)
from kproxy.netfilter.nftables.order import has_intervals, listing_order
from kproxy.netfilter.nftables.printer.expressions import print_element, print_expression
from kproxy.netfilter.nftables.printer.stateful import (
    print_counter_body,
    print_limit_body,
    print_quota_body,
    print_stateful,
)
from kproxy.netfilter.nftables.printer.statements import RulePrinter, print_synproxy_parts
from kproxy.netfilter.nftables.printer.style import BOOKWORM, Style
from kproxy.netfilter.nftables.ruleset import BaseChain, Chain, NftRuleset, Table, TableFamily
from kproxy.netfilter.nftables.sets import Set
from kproxy.netfilter.nftables.stateful import Counter, Limit, Quota, Stateful
from kproxy.netfilter.nftables.statement import Synproxy

_FIVE_A_LINE: Final = frozenset(
    {
        "nf_proto", "integer", "arp_op", "inet_proto", "inet_service", "tcp_flag", "dccp_pkttype", "mark",
        "iface_index", "classid", "uid", "gid", "ct_dir",
    }
)  # fmt: skip
_TWO_A_LINE: Final = frozenset({"ipv4_addr", "ct_state", "ct_status", "pkt_type"})
_WRAP: Final = ",\n\t\t\t     "
_SET_FLAGS: Final = ("constant", "interval", "dynamic", "timeout")
_HOOK_NAMES: Final = {"dstnat": ("prerouting",), "srcnat": ("postrouting",)}
_NEWER_HOOK_NAMES: Final = {"dstnat": ("prerouting", "output"), "srcnat": ("postrouting",)}
"""Names of priorities that are printed at some hooks only."""
_STATELESS: Final = Style(stateless=True)


def print_nft(ruleset: NftRuleset, style: Style = BOOKWORM) -> str:
    """A rule set as `nft list ruleset` prints it."""
    return "".join(print_table(table, style) for table in ruleset.tables)


def print_table(table: Table, style: Style = BOOKWORM) -> str:
    """A table as `nft list table` prints it."""
    lines: list[str] = []
    if table.managed_by is not None:
        lines.append(
            f"# Warning: table {table.family.value} {table.name} is managed by {table.managed_by}, do not touch!"
        )
    owner = f" # progname {table.owner}" if table.owner is not None else ""
    lines.append(f"table {table.family.value} {table.name} {{{owner}{_handle(table.handle, style)}")
    blank = False
    if table.flags:
        lines.append(f"\tflags {','.join(sorted(table.flags))}")
        blank = True
    if table.comment is not None:
        lines.append(f'\tcomment "{table.comment}"')
    printer = RulePrinter(table.family, style, {item.name: item for item in table.sets})
    for block in _blocks(table, printer):
        if blank:
            lines.append("")
        blank = True
        lines += block
    lines.append("}\n")
    return "\n".join(lines)


def _blocks(table: Table, printer: RulePrinter) -> Iterator[list[str]]:
    style = printer.style
    for item in table.objects:
        yield _print_object(item, style)
    for found in table.sets:
        yield _print_set(found, style)
    for flowtable in table.flowtables:
        yield _print_flowtable(flowtable, style)
    for chain in table.chains:
        yield _print_chain(chain, printer)


def _handle(handle: int | None, style: Style) -> str:
    return f" # handle {handle}" if style.handles and handle is not None else ""


def print_priority(priority: int, hook: str, family: TableFamily, style: Style = BOOKWORM) -> str:
    """A priority by the name that is at most ten away, else as a number."""
    hooks = _NEWER_HOOK_NAMES if style.newer else _HOOK_NAMES
    for name, number in PRIORITY_NAMES[family.value].items():
        if hook not in hooks.get(name, (hook,)):
            continue
        offset = priority - number
        if offset == 0:
            return name
        if abs(offset) <= 10:
            return f"{name} {'+' if offset > 0 else '-'} {abs(offset)}"
    return str(priority)


def _print_devices(devices: tuple[str, ...]) -> str:
    if len(devices) == 1:
        return f'device "{devices[0]}" '
    return "devices = { " + ", ".join(f'"{device}"' for device in devices) + " } " if devices else ""


def print_base(base: BaseChain, family: TableFamily, style: Style = BOOKWORM) -> str:
    """The line of a base chain."""
    priority = print_priority(base.priority, base.hook, family, style)
    devices = _print_devices(base.devices)
    return f"type {base.type} hook {base.hook} {devices}priority {priority}; policy {base.policy or 'accept'};"


def _print_chain(chain: Chain, printer: RulePrinter) -> list[str]:
    lines = [f"\tchain {chain.name} {{{_handle(chain.handle, printer.style)}"]
    if chain.comment is not None:
        lines.append(f'\t\tcomment "{chain.comment}"')
    if chain.base is not None:
        lines.append(f"\t\t{print_base(chain.base, printer.family, printer.style)}")
    if chain.flags:
        lines.append(f"\t\tflags {','.join(sorted(chain.flags))}")
    rule = printer.rule
    lines += [f"\t\t{rule(item)}" for item in chain.rules]
    lines.append("\t}")
    return lines


def _print_set(found: Set, style: Style) -> list[str]:
    lines = [
        f"\t{'map' if found.is_map else 'set'} {found.name} {{{_handle(found.handle, style)}",
        _print_types(found, style),
    ]
    if found.policy is not None:
        lines.append(f"\t\tpolicy {found.policy}")
    if found.size is not None:
        lines.append(f"\t\tsize {found.size}")
    flags = [flag for flag in _SET_FLAGS if flag in found.flags]
    if flags:
        lines.append(f"\t\tflags {','.join(flags)}")
    lines += [f"\t\t{_set_stateful(item)}" for item in found.stateful]
    if found.timeout is not None:
        lines.append(f"\t\ttimeout {write_duration(found.timeout)}")
    if found.gc_interval is not None:
        lines.append(f"\t\tgc-interval {write_duration(found.gc_interval)}")
    if found.auto_merge:
        lines.append("\t\tauto-merge")
    if found.comment is not None:
        lines.append(f'\t\tcomment "{found.comment}"')
    if found.elements:
        lines.append(_print_elements(found, style))
    lines.append("\t}")
    return lines


def _set_stateful(item: Stateful) -> str:
    """What every element of a set gets, without a count."""
    return "counter" if isinstance(item, Counter) else print_stateful(item, _STATELESS)


def _print_types(found: Set, style: Style) -> str:
    word = "typeof" if found.key_of is not None else "type"
    key = print_expression(found.key_of, style) if found.key_of is not None else " . ".join(map(str, found.types))
    if not found.is_map:
        return f"\t\t{word} {key}"
    interval = "interval " if found.data_interval else ""
    if found.object_kind is not None:
        data = found.object_kind
    elif found.data_of is not None:
        data = print_expression(found.data_of, style)
    else:
        data = " . ".join(map(str, found.data_types))
    return f"\t\t{word} {key} : {interval}{data}"


def _print_elements(found: Set, style: Style) -> str:
    interval = "interval" in found.flags or has_intervals(found.elements)
    ordered = listing_order(found.elements, found.types, interval=interval)
    objects = found.object_kind is not None
    items = [print_element(item, found.types, found.data_types, style, objects=objects) for item in ordered]
    width = _elements_a_line(found, style)
    rows = [", ".join(items[start : start + width]) for start in range(0, len(items), width)]
    return "\t\telements = { " + _WRAP.join(rows) + " }"


def _elements_a_line(found: Set, style: Style) -> int:
    if len(found.types) > 1:
        return 1
    if style.newer and (found.is_map or any(_has_extras(item) for item in found.elements)):
        return 1
    name = found.types[0].name
    return 5 if name in _FIVE_A_LINE else 2 if name in _TWO_A_LINE else 1


def _has_extras(item: Element) -> bool:
    return bool(item.stateful) or item.timeout is not None or item.expires is not None or item.comment is not None


def _print_flowtable(flowtable: Flowtable, style: Style) -> list[str]:
    lines = [f"\tflowtable {flowtable.name} {{{_handle(flowtable.handle, style)}"]
    if flowtable.hook is not None:
        lines.append(f"\t\thook {flowtable.hook} priority {print_priority(flowtable.priority, '', TableFamily.NETDEV)}")
    if flowtable.devices:
        lines.append("\t\tdevices = { " + ", ".join(flowtable.devices) + " }")
    if flowtable.flags:
        lines.append(f"\t\tflags {','.join(sorted(flowtable.flags))}")
    if flowtable.counter:
        lines.append("\t\tcounter")
    lines.append("\t}")
    return lines


def _print_object(item: NamedObject, style: Style) -> list[str]:
    lines = [f"\t{item.kind} {item.name} {{{_handle(item.handle, style)}"]
    if item.comment is not None:
        lines.append(f'\t\tcomment "{item.comment}"')
    lines += [f"\t\t{line}" for line in _object_lines(item, style)]
    lines.append("\t}")
    return lines


def _object_lines(item: NamedObject, style: Style) -> list[str]:
    body = item.body
    match body:
        case Counter():
            text = print_counter_body(body, style)
            return [text] if text else []
        case Quota():
            return [print_quota_body(body, style)]
        case Limit():
            return [print_limit_body(body, style)]
        case Synproxy():
            return print_synproxy_parts(body)
        case CtHelper(kind, protocol, l3proto):
            return [f'type "{kind}" protocol {_protocol(protocol)}', *_l3proto(l3proto)]
        case CtTimeout(protocol, l3proto, policy):
            states = ", ".join(f"{state} : {_seconds(time, style)}" for state, time in policy.items())
            return [f"protocol {_protocol(protocol)}", *_l3proto(l3proto), f"policy = {{ {states} }}"]
        case CtExpectation(protocol, dport, timeout, size, l3proto):
            lines = [f"protocol {_protocol(protocol)}", f"dport {dport}", f"timeout {write_duration(timeout)}"]
            return [*lines, f"size {size}", *_l3proto(l3proto)]
        case Secmark(context):
            return [f'"{context}"']
        case OpaqueObject(text):
            return text.splitlines()


def _protocol(number: int) -> str:
    return write_constant(number, DATATYPES["inet_proto"])


def _l3proto(l3proto: str | None) -> list[str]:
    return [] if l3proto is None else [f"l3proto {l3proto}"]


def _seconds(milliseconds: int, style: Style) -> str:
    return write_duration(milliseconds) if style.newer else str(milliseconds // 1000)
