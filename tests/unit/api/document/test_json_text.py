"""Documents, errors and fields in JSON text."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kproxy.api.document import json_text


@given(
    st.lists(st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=4), st.integers() | st.text(
        st.characters(codec="utf-8"), max_size=4)), min_size=1, max_size=6),
    st.sampled_from(["", " ", "\n", "\r\n\t"]),
    st.sampled_from([None, 1]),
)  # fmt: skip
def test_concatenated_documents_are_split(documents: list[dict[str, Any]], between: str, indent: int | None) -> None:
    data = between.join(json.dumps(document, indent=indent) for document in documents).encode()
    pieces = list(json_text.split_json(data))
    assert [msgspec.json.decode(piece) for _, piece in pieces] == documents
    assert all(data[offset:].startswith(piece) for offset, piece in pieces)


def test_the_rest_of_a_broken_file_is_one_piece() -> None:
    assert list(json_text.split_json(b'{"a":1} {"b" {"c":1}')) == [(0, b'{"a":1} '), (8, b'{"b" {"c":1}')]
    assert list(json_text.split_json(b"  ")) == []
    deep = b"[" * 100_000
    assert list(json_text.split_json(deep)) == [(0, deep)]


@pytest.mark.parametrize(
    ("data", "message", "offset"),
    [
        (b'{"a" 1}', "expected ':'", 5),
        (b"[1,]", "trailing comma in array", 3),
        (b'{"a":1', "unexpected end of input", None),
        (b"[1" + b"0" * 5000 + b"]", "Integer value out of range", None),
    ],
)
def test_messages(data: bytes, message: str, offset: int | None) -> None:
    with pytest.raises(msgspec.DecodeError) as caught:
        msgspec.json.decode(data)
    assert json_text.split_message(caught.value) == (message, offset)


def test_line_and_column() -> None:
    data = "ab\né€x\n".encode()
    assert json_text.line_and_column(data, 0) == (1, 1)
    assert json_text.line_and_column(data, data.index(b"x")) == (2, 3)
    assert json_text.line_and_column(data, len(data)) == (3, 1)


TEXT = """{
  "a": [1,
    {"b": "x]}",
     "c\\u0064": {
       "loadBalancerSourceRanges": [
         "y"]}}],
  "d": null
}"""


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ((), 1), (("a",), 2), (("a", 0), 2), (("a", 1), 3), (("a", 1, "b"), 3), (("a", 1, "cd"), 4),
        (("a", 1, "cd", "LoadBalancerSourceRanges", 0), 6), (("d",), 7), (("d", "e"), 7), (("a", 9), 2),
        (("nope",), 1), (("a", "b"), 2), ((3,), 1),
    ],
)  # fmt: skip
def test_lines(path: tuple[str | int, ...], line: int) -> None:
    assert json_text.with_lines(TEXT).line_of(path) == line


@pytest.mark.parametrize("text", ["", "{", '{"a', '{"a"', '{"a":', '{"a":}', "[", "[1", "[1 2]", "}", "{1:2}", "\x00"])
def test_broken_text_has_a_line(text: str) -> None:
    for path in ((), ("a",), (1,), ("a", "b")):
        assert json_text.with_lines(text).line_of(path) == 1


def test_many_items_of_a_long_list_are_found_quickly() -> None:
    """Each line is looked up from where the last one was found: scanning from the start would take minutes."""
    count = 20_000
    lines = json_text.with_lines(json.dumps({"items": [{"a": n} for n in range(count)]}, indent=0))
    found = [lines.line_of(("items", n, "a")) for n in range(count)]
    assert found == [4 + 3 * n for n in range(count)]
