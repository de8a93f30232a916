"""The recorded rules, without a kernel: canonical form, listing, what stays opaque, what is refused."""

from __future__ import annotations

import pytest

from kproxy.netfilter import (
    OpaqueMatch,
    OpaqueTarget,
    RestoreError,
    Rule,
    Ruleset,
    RuleSyntaxError,
    canonical_ruleset,
    parse_rule,
    print_list,
)
from kproxy.netfilter.iptables.matches import MATCH_CLASSES
from kproxy.netfilter.iptables.targets import TARGET_CLASSES
from tests.support.netfilter.recorded_rules import Group, Observed, groups

all_groups = pytest.mark.parametrize("group", groups(), ids=lambda group: group.name)


def load(group: Group, rules: list[Observed]) -> tuple[Ruleset, tuple[Rule, ...]]:
    ruleset = canonical_ruleset(group.restore_text(rules), group.family)
    chain = ruleset.chain(group.table, "T")
    assert chain is not None
    return ruleset, chain.rules


def is_opaque(rule: Rule) -> bool:
    return any(isinstance(part, (OpaqueMatch, OpaqueTarget)) for part in (*rule.matches, rule.target))


def test_there_is_enough_to_compare() -> None:
    assert sum(len(group.typed) for group in groups()) > 550
    seen = {type(part) for group in groups() for rule in load(group, group.typed)[1]
            for part in (*rule.matches, rule.target)}  # fmt: skip
    assert {*MATCH_CLASSES, *TARGET_CLASSES} <= seen


@all_groups
def test_canonical_form(group: Group) -> None:
    for rule in group.typed:
        _, found = load(group, [rule])
        assert [each.to_save("T") for each in found] == rule.saved, rule.given
        assert not any(map(is_opaque, found)), rule.given


@all_groups
def test_dump_line_is_canonical(group: Group) -> None:
    for rule in group.typed:
        for line in rule.saved:
            found = parse_rule(line, family=group.family)
            assert found.to_save("T") == line
            assert found.spelling is None, line


@all_groups
def test_equal_to_what_was_loaded(group: Group) -> None:
    for rule in group.typed:
        _, found = load(group, [rule])
        read = tuple(parse_rule(line, family=group.family) for line in rule.saved)
        assert found == read
        assert [hash(each) for each in found] == [hash(each) for each in read]


@all_groups
def test_listing(group: Group) -> None:
    for rule in group.typed:
        ruleset, _ = load(group, [rule])
        if rule.listed:
            listed = print_list(ruleset, group.table, "T")
            assert listed.splitlines()[2:] == rule.listed


@all_groups
def test_what_a_newer_iptables_prints_is_the_same_rule(group: Group) -> None:
    for rule in group.typed:
        if rule.newer:
            _, found = load(group, [rule])
            read = tuple(parse_rule(line, family=group.family) for line in rule.newer)
            assert read == found
            assert [each.to_save("T") for each in read] == rule.newer


@all_groups
def test_opaque_rules_keep_their_text(group: Group) -> None:
    for rule in group.opaque:
        for line in rule.saved:
            found = parse_rule(line, family=group.family)
            assert is_opaque(found), line
            assert found.to_save("T") == line
            assert found.spelling is None, line


@all_groups
def test_refused_rules(group: Group) -> None:
    for rule in group.refused:
        with pytest.raises((RuleSyntaxError, RestoreError)) as caught:
            load(group, [rule])
        assert "line 4" in str(caught.value)
