"""Kubernetes' protobuf bodies to JSON values, and back.

Clients written in Go send built-in kinds as `application/vnd.kubernetes.protobuf`, and ask for it. JSON is what the
store holds; the message of a stored object is made once and kept with it (endpoints/negotiation.py).
data/protobuf.json holds the field numbers of the messages, taken from the descriptors that kubectl v1.33 registers for
k8s.io/api and k8s.io/apimachinery (generated.proto), with some fields of later releases, and from the generated.proto
of k8s.io/apiextensions-apiserver; numbers never change between releases. docs/limits.md lists the fields that are
missing.

An envelope is `k8s\\0` and a runtime.Unknown message. Fields without an entry are skipped, as protobuf demands. A watch
is a sequence of frames, each with its length before it in four bytes, big endian; a frame is a WatchEvent without an
envelope, the object in it has one (k8s.io/apimachinery pkg/runtime/serializer/protobuf and pkg/util/framer).
"""

from __future__ import annotations

import struct
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib import resources
from typing import Any, Final

import msgspec

from kproxy.apiserver.errors import Json

MEDIA_TYPE: Final = "application/vnd.kubernetes.protobuf"
MAGIC: Final = b"k8s\x00"
META: Final = "k8s.io.apimachinery.pkg.apis.meta.v1."
APIEXTENSIONS: Final = "k8s.io.apiextensions_apiserver.pkg.apis.apiextensions.v1."
_INLINED: Final = frozenset(
    {
        "localObjectReference",
        "handler",
        "volumeSource",
        "ephemeralContainerCommon",
        "persistentVolumeSource",
        "ingressRuleValue",
        "rule",
        "ruleWithOperations",
        "deviceConfiguration",
    }
)
"""Go structs embedded without a JSON name: messages in protobuf, nothing in JSON."""
RENAMED: Final = {"uID": "uid"}
_PACKAGES: Final = {
    "": "k8s.io.api.core", "discovery.k8s.io": "k8s.io.api.discovery", "coordination.k8s.io": "k8s.io.api.coordination",
    "networking.k8s.io": "k8s.io.api.networking", "events.k8s.io": "k8s.io.api.events",
    "rbac.authorization.k8s.io": "k8s.io.api.rbac", "authentication.k8s.io": "k8s.io.api.authentication",
    "authorization.k8s.io": "k8s.io.api.authorization",
    "storage.k8s.io": "k8s.io.api.storage", "node.k8s.io": "k8s.io.api.node",
    "resource.k8s.io": "k8s.io.api.resource", "scheduling.k8s.io": "k8s.io.api.scheduling",
    "certificates.k8s.io": "k8s.io.api.certificates",
    "admissionregistration.k8s.io": "k8s.io.api.admissionregistration",
    "flowcontrol.apiserver.k8s.io": "k8s.io.api.flowcontrol",
    "apiregistration.k8s.io": "k8s.io.kube_aggregator.pkg.apis.apiregistration",
    "apiextensions.k8s.io": "k8s.io.apiextensions_apiserver.pkg.apis.apiextensions",
}  # fmt: skip
"""The protobuf package of a group without its version, where it is not k8s.io.api and the group's name."""
_DEEPEST: Final = 120
"""Messages inside messages: each level of a CustomResourceDefinition's schema takes one or two."""
_EXPONENT: Final = 1e21
"""From here on Go prints a float64 with an exponent; below, a whole number has no fraction."""
_ZERO_TIME: Final = -62135596800
"""Go's zero time, the first second of year 1."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

Fields = dict[str, tuple[str, str, str]]


def is_inlined(field: str, kind: str) -> bool:
    """Whether a field of this type is a struct that JSON inlines; a RuntimeClass has a `handler` that is text."""
    return field in _INLINED and "." in kind


@cache
def messages() -> dict[str, Fields]:
    """Field number -> (JSON name, one/list/map, type) of every message."""
    text = (resources.files("kproxy.apiserver") / "data" / "protobuf.json").read_bytes()
    return msgspec.json.decode(text, type=dict[str, Fields])


def decode_envelope(body: bytes) -> Json:
    """The object in a runtime.Unknown envelope, with apiVersion and kind.

    Raises:
        ValueError: it is not such an envelope, its bytes are broken, or its kind is not known here.
    """
    if not body.startswith(MAGIC):
        raise ValueError("expected prefix k8s of a protobuf body")
    api_version = kind = ""
    raw = b""
    for number, value in wire_fields(body[4:]):
        if number == 1 and isinstance(value, bytes):
            for inner, text in wire_fields(value):
                if isinstance(text, bytes):
                    api_version, kind = (_text(text), kind) if inner == 1 else (api_version, _text(text))
        elif number == 2 and isinstance(value, bytes):
            raw = value
    message = message_name(api_version, kind)
    if message not in messages():
        raise ValueError(f'no protobuf message for {kind or "an object without kind"} in version "{api_version}"')
    return {"apiVersion": api_version, "kind": kind, **decode_message(raw, message)}


def message_name(api_version: str, kind: str) -> str:
    """The message of a kind: `k8s.io.api.core.v1.Service`."""
    group, _, version = api_version.rpartition("/")
    if kind in ("DeleteOptions", "Status") or api_version == "meta.k8s.io/v1":
        return META + kind
    return f"{_PACKAGES.get(group, f'k8s.io.api.{group}')}.{version}.{kind}"


def decode_message(data: bytes, name: str, depth: int = 0) -> Json:
    """One message as a JSON object.

    Raises:
        ValueError: broken bytes.
    """
    if depth > _DEEPEST:
        raise ValueError("protobuf: messages nested too deeply")
    known = messages()[name]
    result: Json = {}
    for number, value in wire_fields(data):
        entry = known.get(str(number))
        if entry is None:
            continue
        field, shape, kind = entry
        if shape == "map":
            result.setdefault(field, {}).update(_map_entry(value, kind, depth))
            continue
        decoded = _value(value, kind, depth)
        if is_inlined(field, kind):
            result.update(decoded)
            continue
        field = RENAMED.get(field, field)
        if shape == "list":
            result.setdefault(field, []).append(decoded)
        elif decoded is not None:
            result[field] = decoded
    return result


def _map_entry(value: int | bytes, kind: str, depth: int) -> Json:
    key: Any = ""
    item: int | bytes = 0 if kind in ("int", "bool") else b""
    for number, part in wire_fields(_bytes(value)):
        if number == 1:
            key = _text(_bytes(part))
        elif number == 2:
            item = part
    return {key: _value(item, kind, depth)}


def _value(value: int | bytes, kind: str, depth: int) -> Any:
    match kind:
        case "string":
            return _text(_bytes(value))
        case "int":
            number = _int(value)
            return number - (1 << 64) if number >= 1 << 63 else number
        case "bool":
            return bool(_int(value))
        case "bytes":
            return b64encode(_bytes(value)).decode()
        case "double":
            found: float = struct.unpack("<d", _bytes(value))[0]
            return int(found) if found.is_integer() and abs(found) < _EXPONENT else found
    shape = _SHAPES.get(kind.rpartition(".")[2])
    return decode_message(_bytes(value), kind, depth + 1) if shape is None else shape(_bytes(value), depth)


def _raw(data: bytes, nothing: Any) -> Any:
    """A field of JSON inside protobuf."""
    raw = next((_bytes(value) for number, value in wire_fields(data) if number == 1), b"")
    return msgspec.json.decode(raw) if raw else nothing


def _quantity(data: bytes, _depth: int) -> str:
    return next((_text(_bytes(value)) for number, value in wire_fields(data) if number == 1), "0")


def _int_or_string(data: bytes, depth: int) -> Any:
    found = dict(wire_fields(data))
    if found.get(1):
        return _text(_bytes(found.get(3, b"")))
    return _value(found.get(2, 0), "int", depth)


def _schema_or(data: bytes, name: str, depth: int) -> Any:
    """A JSON schema (`schema`), or what the message's other field holds instead of one."""
    found = decode_message(data, APIEXTENSIONS + name, depth + 1)
    if "schema" in found and not found.get("jSONSchemas"):
        return found["schema"]
    found.pop("schema", None)
    return next(iter(found.values()), False if name.endswith("OrBool") else None)


