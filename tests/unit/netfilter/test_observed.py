"""The recorded rules, without a kernel: canonical form, spellings of listings, what stays opaque, what is refused."""

from __future__ import annotations

import re

import pytest

from kproxy.netfilter import (
    Negatable,
    OpaqueMatch,
    OpaqueTarget,
    Range,
    RestoreError,
    Rule,
    Ruleset,
    RuleSyntaxError,
    canonical_ruleset,
    parse_rule,
)
from kproxy.netfilter.iptables.lexer import unquote
from kproxy.netfilter.iptables.matches import MATCH_CLASSES
from kproxy.netfilter.iptables.matches.icmp import IcmpType
from kproxy.netfilter.iptables.matches.transport import TcpFlags
from kproxy.netfilter.iptables.option import Extension, Option
from kproxy.netfilter.iptables.targets import TARGET_CLASSES, LogTarget
from tests.support.netfilter.recorded_rules import Group, Observed, groups

OTHER_WORDS = (TcpFlags, IcmpType)
"""Values that `iptables -L -n` prints as numbers, iptables-save by name, or the other way round."""

all_groups = pytest.mark.parametrize("group", groups(), ids=lambda group: group.name)


def load(group: Group, rules: list[Observed]) -> tuple[Ruleset, tuple[Rule, ...]]:
    ruleset = canonical_ruleset(group.restore_text(rules), group.family)
    chain = ruleset.chain(group.table, "T")
    assert chain is not None
    return ruleset, chain.rules


def is_opaque(rule: Rule) -> bool:
    return any(isinstance(part, (OpaqueMatch, OpaqueTarget)) for part in (*rule.matches, rule.target))


def test_there_is_enough_to_compare() -> None:
    assert sum(len(group.typed) for group in groups()) > 500
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


def spelling(row: Option, value: object) -> str:
    """The `listed` column filled in; empty where `-L` prints nothing, or has the value in words of its own."""
    negated = value.negated if isinstance(value, Negatable) else value is False
    plain = value.value if isinstance(value, Negatable) else value
    if isinstance(plain, OTHER_WORDS) or row.field in ("mode", "xmark", "nfmask", "ctmask"):
        return ""
    if plain == Range(0, 65535) or (row.field, plain) == ("packet", 0):
        return ""
    pattern = f"! {row.name[2:]} {{}}" if row.listed is None else row.listed
    if "|" in pattern:
        pattern = pattern.split("|")[negated]
    elif not negated:
        pattern = re.sub("! ?", "", pattern)
    several = isinstance(plain, Range) and plain.first != plain.last
    text = "" if row.codec is None else unquote(row.codec.text(plain))
    return pattern.replace("[s]", "s" * several).replace("{}", text).strip()


@all_groups
def test_spellings_of_listings(group: Group) -> None:
    compared = 0
    for rule in group.typed:
        _, found = load(group, [rule])
        for line, each in zip(rule.listed, found, strict=False):
            for part in (*each.matches, each.target):
                if isinstance(part, Extension) and not isinstance(part, LogTarget):
                    assert part.LISTED in line
                    given = [row for row in part.OPTIONS if f" {row.name} " in f"{part.to_save()} "]
                    spellings = [spelling(row, getattr(part, row.field)) for row in given]
                    shown = (line, re.sub(r'["\\]', "", line))
                    assert [text for text in spellings if not any(text in each for each in shown)] == [], line
                    compared += len(list(filter(None, spellings)))
    assert compared > len(group.typed) // 2


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
