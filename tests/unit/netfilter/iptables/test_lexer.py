"""Words and quotes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kproxy.netfilter.iptables.lexer import quote, split_words, unquote


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("", []),
        ("  a \t b ", ["a", "b"]),
        ('"a b" c', ["a b", "c"]),
        ('ab"cd ef"gh', ["abcd ef", "gh"]),
        ('"a""b"', ["a", "b"]),
        (r'"a\"b\\c\x"', ['a"b\\cx']),
        (r"a\b it's", [r"a\b", "it's"]),
        ('""', [""]),
        ("a\u00a0b\u2003c\x0bd", ["a\u00a0b\u2003c\x0bd"]),
    ],
)
def test_split(text: str, values: list[str]) -> None:
    assert [unquote(word) for word in split_words(text)] == values


@given(st.text(st.characters(exclude_characters="\n")))
def test_quote_comes_back(value: str) -> None:
    assert [unquote(word) for word in split_words(f"a {quote(value)} b")] == ["a", value, "b"]
