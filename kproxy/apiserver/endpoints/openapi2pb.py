"""OpenAPI v2 in protobuf, which kubectl before v1.27 asks for: gnostic's openapi.v2.Document.

Field numbers are those of the descriptor (openapiv2/OpenAPIv2.proto) that kubectl v1.33 carries. Only what a
Kubernetes document uses is written.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import yaml

from kproxy.apiserver.errors import Json
from kproxy.apiserver.schema.protobuf import bytes_field, varint


def _text(number: int, text: Any) -> bytes:
    return bytes_field(number, str(text).encode()) if text else b""


def _flag(number: int, value: Any) -> bytes:
    return varint(number << 3) + b"\x01" if value else b""


def _named(number: int, pairs: Iterable[tuple[str, bytes]]) -> bytes:
    return b"".join(bytes_field(number, _text(1, name) + bytes_field(2, value)) for name, value in pairs)


def _any(value: Any) -> bytes:
    """An Any: gnostic keeps such values as YAML text."""
    return _text(2, yaml.safe_dump(value, default_flow_style=None) if value != "" else '""\n')


def _extensions(number: int, item: Json) -> bytes:
    return _named(number, ((key, _any(value)) for key, value in item.items() if key.startswith("x-")))


def encode_document(document: Json) -> bytes:
    """A document as bytes."""
    info = document["info"]
    paths = _named(2, ((path, _path_item(item)) for path, item in document["paths"].items()))
    definitions = _named(1, ((name, _schema(schema)) for name, schema in document["definitions"].items()))
    return b"".join(
        (
            _text(1, document["swagger"]),
            bytes_field(2, _text(1, info["title"]) + _text(2, info["version"])),
            bytes_field(8, paths),
            bytes_field(9, definitions),
        )
    )


def _path_item(item: Json) -> bytes:
    numbers = {"get": 2, "post": 4, "patch": 8}
    parts = [bytes_field(number, _operation(item[method])) for method, number in numbers.items() if method in item]
    parts += [bytes_field(9, bytes_field(1, _parameter(each))) for each in item.get("parameters", ())]
    return b"".join(parts)


def _operation(operation: Json) -> bytes:
    parts = [_text(5, operation.get("operationId"))]
    parts += [_text(6, each) for each in operation.get("produces", ())]
    parts += [_text(7, each) for each in operation.get("consumes", ())]
    parts += [bytes_field(8, bytes_field(1, _parameter(each))) for each in operation.get("parameters", ())]
    answers = []
    for code, response in operation["responses"].items():
        text = _text(1, response["description"])
        if "schema" in response:
            text += bytes_field(2, bytes_field(1, _schema(response["schema"])))
        answers.append((code, bytes_field(1, text)))
    parts += [bytes_field(9, _named(1, answers)), _extensions(13, operation)]
    return b"".join(parts)


def _parameter(parameter: Json) -> bytes:
    if parameter["in"] == "body":
        body = _text(2, parameter["name"]) + _text(3, "body") + _flag(4, parameter.get("required"))
        return bytes_field(1, body + bytes_field(5, _schema(parameter["schema"])))
    query = parameter["in"] == "query"
    inner = (
        _flag(1, parameter.get("required"))
        + _text(2, parameter["in"])
        + _text(4, parameter["name"])
        + _text(6 if query else 5, parameter["type"])
    )
    return bytes_field(2, bytes_field(3 if query else 4, inner))


def _schema(schema: Json) -> bytes:
    parts = [
        _text(1, schema.get("$ref")),
        _text(2, schema.get("format")),
        _text(4, schema.get("description")),
        *(_text(19, name) for name in schema.get("required", ())),
        *(bytes_field(20, _any(value)) for value in schema.get("enum", ())),
    ]
    if "default" in schema:
        parts.append(bytes_field(5, _any(schema["default"])))
    additional = schema.get("additionalProperties")
    if isinstance(additional, dict):
        parts.append(bytes_field(21, bytes_field(1, _schema(additional))))
    elif additional:
        parts.append(bytes_field(21, _flag(2, True)))
    if schema.get("type"):
        parts.append(bytes_field(22, _text(1, schema["type"])))
    if isinstance(schema.get("items"), dict):
        parts.append(bytes_field(23, bytes_field(1, _schema(schema["items"]))))
    parts += [bytes_field(24, _schema(each)) for each in schema.get("allOf", ()) if isinstance(each, dict)]
    if "properties" in schema:
        parts.append(bytes_field(25, _named(1, ((name, _schema(each)) for name, each in schema["properties"].items()))))
    parts.append(_extensions(31, schema))
    return b"".join(parts)
