"""Random rule sets come back from their own text; any other text gives a value or the error.

`test_observed.py` has recorded rules with every match and target.
"""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kproxy.netfilter import (
    Family,
    RestoreError,
    Ruleset,
    RuleSyntaxError,
    apply_restore,
    canonical_ruleset,
    check_ruleset,
    parse_restore,
    parse_save,
    print_save,
)
from kproxy.netfilter.iptables.lexer import split_words
from kproxy.netfilter.iptables.matches import MATCH_CLASSES
from kproxy.netfilter.iptables.option import Extension
from kproxy.netfilter.iptables.reader import RuleReader
from kproxy.netfilter.iptables.targets import TARGET_CLASSES
from tests.support.examples import tried
from tests.support.kernel.dataplane_rules import Generator
from tests.support.netfilter.recorded_rules import groups

CLASSES: list[type[Extension]] = [*MATCH_CLASSES, *TARGET_CLASSES]
quick = tried(8, 50)


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


@quick
@given(st.integers(0, 1 << 32), st.sampled_from(Family))
def test_ruleset_comes_back(seed: int, family: Family) -> None:
    ruleset = canonical_ruleset(Generator(Random(seed), family).ruleset(), family)
    text = print_save(ruleset)
    found = parse_save(text, family=family)
    assert found == canonical_ruleset(text, family) == ruleset, "a dump is restore input for itself"
    assert print_save(found) == text
    counted = print_save(ruleset, counters=True)
    assert print_save(parse_save(counted, family=family)) == counted
    assert print_save(parse_save(counted, family=family), counters=False) == text
    for *_, rule in ruleset.rules():
        saved = RuleReader(family, keep_spelling=True).read(rule.spec())
        assert saved == RuleReader(family).read(rule.spec()) == rule, "both ways to cut a line agree"


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
