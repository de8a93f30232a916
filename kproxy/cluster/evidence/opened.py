"""Rules in place of what was not seen: they leave open what it does, in both engines.

A missing table gets one rule in each of its built-in chains; an unseen variant of iptables a nat and a filter table of
such rules; a missing jump of kube-proxy's a jump that is there or not. IPVS translates like an unseen nat table and may
refuse: it is opened like one, and like an unseen filter table.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from kproxy.cluster.evidence.signs import cut_chains, cut_table, has_rules, missing_jumps, unled
from kproxy.cluster.evidence.unseen import BASE_CHAIN_JUMPS, CHAIN, IPVS, NFTABLES, TABLES, VARIANTS, Unseen
from kproxy.dataplane.model.pipeline import OWN_TABLES, IptablesRules
from kproxy.dataplane.model.unseen import unseen_match, unseen_target
from kproxy.netfilter import BUILTIN_CHAINS, Family, Ruleset, parse_save
from kproxy.netfilter.hooks import Variant
from kproxy.netfilter.iptables.rule import Rule
from kproxy.netfilter.iptables.ruleset import Chain, Table
from kproxy.netfilter.nftables.ruleset import NftRuleset
from kproxy.render.iptables.base import JUMP_RULES, JumpRule
from kproxy.render.iptables.chains import SERVICES

if TYPE_CHECKING:
    from kproxy.dataplane.symbolic.host_rules import SideRules

_BOTH: Final = ("nat", "filter")


def open_rules(
    rules: Sequence[IptablesRules],
    family: Family,
    unseen: Iterable[Unseen],
    native: NftRuleset | None = None,
    *,
    forked: bool = True,
) -> tuple[IptablesRules, ...]:
    """A host's rules of iptables with rules in place of what was not seen.

    Args:
        unseen: things to which the evidence points; others are left alone.
        native: the host's native nftables.
        forked: jumps that were not seen are there or not. Else whatever comes to their place is open: so for questions
            about all packets, for which a jump that is there on one side alone would be a difference.
    """
    found = list(rules)
    for each in unseen:
        if not each.suspected or not each.is_met_by(family):
            continue
        rule = Rule(target=unseen_target(each.what, each.why))
        if each.what in TABLES.values():
            _open_tables(found, family, [name for name, what in TABLES.items() if what == each.what], rule)
        elif each.what in VARIANTS.values():
            variant = next(key for key, name in VARIANTS.items() if name == each.what)
            found = [replace(held, variant=held.variant or variant.other) for held in found]
            opened = _with_tables(Ruleset(family), _BOTH, rule)
            found.append(IptablesRules(opened, variant))
        elif each.what in (IPVS, NFTABLES):
            _open_tables(found, family, _BOTH, rule)
        elif each.what == BASE_CHAIN_JUMPS:
            found = [replace(held, ruleset=_with_jumps(held.ruleset, each, rule, forked)) for held in found]
            tables = () if native is None else native.tables
            if any(table.family is OWN_TABLES[family] and cut_table(table) for table in tables):
                _open_tables(found, family, _BOTH, rule)
        elif each.what.startswith(f"{CHAIN} "):
            name = each.what.removeprefix(f"{CHAIN} ")
            found = [replace(held, ruleset=_with_rule(held.ruleset, name, rule)) for held in found]
    return tuple(found)


def opened_side(
    rules: SideRules, family: Family, unseen: Iterable[Unseen], same: Collection[tuple[str, str]] = ()
) -> SideRules:
    """One side of a comparison, with rules in place of what was not seen.

    `same` are unseen things (`Unseen.thing`) that the other side lacks as well: they are taken to be the same on both.
    """
    iptables = rules.iptables
    if any(what == BASE_CHAIN_JUMPS for _, what in same):
        iptables = tuple(replace(held, ruleset=_map_tables(held.ruleset, _with_missing_jumps)) for held in iptables)
    left = [each for each in unseen if each.thing not in same]
    return replace(rules, iptables=open_rules(iptables, family, left, rules.nftables, forked=False))


def _open_tables(found: list[IptablesRules], family: Family, names: Sequence[str], rule: Rule) -> None:
    """Opens tables of the first rule set, or of an empty one."""
    held = found[0] if found else IptablesRules(Ruleset(family), Variant.NFT)
    found[:1] = [replace(held, ruleset=_with_tables(held.ruleset, names, rule))]


def _with_tables(ruleset: Ruleset, names: Iterable[str], rule: Rule) -> Ruleset:
    """A rule at the head of each built-in chain of these tables, which are made where they are missing."""
    for name in names:
        table = ruleset.table(name) or Table(name)
        for hook in BUILTIN_CHAINS[name]:
            table = with_rules(table, hook, (rule,), first=True)
        ruleset = with_table(ruleset, table)
    return ruleset


def with_table(ruleset: Ruleset, table: Table) -> Ruleset:
    """The rule set with a table in place of that of its name, or as well."""
    others = tuple(each for each in ruleset.tables if each.name != table.name)
    return replace(ruleset, tables=(*others, table))


def with_rules(table: Table, name: str, rules: Iterable[Rule], *, first: bool) -> Table:
    """The table with more rules in a chain, a built-in one if it is not there, before those that it has or behind."""
    chains = {each.name: each for each in table.chains}
    chain = chains.get(name) or Chain(name, "ACCEPT")
    chains[name] = replace(chain, rules=(*rules, *chain.rules) if first else (*chain.rules, *rules))
    return Table(table.name, tuple(chains.values()), table.comments)


def _map_tables(ruleset: Ruleset, change: Callable[[Table], Table]) -> Ruleset:
    return replace(ruleset, tables=tuple(map(change, ruleset.tables)))


def _with_rule(ruleset: Ruleset, name: str, rule: Rule) -> Ruleset:
    """A rule in a chain that was cut; for a chain that is missing, where kube-proxy jumps to it."""

    def change(table: Table) -> Table:
        first = cut_chains(table, ruleset.table("nat")).get(name)
        if first is None:
            return table
        jumps = [jump.source for jump in JUMP_RULES if (jump.table, jump.target) == (table.name, name)]
        for at in [name] if table.chain(name) is not None else jumps or [SERVICES]:
            if table.chain(at) is not None or at in BUILTIN_CHAINS[table.name]:
                table = with_rules(table, at, (rule,), first=first)
        return table

    return _map_tables(ruleset, change)


def _with_jumps(ruleset: Ruleset, each: Unseen, rule: Rule, forked: bool) -> Ruleset:
    """Jumps that may be there; or, in their chains, a rule that may do anything."""
    match = unseen_match(each.what, each.why)

    def change(table: Table) -> Table:
        jumps = missing_jumps(table)
        if unled(table):
            return _with_tables(Ruleset(tables=(table,)), (table.name,), rule).tables[0]
        made = [
            (jump, replace(each, matches=(*each.matches, match)) if has_rules(table, jump.target) else rule)
            for jump, each in _made(jumps)
        ]
        return _with_head(table, made if forked else list({jump.source: (jump, rule) for jump in jumps}.values()))

    return _map_tables(ruleset, change)


def _made(jumps: Iterable[JumpRule]) -> list[tuple[JumpRule, Rule]]:
    found = []
    for jump in jumps:
        text = f"*{jump.table}\n:{jump.source} ACCEPT [0:0]\n:{jump.target} - [0:0]\n{jump.text}\nCOMMIT\n"
        chain = parse_save(text, "kube-proxy's jumps").chain(jump.table, jump.source)
        assert chain is not None
        found.append((jump, chain.rules[0]))
    return found


def _with_missing_jumps(table: Table) -> Table:
    return _with_head(table, _made(missing_jumps(table)))


def _with_head(table: Table, jumps: Sequence[tuple[JumpRule, Rule]]) -> Table:
    """The table with rules at the head of its built-in chains, in their order, as kube-proxy puts them."""
    for jump, rule in reversed(jumps):
        table = with_rules(table, jump.source, (rule,), first=True)
    return table
