"""JSON patch (RFC 6902), merge patch (RFC 7386) and Kubernetes' strategic merge patch, over plain JSON values.

The strategic merge follows the merge keys, patch strategies and directives of
k8s.io/apimachinery/pkg/util/strategicpatch: $patch (replace, delete, merge), $deleteFromPrimitiveList, $retainKeys and
$setElementOrder. All functions return a new value and leave their arguments alone.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any, Final

import msgspec
from jsonpatch import JsonPatch, JsonPatchException
from jsonpointer import JsonPointer, JsonPointerException

from kproxy.apiserver.errors import Json, bad_request, rejected, too_large
from kproxy.apiserver.schema.decode import json_kind
from kproxy.apiserver.schema.types import Node

_DELETE_LIST: Final = "$deleteFromPrimitiveList/"
_ORDER: Final = "$setElementOrder/"
_MAX_OPERATIONS: Final = 10_000
_MAX_COPIED: Final = 3 << 20
"""Octets of JSON that all copies of a patch may add up to: kube-apiserver's jsonpatch.AccumulatedCopySizeLimit."""
_SHOWN: Final = 500
"""Characters of a value that a message repeats."""


def apply_json_patch(document: Any, operations: Any) -> Any:
    """The document after all operations.

    Raises:
        StatusError: 400: it is no list of objects; 413: there are too many operations; 422: one is malformed or cannot
            be applied, or all copies together are too large.
    """
    if not isinstance(operations, list):
        raise bad_request(f"json: cannot unmarshal {json_kind(operations)} into Go value of type jsonpatch.Patch")
    for operation in operations:
        if operation is not None and not isinstance(operation, dict):
            kind = json_kind(operation)
            raise bad_request(f"json: cannot unmarshal {kind} into Go value of type jsonpatch.Operation")
    if len(operations) > _MAX_OPERATIONS:
        got = len(operations)
        raise too_large(f"The allowed maximum operations in a JSON patch is {_MAX_OPERATIONS}, got {got}")
    document = deepcopy(document)
    copied = 0
    try:
        for operation in operations:
            asked = operation or {}
            if asked.get("op") == "copy":
                copied += len(msgspec.json.encode(JsonPointer(asked.get("from", "/")).resolve(document)))
                if copied > _MAX_COPIED:
                    raise rejected()
            if not _tests_absence(document, asked):
                document = JsonPatch([asked]).apply(document, in_place=True)
    except (JsonPatchException, JsonPointerException, TypeError) as error:
        raise rejected() from error
    return document


def _tests_absence(document: Any, operation: Json) -> bool:
    """Whether an operation tests that a field is null, and there is none: in Go a missing field is null, too."""
    if operation.get("op") != "test" or operation.get("value", "") is not None:
        return False
    holder, name = JsonPointer(operation.get("path", "/")).to_last(document)
    return isinstance(holder, dict) and name is not None and name not in holder


def apply_merge_patch(document: Any, patch: Any) -> Any:
    """RFC 7386: `null` removes, objects merge, everything else replaces."""
    if not isinstance(patch, dict):
        return deepcopy(patch)
    result = dict(document) if isinstance(document, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = apply_merge_patch(result.get(key), value)
    return result


def apply_strategic_patch(document: Json, patch: Any, node: Node) -> Json:
    """The document after a strategic merge patch; `node` is its type.

    Raises:
        StatusError: 400 for a patch that contradicts itself or the type.
    """
    if not isinstance(patch, dict):
        raise bad_request("error decoding patch: expected a JSON object")
    merged = _merge_map(document, patch, node)
    assert merged is not None
    return merged


def _child(node: Node | None, key: str) -> Node | None:
    if node is None:
        return None
    if node.kind == "map":
        return node.item
    prop = node.props.get(key)
    return prop.node if prop is not None else None


def _merge_map(document: Json, patch: Json, node: Node | None) -> Json | None:
    """None: the patch deletes the map."""
    directive = patch.get("$patch")
    if directive == "replace":
        replaced: Json = _clean({key: value for key, value in patch.items() if key != "$patch"})
        return replaced
    if directive == "delete":
        return {}
    if directive not in (None, "merge"):
        raise bad_request(f"Unknown patch type found: {directive}")
    result = dict(document)
    if "$retainKeys" in patch:
        retained = patch["$retainKeys"]
        if not isinstance(retained, list):
            raise bad_request("invalid patch format of retainKeys")
        lists = ("$retainKeys", _DELETE_LIST, _ORDER)
        if any(key not in retained for key, value in patch.items() if value is not None and not key.startswith(lists)):
            raise rejected()  # it would set what it does not keep
        result = {key: value for key, value in result.items() if key in retained}
    for key, value in patch.items():
        if key in ("$patch", "$retainKeys") or key.startswith(_ORDER):
            continue
        if key.startswith(_DELETE_LIST):
            name = key.removeprefix(_DELETE_LIST)
            if not isinstance(value, list):
                raise bad_request("invalid patch format of primitive list")
            if isinstance(result.get(name), list):
                gone = set(map(_hashable, value))
                result[name] = [item for item in result[name] if _hashable(item) not in gone]
            continue
        child = _child(node, key)
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict):
            before = result.get(key)
            merged = _merge_map(before if isinstance(before, dict) else {}, value, child)
            if value.get("$patch") == "delete":
                result.pop(key, None)
            else:
                result[key] = merged
        elif isinstance(value, list):
            result[key] = _merge_list(result.get(key), value, child, patch.get(_ORDER + key))
        else:
            result[key] = value
    for key, order in patch.items():
        name = key.removeprefix(_ORDER)
        if key.startswith(_ORDER) and name not in patch and isinstance(result.get(name), list):
            child = _child(node, name)
            result[name] = _ordered(result[name], order, result[name], child.merge_key if child else "")
    return result


