"""The blocks of tables and chains."""

from __future__ import annotations

import dataclasses
from typing import Any, Final

from kproxy.netfilter.nftables.cursor import Cursor
from kproxy.netfilter.nftables.flowtable import DEVICES, priority_text, read_devices, read_priority
from kproxy.netfilter.nftables.grammar import COMMENT, AnyOrder, Own, Row, flags_of, one_of, read_block
from kproxy.netfilter.nftables.rule import read_rule
from kproxy.netfilter.nftables.ruleset import BaseChain, Chain, Rule
from kproxy.netfilter.nftables.style import Scope

_CHAIN_TYPE: Final = one_of("a chain type expected (filter, nat or route)", "filter", "nat", "route")
_HOOK: Final = one_of("a hook expected", "prerouting", "input", "forward", "output", "postrouting", "ingress", "egress")


def _read_base(cursor: Cursor, values: dict[str, Any]) -> None:
    """`type T hook H [device D] priority P`, behind the first word."""
    kind = _CHAIN_TYPE.read(cursor)
    cursor.expect("hook")
    hook = _HOOK.read(cursor)
    found: dict[str, Any] = {}
    if cursor.peek() in DEVICES:
        cursor.i += 1
        read_devices(cursor, found)
    cursor.expect("priority")
    values["base"] = BaseChain(kind, hook, read_priority(cursor), None, **found)


def _base_text(chain: Chain, scope: Scope) -> str:
    base = chain.base
    if base is None:
        return ""
    devices = ", ".join(f'"{device}"' for device in base.devices)
    if len(base.devices) == 1:
        devices = f"device {devices} "
    elif devices:
        devices = f"devices = {{ {devices} }} "
    priority = priority_text(base.priority, base.hook, scope.family, scope)
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
    Own(read_devices, words=DEVICES),
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
