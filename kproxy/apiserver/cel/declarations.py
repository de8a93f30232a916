"""Types of objects for CEL's checker: schemas as protobuf messages, which is how the library declares fields.

Source: k8s.io/apiextensions-apiserver pkg/apiserver/schema/cel/model and k8s.io/apiserver pkg/cel/common: an object is
a message with a field for each property, whose name is escaped; what has no type is left out of a CRD's objects. A
message cannot hold lists of lists or maps of maps, so those are dynamic below a field, and checked only at run time.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any, Final

from kproxy.apiserver.cel import functions, library
from kproxy.apiserver.schema.field_paths import DEDUCED
from kproxy.apiserver.schema.types import Node

_RESERVED: Final = frozenset(
    (
        "true", "false", "null", "in", "as", "break", "const", "continue", "else", "for", "function", "if", "import",
        "let", "loop", "package", "namespace", "return", "var", "void", "while",
    )
)  # fmt: skip
_ESCAPES: Final = (("__", "__underscores__"), (".", "__dot__"), ("-", "__dash__"), ("/", "__slash__"))
_WELL_KNOWN: Final = ("duration", "struct", "timestamp", "wrappers")
_DYNAMIC: Final = "google.protobuf.Value"
_TIMESTAMP, _DURATION = "google.protobuf.Timestamp", "google.protobuf.Duration"
_FORMATS: Final = {
    "date": _TIMESTAMP, "date-time": _TIMESTAMP, "duration": _DURATION, "byte": "bytes", "binary": "string",
}  # fmt: skip
_SCALARS: Final = {
    "string": "string", "quantity": "string", "integer": "int", "number": "double", "boolean": "bool",
    "bytes": "bytes", "time": _TIMESTAMP, "microtime": _TIMESTAMP,
}  # fmt: skip
_WIRE: Final = {"string": 9, "int": 3, "double": 1, "bool": 8, "bytes": 12}
"""Numbers of google.protobuf.FieldDescriptorProto.Type."""
_MESSAGE, _OPTIONAL, _REPEATED = 11, 1, 3
ROOT_META: Final = ("name", "generateName")
"""What the rules of a CRD see of an object's metadata."""


def escape(name: str) -> str | None:
    """A property's name as expressions write it; None: there is no way to.

    >>> escape("a-b"), escape("namespace"), escape("plain"), escape("0")
    ('a__dash__b', '__namespace__', 'plain', None)
    """
    if name in _RESERVED:
        return f"__{name}__"
    if not re.fullmatch(r"[A-Za-z_.\-/][A-Za-z0-9_.\-/]*", name):
        return None
    for character, escaped in _ESCAPES:
        name = name.replace(character, escaped)
    return name


@cache
def _protobuf() -> Any:
    return library.protobuf("descriptor_pb2")


def _new_pool() -> Any:
    """A descriptor pool with protobuf's well-known types and Kubernetes' own (functions.MESSAGES)."""
    pool = library.protobuf("descriptor_pool").DescriptorPool()
    for name in _WELL_KNOWN:
        pool.AddSerializedFile(library.protobuf(f"{name}_pb2").DESCRIPTOR.serialized_pb)
    file = _protobuf().FileDescriptorProto(name="kubernetes.proto", package=functions.PACKAGE, syntax="proto2")
    for name in functions.MESSAGES:
        message = file.message_type.add(name=name)
        message.field.add(name="value", number=1, type=_WIRE["string"], label=_OPTIONAL, json_name="value")
    pool.AddSerializedFile(file.SerializeToString())
    return pool


