"""Every match, target, rule and rule set comes back from its own text; any other text gives a value or the error."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kproxy.netfilter import (
    Family,
    RestoreError,
    Rule,
    Ruleset,
    RuleSyntaxError,
    apply_restore,
    canonical_ruleset,
    check_ruleset,
    parse_restore,
    parse_rule,
    parse_save,
    print_save,
)
from kproxy.netfilter.iptables.lexer import split_words
from kproxy.netfilter.iptables.matches import MATCH_CLASSES, Match
from kproxy.netfilter.iptables.option import Extension
from kproxy.netfilter.iptables.reader import RuleReader
from kproxy.netfilter.iptables.targets import TARGET_CLASSES
from tests.support.examples import tried
from tests.support.netfilter.recorded_rules import groups
from tests.support.netfilter.strategies import FIELDS, V4_ONLY, V6_ONLY, extensions, families, rules, rulesets

CLASSES: list[type[Extension]] = [*MATCH_CLASSES, *TARGET_CLASSES]
quick = tried(8, 50)


def test_every_class_has_a_strategy() -> None:
    assert set(FIELDS) == set(CLASSES)
    assert len(CLASSES) > 45


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_tables_are_sound(cls: type[Extension]) -> None:
    """Every field is printed by a row, names are unique, and the class says what it is for."""
    printed = {row.field for row in cls.OPTIONS if row.printed}
    assert {field for field, _ in cls.writers()} == printed
    names = [name for row in cls.OPTIONS for name in (row.name, *row.aliases)]
    assert len(names) == len(set(names))
    assert all(name.startswith("--") for name in names)
    assert cls.__doc__
    assert "(" not in cls.__doc__[:1]


def rule_of(value: Any) -> Rule:
    return Rule(matches=(value,)) if isinstance(value, Match) else Rule(target=value)


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
@quick
@given(data=st.data())
def test_extension_comes_back(cls: type[Extension], data: st.DataObject) -> None:
    family = Family.IPV6 if cls in V6_ONLY else Family.IPV4 if cls in V4_ONLY else data.draw(families)
    value = data.draw(extensions(cls, family))
    text = value.to_save()
    found = parse_rule(text, family=family)
    assert found == rule_of(value)
    assert found.spelling is None
    assert hash(found) == hash(rule_of(value))
    assert replace(value) == value


@quick
@given(data=st.data())
def test_rule_comes_back(data: st.DataObject) -> None:
    family = data.draw(families)
    rule = data.draw(rules(family))
    found = parse_rule(rule.to_save("KUBE-X"), family=family)
    assert found == rule
    assert found.spelling is None
    assert found.to_save("KUBE-X") == rule.to_save("KUBE-X")


@quick
@given(data=st.data())
def test_both_ways_to_cut_a_line_agree(data: st.DataObject) -> None:
    family = data.draw(families)
    rule = data.draw(rules(family))
    saved = RuleReader(family, keep_spelling=True).read(rule.spec())
    words = RuleReader(family).read(rule.spec())
    assert saved == words == rule


@quick
@given(data=st.data())
def test_ruleset_comes_back(data: st.DataObject) -> None:
    family = data.draw(families)
    ruleset = data.draw(rulesets(family))
    text = print_save(ruleset)
    found = parse_save(text, family=family)
    assert found == ruleset
    assert print_save(found) == text
    assert [table.comments for table in found.tables] == [table.comments for table in ruleset.tables]
    counted = print_save(ruleset, counters=True)
    assert print_save(parse_save(counted, family=family)) == counted
    assert print_save(parse_save(counted, family=family), counters=False) == text


@quick
@given(data=st.data())
def test_dump_is_restore_input_for_itself(data: st.DataObject) -> None:
    family = data.draw(families)
    ruleset = data.draw(rulesets(family))
    if check_ruleset(ruleset):
        loadable = Ruleset(family)
    else:
        loadable = apply_restore(Ruleset(family), parse_restore(print_save(ruleset), family=family))
        assert print_save(loadable, counters=False).count("-A ") == ruleset.rule_count
        assert loadable == ruleset.in_save_order() or len(ruleset.tables) > 1
    again = canonical_ruleset(print_save(loadable), family)
    assert print_save(again) == print_save(loadable.in_save_order()) or not loadable.tables


def where_is_known(error: RuleSyntaxError | RestoreError) -> None:
    assert error.source == "fuzz"
    assert error.line >= 1
    assert str(error).startswith("fuzz: line ")


def try_everything(text: str) -> None:
    for family in (None, Family.IPV6):
        try:
            ruleset = parse_save(text, "fuzz", family=family)
            check_ruleset(ruleset)
            assert parse_save(print_save(ruleset), family=family) == ruleset
        except RuleSyntaxError as error:
            where_is_known(error)
        try:
            operations = parse_restore(text, "fuzz", family=family)
            apply_restore(Ruleset(family), operations, source="fuzz")
        except (RuleSyntaxError, RestoreError) as error:
            where_is_known(error)


@quick
@given(st.text(max_size=200))
def test_any_text(text: str) -> None:
    try_everything(text)
    try_everything(f"*filter\n:X - [0:0]\n-A X {text}\nCOMMIT\n")


WORDS = sorted({word for group in groups() for rule in group.typed + group.opaque for word in split_words(rule.given)})


@tried(60, 500)
@given(st.lists(st.sampled_from([*WORDS, "!", '"', '""', "-", "--", "-m", "-j", "0", "x"]), max_size=9))
def test_any_words(words: list[str]) -> None:
    try_everything(f"*filter\n:X - [0:0]\n:U - [0:0]\n-A X {' '.join(words)}\nCOMMIT\n")


LINES = ["*filter", "*nat", "COMMIT", ":X - [0:0]", ":X ACCEPT [0:0]", ":INPUT DROP [1:2]", "-A X -j DROP", "-A X -j X",
         "-F X", "-X X", "-D X -j DROP", "-I X 1 -j DROP", "-N Y", "# note", "", "[1:2] -A X -j DROP", "-A Y -j X",
         ":Y - [0:0]"]  # fmt: skip


@tried(60, 500)
@given(st.lists(st.sampled_from(LINES), max_size=12))
def test_any_lines(lines: list[str]) -> None:
    try_everything("\n".join(lines))
