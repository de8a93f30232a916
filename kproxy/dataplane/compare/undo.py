"""Two sides of a comparison with single differences undone: what shows whether one of them is the cause."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple, TypeVar

from kproxy.dataplane.model.pipeline import IptablesRules
from kproxy.dataplane.symbolic.host_rules import SideRules
from kproxy.dataplane.symbolic.nftables.structure import table_name
from kproxy.netfilter import Chain, Rule
from kproxy.netfilter import Table as IptablesTable
from kproxy.netfilter.nftables.ruleset import Chain as NftChain
from kproxy.netfilter.nftables.ruleset import NftRuleset, Table
from kproxy.netfilter.nftables.ruleset import Rule as NftRule
from kproxy.netfilter.nftables.sets import Set

ChainKey = tuple[str, str, str]
"""A chain by its variant of iptables (empty where no side has two, and for native tables) and its table's and its own
name; names of native tables have two words, so that none is both."""

_Chain = TypeVar("_Chain", Chain, NftChain)


class Edit(NamedTuple):
    """A rule of one side's chain that goes (None) or becomes another; or all rules of the chain that become others
    (`rules`), or a set of its table (`set`)."""

    side: int
    key: ChainKey
    number: int = 0
    rule: Rule | NftRule | None = None
    rules: tuple[Rule | NftRule, ...] | None = None
    set: Set | None = None


def undone(sides: tuple[SideRules, SideRules], edits: Iterable[Edit]) -> tuple[SideRules, SideRules]:
    """The sides with these edits. Chains that rules of the other side lead to come with them."""
    wanted = list(edits)
    first, second = (
        side if not own else _edited(side, sides[1 - number], own)
        for number, side in enumerate(sides)
        for own in [[each for each in wanted if each.side == number]]
    )
    return first, second


def _edited(side: SideRules, other: SideRules, edits: list[Edit]) -> SideRules:
    tables = {(each.key[0], each.key[1]) for each in edits}
    iptables = tuple(_edited_iptables(item, other, edits, tables) for item in side.iptables)
    native = tuple(
        _edited_table(table, other, edits) if ("", table_name(table)) in tables else table
        for table in side.nftables.tables
    )
    return SideRules(iptables, NftRuleset(native))


def _edited_iptables(
    item: IptablesRules, other: SideRules, edits: list[Edit], tables: set[tuple[str, str]]
) -> IptablesRules:
    found = []
    for table in item.ruleset.tables:
        source = next((each for each in ("", item.source) if (each, table.name) in tables), None)
        if source is None:
            found.append(table)
            continue
        theirs = (held.ruleset.table(table.name) for held in other.iptables if source in ("", held.source))
        chains = (chain for held in theirs if held is not None for chain in held.chains)
        merged = _edited_chains(table.chains, chains, (source, table.name), edits)
        found.append(IptablesTable(table.name, merged, table.comments))
    return replace(item, ruleset=replace(item.ruleset, tables=tuple(found)))


def _edited_table(table: Table, other: SideRules, edits: list[Edit]) -> Table:
    name = table_name(table)
    chains = (chain for held in other.nftables.tables if table_name(held) == name for chain in held.chains)
    merged = _edited_chains(table.chains, (each for each in chains if each.base is None), ("", name), edits)
    sets = {each.set.name: each.set for each in edits if each.set is not None and each.key[:2] == ("", name)}
    return replace(table, chains=merged, sets=tuple(sets.get(each.name, each) for each in table.sets))


def _edited_chains(
    own: Iterable[_Chain], theirs: Iterable[_Chain], table: tuple[str, str], edits: list[Edit]
) -> tuple[_Chain, ...]:
    found: dict[str, _Chain] = {}
    for chain in own:
        here = [each for each in edits if each.key == (*table, chain.name)]
        changed = {each.number: each.rule for each in here if each.number}
        whole = next((each.rules for each in here if each.rules is not None), None)
        if changed or whole is not None:
            edited = (changed.get(number, rule) for number, rule in enumerate(chain.rules, 1))
            rules = edited if whole is None else whole
            chain = replace(chain, rules=tuple(rule for rule in rules if rule is not None))  # type: ignore[misc]
        found[chain.name] = chain
    for chain in theirs:
        found.setdefault(chain.name, chain)
    return tuple(found.values())