class Declarations:
    """The types that one checker's variables have. `custom`: of a CRD's schema, by whose rules what has no type, and
    metadata but for the name, cannot be named."""

    def __init__(self, *, custom: bool = False) -> None:
        self._custom = custom
        self._names: dict[int, str] = {}
        self._kept: list[Node] = []  # ids are of living nodes
        self._pool: Any = None
        self._file = _protobuf().FileDescriptorProto(name="declared.proto", package="kproxy", syntax="proto2")
        known = ["kubernetes.proto", *(f"google/protobuf/{name}.proto" for name in _WELL_KNOWN)]
        self._file.dependency.extend(known)

    @property
    def pool(self) -> Any:
        """A descriptor pool with all that was declared so far."""
        if self._pool is None:
            self._pool = _new_pool()
            self._pool.AddSerializedFile(self._file.SerializeToString())
        return self._pool

    def type_of(self, node: Node) -> str:
        """The type of a value, as the library writes types."""
        if node.kind == "list":
            return f"list<{self.type_of(node.item)}>" if node.item is not None else "list<dyn>"
        if node.kind == "map" and not self._empty(node):
            return f"map<string, {self.type_of(node.item)}>" if node.item is not None else "map<string, dyn>"
        scalar = _scalar(node)
        if scalar:
            return scalar
        if node.kind in ("object", "map") and (self._custom or node.props):
            return self._declare(node)
        return "dyn"

    def struct(self, kind: str, fields: dict[str, str]) -> str:
        """The type of an object whose fields have these types: names that `type_of` gave, `list<string>`, or `dyn`."""
        message = self._new_message(kind)
        for number, (field, of) in enumerate(fields.items(), start=1):
            _add(message, number, field, of, _OPTIONAL)
        return f"kproxy.{message.name}"

    def _empty(self, node: Node) -> bool:
        """Whether a map is a CRD's object of unknown fields, none of which can be named."""
        return self._custom and (node.item is None or node.item is DEDUCED)

    def _new_message(self, kind: str) -> Any:
        self._pool = None
        return self._file.message_type.add(name=f"{kind}{len(self._file.message_type)}")

    def _declare(self, node: Node) -> str:
        """The message of an object."""
        known = self._names.get(id(node))
        if known:
            return known
        message = self._new_message("object")
        self._names[id(node)] = f"kproxy.{message.name}"
        self._kept.append(node)
        number = 0
        taken = frozenset(escape(field) or "" for field in node.props)
        for field, prop in node.props.items():
            escaped = escape(field)
            child = prop.node
            if escaped is None or (self._custom and child is DEDUCED):
                continue
            if self._custom and child.name == "ObjectMeta":
                child = _root_meta(child)
            number += 1
            self._field(message, number, escaped, child, taken)
        return self._names[id(node)]

    def _field(self, message: Any, number: int, name: str, node: Node, taken: frozenset[str]) -> None:
        """Adds a field; `taken`: the names of all fields of the message."""
        if node.kind == "list":
            of = self._element(node.item)
            if of:
                _add(message, number, name, of, _REPEATED)
            else:
                _add(message, number, name, "google.protobuf.ListValue", _OPTIONAL)
        elif node.kind == "map" and not self._empty(node):
            of = self._element(node.item)
            entry = _entry_name(name)
            if of and entry not in (*taken, *(each.name for each in message.nested_type)):
                _add_map(message, number, name, of, entry)
            else:
                _add(message, number, name, "google.protobuf.Struct", _OPTIONAL)
        else:
            _add(message, number, name, self._element(node) or _DYNAMIC, _OPTIONAL)

    def _element(self, node: Node | None) -> str:
        """The type of one value in a field; empty: it cannot be said."""
        if node is None:
            return ""
        scalar = _scalar(node)
        if scalar:
            return scalar
        if node.kind == "object" and (self._custom or node.props):
            return self._declare(node)
        if node.kind == "map" and self._empty(node):
            return self._declare(node)
        return _DYNAMIC if node.kind not in ("list", "map") else ""


def _scalar(node: Node) -> str:
    form = node.schema.get("format", "") or node.format
    if node.kind == "string" and form in _FORMATS:
        return _FORMATS[form]
    return _SCALARS.get(node.kind, "")


def _add(message: Any, number: int, name: str, of: str, label: int) -> None:
    of = _DYNAMIC if of == "dyn" else of
    if of.startswith("list<"):
        of, label = of[5:-1], _REPEATED
    field = message.field.add(name=name, number=number, label=label, json_name=f"j{number}")
    if of in _WIRE:
        field.type = _WIRE[of]
    else:
        field.type, field.type_name = _MESSAGE, f".{of}"


def _entry_name(name: str) -> str:
    """The name that protobuf wants for the entries of a map: the field's in camel case."""
    return "".join(part[:1].upper() + part[1:] for part in name.split("_")) + "Entry"


def _add_map(message: Any, number: int, name: str, of: str, entry_name: str) -> None:
    entry = message.nested_type.add(name=entry_name)
    entry.options.map_entry = True
    _add(entry, 1, "key", "string", _OPTIONAL)
    _add(entry, 2, "value", of, _OPTIONAL)
    _add(message, number, name, f"kproxy.{message.name}.{entry_name}", _REPEATED)


@cache
def _root_meta(node: Node) -> Node:
    found = Node("object", "ObjectMeta")
    found.props = {name: node.props[name] for name in ROOT_META}
    return found
