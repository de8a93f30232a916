"""YAML 1.1 as kube-proxy reads it, with lines, repeated keys, anchors and merge keys; JSON as JSON."""

from __future__ import annotations

from typing import Any

import pytest

from kproxy.api.document.tree import MAX_DEPTH, Node, TextError, parse_json, parse_yaml


def plain(node: Node) -> Any:
    """The bare values of a tree."""
    if isinstance(node.value, dict):
        return {key: plain(child) for key, child in node.value.items()}
    if isinstance(node.value, list):
        return [plain(child) for child in node.value]
    return node.value


def only(text: str) -> Any:
    (node,) = parse_yaml(text)
    return plain(node)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("off", False),
        ("NO", False),
        ("n", False),
        ("yes", True),
        ("On", True),
        ("oN", "oN"),
        ("~", None),
        ("14", 14),
        ("-14", -14),
        ("1_000", 1000),
        ("0x1F", 31),
        ("0b101", 5),
        ("010", 8),
        ("0o17", 15),
        ("08", 8.0),
        ("14.0", 14.0),
        (".5", 0.5),
        ("1e3", 1000.0),
        ("10:30", "10:30"),
        ("2001-01-01", "2001-01-01"),
        ("0.0.0.0:10256", "0.0.0.0:10256"),
        ("10.0.0.0/8", "10.0.0.0/8"),
        ("30s", "30s"),
        ("+", "+"),
        (".", "."),
        ("_", "_"),
        ("=", "="),
        ('"14"', "14"),
        ("'off'", "off"),
        ("!!str 14", "14"),
        ('!!int "14"', 14),
        ("!mine 14", "14"),
        ("18446744073709551616", 18446744073709551616),
        ("123456789012345678901", 123456789012345678901.0),
        (".inf", float("inf")),
        ("-.Inf", float("-inf")),
    ],
)
def test_scalars(text: str, value: object) -> None:
    result = only(f"a: {text}")["a"]
    assert result == value
    assert type(result) is type(value)


def test_lines_and_repeated_keys() -> None:
    (node,) = parse_yaml("a: 1\nb:\n  - x\n  - {c: 2, c: 3}\na: 4\n")
    assert isinstance(node.value, dict)
    assert node.duplicates == (("a", 5),)
    assert node.value["a"].line == 5
    assert node.value["a"].value == 4
    assert isinstance(node.value["b"].value, list)
    assert [child.line for child in node.value["b"].value] == [3, 4]
    assert node.value["b"].value[1].duplicates == (("c", 4),)


def test_anchors_and_merge_keys() -> None:
    text = "one: &one {a: 1, b: 2}\ntwo: &two {b: 3, c: 4}\nall: {<<: [*one, *two], a: 9}\nsame: *one\n"
    assert only(text)["all"] == {"a": 9, "b": 2, "c": 4}
    assert only(text)["same"] == {"a": 1, "b": 2}
    assert only("a: &x {b: 1}\nc:\n  <<: *x\n")["c"] == {"b": 1}


def test_aliases_of_aliases_take_no_space() -> None:
    lines = ["l0: &l0 [x, x]"] + [f"l{i}: &l{i} [*l{i - 1}, *l{i - 1}]" for i in range(1, 60)]
    (node,) = parse_yaml("\n".join(lines))
    assert isinstance(node.value, dict)
    assert len(node.value) == 60


def test_documents_that_hold_nothing_do_not_count() -> None:
    assert only("---\n---\na: 1\n...\n---\n") == {"a": 1}
    assert parse_yaml("") == []
    assert parse_yaml("# nothing\n---\n~\n") == []
    assert [plain(node) for node in parse_yaml("a: 1\n---\n[]\n")] == [{"a": 1}, []]


@pytest.mark.parametrize(
    ("text", "message", "line", "column"),
    [
        ("a: [", "while parsing a flow node, did not find expected node content", 2, 1),
        ("a: b: c", "mapping values are not allowed in this context", 1, 5),
        ("x: 1\n\ty: 2", "while scanning a plain scalar, found a tab character that violates indentation", 2, 1),
        ("a: *nobody", "unknown anchor 'nobody'", 1, 4),
        ("b: 1\na: &a [*a]", "anchor 'a' contains itself", 2, 8),
        ("? [x]\n: 1", "a key must be text", 1, 0),
        ("~: 1", "a key must be text", 1, 0),
        ("<<: 1", "a merge key (<<) wants a mapping or a list of mappings", 1, 0),
        ("[" * (MAX_DEPTH + 1), f"more than {MAX_DEPTH} values nested in one another", 1, MAX_DEPTH + 1),
        ("[" * 100_000, f"more than {MAX_DEPTH} values nested in one another", 1, MAX_DEPTH + 1),
    ],
)
def test_yaml_refused(text: str, message: str, line: int, column: int) -> None:
    with pytest.raises(TextError) as caught:
        parse_yaml(text)
    assert (str(caught.value), caught.value.line, caught.value.column) == (message, line, column)


def test_control_characters_are_refused_with_their_line() -> None:
    with pytest.raises(TextError, match="not allowed"):
        parse_yaml("a: 1\nb: \x01")


def test_json() -> None:
    node = parse_json('{"a": [1, 2.5, null], "b": {"c": "x", "c": "y"}, "a": true}')
    assert plain(node) == {"a": True, "b": {"c": "y"}}
    assert node.duplicates == (("a", 0),)


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
    with pytest.raises(TextError) as caught:
        parse_json(text)
    assert (str(caught.value), caught.value.line) == (message, line)
