"""JSON values to Kubernetes' protobuf answers.

Go clients that offer protobuf offer JSON beside it (client-go, rest.Request: `application/vnd.kubernetes.protobuf,
application/json`, or `, */*` when only a content type is configured, as kube-proxy's clientConnection does), and JSON
is what the store holds; so protobuf is only sent to those who accept nothing else. The messages are those of
protobuf.py, and what that module decodes to a value is what this one makes of the value.

A watch is a sequence of frames, each with its length before it in four bytes, big endian; a frame is a WatchEvent
without an envelope, the object in it has one (k8s.io/apimachinery pkg/runtime/serializer/protobuf and pkg/util/framer).
"""

from __future__ import annotations

import struct
from base64 import b64decode
from datetime import UTC, datetime
from functools import cache
from typing import Any, Final

import msgspec

from kproxy.apiserver.protobuf import INLINED, MAGIC, META, RENAMED, message_name, messages
from kproxy.apiserver.status import Json

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def has_message(api_version: str, kind: str) -> bool:
    """Whether a kind can be sent in protobuf: custom resources and their definitions cannot."""
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
    type_meta = _bytes(1, api_version.encode()) + _bytes(2, kind.encode())
    return MAGIC + _bytes(1, type_meta) + _bytes(2, encode_message(value, name)) + _bytes(3, b"") + _bytes(4, b"")


def encode_watch_line(line: bytes) -> bytes:
    """One line of a JSON watch as a frame."""
    event: Json = msgspec.json.decode(line)
    data = _bytes(1, event["type"].encode()) + _bytes(2, _bytes(1, encode_envelope(event["object"])))
    return struct.pack(">I", len(data)) + data


@cache
def _fields_of(name: str) -> tuple[dict[str, tuple[int, str, str]], tuple[tuple[int, str], ...]]:
    """JSON name -> (number, shape, type) of a message, and the messages that JSON has inlined in it."""
    named: dict[str, tuple[int, str, str]] = {}
    inlined: list[tuple[int, str]] = []
    for number, (field, shape, kind) in messages()[name].items():
        if field in INLINED:
            inlined.append((int(number), kind))
        else:
            named[RENAMED.get(field, field)] = (int(number), shape, kind)
    return named, tuple(inlined)


def encode_message(value: Json, name: str) -> bytes:
    """A JSON object as one message; fields that the message does not have are left out."""
    named, inlined = _fields_of(name)
    parts = []
    for field, item in value.items():
        entry = named.get(field)
        if entry is None or item is None:
            continue
        number, shape, kind = entry
        if shape == "one":
            parts.append(_field(number, item, kind))
        elif shape == "list":
            parts += [_field(number, each, kind) for each in item]
        else:
            parts += [
                _bytes(number, _bytes(1, key.encode()) + (_field(2, each, kind) if each is not None else b""))
                for key, each in item.items()
            ]
    for number, kind in inlined:
        inner = encode_message(value, kind)
        if inner:
            parts.append(_bytes(number, inner))
    return b"".join(parts)


def _field(number: int, value: Any, kind: str) -> bytes:
    match kind:
        case "string":
            return _bytes(number, value.encode())
        case "int":
            return _varint(number << 3) + _varint(value & 0xFFFFFFFFFFFFFFFF)
        case "bool":
            return _varint(number << 3) + (b"\x01" if value else b"\x00")
        case "bytes":
            return _bytes(number, b64decode(value))
        case "double":
            return _varint(number << 3 | 1) + struct.pack("<d", value)
    return _bytes(number, _message(value, kind))


def _message(value: Any, kind: str) -> bytes:
    """The message of a value that JSON writes as an object, or as a scalar that stands for one."""
    short = kind.rpartition(".")[2]
    if kind.startswith(META) and short in ("Time", "MicroTime"):
        return _time(value)
    if kind == META + "FieldsV1" or kind.endswith("runtime.RawExtension"):
        return _bytes(1, msgspec.json.encode(value))
    if kind.endswith("resource.Quantity"):
        return _bytes(1, str(value).encode())
    if kind.endswith("intstr.IntOrString"):
        if isinstance(value, int):
            return _field(1, 0, "int") + _field(2, value, "int")
        return _field(1, 1, "int") + _field(3, value, "string")
    if short == "ExtraValue":
        return b"".join(_field(1, each, "string") for each in value)
    return encode_message(value, kind)


def _time(text: str) -> bytes:
    """Seconds and nanoseconds since 1970. metav1.Time sends whole seconds only, which is all that its JSON has."""
    moment = datetime.fromisoformat(text) - _EPOCH
    seconds = moment.days * 86400 + moment.seconds
    return _field(1, seconds, "int") + _field(2, moment.microseconds * 1000, "int")


def _varint(number: int) -> bytes:
    if number < 0x80:
        return bytes((number,))
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _bytes(number: int, data: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(data)) + data
