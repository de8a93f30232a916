"""The chains of nftables, by number: equal numbers are equal rules, whatever the names of chains and sets.

Theory: docs/symbolic.md, "Normalized rules".

Comments, counters and logs do not count. A chain's number holds the numbers of the chains it calls and the elements of
the sets it names; of sets that rules change (`update @set`), which are state, it holds the name instead.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Final

from kproxy.dataplane.symbolic.normalize import Call, NormalizedChain, NormalizedRule, Structure, ordered_chains
from kproxy.netfilter import effect
from kproxy.netfilter.effect import Jump
from kproxy.netfilter.family import Family
from kproxy.netfilter.nftables.effects import FAMILIES, is_idle, lower, nat
from kproxy.netfilter.nftables.element import Element
from kproxy.netfilter.nftables.expression import AnonymousMap, AnonymousSet, MapLookup, Meta, SetReference
from kproxy.netfilter.nftables.rule import RulePrinter
from kproxy.netfilter.nftables.ruleset import Chain, Table
from kproxy.netfilter.nftables.statement import Match, Nat, SetUpdate, Statement, VerdictMap
from kproxy.netfilter.nftables.style import BOOKWORM
from kproxy.netfilter.nftables.value import InterfacePrefix, Verdict

_NOT_INTERFACES: Final = frozenset({"iifname", "iif", "oifname", "oif", "mark", "l4proto", "nfproto", "protocol"})
"""Strings that statements with interfaces hold, too: the keys of `meta`. Too many names do no harm."""


def changed_sets(table: Table) -> frozenset[str]:
    """The sets of a table that its rules change."""
    return frozenset(
        statement.set
        for chain in table.chains
        for rule in chain.rules
        for statement in rule.statements
        if isinstance(statement, SetUpdate)
    )


def parts_of(value: object) -> Iterator[object]:
    """A statement or expression and everything in it but the elements of sets."""
    yield value
    if isinstance(value, tuple):
        for item in value:
            yield from parts_of(item)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for item in dataclasses.fields(value):
            if item.name != "elements":
                yield from parts_of(getattr(value, item.name))


def verdicts_of(statement: object, table: Table | None) -> Iterator[Verdict]:
    """The verdicts that a statement may give."""
    if isinstance(statement, Verdict):
        yield statement
        return
    if not isinstance(statement, VerdictMap) or table is None:
        return
    found = table.set(statement.map.name) if isinstance(statement.map, SetReference) else statement.map
    for element in () if found is None else found.elements:
        if isinstance(element.data, Verdict):
            yield element.data


def sets_asked(chain: NormalizedChain) -> frozenset[str]:
    """The names of the sets and maps that a chain's rules look up."""
    return frozenset(
        part.name
        for rule in chain.rules
        for step in rule.steps
        if chain.table is not None
        for part in parts_of(step)
        if isinstance(part, SetReference)
    )


def nats_of(statement: Nat, table: Table | None, family: Family) -> list[effect.Nat]:
    """All translations that a statement stands for."""
    if statement.family is not None and FAMILIES[statement.family] is not family:
        return []
    data: list[object] = [statement.address]
    if isinstance(statement.address, MapLookup):
        assert table is not None, statement
        data = [element.data for element in _elements(statement.address.map, table)]
    return [found for each in data if (found := nat(statement, family, each, statement.port)) is not None]


def interfaces_of(statement: object, table: Table) -> Iterator[str]:
    """The names and patterns of interfaces that a statement compares with; a pattern ends in `+`."""
    parts = list(parts_of(statement))
    if not any(isinstance(part, Meta) and part.key in ("iifname", "iif", "oifname", "oif") for part in parts):
        return
    elements = [
        element.key
        for part in parts
        if isinstance(part, (SetReference, AnonymousSet, AnonymousMap))
        for element in _elements(part, table)
    ]
    for value in parts_of((*parts, *elements)):
        if isinstance(value, InterfacePrefix):
            yield f"{value.prefix}+"
        elif isinstance(value, str) and 0 < len(value) < 16 and value not in _NOT_INTERFACES:
            yield value


