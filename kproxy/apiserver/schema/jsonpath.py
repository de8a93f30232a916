"""The JSON paths that CRDs use for printer columns and the scale subresource: fields, indices, wildcards and simple
filters (`.status.conditions[?(@.type=="Ready")].status`), a subset of k8s.io/client-go/util/jsonpath."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, Final

_STEP: Final = re.compile(
    r"\.(?P<field>[A-Za-z_][\w\-]*(?:\\.[\w\-./]*)*)"
    r"|\[['\"](?P<quoted>[^'\"]*)['\"]\]"
    r"|\[(?P<index>-?\d+)\]"
    r"|(?P<all>\[\*\]|\.\*)"
    r"|\[\?\(@(?P<left>[.\w\-]+)\s*==\s*(?P<right>'[^']*'|\"[^\"]*\"|[\w.\-]+)\)\]"
)

Step = tuple[str, str, str]


@lru_cache(1024)
def parse(path: str) -> tuple[Step, ...] | None:
    """The steps of a path; None when it is beyond the subset."""
    path = path.strip().removeprefix("{").removesuffix("}")
    if path and path[0] not in ".[":
        path = "." + path
    steps: list[Step] = []
    position = 0
    while position < len(path):
        match = _STEP.match(path, position)
        if match is None:
            return None
        position = match.end()
        if match["field"] is not None:
            steps.append(("field", match["field"].replace("\\.", "."), ""))
        elif match["quoted"] is not None:
            steps.append(("field", match["quoted"], ""))
        elif match["index"] is not None:
            steps.append(("index", match["index"], ""))
        elif match["all"] is not None:
            steps.append(("all", "", ""))
        else:
            steps.append(("filter", match["left"], match["right"].strip("'\"")))
    return tuple(steps)


def find(value: Any, path: str) -> list[Any]:
    """Everything that a path finds, [] for nothing."""
    steps = parse(path)
    if steps is None:
        return []
    found = [value]
    for kind, name, wanted in steps:
        following: list[Any] = []
        for each in found:
            if kind == "field":
                if isinstance(each, dict) and name in each:
                    following.append(each[name])
            elif kind == "index":
                if isinstance(each, list) and -len(each) <= int(name) < len(each):
                    following.append(each[int(name)])
            elif kind == "all":
                following += each if isinstance(each, list) else each.values() if isinstance(each, dict) else ()
            elif isinstance(each, list):
                following += [item for item in each if [str(x) for x in find(item, name)] == [wanted]]
        found = following
    return found
