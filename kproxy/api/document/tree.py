"""Configuration text as a tree that remembers where each value stands and which keys came twice.

kube-proxy turns YAML into JSON before it decodes, with a parser of YAML 1.1: a bare `off` is a boolean, a bare `0x1F`
a number, a bare date stays text. `parse_yaml` resolves scalars the same way; PyYAML's own resolver would make numbers
of text in base 60 (`10:30`) and objects of dates. A later key replaces an earlier one of the same name, and
`Node.duplicates` tells. `parse_json` reads JSON as JSON; it knows no lines.

PyYAML supplies the events, and the tree is built from them without recursion, so that neither deep nesting nor an alias
inside its own anchor can exhaust the stack. An alias shares the node it names, so a chain of aliases takes no space.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final, NoReturn

import msgspec
import yaml

from kproxy.errors import InputError

MAX_DEPTH: Final = 100

_WORDS: Final[dict[str, bool | float | None]] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"), True),
    **dict.fromkeys(("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"), False),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), float("nan")),
    **{sign + word: float(sign + "inf") for sign in ("", "+", "-") for word in (".inf", ".Inf", ".INF")},
}
_INTEGER: Final = re.compile(r"(?P<sign>[-+]?)(?:0[xX](?P<hex>[0-9a-fA-F]+)|0[bB](?P<bin>[01]+)|0[oO]?(?P<oct>[0-7]+))")
_DECIMAL: Final = re.compile(r"[-+]?(?:0|[1-9][0-9]*)")
_FLOAT: Final = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_TAG: Final = "tag:yaml.org,2002:"
_LOADER: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class TextError(InputError):
    """Text that is not YAML or JSON; `line` and `column` count from 1 (0: unknown)."""

    def __init__(self, message: str, line: int = 0, column: int = 0) -> None:
        super().__init__(message)
        self.line = line
        self.column = column


class Node(msgspec.Struct, frozen=True):
    """One value. `plain` is the text of a YAML scalar that stands without quotes; `line` counts from 1 (0: unknown).

    `duplicates` are the keys of a mapping that came more than once, each with the line of the later one.
    """

    value: bool | int | float | str | dict[str, Node] | list[Node] | None
    line: int = 0
    plain: str | None = None
    duplicates: tuple[tuple[str, int], ...] = ()


class _Frame:
    """A mapping or sequence that is being read: in a mapping, `children` holds keys and values in turn."""

    def __init__(self, mapping: bool, anchor: str | None, line: int) -> None:
        self.mapping = mapping
        self.anchor = anchor
        self.line = line
        self.children: list[Node] = []


def parse_yaml(text: str) -> list[Node]:
    """The documents of a YAML stream, without those that hold nothing; TextError when it is not YAML."""
    documents: list[Node] = []
    stack: list[_Frame] = []
    anchors: dict[str, Node | None] = {}
    for event in _events(text):
        line, column = event.start_mark.line + 1, event.start_mark.column + 1
        if isinstance(event, yaml.DocumentStartEvent):
            anchors = {}
        elif isinstance(event, yaml.CollectionStartEvent):
            if len(stack) == MAX_DEPTH:
                raise TextError(f"more than {MAX_DEPTH} values nested in one another", line, column)
            stack.append(_Frame(isinstance(event, yaml.MappingStartEvent), event.anchor, line))
            if event.anchor:
                anchors[event.anchor] = None
        elif isinstance(event, yaml.AliasEvent | yaml.ScalarEvent | yaml.CollectionEndEvent):
            if isinstance(event, yaml.AliasEvent):
                node = _alias(event, anchors)
            elif isinstance(event, yaml.ScalarEvent):
                node = _scalar(event)
                if event.anchor:
                    anchors[event.anchor] = node
            else:
                frame = stack.pop()
                node = _mapping(frame) if frame.mapping else Node(frame.children, frame.line)
                if frame.anchor:
                    anchors[frame.anchor] = node
            if stack:
                stack[-1].children.append(node)
            elif node.value is not None:
                documents.append(node)
    return documents


def _events(text: str) -> Iterator[Any]:
    """PyYAML's events, its errors turned into TextError."""
    try:
        yield from yaml.parse(text, Loader=_LOADER)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        message = ", ".join(part for part in (error.context, error.problem) if part)
        raise TextError(message, mark.line + 1 if mark else 0, mark.column + 1 if mark else 0) from error
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1 if isinstance(error.position, int) else 0
        raise TextError(f"{error.reason}: character {error.character!r}", line) from error
    except yaml.YAMLError as error:
        raise TextError(str(error)) from error