def _time(data: bytes, micro: bool) -> str | None:
    parts = {number: _int(value) for number, value in wire_fields(data)}
    return _timestamp(parts.get(1, 0), parts.get(2, 0), micro) if parts else None


_SHAPES: Final[dict[str, Callable[[bytes, int], Any]]] = {
    "ExtraValue": lambda data, _: [_text(_bytes(value)) for number, value in wire_fields(data) if number == 1],
    "FieldsV1": lambda data, _: _raw(data, {}),
    "IntOrString": _int_or_string,
    "JSON": lambda data, _: _raw(data, None),
    "JSONSchemaPropsOrArray": lambda data, depth: _schema_or(data, "JSONSchemaPropsOrArray", depth),
    "JSONSchemaPropsOrBool": lambda data, depth: _schema_or(data, "JSONSchemaPropsOrBool", depth),
    "JSONSchemaPropsOrStringArray": lambda data, depth: _schema_or(data, "JSONSchemaPropsOrStringArray", depth),
    "MicroTime": lambda data, _: _time(data, True),
    "Quantity": _quantity,
    "RawExtension": lambda data, _: _raw(data, None),
    "Time": lambda data, _: _time(data, False),
}
"""Messages that are no object in JSON, by the last part of their name: bytes and depth -> value."""


