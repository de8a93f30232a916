"""Sets whose members are known, as conditions: two sides ask the same of sets of one name only where these hold the
same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from kproxy.dataplane.model.ipset import IpSet
from kproxy.dataplane.model.pipeline import IptablesRules
from kproxy.netfilter.condition import Condition, Not
from kproxy.netfilter.iptables.matches import Match, SetMatch
from kproxy.netfilter.iptables.rule import Rule


@dataclass(frozen=True, slots=True)
class MemberMatch(Match):
    """`-m set` of a set with these members."""

    asked: SetMatch
    members: Condition

    NAME: ClassVar[str] = "set"

    def condition(self) -> Condition | None:
        return Not(self.members) if self.asked.match_set.negated else self.members

    def to_save(self) -> str:
        return self.asked.to_save()


def with_members(rules: IptablesRules, sets: Mapping[str, IpSet]) -> IptablesRules:
    """The rules in which matches on these sets are conditions, as far as their types can be said so."""
    if not sets:
        return rules
    tables = tuple(
        replace(table, chains=tuple(replace(chain, rules=tuple(_rule(each, sets) for each in chain.rules))
                                    for chain in table.chains))
        for table in rules.ruleset.tables
    )  # fmt: skip
    return replace(rules, ruleset=replace(rules.ruleset, tables=tables))


def _rule(rule: Rule, sets: Mapping[str, IpSet]) -> Rule:
    if not any(isinstance(each, SetMatch) for each in rule.matches):
        return rule
    return replace(rule, matches=tuple(_match(each, sets) for each in rule.matches))


def _match(match: Match, sets: Mapping[str, IpSet]) -> Match:
    if not isinstance(match, SetMatch) or match.return_nomatch:
        return match
    reference = match.match_set.value
    found = sets.get(reference.name)
    members = None if found is None else found.condition(reference.directions)
    return match if members is None else MemberMatch(match, members)
