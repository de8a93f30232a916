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


def new_pool() -> Any:
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
        self.pool = new_pool()
        self._custom = custom
        self._names: dict[int, str] = {}
        self._kept: list[Node] = []  # ids are of living nodes
        self._count = 0

    def type_of(self, node: Node) -> str:
        """The type of a value, as the library writes types."""
        if node.kind == "list":
            return f"list<{self.type_of(node.item)}>" if node.item is not None else "list<dyn>"
        if node.kind == "map" and not self._empty(node):
            return f"map<string, {self.type_of(node.item)}>" if node.item is not None else "map<string, dyn>"
        scalar = self._scalar(node)
        if scalar:
            return scalar
        if node.kind in ("object", "map") and (self._custom or node.props):
            return self._message(node)
        return "dyn"

    def struct(self, kind: str, fields: dict[str, str]) -> str:
        """The type of an object whose fields have these types: names that `type_of` gave, or `dyn`."""
        name = f"{kind}{self._next()}"
        file = self._file(name)
        message = file.message_type.add(name=name)
        for number, (field, of) in enumerate(fields.items(), start=1):
            self._add(message, number, field, of, _OPTIONAL)
        self.pool.AddSerializedFile(file.SerializeToString())
        return f"kproxy.{name}"

    def _empty(self, node: Node) -> bool:
        """Whether a map is a CRD's object of unknown fields, none of which can be named."""
        return self._custom and (node.item is None or node.item is DEDUCED)

    def _next(self) -> int:
        self._count += 1
        return self._count

    def _scalar(self, node: Node) -> str:
        form = (node.schema or {}).get("format", "") or node.format
        if node.kind == "string" and form in _FORMATS:
            return _FORMATS[form]
        return _SCALARS.get(node.kind, "")

    def _message(self, node: Node) -> str:
        """The message of an object; all that it reaches come into one file, since they may refer to one another."""
        if id(node) not in self._names:
            file = self._file(f"selfType{self._next()}")
            self._declare(node, file)
            self.pool.AddSerializedFile(file.SerializeToString())
        return self._names[id(node)]

    def _file(self, name: str) -> Any:
        file = _protobuf().FileDescriptorProto(name=f"{name}.proto", package="kproxy", syntax="proto2")
        file.dependency.extend(f"google/protobuf/{each}.proto" for each in _WELL_KNOWN)
        file.dependency.extend(sorted({f"{each.removeprefix('kproxy.')}.proto" for each in self._files()}))
        return file

    def _files(self) -> list[str]:
        return list(dict.fromkeys(self._of_file.values())) if hasattr(self, "_of_file") else []

    def _declare(self, node: Node, file: Any) -> str:
        known = self._names.get(id(node))
        if known:
            return known
        name = f"object{self._next()}"
        self._names[id(node)] = f"kproxy.{name}"
        self._kept.append(node)
        message = file.message_type.add(name=name)
        number = 0
        for field, prop in node.props.items():
            escaped = escape(field)
            child = prop.node
            if escaped is None or (self._custom and child is DEDUCED):
                continue
            if self._custom and child.name == "ObjectMeta":
                child = _root_meta(child)
            number += 1
            self._field(message, number, escaped, child, file)
        return self._names[id(node)]

    def _field(self, message: Any, number: int, name: str, node: Node, file: Any) -> None:
        if node.kind == "list":
            of = self._element(node.item, file)
            if of:
                self._add(message, number, name, of, _REPEATED)
            else:
                self._add(message, number, name, "google.protobuf.ListValue", _OPTIONAL)
        elif node.kind == "map" and not self._empty(node):
            of = self._element(node.item, file)
            if of:
                self._add_map(message, number, name, of)
            else:
                self._add(message, number, name, "google.protobuf.Struct", _OPTIONAL)
        else:
            self._add(message, number, name, self._element(node, file) or _DYNAMIC, _OPTIONAL)

    def _element(self, node: Node | None, file: Any) -> str:
        """The type of one value in a field; empty: it cannot be said."""
        if node is None:
            return ""
        scalar = self._scalar(node)
        if scalar:
            return scalar
        if node.kind == "object" and (self._custom or node.props):
            return self._declare(node, file)
        if node.kind == "map" and self._empty(node):
            return self._declare(node, file)
        return _DYNAMIC if node.kind not in ("list", "map") else ""

    @staticmethod
    def _add(message: Any, number: int, name: str, of: str, label: int) -> None:
        of = _DYNAMIC if of == "dyn" else of
        field = message.field.add(name=name, number=number, label=label, json_name=f"j{number}")
        if of in _WIRE:
            field.type = _WIRE[of]
        else:
            field.type, field.type_name = _MESSAGE, f".{of}"

    def _add_map(self, message: Any, number: int, name: str, of: str) -> None:
        # protobuf wants the entry's name made of the field's, in camel case
        entry_name = "".join(part[:1].upper() + part[1:] for part in name.split("_")) + "Entry"
        entry = message.nested_type.add(name=entry_name)
        entry.options.map_entry = True
        self._add(entry, 1, "key", "string", _OPTIONAL)
        self._add(entry, 2, "value", of, _OPTIONAL)
        self._add(message, number, name, f"kproxy.{message.name}.{entry_name}", _REPEATED)


@cache
def _root_meta(node: Node) -> Node:
    found = Node("object", "ObjectMeta")
    found.props = {name: node.props[name] for name in ROOT_META}
    return found
