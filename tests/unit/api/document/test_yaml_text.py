"""YAML as kubectl reads it, and where its values are."""

from __future__ import annotations

import math
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from kproxy.api.document import yaml_text
from kproxy.api.document.tree import DocumentError
from kproxy.api.document.yaml_text import read_yaml


def values(text: str) -> list[Any]:
    return [document.value for document in read_yaml(text)]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("80", 80), ("-1", -1), ("+7", 7), ("0", 0), ("010", 8), ("0o17", 15), ("0x1F", 31), ("0b101", 5),
        ("1_000", 1000), ("09", 9.0), ("1.5", 1.5), ("1e3", 1000.0), (".5", 0.5), ("22:22", "22:22"),
        ("2024-01-01", "2024-01-01"), ("2024-01-01T00:00:00Z", "2024-01-01T00:00:00Z"), ("10.0.0.1", "10.0.0.1"),
        ("1.2.3", "1.2.3"), ("yes", True), ("On", True), ("y", True), ("no", False), ("OFF", False), ("n", False),
        ("true", True), ("False", False), ("null", None), ("~", None), ("", None), ("Null", None), ("-", "-"),
        (".", "."), ("fd00::1", "fd00::1"), ("1e", "1e"), ("tRUE", "tRUE"), (".inf", math.inf),
        ("0X1F", 31), ("-.Inf", -math.inf),
        ("18446744073709551615", 2**64 - 1), ("18446744073709551616", 2.0**64),
        ("123456789012345678901", 123456789012345678901.0),
        ("+", "+"), ("_", "_"), ("=", "="), ("0.0.0.0:10256", "0.0.0.0:10256"), ("10.0.0.0/8", "10.0.0.0/8"),
    ],
)  # fmt: skip
def test_plain_scalars(text: str, value: object) -> None:
    found = yaml_text.plain_scalar(text)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize("quoted", ['"on"', "'on'", "!!str on", "!mine on", "|-\n  on"])
def test_quoted_scalars_are_strings(quoted: str) -> None:
    assert values(f"a: {quoted}\n") == [{"a": "on"}]


def test_a_tag_makes_a_value_of_a_quoted_scalar() -> None:
    assert values("[!!int '14', !!bool 'on', !!null '']") == [[14, True, None]]


def test_huge_integers_cost_nothing() -> None:
    assert values("a: " + "9" * 100_000) == [{"a": math.inf}]
    assert values("a: " + "9" * 100) == [{"a": 1e100}]
    assert values("a: 0x" + "f" * 100) == [{"a": math.inf}]


def test_keys_become_strings() -> None:
    assert values("{on: 1, 2: b, 1.5: c, '3': d}") == [{"true": 1, "2": "b", "1.5": "c", "3": "d"}]


@pytest.mark.parametrize("text", ["~: a", "? [a]\n: b", "? {a: b}\n: c"])
def test_keys_that_are_no_strings(text: str) -> None:
    with pytest.raises(DocumentError, match="a mapping key must be a string"):
        values(text)


def test_documents_and_lines() -> None:
    text = "%YAML 1.1\r\n---\r\na: 1\r\nb:\r\n- x\r\n- c: on\r\n---\r\n---\r\nd: {e: 1,\r\n  f: 2}\r\n...\r\n"
    documents = list(read_yaml(text))
    assert [document.value for document in documents] == [
        {"a": 1, "b": ["x", {"c": True}]},
        None,
        {"d": {"e": 1, "f": 2}},
    ]
    assert [document.line for document in documents] == [1, 7, 8]
    first, _, third = documents
    assert first.lines[id(first.value)] == {"a": 3, "b": 4}
    assert first.lines[id(first.value["b"])] == [5, 6]
    assert third.lines[id(third.value["d"])] == {"e": 9, "f": 10}


@pytest.mark.parametrize("text", ["", "# only a comment\n", "\n\n"])
def test_nothing(text: str) -> None:
    assert values(text) == []


def test_aliases_and_merge_keys() -> None:
    text = "a: &x {k: v, l: w}\nb: *x\nc: {<<: *x, k: own}\nd: {<<: [*x, {m: o}]}\n"
    shared = {"k": "v", "l": "w"}
    assert values(text) == [{"a": shared, "b": shared, "c": {"k": "own", "l": "w"}, "d": {**shared, "m": "o"}}]
    assert values("a: '<<'\nb: {'<<': c}\n") == [{"a": "<<", "b": {"<<": "c"}}]


@pytest.mark.parametrize(
    ("text", "message", "line", "column"),
    [
        ("a: [1\n", "did not find expected ',' or ']', while parsing a flow sequence", 2, 1),
        ("\ta: 1", "found character that cannot start any token, while scanning for the next token", 1, 1),
        ("a: 1\nb: \x01", "control character U+0001 is not allowed", 2, 0),
        ("a: *b", "unknown anchor 'b'", 1, 0),
        ("&a [*a]", "unknown anchor 'a'", 1, 0),
        ("a:\n  <<: 3", "map merge requires map or sequence of maps as the value", 2, 0),
        ("x: 1\n" + "- " * 3 + "[" * 200, None, None, None),
    ],
)
def test_errors(text: str, message: str | None, line: int | None, column: int | None) -> None:
    with pytest.raises(DocumentError) as caught:
        values(text)
    if message is not None:
        assert (caught.value.message, caught.value.line, caught.value.column) == (message, line, column)


def test_nesting_is_bounded() -> None:
    assert values("[" * 100 + "]" * 100)
    with pytest.raises(DocumentError, match="nested more than 100 levels deep"):
        values("[" * 101 + "]" * 101)
    with pytest.raises(DocumentError):
        values("[" * 100_000)
    with pytest.raises(DocumentError):
        values("- " * 100_000)


def test_an_alias_bomb_is_refused_quickly() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [" + ", ".join([f"*a{n - 1}"] * 10) + "]" for n in range(1, 30)]
    with pytest.raises(DocumentError, match="aliases stand for more than 100000 values"):
        values("\n".join(lines))


_SCALARS = st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.text(st.characters(codec="utf-8"), max_size=9)
_TREES = st.recursive(
    _SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=15,
)


@given(st.lists(_TREES, max_size=4), st.booleans())
def test_what_pyyaml_writes_is_read_back(trees: list[Any], flow: bool) -> None:
    """Strings quoted: unquoted, PyYAML and kubectl differ on `y` and `1e3`, for example."""
    text = yaml.safe_dump_all(trees, default_flow_style=flow, default_style='"', explicit_start=True)
    assert values(text) == trees


@given(st.text())
def test_any_text_is_yaml_or_an_error(text: str) -> None:
    found: DocumentError | None = None
    try:
        for document in read_yaml(text):
            assert document.line >= 1
    except DocumentError as error:
        found = error
    assert found is None or (found.message and found.line >= 0)
