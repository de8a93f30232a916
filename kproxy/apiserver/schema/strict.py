"""What strict decoding finds in the text of a body: keys that stand twice, in one order with the unknown fields.

JSON's duplicates are found by decoding again with the pairs kept, and only when there are more keys in the text than in
the value's own: what looks like a key inside a string is there in both. The words are those of sigs.k8s.io/json and
sigs.k8s.io/yaml, the rules those of k8s.io/apiserver pkg/endpoints/handlers (create.go, patch.go) and
k8s.io/apimachinery pkg/runtime/serializer/json.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator
from typing import Any, Final

import msgspec
import yaml

from kproxy.api.fielderror import show

_KEY: Final = re.compile(rb'"[ \t\r\n]*:')
_YAML_ERRORS: Final = "yaml: unmarshal errors:\n"
_TO_JSON: Final = "error converting YAML to JSON: "
_MAX: Final = 100
"""At most so many problems of one body are reported, as sigs.k8s.io/json does."""
_OPERATION: Final = frozenset({"op", "path", "from", "value"})


class Yaml(bytes):
    """The text of a body in YAML, which has been read; other text is JSON. `value` is that of the document, `twice`
    tells of keys that stand twice in it, `problem` says why it has no value."""

    value: Any = None
    twice: str = ""
    problem: str = ""


class Pairs(list[tuple[str, Any]]):
    """A JSON object with its duplicates."""


def pairs_of(text: bytes, value: Any) -> Any:
    """JSON text as a value whose objects are Pairs; None when no key stands twice. `value` is the text decoded."""
    if b"\\u0022" not in text and len(_KEY.findall(text)) == len(_KEY.findall(msgspec.json.encode(value))):
        return None
    try:
        pairs = json.loads(text, object_pairs_hook=Pairs)
    except (ValueError, RecursionError):  # what msgspec takes and json does not
        return None
    return pairs if any(_problems(pairs, "", frozenset())) else None


def merged(value: Any) -> Any:
    """The value that Go's decoder puts into structs: objects under one key are merged, of others the last counts."""
    if isinstance(value, Pairs):
        found: dict[str, Any] = {}
        for key, item in value:
            new = merged(item)
            old = found.get(key)
            found[key] = _merge(old, new) if isinstance(old, dict) and isinstance(new, dict) else new
        return found
    return [merged(item) for item in value] if isinstance(value, list) else value


def _merge(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    found = dict(old)
    for key, item in new.items():
        before = found.get(key)
        found[key] = _merge(before, item) if isinstance(before, dict) and isinstance(item, dict) else item
    return found


def strict_errors(pairs: Any, unknown: Iterable[str] = ()) -> list[str]:
    """The duplicate and unknown fields of a document, in its order. What is in an unknown field is skipped."""
    paths = list(dict.fromkeys(unknown))
    found = list(dict.fromkeys(_problems(pairs, "", frozenset(paths)))) if pairs is not None else []
    found += [f'unknown field "{path}"' for path in paths]
    return list(dict.fromkeys(found))[:_MAX]


def _problems(value: Any, path: str, unknown: Collection[str]) -> Iterator[str]:
    if isinstance(value, Pairs):
        seen: set[str] = set()
        for key, item in value:
            where = f"{path}.{key}" if path else key
            if where in unknown:
                yield f'unknown field "{where}"'
                continue
            if key in seen:
                yield f'duplicate field "{where}"'
            seen.add(key)
            yield from _problems(item, where, unknown)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _problems(item, f"{path}[{index}]", unknown)


def json_patch_errors(text: bytes, operations: Any) -> list[str]:
    """The duplicate and unknown fields of a JSON patch's operations."""
    if not isinstance(operations, list):
        return []
    unknown = [
        f"[{index}].{key}"
        for index, each in enumerate(operations)
        if isinstance(each, dict)
        for key in each
        if key not in _OPERATION
    ]
    return [f"json patch {each}" for each in strict_errors(pairs_of(text, operations), unknown)]


# --- YAML ---


def yaml_errors(root: Any) -> str:
    """The keys that stand twice in a YAML document, given by its node, as one error of several lines; "" for none."""
    lines = list(_duplicate_lines(root))[:_MAX]
    return _YAML_ERRORS + "\n".join(f"  {line}" for line in lines) if lines else ""


def _duplicate_lines(root: Any) -> Iterator[str]:
    """One line for each key that a mapping has already; values come before the mappings that hold them, as in Go."""
    visited: set[int] = set()
    stack: list[Any] = [root]
    while stack:
        node = stack.pop()
        if isinstance(node, str):
            yield node
        elif isinstance(node, yaml.CollectionNode) and id(node) not in visited:
            visited.add(id(node))
            stack += reversed(list(_steps(node)))


def _steps(node: Any) -> Iterator[Any]:
    """The nodes in a collection in their order, and after the value of a key that stands twice what to say of it."""
    if isinstance(node, yaml.SequenceNode):
        yield from node.value
        return
    seen: set[tuple[str, str]] = set()
    for key, value in node.value:
        yield value
        if not isinstance(key, yaml.ScalarNode) or key.tag.endswith(":merge"):
            continue
        if (key.tag, key.value) in seen:
            shown = show(key.value) if key.tag.endswith(":str") else key.value
            yield f"line {value.start_mark.line + 1}: key {shown} already set in map"
        seen.add((key.tag, key.value))


def warnings_of(errors: Iterable[str]) -> list[str]:
    """Errors as warnings: each line of YAML's on its own."""
    found: list[str] = []
    for error in errors:
        text = error.removeprefix(_TO_JSON)
        if text.startswith(_YAML_ERRORS):
            found += [line.strip() for line in text.removeprefix(_YAML_ERRORS).split("\n")]
        else:
            found.append(error)
    return found


def applied_error(text: bytes) -> str:
    """What strict decoding says of the body of a server-side apply, "" for nothing."""
    return f"{_TO_JSON}{text.twice}" if isinstance(text, Yaml) and text.twice else ""
