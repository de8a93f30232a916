"""The wording of field errors, and how problems are joined."""

from __future__ import annotations

import pytest

from kproxy.api import fielderror
from kproxy.api.fielderror import FieldError, ManifestError, Problem, repeats
from kproxy.errors import InputError, Location


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (fielderror.required("a"), "a: Required value"),
        (fielderror.required("a", "why"), "a: Required value: why"),
        (fielderror.invalid("a.b", "x", "is bad"), 'a.b: Invalid value: "x": is bad'),
        (fielderror.invalid("a", 70000, "is bad"), "a: Invalid value: 70000: is bad"),
        (fielderror.invalid("a", ("x", "y"), "is bad"), 'a: Invalid value: ["x","y"]: is bad'),
        (fielderror.not_supported("a", "Foo", {"B", "A"}), 'a: Unsupported value: "Foo": supported values: "A", "B"'),
        (fielderror.duplicate("a", 5), "a: Duplicate value: 5"),
        (fielderror.forbidden("a", "no"), "a: Forbidden: no"),
        (fielderror.too_many("a", 9, 8), "a: Too many: 9: must have at most 8 items"),
    ],
)
def test_wording(error: FieldError, text: str) -> None:
    assert str(error) == text


def test_shown_values_are_printable_and_short() -> None:
    assert fielderror.show("a\x1b[31m\n") == r'"a\u001b[31m\n"'
    assert fielderror.show("\ud83d") == r'"\ud83d"'
    assert fielderror.show("é") == '"é"'
    assert fielderror.show("x" * 500) == '"' + "x" * 199 + "..."
    assert fielderror.show(object()) == '"object"'
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    assert fielderror.show(deep) == '"list"'


def test_problem_text() -> None:
    where = Location("f.yaml", 2, "spec.ports[0].port", 7)
    assert str(Problem(where, "bad")) == "f.yaml: document 2: line 7: spec.ports[0].port: bad"
    assert str(Problem(Location("f.yaml"), "bad")) == "f.yaml: bad"


def test_manifest_error_holds_all() -> None:
    found = [Problem(Location("a"), "one"), Problem(Location("b"), "two")]
    error = ManifestError(found)
    assert error.problems == tuple(found)
    assert str(error) == "a: one\nb: two"
    assert isinstance(error, InputError)
    assert error.exit_code == 2


def test_repeats() -> None:
    assert repeats(["a", "b", "a", "a"]) == [2, 3]
    assert repeats([{"a": 1, "b": 2}, {"b": 2, "a": 1}, [1], [True]]) == [1]
    assert repeats(range(300_000)) == []
