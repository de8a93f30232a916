"""A custom resource's JSON as CEL sees it: by the schema's types, with the names that expressions can write.

Source: k8s.io/apiextensions-apiserver pkg/apiserver/schema/cel/values.go. A number is a double also where JSON has no
point, a date-time is a timestamp, and what the schema does not name is not there.
"""

from __future__ import annotations

import base64
import binascii
import re
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, Final

from kproxy.apiserver.cel import library
from kproxy.apiserver.cel.declarations import ROOT_META, escape
from kproxy.apiserver.schema.types import Node

_LONGEST_MESSAGE: Final = 5 * 1024
_UNITS: Final = {"ns": 1, "us": 10**3, "µs": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9}


@cache
def _messages() -> tuple[Any, Any]:
    return library.protobuf("duration_pb2").Duration, library.protobuf("timestamp_pb2").Timestamp


def cel_value(value: Any, node: Node | None) -> Any:
    """A value of a type, as an expression is to get it. What does not fit the schema stays as it is: the schema's own
    validation tells of that."""
    if value is None or node is None:
        return value
    if isinstance(value, dict):
        if node.props or node.kind == "object":
            return _object(value, node)
        return {key: cel_value(item, node.item) for key, item in value.items()}
    if isinstance(value, list):
        return [cel_value(item, node.item) for item in value]
    if node.kind == "number" and not isinstance(value, bool) and isinstance(value, int):
        return float(value)
    if node.kind == "string" and isinstance(value, str):
        return _formatted(value, node.schema.get("format", ""))
    return value


def _object(value: dict[str, Any], node: Node) -> dict[str, Any]:
    found = {}
    for name, prop in node.props.items():
        if name not in value:
            continue
        item = value[name]
        if prop.node.name == "ObjectMeta" and isinstance(item, dict):
            found[name] = {key: item[key] for key in ROOT_META if key in item}
        elif (escaped := escape(name)) is not None:
            found[escaped] = cel_value(item, prop.node)
    return found


def given_back(value: Any) -> Any:
    """The result of one expression as another can take it: times inside other values come as protobuf's messages."""
    if isinstance(value, dict):
        return {key: given_back(item) for key, item in value.items()}
    if isinstance(value, list):
        return [given_back(item) for item in value]
    duration, timestamp = _messages()
    if isinstance(value, timedelta):
        made = duration()
        made.FromTimedelta(value)
        return made
    if isinstance(value, datetime):
        made = timestamp()
        made.FromDatetime(value)
        return made
    return value


def message_of(result: Any) -> str:
    """What a messageExpression gave, if it may be a message: one line that is not too long; else ""."""
    text = result.strip() if isinstance(result, str) else ""
    return text if len(text) <= _LONGEST_MESSAGE and "\n" not in text else ""


def _formatted(text: str, form: str) -> Any:
    duration, timestamp = _messages()
    try:
        if form in ("date", "date-time"):
            moment = datetime.fromisoformat(text if form == "date-time" else f"{text}T00:00:00Z").astimezone(UTC)
            made = timestamp()
            made.FromDatetime(moment)
            return made
        if form == "duration":
            nanos = sum(int(float(n) * _UNITS[u]) for n, u in re.findall(r"([\d.]+)(ns|us|µs|ms|s|m|h)", text))
            return duration(seconds=nanos // 10**9, nanos=nanos % 10**9)
        if form == "byte":
            return base64.b64decode(text)
    except (ValueError, binascii.Error):
        pass
    return text