def _timestamp(seconds: int, nanos: int, micro: bool) -> str | None:
    seconds -= (seconds >> 63) << 64
    if seconds == _ZERO_TIME:
        return None
    try:
        moment = datetime(1970, 1, 1) + timedelta(seconds=seconds)
    except OverflowError as error:
        raise ValueError("protobuf: a time out of range") from error
    return f"{moment.isoformat()}.{nanos // 1000:06}Z" if micro else f"{moment.isoformat()}Z"


def _text(data: bytes) -> str:
    return data.decode("utf-8")


def _bytes(value: int | bytes) -> bytes:
    if not isinstance(value, bytes):
        raise ValueError("protobuf: a number where bytes belong")
    return value


def _int(value: int | bytes) -> int:
    if not isinstance(value, int):
        raise ValueError("protobuf: bytes where a number belongs")
    return value


def wire_fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Field number and value: varints as int, everything else as bytes."""
    position, end = 0, len(data)
    while position < end:
        tag, position = _varint(data, position)
        match tag & 7:
            case 0:
                value, position = _varint(data, position)
                yield tag >> 3, value
                continue
            case 1:
                length = 8
            case 2:
                length, position = _varint(data, position)
            case 5:
                length = 4
            case wire:
                raise ValueError(f"protobuf: illegal wireType {wire}")
        if position + length > end:
            raise ValueError("protobuf: unexpected EOF")
        yield tag >> 3, data[position : position + length]
        position += length


def _varint(data: bytes, position: int) -> tuple[int, int]:
    result = shift = 0
    while True:
        if position >= len(data):
            raise ValueError("protobuf: unexpected EOF")
        byte = data[position]
        position += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result, position
        shift += 7
        if shift > 63:
            raise ValueError("protobuf: integer overflow")


# --- JSON to messages ---


def has_message(api_version: str, kind: str) -> bool:
    """Whether a kind can be sent in protobuf: custom resources cannot."""
    return message_name(api_version, kind) in messages()


def encode_envelope(value: Json) -> bytes:
    """An object with kind and apiVersion as `k8s\\0` and runtime.Unknown.

    Raises:
        ValueError: there is no message for its kind.
    """
    api_version, kind = value.get("apiVersion", ""), value.get("kind", "")
    name = message_name(api_version, kind)
    if name not in messages():
        raise ValueError(f"no protobuf message for {kind} in version {api_version}")
    return envelope(api_version, kind, encode_message(value, name))


def envelope(api_version: str, kind: str, message: bytes) -> bytes:
    """A message in a runtime.Unknown."""
    type_meta = bytes_field(1, api_version.encode()) + bytes_field(2, kind.encode())
    return MAGIC + bytes_field(1, type_meta) + bytes_field(2, message) + bytes_field(3, b"") + bytes_field(4, b"")


def list_message(metadata: Json, items: Iterable[bytes]) -> bytes:
    """The message of a list, of any kind, from those of its items."""
    head = bytes_field(1, encode_message(metadata, META + "ListMeta"))
    return b"".join((head, *(bytes_field(2, each) for each in items)))


def watch_frame(kind: str, enveloped: bytes) -> bytes:
    """One event of a watch: ADDED and the like, and the object in its envelope."""
    data = bytes_field(1, kind.encode()) + bytes_field(2, bytes_field(1, enveloped))
    return struct.pack(">I", len(data)) + data


Encode = Callable[[Any], bytes]


@cache
def _writers(name: str) -> tuple[dict[str, tuple[Encode, str]], tuple[tuple[int, str], ...]]:
    """JSON name -> what writes one value of a field, and its shape; and the messages that JSON has inlined."""
    named: dict[str, tuple[Encode, str]] = {}
    inlined: list[tuple[int, str]] = []
    for number, (field, shape, kind) in messages()[name].items():
        if is_inlined(field, kind):
            inlined.append((int(number), kind))
        else:
            write = _map_writer(int(number), _writer(2, kind)) if shape == "map" else _writer(int(number), kind)
            named[RENAMED.get(field, field)] = (write, shape)
    return named, tuple(inlined)


def encode_message(value: Json, name: str) -> bytes:
    """A JSON object as one message; fields that the message does not have are left out."""
    named, inlined = _writers(name)
    parts = []
    for field, item in value.items():
        entry = named.get(field)
        if entry is None or item is None:
            continue
        write, shape = entry
        if shape == "one":
            parts.append(write(item))
        elif shape == "list":
            parts += map(write, item)
        else:
            parts += map(write, item.items())
    for number, kind in inlined:
        inner = encode_message(value, kind)
        if inner:
            parts.append(bytes_field(number, inner))
    return b"".join(parts)


def _map_writer(number: int, write: Encode) -> Encode:
    return lambda pair: bytes_field(
        number, bytes_field(1, pair[0].encode()) + (write(pair[1]) if pair[1] is not None else b"")
    )


@cache
def _writer(number: int, kind: str) -> Encode:
    """What writes one value of a type: the field's tag and the value."""
    tag = varint(number << 3 | {"int": 0, "bool": 0, "double": 1}.get(kind, 2))
    if kind in _SCALARS:
        scalar = _SCALARS[kind]
        return lambda value: tag + scalar(value)
    body = _BYTES.get(kind.rpartition(".")[2])
    if body is None:
        return lambda value: tag + _sized(encode_message(value, kind))
    return lambda value: tag + _sized(body(value))