def _alias(event: Any, anchors: dict[str, Node | None]) -> Node:
    line, column = event.start_mark.line + 1, event.start_mark.column + 1
    if event.anchor not in anchors:
        raise TextError(f"unknown anchor {event.anchor!r}", line, column)
    node = anchors[event.anchor]
    if node is None:
        raise TextError(f"anchor {event.anchor!r} contains itself", line, column)
    return Node(node.value, line, node.plain, node.duplicates)


def _scalar(event: Any) -> Node:
    line = event.start_mark.line + 1
    text: str = event.value
    plain_untagged, quoted_untagged = event.implicit
    if plain_untagged and not event.style:
        return Node(_resolve(text), line, text)
    if quoted_untagged or event.tag in (None, "!", _TAG + "str"):
        return Node(text, line)
    if event.tag in (_TAG + "int", _TAG + "float", _TAG + "bool", _TAG + "null"):
        return Node(_resolve(text), line, text)
    return Node(text, line)


def _resolve(text: str) -> bool | int | float | str | None:
    """What a bare scalar means."""
    if text in _WORDS:
        return _WORDS[text]
    digits = text.replace("_", "")
    if not digits or digits[0] not in "+-.0123456789":
        return text
    if _DECIMAL.fullmatch(digits):
        # Beyond 64 bits kube-proxy's parser falls back to floating point; Python would not convert thousands of digits.
        return int(digits) if len(digits) <= 20 else float(digits)
    match = _INTEGER.fullmatch(digits)
    if match:
        for group, base in (("hex", 16), ("bin", 2), ("oct", 8)):
            if match[group] and len(match[group]) <= 64:
                return int(match["sign"] + match[group], base)
    if _FLOAT.fullmatch(digits):
        return float(digits)
    return text


def _mapping(frame: _Frame) -> Node:
    """A mapping from its keys and values in turn, merge keys (`<<`) included."""
    entries: dict[str, Node] = {}
    merged: list[Node] = []
    duplicates = []
    for key, value in zip(frame.children[::2], frame.children[1::2], strict=True):
        if isinstance(key.value, dict | list) or key.value is None:
            raise TextError("a key must be text", key.line)
        if key.plain == "<<":
            merged.extend(value.value if isinstance(value.value, list) else [value])
            continue
        name = key.plain if key.plain is not None else str(key.value)
        if name in entries:
            duplicates.append((name, key.line))
        entries[name] = Node(value.value, key.line, value.plain, value.duplicates)
    for node in merged:
        if not isinstance(node.value, dict):
            raise TextError("a merge key (<<) wants a mapping or a list of mappings", node.line)
        entries = {**node.value, **entries}
    return Node(entries, frame.line, None, tuple(duplicates))


class _Pairs(list[tuple[str, Any]]):
    """A JSON object as it stands, repeated keys included."""


def parse_json(text: str) -> Node:
    """The one JSON value that `text` holds; TextError when it holds none, or more."""
    try:
        return _from_json(json.loads(text, object_pairs_hook=_Pairs, parse_constant=_no_constant, parse_int=_integer))
    except json.JSONDecodeError as error:
        raise TextError(error.msg, error.lineno, error.colno) from error
    except RecursionError as error:
        raise TextError("values are nested too deeply in one another") from error


def _no_constant(name: str) -> NoReturn:
    raise TextError(f"{name} is not a JSON value")


def _integer(digits: str) -> int | float:
    return int(digits) if len(digits) <= 20 else float(digits)


def _from_json(value: Any) -> Node:
    if isinstance(value, _Pairs):
        entries: dict[str, Node] = {}
        duplicates = []
        for key, child in value:
            if key in entries:
                duplicates.append((key, 0))
            entries[key] = _from_json(child)
        return Node(entries, duplicates=tuple(duplicates))
    if isinstance(value, list):
        return Node([_from_json(child) for child in value])
    return Node(value)
