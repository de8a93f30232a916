"""Custom resources: structural schemas as types, pruning and defaulting.

A structural schema is compiled into the same `Node`s as the built-in kinds, so that patches and field ownership work
alike. Source: k8s.io/apiextensions-apiserver pkg/apiserver/schema. What a schema may say is in schema_rules.py, whether
a value fits it in validation.py, what else happens to an object in strategy.py.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any, Final

import msgspec

from kproxy.apiserver.errors import Json, too_large
from kproxy.apiserver.schema.field_paths import DEDUCED
from kproxy.apiserver.schema.types import OBJECT_META, Node, Prop, named

_KINDS: Final = {"array": "list", "boolean": "boolean", "integer": "integer", "number": "number", "string": "string"}


def compile_structural(schema: Json, *, root: bool = False) -> Node:
    """The type that a structural schema describes."""
    if not schema and not root:
        return DEDUCED
    kind = schema.get("type", "")
    if schema.get("x-kubernetes-int-or-string"):
        node = Node("intstr")
    elif kind == "object" or root or "properties" in schema:
        node = _object(schema, root)
    elif kind in _KINDS:
        node = Node(_KINDS[kind])
    else:
        return DEDUCED
    node.schema = schema
    node.nullable = bool(schema.get("nullable"))
    if node.kind == "list":
        items = schema.get("items")
        node.item = compile_structural(items) if isinstance(items, dict) else DEDUCED
        node.list_type = schema.get("x-kubernetes-list-type", "atomic")
        node.list_keys = tuple(schema.get("x-kubernetes-list-map-keys", ()))
    return node


def _object(schema: Json, root: bool) -> Node:
    properties = schema.get("properties") or {}
    additional = schema.get("additionalProperties")
    node = Node("object")
    node.list_type = "atomic" if schema.get("x-kubernetes-map-type") == "atomic" else "granular"
    node.preserve = bool(schema.get("x-kubernetes-preserve-unknown-fields"))
    required = schema.get("required", ())
    for name, child in properties.items():
        compiled = compile_structural(child)
        node.props[name] = Prop(compiled, child.get("default"), name in required, False, True)
    if root or schema.get("x-kubernetes-embedded-resource"):
        for name in ("apiVersion", "kind"):
            node.props[name] = Prop(Node("string"), None, False, False, True)
        node.props["metadata"] = Prop(named(OBJECT_META), None, False, False, True)
    if isinstance(additional, dict):
        node.item = compile_structural(additional)
    elif additional is True or node.preserve:
        node.item = DEDUCED
    if not node.props and node.item is not None:
        node.kind = "map"
    return node


def prune(value: Any, node: Node, path: str, unknown: list[str]) -> Any:
    """The value without fields that the schema does not have; their paths go to `unknown`."""
    if node is DEDUCED:
        return value
    if isinstance(value, dict) and node.kind in ("object", "map"):
        kept = {}
        for key, item in value.items():
            where = f"{path}.{key}" if path else key
            prop = node.props.get(key)
            if prop is not None and prop.node.name == "ObjectMeta":
                kept[key] = _known_metadata(item, prop.node, where, unknown)
            elif prop is not None:
                kept[key] = prune(item, prop.node, where, unknown)
            elif node.item is not None:
                kept[key] = prune(item, node.item, where, unknown)
            elif node.preserve:
                kept[key] = item
            else:
                unknown.append(where)
        return kept
    if isinstance(value, list) and node.kind == "list" and node.item is not None:
        return [prune(item, node.item, f"{path}[{index}]", unknown) for index, item in enumerate(value)]
    return value


def _known_metadata(value: Any, node: Node, path: str, unknown: list[str]) -> Any:
    if not isinstance(value, dict):
        return value
    unknown += [f"{path}.{key}" for key in value if key not in node.props]
    return {key: item for key, item in value.items() if key in node.props}


MAX_DEFAULTS: Final = 3 << 20
"""Octets of JSON that the defaults of one object may add: those of a list's items multiply. With more it would be too
large to be stored."""


def default_values(value: Any, node: Node, left: list[int]) -> Any:
    """Fills in defaults; `null` where null is not allowed counts as absent if there is a default, and is dropped.

    `left` holds how many octets they may add.

    Raises:
        StatusError: 413: they add more.
    """
    if isinstance(value, dict) and node.kind in ("object", "map") and node is not DEDUCED:
        for key, prop in node.props.items():
            if key in value and value[key] is None and not prop.node.nullable:
                del value[key]
            if key not in value and prop.default is not None:
                value[key] = deepcopy(prop.default)
                left[0] -= len(key) + len(msgspec.json.encode(prop.default))
                if left[0] < 0:
                    raise too_large(f"its defaults add more than {MAX_DEFAULTS} octets")
        for key, item in value.items():
            child = node.props[key].node if key in node.props else node.item
            if child is not None and child.name != "ObjectMeta":
                default_values(item, child, left)
    elif isinstance(value, list) and node.kind == "list" and node.item is not None:
        for item in value:
            default_values(item, node.item, left)
    return value
