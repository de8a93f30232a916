"""Field sets: which fields of an object a manager owns, as sets of paths.

A path is a tuple of FieldsV1 elements: `f:name` for a field or map key, `k:{...}` for an item of a list by its keys,
`v:...` for an item of a set by its value. FieldsV1 is the tree of such paths, in which `.` says that the parent itself
belongs to the set (sigs.k8s.io/structured-merge-diff, fieldpath).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from kproxy.apiserver.errors import Json
from kproxy.apiserver.schema.types import Node

Path = tuple[str, ...]
Paths = set[Path]

_CONTAINERS: Final = (dict, list)
_encode = msgspec.json.Encoder(order="deterministic").encode


def _make_deduced() -> Node:
    node = Node("map")
    node.list_type = "granular"
    node.item = node
    return node


DEDUCED: Final = _make_deduced()
"""The type of what has no schema: maps have an owner per key, lists are atomic."""


def to_fields_v1(paths: Iterable[Path]) -> Json:
    """The FieldsV1 tree of a set of paths."""
    root: Json = {}
    for path in sorted(paths):
        node = root
        for element in path[:-1]:
            child = node.setdefault(element, {})
            node = child
        node.setdefault(path[-1], {})
    members = set(paths)
    _mark(root, (), members)
    return root


def _mark(node: Json, path: Path, members: Paths) -> None:
    for key in list(node):
        child = node[key]
        if child:
            inner = (*path, key)
            _mark(child, inner, members)
            if inner in members:
                node[key] = {".": {}, **child}


def from_fields_v1(tree: Any, path: Path = ()) -> Paths:
    """The set of paths of a FieldsV1 tree; anything else counts as empty."""
    found: Paths = set()
    if not isinstance(tree, dict):
        return found
    for key, child in tree.items():
        if key == ".":
            found.add(path)
        elif isinstance(child, dict) and child:
            found |= from_fields_v1(child, (*path, key))
        else:
            found.add((*path, key))
    return found


def parse_fields_v1(tree: Any, path: Path = ()) -> Paths:
    """The set of paths of a FieldsV1 tree that a client has written, keys and values in the order that is kept here.

    Elements of a kind that is not known are left out (fieldpath/serialize.go of sigs.k8s.io/structured-merge-diff).

    Raises:
        ValueError: it is not a FieldsV1 tree.
    """
    if tree is None:
        return {path} if path else set()
    if not isinstance(tree, dict):
        raise ValueError("fieldsV1 must be an object")
    found: Paths = set()
    inner = 0
    for key, child in tree.items():
        if key == ".":
            found.add(path)
            continue
        element = _parse_element(key)
        if element is not None:
            inner += 1
            found |= parse_fields_v1(child, (*path, element))
    if not inner:
        found.add(path)
    return found - {()}


def _parse_element(text: str) -> str | None:
    """A path element as it is written here; None for a kind that a later release may know."""
    kind, colon, rest = text[:1], text[1:2], text[2:]
    if colon != ":":
        raise ValueError(f"missing colon: {text}")
    match kind:
        case "f":
            return text
        case "i":
            return f"i:{int(rest)}"
        case "k" | "v":
            try:
                value = msgspec.json.decode(rest)
            except msgspec.DecodeError as error:
                raise ValueError(f"not JSON: {text}") from error
            if kind == "k" and not isinstance(value, dict):
                raise ValueError(f"the keys of a list item must be an object: {text}")
            return f"{kind}:{_encode(value).decode()}"
    return None


def show_path(path: Path) -> str:
    """`.spec.ports[port=80,protocol="TCP"].name`: how conflicts name a path."""
    text = ""
    for element in path:
        kind, _, rest = element.partition(":")
        if kind == "f":
            text += f".{rest}"
        elif kind == "k":
            keys = msgspec.json.decode(rest)
            text += "[" + ",".join(f"{key}={_encode(value).decode()}" for key, value in keys.items()) + "]"
        elif kind == "i":
            text += f"[{rest}]"
        else:
            text += f"[={rest}]"
    return text


def parents(paths: Paths) -> Paths:
    """The paths and everything above them."""
    found = set(paths)
    for path in paths:
        for length in range(len(path) - 1, 0, -1):
            if path[:length] in found and length < len(path) - 1:
                break
            found.add(path[:length])
    return found


def item_element(item: Any, node: Node) -> str:
    """The path element of one item of a list of type map or set."""
    if node.list_type == "map" and isinstance(item, dict):
        keys = {}
        for key in node.list_keys:
            if key in item:
                keys[key] = item[key]
            elif node.item is not None and key in node.item.props:
                default = node.item.props[key].default
                if default is not None:
                    keys[key] = default
        return "k:" + _encode(keys).decode()
    return "v:" + _encode(item).decode()


def _granular(value: Any, node: Node) -> str:
    """`map`, `list` or "" for how a value's parts are owned."""
    if isinstance(value, dict) and node.kind in ("object", "map") and node.list_type != "atomic":
        return "map"
    if isinstance(value, list) and node.kind == "list" and node.list_type in ("map", "set"):
        return "list"
    return ""


