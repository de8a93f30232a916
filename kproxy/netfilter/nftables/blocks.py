"""The blocks of tables and chains."""

from __future__ import annotations

import dataclasses
import re
from typing import Any, Final

from kproxy.netfilter.hooks import PRIORITY_NAMES
from kproxy.netfilter.nftables.constant import read_number
from kproxy.netfilter.nftables.cursor import Cursor
from kproxy.netfilter.nftables.grammar import COMMENT, AnyOrder, Own, Row, flags_of, one_of, read_block
from kproxy.netfilter.nftables.rule import read_rule
from kproxy.netfilter.nftables.ruleset import BaseChain, Chain, Rule
from kproxy.netfilter.nftables.style import Scope

_CHAIN_TYPE: Final = one_of("a chain type expected (filter, nat or route)", "filter", "nat", "route")
_HOOK: Final = one_of("a hook expected", "prerouting", "input", "forward", "output", "postrouting", "ingress", "egress")


_PRIORITY: Final = re.compile(r"(?=.)([a-z]*)(?:([-+]?)([0-9][0-9a-fA-FxX]*))?")
_HOOK_NAMES: Final = {"dstnat": ("prerouting",), "srcnat": ("postrouting",)}
_NEWER_HOOK_NAMES: Final = {"dstnat": ("prerouting", "output"), "srcnat": ("postrouting",)}
"""Names of priorities that are printed at some hooks only."""


def _read_priority(cursor: Cursor) -> int:
    """`filter`, `dstnat - 10`, `-110`. Raises UnexpectedError."""
    index = cursor.i
    text = cursor.take()
    if cursor.peek() in ("-", "+"):
        text += cursor.take() + cursor.take()
    elif cursor.peek()[:1] in ("-", "+"):
        text += cursor.take()
    found = _PRIORITY.fullmatch(text)
    names = PRIORITY_NAMES[cursor.family]
    if found is None or (found[1] and found[1] not in names):
        cursor.fail("a priority expected", index)
    offset = cursor.convert(read_number, found[3] or "0", index)
    priority = names.get(found[1], 0) + (-offset if found[2] == "-" else offset)
    if not -(1 << 31) <= priority < 1 << 31:
        cursor.fail("a priority expected", index)
    return priority


def _priority_text(priority: int, hook: str, family: str, scope: Scope) -> str:
    """A priority by the name that is at most ten away, else as a number."""
    hooks = _NEWER_HOOK_NAMES if scope.newer else _HOOK_NAMES
    for name, number in PRIORITY_NAMES[family].items():
        if hook not in hooks.get(name, (hook,)):
            continue
        offset = priority - number
        if offset == 0:
            return name
        if abs(offset) <= 10:
            return f"{name} {'+' if offset > 0 else '-'} {abs(offset)}"
    return str(priority)


def _read_devices(cursor: Cursor, values: dict[str, Any]) -> None:
    """`device "eth0"`, `devices = { eth0, eth1 }`, behind the word."""
    if cursor.tokens[cursor.i - 1] == "device":
        values["devices"] = (cursor.name("an interface"),)
        return
    cursor.expect("=")
    cursor.expect("{")
    found = [cursor.name("an interface")]
    while cursor.accept(","):
        found.append(cursor.name("an interface"))
    cursor.expect("}")
    values["devices"] = tuple(found)


_DEVICES: Final = ("device", "devices")


def _read_base(cursor: Cursor, values: dict[str, Any]) -> None:
    """`type T hook H [device D] priority P`, behind the first word."""
    kind = _CHAIN_TYPE.read(cursor)
    cursor.expect("hook")
    hook = _HOOK.read(cursor)
    found: dict[str, Any] = {}
    if cursor.peek() in _DEVICES:
        cursor.i += 1
        _read_devices(cursor, found)
    cursor.expect("priority")
    values["base"] = BaseChain(kind, hook, _read_priority(cursor), None, **found)


def _base_text(chain: Chain, scope: Scope) -> str:
    base = chain.base
    if base is None:
        return ""
    devices = ", ".join(f'"{device}"' for device in base.devices)
    if len(base.devices) == 1:
        devices = f"device {devices} "
    elif devices:
        devices = f"devices = {{ {devices} }} "
    priority = _priority_text(base.priority, base.hook, scope.family, scope)
    return f"type {base.type} hook {base.hook} {devices}priority {priority}; policy {base.policy or 'accept'};"


TABLE_ROWS: Final = AnyOrder(
    Row("flags", "flags", flags_of("dormant", "owner", "persist"), omit=frozenset()), Row("comment", "comment", COMMENT)
)
"""The lines of a table's block, besides what is in it."""

CHAIN_ROWS: Final = AnyOrder(
    Row("comment", "comment", COMMENT),
    Own(_read_base, _base_text, ("type",)),
    Row("flags", "flags", flags_of("offload"), omit=frozenset()),
    Own(Row("", "policy", one_of("accept or drop expected", "accept", "drop")).read, words=("policy",)),
    Own(_read_devices, words=_DEVICES),
)
"""The lines of a chain's block, besides its rules."""


def read_chain(cursor: Cursor, name: str) -> Chain:
    """The block of a chain, with its rules. Raises UnexpectedError."""
    rules: list[Rule] = []

    def rule(cursor: Cursor) -> bool:
        rules.append(read_rule(cursor))
        return True

    values = read_block(cursor, CHAIN_ROWS, "", rule)
    policy, devices = values.pop("policy", None), values.pop("devices", ())
    base = values.get("base")
    if base is not None and (policy or devices):
        values["base"] = dataclasses.replace(base, policy=policy, devices=devices or base.devices)
    return Chain(name, rules=tuple(rules), **values)
