"""Damaged texts are a rule set or the documented error, and never anything else."""

from __future__ import annotations

from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kproxy.netfilter.nftables.check import check_nft
from kproxy.netfilter.nftables.errors import NftSyntaxError
from kproxy.netfilter.nftables.lexer import tokenize
from kproxy.netfilter.nftables.text import parse_nft, print_nft
from tests.support.examples import tried
from tests.support.netfilter.nft_corpus import TABLES, recorded_rules, script_of

short = tried(30, 300)


@cache
def texts() -> tuple[tuple[str, ...], ...]:
    rules = [f"table {item.family} t {{\nchain c {{\n{item.rule}\n}}\n}}\n" for item in recorded_rules()]
    scripts = [script_of(recorded_rules()[place : place + 1]) for place in range(0, len(rules), 9)]
    return tuple(tuple(filter(None, tokenize(text))) for text in [*rules, *scripts, TABLES.read_text()])


@cache
def words() -> tuple[str, ...]:
    return tuple(sorted({token for tokens in texts() for token in tokens}))


@st.composite
def damaged(draw: st.DrawFn) -> str:
    """A text with a few tokens taken out, put in, or broken, or cut off."""
    tokens = list(draw(st.sampled_from(texts())))
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.integers(0, len(tokens)))
        change = draw(st.sampled_from(["remove", "insert", "replace", "break", "cut"]))
        if change == "remove":
            del tokens[place : place + 2]
        elif change == "insert":
            tokens.insert(place, draw(st.sampled_from(words())))
        elif change == "replace":
            tokens[place : place + 1] = [draw(st.sampled_from(words()))]
        elif change == "cut":
            del tokens[place:]
        else:
            tokens.insert(place, draw(st.text('0a:./-"*{}$@#\\,;é\0 \n', max_size=4)))
    return " ".join(tokens)


@short
@given(damaged())
def test_damaged_text_is_read_or_refused(text: str) -> None:
    refused = ""
    try:
        ruleset = parse_nft(text, "f")
        check_nft(ruleset)
        print_nft(ruleset)
    except NftSyntaxError as error:
        refused = str(error)
    assert refused.startswith("f: ") or not refused


@short
@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        parse_nft(text, "f")
    except NftSyntaxError:
        return


def test_what_is_nested_too_deeply_is_an_error() -> None:
    text = f"meta mark set {'(' * 3000}1{')' * 3000}"
    with pytest.raises(NftSyntaxError, match="line 1: fewer levels of nesting expected"):
        parse_nft(f"add rule ip x c {text}\n")
