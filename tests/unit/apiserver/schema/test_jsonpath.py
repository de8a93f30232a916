"""The JSON paths of printer columns and scale subresources."""

from __future__ import annotations

from typing import Any

import pytest

from kproxy.apiserver.schema.jsonpath import find, parse

VALUE: Any = {
    "metadata": {"name": "a", "annotations": {"example.org/size": "5", "x": "y"}},
    "spec": {"replicas": 0, "list": [1, 2, 3], "flag": False, "nothing": None},
    "status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "Other", "status": "False", "n": 2}]},
}


@pytest.mark.parametrize(
    ("path", "found"),
    [
        (".metadata.name", ["a"]),
        ("metadata.name", ["a"]),
        ("{.metadata.name}", ["a"]),
        (".spec.replicas", [0]),
        (".spec.flag", [False]),
        (".spec.nothing", [None]),
        (".spec.list[0]", [1]),
        (".spec.list[-1]", [3]),
        (".spec.list[3]", []),
        (".spec.list[*]", [1, 2, 3]),
        (".metadata.annotations.example\\.org/size", ["5"]),
        (".metadata.annotations['example.org/size']", ["5"]),
        ('.status.conditions[?(@.type=="Ready")].status', ["True"]),
        (".status.conditions[?(@.type=='Other')].n", [2]),
        (".status.conditions[?(@.n==2)].type", ["Other"]),
        ('.status.conditions[?(@.type=="None")].status', []),
        (".status.conditions[*].type", ["Ready", "Other"]),
        (".nope.name", []),
        (".metadata.name.deeper", []),
        (".spec.list.name", []),
        ("", [VALUE]),
    ],
)
def test_find(path: str, found: list[Any]) -> None:
    assert find(VALUE, path) == found


@pytest.mark.parametrize("path", [".a[", ".a[x]", "..a", ".a[0:2]", ".a[?(@.b>1)]", ".a b", "$.a"])
def test_beyond_the_subset(path: str) -> None:
    assert parse(path) is None
    assert find({"a": [1]}, path) == []
