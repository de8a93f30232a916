"""Documents: lines, repeated keys, anchors and merge keys; JSON as JSON."""

from __future__ import annotations

import pytest

from kproxy.api.document.json_text import read_json
from kproxy.api.document.read import read_documents
from kproxy.api.document.tree import Document, DocumentError, Node
from kproxy.api.document.yaml_text import read_yaml


def only(text: str) -> Document:
    (document,) = read_yaml(text)
    return document


def test_lines_and_repeated_keys() -> None:
    document = only("# first\na: 1\nb:\n  - x\n  - {c: 2, c: 3}\na: 4\n")
    assert (document.line, document.root_line) == (2, 2)
    entries = document.entries(document.value)
    assert entries["a"] == Node(4, 6)
    items = document.items(entries["b"].value)
    assert [item.line for item in items] == [4, 5]
    assert [(found.message, found.line) for found in document.duplicates] == [
        ('key "c" already set in map', 5), ('key "a" already set in map', 6),
    ]  # fmt: skip


def test_the_line_of_a_path() -> None:
    text = "---\na:\n  b:\n  - c: 1\n    d: 2\n  7: e\nm:\n  <<: {k: 1}\n"
    yaml = only(text)
    assert [yaml.line_of(path) for path in ((), ("a", "b", 0, "d"), ("a", "b", 1), ("a", "B"), ("a", 7), ("z",))] == [
        1, 5, 3, 3, 6, 1,
    ]  # fmt: skip
    assert yaml.line_of(("m", "k")) == 8
    json = read_json('{"a":\n {"b":\n [1,\n 2]}}')
    assert [json.line_of(path) for path in ((), ("a", "b", 1), ("a", "c"))] == [1, 4, 1]


def test_json() -> None:
    document = read_json('{"a": [1, 2.5, null], "b": {"c": "x", "c": "y"}, "a": true}')
    assert document.value == {"a": True, "b": {"c": "y"}}
    assert [(found.key, found.line) for found in document.duplicates] == [("c", 0), ("a", 0)]
    assert document.entries(document.value)["a"] == Node(True)


@pytest.mark.parametrize(
    ("text", "message", "line"),
    [
        ("{", "Expecting property name enclosed in double quotes", 1),
        ('{"a":\n x}', "Expecting value", 2),
        ("{} {}", "Extra data", 1),
        ("[NaN]", "NaN is not a JSON value", 0),
        ("[" * 100_000, "values are nested too deeply in one another", 0),
    ],
)
def test_json_refused(text: str, message: str, line: int) -> None:
    with pytest.raises(DocumentError) as caught:
        read_json(text)
    assert (str(caught.value), caught.value.line) == (message, line)


def test_json_is_read_as_json_and_what_is_wrong_with_it_as_yaml() -> None:
    (document,) = read_documents(' {"a": "\\ud83d\\ude00",\n "b": 1}')
    assert document.value == {"a": "\N{GRINNING FACE}", "b": 1}  # YAML has no surrogates
    assert document.line_of(("b",)) == 2
    (document,) = read_documents('{"a": 1,\n "a": 2}')
    assert document.duplicates == [({"a": 2}, "a", 2)]
    assert [each.value for each in read_documents("{a: 1}\n---\n[b]\n")] == [{"a": 1}, ["b"]]
    with pytest.raises(DocumentError, match="flow mapping"):
        read_documents('{"a": 1')
