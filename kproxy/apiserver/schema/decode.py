"""Bodies to objects: JSON, YAML and protobuf in; typed, pruned JSON values out.

`parse_body` reads the text, `Decoder` brings a value into the form that Go's struct would have: unknown fields dropped
and remembered, `null` dropped, wrong types refused with Go's words, empty optional values left out, structs that are no
pointers filled in.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from kproxy.api.document import yaml_text
from kproxy.api.document.tree import DocumentError
from kproxy.apiserver.errors import Json, StatusError, bad_request, unsupported_media_type
from kproxy.apiserver.schema.protobuf import MEDIA_TYPE, decode_envelope
from kproxy.apiserver.schema.quantity import canonical_quantity
from kproxy.apiserver.schema.types import Node, Prop

ACCEPTED: Final = "application/json, application/yaml, application/vnd.kubernetes.protobuf"
_MAX_YAML: Final = 1 << 20
"""Bytes of a YAML document that is not JSON."""
_YAML: Final = ("application/yaml", "application/apply-patch+yaml", "text/yaml", "application/x-yaml")
_MOST_UNKNOWN: Final = 100
"""At most so many unknown fields of one body are reported, as sigs.k8s.io/json does."""
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)")


class Yaml(bytes):
    """The text of a body in YAML, which has been read: its `value`, or the `problem` why it has none."""

    value: Any = None
    problem: str = ""


def media_type(header: str) -> str:
    """`application/json` of `application/json; charset=utf-8`."""
    return header.partition(";")[0].strip().lower()


def parse_json(body: bytes) -> Any:
    """JSON text as a value.

    Raises:
        ValueError: with Go's wording where that is known.
    """
    try:
        return msgspec.json.decode(body)
    except msgspec.DecodeError as error:
        if not body.strip() or "truncated" in str(error):
            raise ValueError("unexpected end of JSON input") from error
        found = re.search(r"\(byte (\d+)\)", str(error))
        if found and int(found[1]) < len(body):
            character = body[int(found[1]) : int(found[1]) + 1].decode("latin-1")
            raise ValueError(f"invalid character '{character}' looking for beginning of value") from error
        raise ValueError("invalid JSON") from error
    except RecursionError as error:
        raise ValueError("exceeded max depth") from error


def parse_yaml(body: bytes) -> Any:
    """YAML text as a JSON value.

    Raises:
        ValueError: it is not YAML, has no JSON value, or expands to too much.
    """
    text = body if isinstance(body, Yaml) else read_yaml(body)
    if text.problem:
        raise ValueError(f"error converting YAML to JSON: {text.problem}")
    return text.value


def read_yaml(body: bytes) -> Yaml:
    """Reads YAML text, which for a megabyte takes seconds: not on the event loop."""
    text = Yaml(body)
    try:
        text.value = parse_json(body)  # most clients send JSON, which is YAML
    except ValueError:
        pass
    else:
        return text
    try:
        if len(body) > _MAX_YAML:
            raise ValueError(f"the document is too large: it may have {_MAX_YAML} bytes")
        documents = list(yaml_text.read_yaml(body.decode()))
        if len(documents) > 1:
            raise ValueError("expected a single document in the stream")
        text.value = documents[0].value if documents else None
        json.dumps(text.value, allow_nan=False)  # infinity is no JSON value
    except (DocumentError, ValueError) as error:
        text.problem = str(error).splitlines()[0]
    return text


def is_yaml(content_type: str) -> bool:
    """Whether a body of this type is read as YAML."""
    return media_type(content_type) in _YAML


def _sorted(value: Any) -> Any:
    """A value with its keys in order: Go turns YAML into JSON before it decodes it, and that sorts."""
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value)}
    return [_sorted(item) for item in value] if isinstance(value, list) else value


def parse_body(body: bytes, content_type: str, kind: str) -> Any:
    """The value of a body; of a key that stands twice in an object the last counts.

    Raises:
        StatusError: 415 for another media type, 400 for text that cannot be parsed.
    """
    media = media_type(content_type) or "application/json"
    try:
        if media == "application/json":
            return parse_json(body)
        if media in _YAML:
            return _sorted(parse_yaml(body))
        if media == MEDIA_TYPE:
            return decode_envelope(body)
    except ValueError as error:
        shown = body[:1024].decode("utf-8", "replace")
        what = f"; json parse error: {error} ({shown})" if media == "application/json" else f"; {error}"
        raise bad_request(
            f"the object provided is unrecognized (must be of type {kind}): couldn't get version/kind{what}"
        ) from error
    raise unsupported_media_type(ACCEPTED)


def unknown_fields(paths: Iterable[str]) -> list[str]:
    """What strict decoding says of fields that a type does not have."""
    return [f'unknown field "{path}"' for path in dict.fromkeys(paths)][:_MOST_UNKNOWN]


class TypeMismatchError(Exception):
    """A value that Go's decoder could not put into its struct."""