def _elements(part: SetReference | AnonymousSet | AnonymousMap, table: Table) -> Iterable[Element]:
    if not isinstance(part, SetReference):
        return part.elements
    found = table.set(part.name)
    return () if found is None else found.elements


class NftSide:
    """The native rules of one side. `base_chains` has the number and policy of each, by table and name; `lists` the
    names of the sets that are state, by table and set."""

    def __init__(self, structure: Structure, tables: Iterable[Table], lists: Mapping[tuple[str, str], str]) -> None:
        self._structure = structure
        self.lists: dict[tuple[str, str], str] = {}
        self.base_chains: dict[tuple[str, str], tuple[int, str]] = {}
        self.tables = tuple(tables)
        for table in self.tables:
            state = {name: lists[table_name(table), name] for name in changed_sets(table)}
            self.lists |= {(table_name(table), name): alias for name, alias in state.items()}
            numbers: dict[str, int] = {}
            base = [chain for chain in table.chains if chain.base is not None]
            starts = [chain.name for chain in base]
            for chain in ordered_chains(table_name(table), starts, table.chain, partial(_callees, table)):
                numbers[chain.name] = self._number(table, chain, numbers, state)
            for chain in base:
                policy = chain.base.policy or "accept" if chain.base else ""
                self.base_chains[table_name(table), chain.name] = numbers[chain.name], policy.upper()

    def _number(self, table: Table, chain: Chain, numbers: Mapping[str, int], lists: Mapping[str, str]) -> int:
        rules = [[each for each in rule.statements if not is_idle(each)] for rule in chain.rules]
        rules = [statements for statements in rules if statements]
        keys = tuple(tuple(_key(table, statement, numbers, lists) for statement in rule) for rule in rules)

        def normalized() -> NormalizedChain:
            text = RulePrinter(table.family, BOOKWORM, {item.name: item for item in table.sets}).statement
            steps = [[each for item in rule for each in lower(item, table.family.value, text)] for rule in rules]
            called = [
                tuple(Call(numbers[each.chain], each.goto) if isinstance(each, Jump) else each for each in rule)
                for rule in steps
            ]
            return NormalizedChain(tuple(NormalizedRule(rule) for rule in called), table, numbers, lists)

        return self._structure.number((table.family, keys), normalized)


def _callees(table: Table, chain: Chain) -> Iterator[str]:
    verdicts = (found for rule in chain.rules for each in rule.statements for found in verdicts_of(each, table))
    return (verdict.chain for verdict in verdicts if verdict.chain is not None)


def _key(table: Table, statement: Statement, numbers: Mapping[str, int], lists: Mapping[str, str]) -> object:
    callees = tuple(numbers[each.chain] for each in verdicts_of(statement, table) if each.chain is not None)
    if isinstance(statement, Verdict):
        return statement.kind, callees
    names = [part.name for part in parts_of(statement) if isinstance(part, SetReference)]
    if isinstance(statement, SetUpdate):
        names.append(statement.set)
    contents: list[object] = []
    for name in names:
        found = table.set(name)
        contents.append(lists.get(name) or (None if found is None else found.elements))
    return nameless(statement) if names else statement, tuple(contents), callees


def nameless(statement: Statement) -> Statement:
    """A statement without the names of sets, which their content stands beside."""
    anonymous = SetReference("")
    if isinstance(statement, Match) and isinstance(statement.right, SetReference):
        return dataclasses.replace(statement, right=anonymous)
    if isinstance(statement, VerdictMap) and isinstance(statement.map, SetReference):
        return dataclasses.replace(statement, map=anonymous)
    if isinstance(statement, SetUpdate):
        return dataclasses.replace(statement, set="")
    if isinstance(statement, Nat) and isinstance(statement.address, MapLookup):
        return dataclasses.replace(statement, address=MapLookup(statement.address.key, anonymous))
    return statement


def table_name(table: Table) -> str:
    """`ip kube-proxy`."""
    return f"{table.family.value} {table.name}"