def _clean(value: Any) -> Any:
    """A value without directives."""
    if isinstance(value, dict):
        return {key: _clean(item) for key, item in value.items() if not key.startswith("$") and item is not None}
    if isinstance(value, list):
        return [_clean(item) for item in value if not (isinstance(item, dict) and item.get("$patch") == "delete")]
    return value


def _merge_list(before: Any, patch: list[Any], node: Node | None, order: Any) -> list[Any]:
    server = before if isinstance(before, list) else []
    if node is None or node.kind != "list" or not node.merging:
        return [_clean(item) for item in patch]
    if node.item is None or node.item.kind != "object":
        there = set(map(_hashable, server))
        added = [item for item in patch if _hashable(item) not in there]
        plain = all(isinstance(item, str | int) for item in patch)
        union = list(dict.fromkeys([*server, *added])) if plain else patch
        return _ordered(union, order if isinstance(order, list) else patch, server, "")
    key = node.merge_key
    if any(isinstance(item, dict) and item.get("$patch") == "replace" and key not in item for item in patch):
        server = []
    # By number, so that one that goes leaves the others where they are: a list may have as many items as fit a request.
    items: dict[int, Any] = dict(enumerate(server))
    places: dict[Any, list[int]] = {}
    for number, each in items.items():
        if isinstance(each, dict):
            places.setdefault(_hashable(each.get(key)), []).append(number)
    named: list[Any] = []
    for item in patch:
        if not isinstance(item, dict):
            raise bad_request(f"expected an object in a list that is merged by its items' {key}")
        directive = item.get("$patch")
        if directive == "replace" and key not in item:
            continue
        if key not in item:
            raise bad_request(f"map: {go_value(item)[:_SHOWN]} does not contain declared merge key: {key}")
        found = places.setdefault(_hashable(item[key]), [])
        if directive == "delete":
            for number in found:
                del items[number]
            found.clear()
            continue
        named.append({key: item[key]})
        before = items[found[0]] if found and directive != "replace" else {}
        if not found:
            found.append(len(server) + len(named))
        items[found[0]] = _merge_map(before, item, node.item)
    return _ordered(list(items.values()), order if isinstance(order, list) else named, server, key)


def go_value(value: Any) -> str:
    """A value as Go's %v prints it."""
    match value:
        case None:
            return "<nil>"
        case bool():
            return "true" if value else "false"
        case dict():
            return "map[" + " ".join(f"{key}:{go_value(item)}" for key, item in sorted(value.items())) + "]"
        case list():
            return "[" + " ".join(map(go_value, value)) + "]"
    return str(value)


def _identity(item: Any, key: str) -> Any:
    return _hashable(item.get(key) if key and isinstance(item, dict) else item)


def _hashable(value: Any) -> Any:
    """Equal for equal values."""
    return msgspec.json.encode(value, order="deterministic") if isinstance(value, dict | list) else value


def _ordered(items: list[Any], order: Any, server: list[Any], key: str) -> list[Any]:
    """Items in the order that a patch asks for; what only the server has keeps its place among its neighbours."""
    if not isinstance(order, list):
        return items
    wanted, known = _first_places(order, key), _first_places(server, key)
    right = sorted(
        (item for item in items if _identity(item, key) in wanted), key=lambda item: wanted[_identity(item, key)]
    )
    left = [item for item in items if _identity(item, key) not in wanted]
    result = []
    one = other = 0
    while one < len(left) and other < len(right):
        first, second = (known.get(_identity(item, key)) for item in (left[one], right[other]))
        if first is not None and second is not None and first < second:
            result.append(left[one])
            one += 1
        else:
            result.append(right[other])
            other += 1
    return result + left[one:] + right[other:]


def _first_places(items: list[Any], key: str) -> dict[Any, int]:
    """Where each item stands first."""
    found: dict[Any, int] = {}
    for number, item in enumerate(items):
        found.setdefault(_identity(item, key), number)
    return found
