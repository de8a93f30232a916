"""Types of objects, compiled from OpenAPI: what decoding, defaulting, patching and field ownership need to know.

data/schemas.json holds the schemas that kube-apiserver v1.36.2 serves for the kinds served here (recorded from
/openapi/v3, descriptions left out): types, required fields, defaults, list-map keys and merge keys. A custom resource
brings its own structural schema, compiled the same way.

OpenAPI does not say all that a Go struct says. `default: {}` marks a struct that is no pointer, which is why it is
always present in an object; a required list that is missing is `null`; and the numbers and booleans that vanish when
they are zero are listed in data/omitempty.json, since pointers (spec.replicas) must keep their zero.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any, Final

import msgspec

Json = dict[str, Any]

META: Final = "io.k8s.apimachinery.pkg.apis.meta.v1."
OBJECT_META: Final = META + "ObjectMeta"

_NAMED: Final = {
    META + "Time": "time",
    META + "MicroTime": "microtime",
    META + "FieldsV1": "any",
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": "intstr",
    "io.k8s.apimachinery.pkg.api.resource.Quantity": "quantity",
    "io.k8s.apimachinery.pkg.runtime.RawExtension": "any",
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSON": "any",
}


def _data(name: str) -> Any:
    return msgspec.json.decode((resources.files("kproxy.apiserver") / "data" / name).read_bytes())


class _Tags(msgspec.Struct, frozen=True):
    """What the JSON tags of kubernetes/api types.go say, and OpenAPI does not: data/omitempty.json."""

    omit_zero: frozenset[str]
    """Fields whose Go type is a plain int or bool with omitempty."""
    pointer_zero: dict[str, frozenset[str]]
    """Exceptions, by type: pointers of the same name."""
    pointer_times: dict[str, frozenset[str]]
    """Times that Go leaves out when they are not set: pointers, and the one with omitzero. Others are structs, which
    omitempty does not leave out: they are printed as `null`."""
    never_omitted: dict[str, frozenset[str]]
    """Optional fields that Go prints also when they are not set, lists as `null`: no omitempty in their tag."""
    empty_kept: dict[str, frozenset[str]]
    """Optional strings that are pointers, so that "" is not the same as absent."""


_TAGS: Final = msgspec.convert(_data("omitempty.json"), _Tags)
_NONE: Final = frozenset[str]()
_EITHER: Final = {
    "JSONSchemaPropsOrArray": "array", "JSONSchemaPropsOrBool": "boolean", "JSONSchemaPropsOrStringArray": "strings",
}  # fmt: skip
"""Types of CustomResourceDefinitions that are a schema or something else, which OpenAPI does not say."""


@dataclass(slots=True, eq=False)
class Node:
    """One type. `kind` is object, map, list, string, integer, number, boolean, any, intstr, quantity, time, microtime,
    bytes or schemaor (`item`, or what `format` says); `name` is the schema's last name component, as Go names the
    struct."""

    kind: str
    name: str = ""
    format: str = ""
    props: dict[str, Prop] = field(default_factory=dict)
    item: Node | None = None
    always: tuple[str, ...] = ()
    list_type: str = "atomic"
    list_keys: tuple[str, ...] = ()
    merge_key: str = ""
    merging: bool = False
    preserve: bool = False
    nullable: bool = False
    schema: Json = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Prop:
    """One field of an object: its type, its default, and what Go leaves out of JSON."""

    node: Node
    default: Any
    required: bool
    omit_zero: bool
    keep_empty: bool = False


@cache
def definitions() -> dict[str, Json]:
    """The recorded schemas by name."""
    found: dict[str, Json] = _data("schemas.json")
    return found


_compiled: dict[str, Node] = {}


def named(name: str) -> Node:
    """The type of a recorded schema, by its full OpenAPI name."""
    if name in _compiled:
        return _compiled[name]
    if name in _NAMED:
        node = Node(_NAMED[name], name.rpartition(".")[2])
        _compiled[name] = node
        return node
    node = Node("object", name.rpartition(".")[2])
    _compiled[name] = node  # before compiling: JSONSchemaProps refers to itself
    if (inner := _EITHER.get(node.name)) is not None:
        node.kind = "schemaor"
        node.format = inner
        node.item = named(name.rpartition(".")[0] + ".JSONSchemaProps")
        return node
    _fill(node, definitions()[name])
    return node


def _fill(node: Node, schema: Json) -> None:
    node.schema = schema
    node.list_type = "atomic" if schema.get("x-kubernetes-map-type") == "atomic" else "granular"
    if schema.get("type") == "string":
        node.kind = "string"
        return
    if "properties" not in schema and "additionalProperties" not in schema:
        if schema.get("type") == "object":
            return
        node.kind = "any"  # JSONSchemaPropsOrBool and the like: anything goes
        return
    if "additionalProperties" in schema:
        node.kind = "map"
        node.item = compile_schema(schema["additionalProperties"])
        return
    pointers, times, kept, empty = (
        table.get(node.name, _NONE)
        for table in (_TAGS.pointer_zero, _TAGS.pointer_times, _TAGS.never_omitted, _TAGS.empty_kept)
    )
    for key, value in schema["properties"].items():
        required = key in schema.get("required", ())
        child = compile_schema(value)
        omit = not required and key in _TAGS.omit_zero - pointers
        keep = required or key in empty
        node.props[key] = Prop(child, value.get("default"), required, omit, keep)
    node.always = tuple(
        key
        for key, prop in node.props.items()
        if (prop.default == {} and prop.node.kind == "object" and prop.node.props)
        or (prop.required and prop.node.kind in ("list", "string", "integer", "boolean", "map", "time"))
        or key in kept
        or (prop.node.kind in ("time", "microtime") and key not in times)
    )


def compile_schema(schema: Json) -> Node:
    """The type that one OpenAPI v3 schema of a built-in kind describes."""
    reference = schema.get("$ref")
    if reference is None and len(schema.get("allOf", ())) == 1:
        reference = schema["allOf"][0].get("$ref")
    if reference is not None:
        name = reference.rpartition("/")[2]
        node = named(name)
        if schema.get("x-kubernetes-map-type") == "atomic":
            node = copy(node)
            node.list_type = "atomic"
        return node
    kind = schema.get("type", "any")
    if kind == "array":
        node = Node("list")
        node.item = compile_schema(schema["items"])
        node.list_type = schema.get("x-kubernetes-list-type", "atomic")
        node.list_keys = tuple(schema.get("x-kubernetes-list-map-keys", ()))
        node.merge_key = schema.get("x-kubernetes-patch-merge-key", "")
        node.merging = "merge" in schema.get("x-kubernetes-patch-strategy", "").split(",")
    elif kind == "object":
        if "additionalProperties" not in schema and "properties" not in schema:
            return Node("any")
        node = Node("object")
        _fill(node, schema)
        return node
    elif kind == "string":
        formats = {"byte": "bytes", "date-time": "time"}
        node = Node(formats.get(schema.get("format", ""), "string"))
    elif kind in ("integer", "number", "boolean"):
        node = Node(kind)
    else:
        node = Node("any")
    node.schema = schema
    node.format = schema.get("format", "")
    return node