class Decoder:
    """Brings one value into typed form; `unknown` collects the paths of fields that the type does not have."""

    def __init__(self) -> None:
        self.unknown: list[str] = []

    def object(self, value: Any, node: Node, path: str = "") -> Json:
        """An object of type `node`.

        Raises:
            TypeMismatchError: a value of a wrong type somewhere in it.
        """
        if not isinstance(value, dict):
            raise TypeMismatchError(f"json: cannot unmarshal {json_kind(value)} into Go value of type v1.{node.name}")
        return self._object(value, node, path, path)

    def _object(self, value: Json, node: Node, path: str, dotted: str) -> Json:
        result: Json = {}
        props = node.props
        for key, item in value.items():
            prop = props.get(key)
            if prop is None:
                self.unknown.append(f"{path}.{key}" if path else key)
                continue
            if item is None:
                continue
            child = prop.node
            kind = child.kind
            if kind == "string":
                if type(item) is not str:
                    raise self._mismatch(item, node, dotted, key, "string")
                if item == "" and not prop.keep_empty:
                    continue
                result[key] = item
                continue
            typed = self._value(
                item, child, f"{path}.{key}" if path else key, node, f"{dotted}.{key}" if dotted else key
            )
            if not typed:
                if _omitted(typed, prop):
                    continue
                if typed == [] and child.kind == "list":
                    typed = None  # stored as protobuf, an empty list is no list: kube-apiserver gives back null
            result[key] = typed
        for key in node.always:
            if key not in result:
                result[key] = self._absent(props[key])
        return result

    def _absent(self, prop: Prop) -> Any:
        """What Go prints for a field that is always there and was not given."""
        match prop.node.kind:
            case "object":
                return self._object({}, prop.node, "", "")
            case "string":
                return prop.default or ""
            case "integer":
                return prop.default or 0
            case "boolean":
                return bool(prop.default)
        return None

    def _value(self, value: Any, node: Node, path: str, owner: Node, dotted: str) -> Any:
        match node.kind:
            case "object":
                if not isinstance(value, dict):
                    raise self._mismatch(value, owner, dotted, "", f"v1.{node.name}")
                return self._object(value, node, path, dotted)
            case "map":
                return self._map(value, node, path, owner, dotted)
            case "list":
                if not isinstance(value, list):
                    raise self._mismatch(value, owner, dotted, "", f"[]{_go_type(node.item)}")
                return self._list(value, node, path, owner, dotted)
            case "any":
                return value
            case "schemaor":
                return self._schema_or(value, node, path, owner, dotted)
        return self._scalar(value, node, owner, dotted)

    def _schema_or(self, value: Any, node: Node, path: str, owner: Node, dotted: str) -> Any:
        """A JSON schema, or what may stand in its place: a boolean, a list of schemas, a list of strings."""
        item = node.item
        assert item is not None
        if isinstance(value, dict):
            known = len(self.unknown)
            found = self._object(value, item, path, dotted)
            del self.unknown[known:]  # Go's types decode themselves here, and no strictness reaches into them
            return found
        if node.format == "boolean" and isinstance(value, bool):
            return value
        if node.format == "array" and isinstance(value, list) and all(isinstance(each, dict) for each in value):
            return [self._object(each, item, f"{path}[{index}]", dotted) for index, each in enumerate(value)]
        if node.format == "strings" and isinstance(value, list) and all(isinstance(each, str) for each in value):
            return value
        raise self._mismatch(value, owner, dotted, "", f"v1.{node.name}")

    def _list(self, value: list[Any], node: Node, path: str, owner: Node, dotted: str) -> list[Any]:
        item = node.item
        assert item is not None
        result: list[Any] = []
        for index, each in enumerate(value):
            if each is None:
                if item.kind == "object":
                    result.append(self._object({}, item, "", ""))
                elif item.kind == "string":
                    result.append("")
                elif item.kind == "any":
                    result.append(None)
                continue
            if item.kind == "object" and isinstance(each, dict):
                result.append(self._object(each, item, f"{path}[{index}]", dotted))
            else:
                result.append(self._value(each, item, f"{path}[{index}]", owner, dotted))
        return result

    def _map(self, value: Any, node: Node, path: str, owner: Node, dotted: str) -> Json:
        item = node.item
        assert item is not None
        if not isinstance(value, dict):
            raise self._mismatch(value, owner, dotted, "", f"map[string]{_go_type(item)}")
        if item.kind == "string":
            result = {}
            for key, each in value.items():
                if each is not None and type(each) is not str:
                    raise self._mismatch(each, owner, dotted, "", "string")
                result[key] = each or ""
            return result
        return {
            key: self._value(each, item, f"{path}.{key}", owner, dotted)
            for key, each in value.items()
            if each is not None
        }

    def _scalar(self, value: Any, node: Node, owner: Node, dotted: str) -> Any:
        kind = node.kind
        match kind:
            case "string":
                fits = isinstance(value, str)
            case "integer":
                fits = isinstance(value, int) and not isinstance(value, bool)
                bits = 31 if node.format == "int32" else 63
                if fits and not -(1 << bits) <= value < 1 << bits:
                    raise TypeMismatchError(
                        f"json: cannot unmarshal number {value} into Go struct field {owner.name}.{dotted} "
                        f"of type {_go_type(node)}"
                    )
            case "number":
                fits = isinstance(value, int | float) and not isinstance(value, bool)
            case "boolean":
                fits = isinstance(value, bool)
            case "intstr":
                fits = isinstance(value, int | str) and not isinstance(value, bool)
                if isinstance(value, int) and not -(1 << 31) <= value < 1 << 31:
                    raise TypeMismatchError(f"json: cannot unmarshal number {value} into Go value of type int32")
            case "quantity":
                if isinstance(value, int | float) and not isinstance(value, bool):
                    value = str(value)
                fits = isinstance(value, str)
                if fits:
                    try:
                        return canonical_quantity(value.strip())
                    except ValueError:
                        text = "'^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
                        raise TypeMismatchError(f"quantities must match the regular expression {text}") from None
            case "bytes":
                fits = isinstance(value, str)
                if fits:
                    _check_base64(value)
            case _:
                fits = isinstance(value, str)
                if fits and value and not _TIME.fullmatch(value):
                    raise TypeMismatchError(f'parsing time "{value[:64]}" as "2006-01-02T15:04:05Z07:00": cannot parse')
                if fits and not value:
                    return None
        if not fits:
            raise self._mismatch(value, owner, dotted, "", _go_type(node))
        return value

    def _mismatch(self, value: Any, owner: Node, dotted: str, key: str, wanted: str) -> TypeMismatchError:
        path = ".".join(part for part in (dotted, key) if part)
        return TypeMismatchError(
            f"json: cannot unmarshal {json_kind(value)} into Go struct field {owner.name}.{path} of type {wanted}"
        )