def _write_schema_or(name: str, other: str) -> Encode:
    """A schema, or something else in the other field. A schema allows, so that `allows` goes with it."""
    name = APIEXTENSIONS + name

    def encode(value: Any) -> bytes:
        if not isinstance(value, dict):
            return encode_message({other: value}, name)
        return encode_message({"allows": True, "schema": value}, name)

    return encode


def _write_int_or_string(value: Any) -> bytes:
    kind, field = (0, 2) if isinstance(value, int) else (1, 3)
    return _writer(1, "int")(kind) + _writer(field, "int" if kind == 0 else "string")(value)


def _write_time(text: str) -> bytes:
    """Seconds and nanoseconds since 1970. metav1.Time sends whole seconds only, which is all that its JSON has."""
    moment = datetime.fromisoformat(text) - _EPOCH
    seconds = moment.days * 86400 + moment.seconds
    return _writer(1, "int")(seconds) + _writer(2, "int")(moment.microseconds * 1000)


def _json(value: Any) -> bytes:
    return bytes_field(1, msgspec.json.encode(value))


def varint(number: int) -> bytes:
    """A number in protobuf's variable length."""
    if number < 0x80:
        return bytes((number,))
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _sized(data: bytes) -> bytes:
    return varint(len(data)) + data


def bytes_field(number: int, data: bytes) -> bytes:
    """A field of bytes, text or a message."""
    return varint(number << 3 | 2) + _sized(data)


_SCALARS: Final[dict[str, Encode]] = {
    "string": lambda value: _sized(value.encode()),
    "int": lambda value: varint(value & 0xFFFFFFFFFFFFFFFF),
    "bool": lambda value: b"\x01" if value else b"\x00",
    "bytes": lambda value: _sized(b64decode(value)),
    "double": lambda value: struct.pack("<d", value),
}
_BYTES: Final[dict[str, Encode]] = {
    "ExtraValue": lambda value: b"".join(map(_writer(1, "string"), value)),
    "FieldsV1": _json,
    "IntOrString": _write_int_or_string,
    "JSON": lambda value: b"" if value is None else _json(value),
    "JSONSchemaPropsOrArray": _write_schema_or("JSONSchemaPropsOrArray", "jSONSchemas"),
    "JSONSchemaPropsOrBool": _write_schema_or("JSONSchemaPropsOrBool", "allows"),
    "JSONSchemaPropsOrStringArray": _write_schema_or("JSONSchemaPropsOrStringArray", "property"),
    "MicroTime": _write_time,
    "Quantity": lambda value: bytes_field(1, str(value).encode()),
    "RawExtension": _json,
    "Time": _write_time,
}
"""Messages that are no object in JSON, by the last part of their name: value -> bytes."""
