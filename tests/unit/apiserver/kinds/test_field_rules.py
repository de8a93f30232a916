"""Tables of checks: a table's errors come in its order, with the paths of what is wrong."""

from __future__ import annotations

from typing import Any

import pytest

from kproxy.apiserver.kinds.field_rules import rules

_PORT = rules("""
    name    needed; label
    number  set; range 1 9
""")
_TABLE = rules(
    """
    kind            one-of A B ''
    share           count
    spread          surge
    target          port
    selector        selector
    ports           needed; unique name; at-most 2
    ports[]         <port>
    deep.er.est     needed
    deep.least      min 1
""",
    port=_PORT,
)
_SOUND = {"ports": [{"name": "a", "number": 1}]}
_HTTP = {"name": "http", "number": 9}


@pytest.mark.parametrize(
    ("value", "paths"),
    [
        ({}, []),
        ({"kind": "", "share": "50%", "spread": "200%", "target": "http", "unknown": []}, []),
        ({"selector": {}, "deep": {"er": None}}, []),
        ({"deep": {"er": {"est": "x"}, "least": 1}}, []),
        ({"selector": None, "ports": [_HTTP, {"name": "b", "number": 1}]}, []),
        ({"ports": None}, ["ports"]),
        ({"ports": []}, ["ports"]),
        ({"ports": [{"number": 0}, {"name": "B"}]}, [
            "ports[0].name", "ports[0].number", "ports[1].name", "ports[1].number"]),
        ({"ports": [_HTTP, _HTTP, _HTTP]}, ["ports[1].name", "ports[2].name", "ports"]),
        ({"target": 0, "spread": "x", "share": "101%", "kind": "C"}, ["kind", "share", "spread", "target"]),
        ({"share": -1, "spread": -1, "target": "-"}, ["share", "spread", "target", "target"]),
        ({"selector": {"matchExpressions": [{"key": "a", "operator": "In"}]}}, ["selector.matchExpressions[0].values"]),
        ({"deep": {"er": {}, "least": 0}}, ["deep.er.est", "deep.least"]),
    ],
)  # fmt: skip
def test_errors_have_the_paths_of_what_is_wrong_in_the_tables_order(value: dict[str, Any], paths: list[str]) -> None:
    found = [error.path for error in _TABLE.errors(_SOUND | value, "")]
    assert found == paths