def child_node(node: Node, key: str) -> Node:
    """The type of a field or map key."""
    prop = node.props.get(key)
    if prop is not None:
        return prop.node
    return node.item if node.kind == "map" and node.item is not None else DEDUCED


def _children(value: Any, node: Node) -> Iterable[tuple[str, Any, Node]]:
    if isinstance(value, dict):
        for key, item in value.items():
            if item is not None:
                yield f"f:{key}", item, child_node(node, key)
    else:
        for item in value:
            yield item_element(item, node), item, node.item or DEDUCED


def everything(value: Any, node: Node, path: Path, found: Paths) -> None:
    """Adds a value with all that is in it, containers included."""
    found.add(path)
    shape = _granular(value, node)
    if shape == "map":
        for key, item in value.items():
            if isinstance(item, _CONTAINERS):
                everything(item, child_node(node, key), (*path, f"f:{key}"), found)
            elif item is not None:
                found.add((*path, f"f:{key}"))
    elif shape:
        for item in value:
            everything(item, node.item or DEDUCED, (*path, item_element(item, node)), found)


def named_by(value: Any, node: Node, path: Path, found: Paths) -> None:
    """Adds what an applied configuration names: its leaves, its empty containers and its list items."""
    shape = _granular(value, node)
    if not shape or not value:
        if path:
            found.add(path)
        return
    for element, item, child in _children(value, node):
        inner = (*path, element)
        if shape == "list":
            found.add(inner)
        if shape == "list" and not isinstance(item, dict):
            continue
        named_by(item, child, inner, found)


def compare(old: Any, new: Any, node: Node, path: Path, changed: Paths, removed: Paths) -> None:
    """Adds what is new or different in `new` to `changed`, and what only `old` has to `removed`."""
    shape = _granular(new, node) or _granular(old, node)
    if not shape or not (isinstance(new, dict | list | None) and isinstance(old, dict | list | None)):
        if old != new or type(old) is not type(new):
            changed.add(path)
        return
    before = {element: (item, child) for element, item, child in _children(old, node)} if old else {}
    for element, item, child in _children(new or (), node):
        inner = (*path, element)
        if element in before:
            compare(before.pop(element)[0], item, child, inner, changed, removed)
        elif isinstance(old, dict) and element[2:] in old:
            compare(None, item, child, inner, changed, removed)  # Go prints an empty required list as null
        else:
            everything(item, child, inner, changed)
    for element, (item, child) in before.items():
        everything(item, child, (*path, element), removed)


def merge(live: Any, config: Any, node: Node) -> Any:
    """`live` with an applied configuration laid over it."""
    shape = _granular(config, node)
    if not shape or live is None:
        return config
    if shape == "map":
        result = dict(live) if isinstance(live, dict) else {}
        for key, item in config.items():
            if item is None:
                result.pop(key, None)
            else:
                result[key] = merge(result.get(key), item, child_node(node, key))
        return result
    if not isinstance(live, list):
        return config
    child = node.item or DEDUCED
    wanted = {item_element(item, node): item for item in config}
    held = [(item_element(item, node), item) for item in live]  # an element may stand there more than once: it stays so
    before, used = dict(held), set[str]()
    rest = deque(held)
    result_list: list[Any] = []
    for element, item in wanted.items():
        while rest and (rest[0][0] not in wanted or rest[0][0] in used):
            other, kept = rest.popleft()
            if other not in used:
                result_list.append(kept)
        if element in before:
            used.add(element)
            result_list.append(merge(before[element], item, child) if isinstance(item, dict) else item)
        else:
            result_list.append(item)
    result_list += [item for element, item in rest if element not in wanted]
    return result_list


def duplicate(value: Any, node: Node, path: Path = ()) -> tuple[Path, str] | None:
    """The list and the path element of the first item that an applied configuration names twice."""
    shape = _granular(value, node)
    seen = set()
    for element, item, child in _children(value, node) if shape else ():
        if shape == "list" and element in seen:
            return path, element
        seen.add(element)
        found = duplicate(item, child, (*path, element))
        if found is not None:
            return found
    return None


def without(value: Any, node: Node, paths: Paths, path: Path = ()) -> Any:
    """A value without the fields, keys and items given, each with all that is in it."""
    shape = _granular(value, node)
    if not shape:
        return value
    if shape == "map":
        result = {}
        for key, item in value.items():
            inner = (*path, f"f:{key}")
            if inner not in paths:
                result[key] = without(item, child_node(node, key), paths, inner)
        return result
    kept = []
    for item in value:
        inner = (*path, item_element(item, node))
        if inner not in paths:
            kept.append(without(item, node.item or DEDUCED, paths, inner))
    return kept
