"""The wording of field errors, and how problems are joined."""

from __future__ import annotations

import pytest

from kproxy.api import problems
from kproxy.api.problems import FieldError, ManifestError, Problem
from kproxy.errors import InputError, Location


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (problems.required("a"), "a: Required value"),
        (problems.required("a", "why"), "a: Required value: why"),
        (problems.invalid("a.b", "x", "is bad"), 'a.b: Invalid value: "x": is bad'),
        (problems.invalid("a", 70000, "is bad"), "a: Invalid value: 70000: is bad"),
        (problems.invalid("a", ("x", "y"), "is bad"), 'a: Invalid value: ["x","y"]: is bad'),
        (problems.not_supported("a", "Foo", {"B", "A"}), 'a: Unsupported value: "Foo": supported values: "A", "B"'),
        (problems.duplicate("a", 5), "a: Duplicate value: 5"),
        (problems.forbidden("a", "no"), "a: Forbidden: no"),
        (problems.too_many("a", 9, 8), "a: Too many: 9: must have at most 8 items"),
    ],
)
def test_wording(error: FieldError, text: str) -> None:
    assert str(error) == text


def test_shown_values_are_printable_and_short() -> None:
    assert problems.show("a\x1b[31m\n") == r'"a\u001b[31m\n"'
    assert problems.show("\ud83d") == r'"\ud83d"'
    assert problems.show("é") == '"é"'
    assert problems.show("x" * 500) == '"' + "x" * 199 + "..."
    assert problems.show(object()) == '"object"'
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    assert problems.show(deep) == '"list"'


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
