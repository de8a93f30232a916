"""nft and a kernel's tables in memory: an executor that goes through the same suite as the real one.

Scripts are carried out by `kproxy.netfilter.nftables`. A table is listed as `nft -j` of nftables 1.0.6 lists it, as far
as kube-proxy's own tables go; anything else in it is an error.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

from kproxy.linux.errors import FailedLine, RestoreFailedError
from kproxy.linux.namespace import Namespace
from kproxy.linux.nftables.executor import Nft, NftExecutor
from kproxy.netfilter.nftables.apply import apply_commands
from kproxy.netfilter.nftables.check import check_nft
from kproxy.netfilter.nftables.constant import unquote, write_constant
from kproxy.netfilter.nftables.datatype import DATATYPES, DataType
from kproxy.netfilter.nftables.element import Data, Element
from kproxy.netfilter.nftables.errors import NftSyntaxError
from kproxy.netfilter.nftables.expression import (
    AnonymousMap,
    AnonymousSet,
    Binary,
    Concat,
    Ct,
    Expression,
    Fib,
    MapLookup,
    Meta,
    Numgen,
    Payload,
    SetReference,
    type_of,
)
from kproxy.netfilter.nftables.ruleset import Chain, NftRuleset, Rule, Table, TableFamily
from kproxy.netfilter.nftables.script import read_script
from kproxy.netfilter.nftables.sets import Set
from kproxy.netfilter.nftables.statement import (
    Mangle,
    Match,
    Nat,
    OpaqueStatement,
    Operator,
    Reject,
    SetUpdate,
    Statement,
    VerdictMap,
)
from kproxy.netfilter.nftables.value import CATCH_ALL, InterfacePrefix, Prefix, Range, Value, Verdict
from kproxy.render.nftables.names import TABLE, nft_family
from kproxy.services import IPFamily

Json = Any

NFT: Final = Nft("nft", (1, 0, 6))

_LEADING_BITS: Final = {(1 << 32) - (1 << 32 - length): length for length in range(1, 33)}
"""Masks of the first bits of a mark: a test of these is a prefix to nft."""


class MemoryNft(NftExecutor):
    """Does in memory what `nft -f` and `nft -j list table` do. `ruleset` is what the kernel holds."""

    def __init__(self, family: IPFamily) -> None:
        super().__init__(Namespace.current(), NFT, family)
        self.ruleset = NftRuleset()

    def run(self, script: str) -> None:
        self.ruleset = self._after(script)

    def check(self, script: str) -> None:
        self._after(script)

    def is_dormant(self) -> bool:
        table = self.ruleset.table(TableFamily(nft_family(self.family)), TABLE)
        return table is not None and "dormant" in table.flags

    def list_table(self) -> str | None:
        table = self.ruleset.table(TableFamily(nft_family(self.family)), TABLE)
        return None if table is None else json.dumps({"nftables": table_json(table)})

    def _after(self, script: str) -> NftRuleset:
        try:
            after = apply_commands(self.ruleset, read_script(script, base=self.ruleset))
        except NftSyntaxError as error:
            raise self._refusal(script, error.line, str(error)) from error
        for _, chain, _, rule in after.rules():
            if any(isinstance(each, OpaqueStatement) for each in rule.statements):
                raise self._refusal(script, rule.line, f"syntax error in a rule of {chain.name}")
        if problems := check_nft(after):
            # The line of a map is that of its definition, in an earlier script maybe.
            raise self._refusal(script, problems[0].line, problems[0].words)
        return after

    def _refusal(self, script: str, number: int, reason: str) -> RestoreFailedError:
        lines = [FailedLine(number, text) for text in script.split("\n")[number - 1 : number]]
        return RestoreFailedError("nft -f", reason, lines, self.table, 0)


def table_json(table: Table) -> list[Json]:
    """The objects of a table."""
    family = table.family.value
    own = {"family": family, "table": table.name}
    address = DATATYPES["ipv6_addr" if table.family is TableFamily.IP6 else "ipv4_addr"]
    return [
        {"metainfo": {"version": "1.0.6", "release_name": "Lester Gooch #5", "json_schema_version": 1}},
        {"table": {"family": family, "name": table.name, **({"flags": list(table.flags)} if table.flags else {})}},
        *({"map" if item.is_map else "set": {**own, **_set(item)}} for item in table.sets),
        *({"chain": {**own, **_chain(chain)}} for chain in table.chains),
        *(
            {"rule": {**own, "chain": chain.name, **_rule(rule, address)}}
            for chain in table.chains
            for rule in chain.rules
        ),
    ]


def _chain(chain: Chain) -> Json:
    found: Json = {"name": chain.name}
    if chain.base is not None:
        base = chain.base
        found |= {"type": base.type, "hook": base.hook, "prio": base.priority, "policy": base.policy or "accept"}
    return found


def _set(item: Set) -> Json:
    found: Json = {"name": item.name, "type": _one_or_more([kind.name for kind in item.types])}
    if item.comment:
        found["comment"] = item.comment
    if item.is_map:
        found["map"] = _one_or_more([kind.name for kind in item.data_types])
    if flags := item.flags - {"dynamic"}:
        found["flags"] = sorted(flags)
    if "dynamic" in item.flags:
        found["size"] = item.size or 65535
    if item.timeout:
        found["timeout"] = item.timeout // 1000
    if item.elements:
        found["elem"] = [_element(each, item.types, item.data_types) for each in item.elements]
    return found


def _one_or_more(names: list[str]) -> Json:
    return names[0] if len(names) == 1 else names


def _element(element: Element, types: Sequence[DataType], data_types: Sequence[DataType]) -> Json:
    assert element.key is not CATCH_ALL
    key = _value(element.key, types)
    if element.comment:
        key = {"elem": {"val": key, "comment": element.comment}}
    return key if element.data is None else [key, _data(element.data, data_types)]


def _data(data: Data, types: Sequence[DataType]) -> Json:
    return _verdict(data) if isinstance(data, Verdict) else _value(data, types)


def _verdict(verdict: Verdict) -> Json:
    return {verdict.kind: None if verdict.chain is None else {"target": verdict.chain}}


def _value(value: Value, types: Sequence[DataType]) -> Json:
    if isinstance(value, tuple):
        return {"concat": [_value(part, [kind]) for part, kind in zip(value, types, strict=True)]}
    (kind,) = types
    if isinstance(value, Prefix):
        return {"prefix": {"addr": _value(value.address, types), "len": value.length}}
    if isinstance(value, Range):
        return {"range": [_value(value.first, types), _value(value.last, types)]}
    if isinstance(value, int) and kind.name in ("integer", "mark", "inet_service"):
        return value
    return unquote(write_constant(value, kind))


def _rule(rule: Rule, address: DataType) -> Json:
    found: Json = {"comment": rule.comment} if rule.comment else {}
    return {**found, "expr": [_statement(each, address) for each in rule.statements]}


def _statement(statement: Statement, address: DataType) -> Json:
    match statement:
        case Verdict():
            return _verdict(statement)
        case Match(Binary("&", left, int(mask)), operator, int(right)) if mask in _LEADING_BITS:
            prefix = {"prefix": {"addr": right, "len": _LEADING_BITS[mask]}}
            return {"match": {"op": operator.value, "left": _expression(left), "right": prefix}}
        case Match(left, operator, right):
            # What nft calls "in" is a test of bits.
            word = "in" if operator is Operator.ANY else operator.value
            return {"match": {"op": word, "left": _expression(left), "right": _operand(right, left)}}
        case VerdictMap(key, choice):
            return {"vmap": {"key": _expression(key), "data": _map(choice)}}
        case Mangle(target, value):
            return {"mangle": {"key": _expression(target), "value": _operand(value, target)}}
        case Reject(kind, _):
            return {"reject": {"type": kind, "expr": "port-unreachable"}}
        case Nat():
            return _nat(statement, address)
        case SetUpdate(operation, name, key):
            return {"set": {"op": operation, "elem": _expression(key), "set": f"@{name}"}}
    raise ValueError(f"not one of kube-proxy's statements: {statement}")


def _nat(nat: Nat, address: DataType) -> Json:
    found: Json = {}
    if isinstance(nat.address, MapLookup):
        key, choice = nat.address.key, nat.address.map
        found = {"family": nat.family, "addr": {"map": {"key": _expression(key), "data": _map(choice)}}}
    elif isinstance(nat.address, int):
        assert isinstance(nat.port, int)
        found = {"addr": _value(nat.address, [address]), "port": nat.port}
    if nat.flags:
        found["flags"] = _one_or_more(sorted(nat.flags))
    return {nat.kind: found}


def _map(choice: SetReference | AnonymousMap) -> Json:
    if isinstance(choice, SetReference):
        return f"@{choice.name}"
    return {"set": [_element(each, choice.types, choice.data_types) for each in choice.elements]}


def _operand(value: Expression, beside: Expression) -> Json:
    """A constant in terms of the expression that it stands beside, or an expression."""
    if isinstance(value, AnonymousSet):
        return {"set": [_element(each, value.types, ()) for each in value.elements]}
    if isinstance(value, int | str | tuple | Prefix | Range | InterfacePrefix):
        left = beside.left if isinstance(beside, Binary) else beside
        return _value(value, [type_of(left)])
    return _expression(value)


def _expression(expression: Expression) -> Json:
    match expression:
        case Payload(protocol, field):
            return {"payload": {"protocol": protocol, "field": field}}
        case Meta(key):
            return {"meta": {"key": key}}
        case Ct(key, None):
            return {"ct": {"key": key}}
        case Fib(selectors, result, False):
            return {"fib": {"result": result, "flags": list(selectors)}}
        case Numgen(mode, modulus, offset):
            return {"numgen": {"mode": mode, "mod": modulus, "offset": offset}}
        case Concat(parts):
            return {"concat": [_expression(part) for part in parts]}
        case Binary(operator, left, right):
            return {operator: [_expression(left), _operand(right, left)]}
        case SetReference(name):
            return f"@{name}"
    raise ValueError(f"not one of kube-proxy's expressions: {expression}")
