"""A rule set under assumptions: with the answers of some matches put in, where no host can be made to give them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Final

from kproxy.dataplane.symbolic.free_variables import FreeVariable
from kproxy.dataplane.symbolic.nftables.text import positive, text_of
from kproxy.netfilter.iptables.codec import Masked
from kproxy.netfilter.iptables.matches import (
    HashlimitMatch,
    LimitMatch,
    MarkMatch,
    Match,
    OpaqueMatch,
    PhysdevMatch,
    SetMatch,
    TcpMatch,
)
from kproxy.netfilter.iptables.option import Negatable
from kproxy.netfilter.iptables.rule import Rule
from kproxy.netfilter.iptables.ruleset import Ruleset, Table
from kproxy.netfilter.nftables.expression import Meta
from kproxy.netfilter.nftables.ruleset import NftRuleset
from kproxy.netfilter.nftables.ruleset import Rule as NftRule
from kproxy.netfilter.nftables.ruleset import Table as NftTable
from kproxy.netfilter.nftables.stateful import ConnectionLimit, Limit, Quota
from kproxy.netfilter.nftables.statement import Match as NftMatch
from kproxy.netfilter.nftables.statement import ObjectReference, Operator, SetUpdate, Statement


def assume(ruleset: Ruleset, assumed: tuple[tuple[FreeVariable, bool], ...]) -> Ruleset:
    """The rule set with the answers of some matches put in; the rule set itself if there are none."""
    if not assumed:
        return ruleset
    answers = {question.text: answer for question, answer in assumed}
    tables = []
    for table in ruleset.tables:
        chains = []
        for chain in table.chains:
            rules = [_assume_rule(rule, answers) for rule in chain.rules]
            chains.append(dataclasses.replace(chain, rules=tuple(rules)) if tuple(rules) != chain.rules else chain)
        tables.append(Table(table.name, tuple(chains), table.comments))
    return Ruleset(ruleset.family, tuple(tables), ruleset.comments)


def _assume_rule(rule: Rule, answers: Mapping[str, bool]) -> Rule:
    """The rule with what is assumed taken out of it. A rule that then never applies stays, to keep numbers: its mark
    cannot be what it asks."""
    kept: list[Match] = []
    changed = False
    for match in rule.matches:
        plain, answer = _assumed(match, answers)
        if answer is None:
            kept.append(match)
            continue
        changed = True
        if not answer:
            kept.append(_IMPOSSIBLE)
        elif plain is not None:
            kept.append(plain)
    if not changed:
        return rule
    return Rule(*rule.head, tuple(kept), rule.target, rule.counters, rule.spelling or rule.spec())


_IMPOSSIBLE: Final = MarkMatch(Negatable(Masked(1, 0)))


def _assumed(match: Match, answers: Mapping[str, bool]) -> tuple[Match | None, bool | None]:
    """What is left of a match and whether the rest applies; None if nothing is assumed about it."""
    if isinstance(match, TcpMatch) and match.option is not None:
        answer = answers.get(f"TCP option {match.option.value}")
        rest = dataclasses.replace(match, option=None)
        return rest, None if answer is None else answer != match.option.negated
    if isinstance(match, HashlimitMatch):
        answer = answers.get(match.to_save().replace("--hashlimit-above", "--hashlimit-upto"))
        return None, None if answer is None else answer != (match.above is not None)
    if isinstance(match, SetMatch):
        answer = answers.get(SetMatch(Negatable(match.match_set.value)).to_save())
        if answer is not None:
            return None, answer != match.match_set.negated
    if isinstance(match, (LimitMatch, OpaqueMatch, PhysdevMatch)) or match.to_save() in answers:
        return None, answers.get(match.to_save())
    return None, None


def assume_native(ruleset: NftRuleset, assumed: tuple[tuple[FreeVariable, bool], ...]) -> NftRuleset:
    """Native rules with the answers of some statements put in."""
    if not assumed:
        return ruleset
    answers = {variable.text: answer for variable, answer in assumed}
    tables = []
    for table in ruleset.tables:
        chains = tuple(
            dataclasses.replace(chain, rules=tuple(_assume_native(rule, table, answers) for rule in chain.rules))
            for chain in table.chains
        )
        tables.append(dataclasses.replace(table, chains=chains))
    return NftRuleset(tuple(tables))


_NEVER: Final = NftMatch(Meta("mark"), Operator.LT, 0)
"""A comparison that no packet fulfils, and that no dump has."""


def _assume_native(rule: NftRule, table: NftTable, answers: Mapping[str, bool]) -> NftRule:
    kept: list[Statement] = []
    for statement in rule.statements:
        asked, negated = positive(statement) if isinstance(statement, NftMatch) else (statement, False)
        answer = None
        if isinstance(statement, (NftMatch, Limit, Quota, ConnectionLimit, SetUpdate, ObjectReference)):
            answer = answers.get(text_of(asked, table))
        if answer is None:
            kept.append(statement)
        elif answer == negated:
            kept.append(_NEVER)
    return rule if len(kept) == len(rule.statements) and _NEVER not in kept else dataclasses.replace(
        rule, statements=tuple(kept))  # fmt: skip
