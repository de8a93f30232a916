"""JSON values to Kubernetes' protobuf messages: the inverse of decoder.py.

JSON is what the store holds; the message of a stored object is made once and kept with it (endpoints/negotiation.py).

A watch is a sequence of frames, each with its length before it in four bytes, big endian; a frame is a WatchEvent
without an envelope, the object in it has one (k8s.io/apimachinery pkg/runtime/serializer/protobuf and pkg/util/framer).
"""

from __future__ import annotations

import struct
from base64 import b64decode
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from functools import cache
from typing import Any, Final

import msgspec

from kproxy.apiserver.errors import Json
from kproxy.apiserver.schema.protobuf.decoder import (
    APIEXTENSIONS,
    MAGIC,
    META,
    RENAMED,
    is_inlined,
    message_name,
    messages,
)

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


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


def _schema_or(name: str, other: str) -> Encode:
    """A schema, or something else in the other field. A schema allows, so that `allows` goes with it."""
    name = APIEXTENSIONS + name

    def encode(value: Any) -> bytes:
        if not isinstance(value, dict):
            return encode_message({other: value}, name)
        return encode_message({"allows": True, "schema": value}, name)

    return encode


def _int_or_string(value: Any) -> bytes:
    kind, field = (0, 2) if isinstance(value, int) else (1, 3)
    return _writer(1, "int")(kind) + _writer(field, "int" if kind == 0 else "string")(value)


def _time(text: str) -> bytes:
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
    "IntOrString": _int_or_string,
    "JSON": lambda value: b"" if value is None else _json(value),
    "JSONSchemaPropsOrArray": _schema_or("JSONSchemaPropsOrArray", "jSONSchemas"),
    "JSONSchemaPropsOrBool": _schema_or("JSONSchemaPropsOrBool", "allows"),
    "JSONSchemaPropsOrStringArray": _schema_or("JSONSchemaPropsOrStringArray", "property"),
    "MicroTime": _time,
    "Quantity": lambda value: bytes_field(1, str(value).encode()),
    "RawExtension": _json,
    "Time": _time,
}
"""Messages that are no object in JSON, by the last part of their name: value -> bytes."""