def _omitted(value: Any, prop: Prop) -> bool:
    """Whether an empty value is left out: omitempty of its Go type."""
    if value is None:
        return True
    if prop.keep_empty:
        return False
    kind = prop.node.kind
    if kind in ("list", "map", "bytes", "quantity"):
        return True
    return prop.omit_zero and kind in ("integer", "boolean")


def _check_base64(text: str) -> None:
    try:
        b64decode(text, validate=True)
    except ValueError as error:
        raise TypeMismatchError("illegal base64 data at input byte 0") from error


def json_kind(value: Any) -> str:
    """What Go's JSON decoder calls the kind of a value."""
    kinds = ((bool, "bool"), (int | float, "number"), (str, "string"), (list, "array"), (type(None), "null"))
    return next((kind for types, kind in kinds if isinstance(value, types)), "object")


def _go_type(node: Node | None) -> str:
    if node is None:
        return "interface {}"
    match node.kind:
        case "integer":
            return node.format or "int64"
        case "number":
            return "float64"
        case "boolean":
            return "bool"
        case "object":
            return f"v1.{node.name}"
        case "list":
            return f"[]{_go_type(node.item)}"
        case "map":
            return f"map[string]{_go_type(node.item)}"
        case "bytes":
            return "[]uint8"
        case "intstr" | "quantity" | "time" | "microtime":
            return {"intstr": "intstr.IntOrString", "quantity": "resource.Quantity"}.get(node.kind, "v1.Time")
    return "string"


class DecodeError(StatusError):
    """400 for a body that does not fit its kind. `problem` says why."""

    def __init__(self, kind: str, version: str, problem: str, *, expected: str = "") -> None:
        self.problem = problem
        message = f'{kind} in version "{version}" cannot be handled as a {expected or kind}: {problem}'
        super().__init__(400, "BadRequest", message)
