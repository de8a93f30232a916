"""YAML as Kubernetes reads it, with the line of every value: manifests, configurations, host files, golden packets.

PyYAML's C parser delivers events; `read_yaml` builds plain values from them, so that scalars follow the library that
kubectl uses (sigs.k8s.io/yaml on go-yaml v2) where PyYAML's own constructors differ:

- `y`, `yes`, `on` and their opposites are booleans, as in YAML 1.1; a string field that holds one is then a type error,
  as it is for kubectl, and a mapping key becomes the string "true" or "false";
- `22:22` and a date are strings, never sexagesimal numbers or timestamps; `010` is octal;
- a number beyond 64 bits, and one with a fraction or an exponent, is a float;
- of a key that occurs twice in one mapping the last value counts, and `Document.duplicates` tells;
- aliases and merge keys work, but an alias that would blow the document up beyond `MAX_EXPANDED` is an error.

Nothing recurses on input: nesting is a list, bounded by `MAX_DEPTH`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Final

import yaml
from yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)
from yaml.reader import ReaderError

from kproxy.api.document.tree import Document, DocumentError, Duplicate, Value

MAX_DEPTH: Final = 100
MAX_EXPANDED: Final = 100_000
"""Values that aliases may stand for in one document."""

_Loader: Final = getattr(yaml, "CBaseLoader", yaml.BaseLoader)

_WORDS: Final[dict[str, Value]] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"), True),
    **dict.fromkeys(("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"), False),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), math.inf),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), -math.inf),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), math.nan),
}
_NUMBER_START: Final = frozenset("+-.0123456789")
_FLOAT: Final = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_INTS: Final = (
    (re.compile(r"[-+]?(?:0|[1-9][0-9]*)"), 10),
    (re.compile(r"[-+]?0[oO]?[0-7]+"), 8),
    (re.compile(r"[-+]?0[xX][0-9a-fA-F]+"), 16),
    (re.compile(r"[-+]?0[bB][01]+"), 2),
)
_RESOLVED_TAGS: Final = frozenset(f"tag:yaml.org,2002:{name}" for name in ("int", "float", "bool", "null"))


def plain_scalar(text: str) -> Value:
    """The value of an unquoted scalar.

    >>> [plain_scalar(t) for t in ("80", "010", "22:22", "on", "2024-01-01", "1e3", "")]
    [80, 8, '22:22', True, '2024-01-01', 1000.0, None]
    """
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in _NUMBER_START:
        return text
    digits = text.replace("_", "")
    for pattern, base in _INTS:
        if pattern.fullmatch(digits):
            # Beyond 64 bits go-yaml makes a float of it; very long ones cost no time here either.
            integer = int(digits.replace("o", ""), base) if len(digits) <= (250 if base == 10 else 70) else math.inf
            return integer if -(1 << 63) <= integer < 1 << 64 else float(integer)
    number = float(digits) if _FLOAT.fullmatch(digits) else math.inf
    return text if math.isinf(number) else number  # go-yaml keeps a number that overflows as it stands


class _Merge:
    """Stands for an unquoted `<<` in the place of a key; a quoted one is a key like any other."""


_MERGE: Final = _Merge()


class _Open:
    """A mapping or sequence that is being built."""

    __slots__ = ("anchor", "key", "line", "lines", "merges", "size", "value")

    def __init__(self, value: Value, anchor: str | None, line: int) -> None:
        self.value = value
        self.anchor = anchor
        self.line = line
        self.lines: dict[str, int] | list[int] = {} if isinstance(value, dict) else []
        self.key: tuple[str | _Merge, int] | None = None
        self.merges: list[Value] = []
        self.size = 1


class _Builder:
    """Builds one document from events."""

    def __init__(self, line: int) -> None:
        self.document = Document(None, line)
        self.stack: list[_Open] = []
        self.anchors: dict[str, tuple[Value, int]] = {}
        self.expanded = 0
        self.done = False

    def feed(self, event: yaml.Event) -> None:
        line = _line(event)
        if isinstance(event, ScalarEvent):
            self._add(self._scalar(event), line, 1, event.anchor)
        elif isinstance(event, MappingStartEvent | SequenceStartEvent):
            if len(self.stack) >= MAX_DEPTH:
                raise DocumentError(f"nested more than {MAX_DEPTH} levels deep", line)
            top = self.stack[-1] if self.stack else None
            if top is not None and isinstance(top.value, dict) and top.key is None:
                raise DocumentError("a mapping key must be a string, not a map or a list", line)
            fresh: Value = {} if isinstance(event, MappingStartEvent) else []
            self.stack.append(_Open(fresh, event.anchor, line))
        elif isinstance(event, MappingEndEvent | SequenceEndEvent):
            closed = self.stack.pop()
            self._close(closed)
            self._add(closed.value, closed.line, closed.size, closed.anchor)
        elif isinstance(event, AliasEvent):
            if event.anchor not in self.anchors:
                raise DocumentError(f"unknown anchor {event.anchor!r}", line)
            value, size = self.anchors[event.anchor]
            self.expanded += size
            if self.expanded > MAX_EXPANDED:
                raise DocumentError(f"aliases stand for more than {MAX_EXPANDED} values", line)
            self._add(value, line, size, None)

    def _scalar(self, event: ScalarEvent) -> Value:
        text: str = event.value
        if event.tag is not None:
            return plain_scalar(text) if event.tag in _RESOLVED_TAGS else text
        if event.style:
            return text
        if text == "<<" and self.stack and isinstance(self.stack[-1].value, dict) and self.stack[-1].key is None:
            return _MERGE
        return plain_scalar(text)

    def _add(self, value: Value, line: int, size: int, anchor: str | None) -> None:
        if anchor is not None:
            self.anchors[anchor] = (value, size)
        if not self.stack:
            self.document.value = value
            self.document.root_line = line
            self.done = True
            return
        top = self.stack[-1]
        top.size += size
        if isinstance(top.lines, list):
            top.value.append(value)
            top.lines.append(line)
        elif top.key is None:
            top.key = (value if isinstance(value, _Merge) else _key(value, line), line)
            return
        else:
            name, key_line = top.key
            top.key = None
            if isinstance(name, _Merge):
                top.merges.append(value)
                return
            if name in top.lines:
                self.document.duplicates.append(Duplicate(top.value, name, key_line))
            top.value[name] = value
            top.lines[name] = key_line

    def _close(self, closed: _Open) -> None:
        for merged in closed.merges:
            for source in merged if isinstance(merged, list) else [merged]:
                self._merge(closed, source)
        self.document.lines[id(closed.value)] = closed.lines

    def _merge(self, closed: _Open, source: Value) -> None:
        """Adds to a mapping the keys of another that it does not have."""
        if not isinstance(source, dict):
            raise DocumentError("map merge requires map or sequence of maps as the value", closed.line)
        lines = self.document.lines[id(source)]
        assert isinstance(lines, dict)
        assert isinstance(closed.lines, dict)
        for key, value in source.items():
            if key not in closed.value:
                closed.value[key] = value
                closed.lines[key] = lines[key]


def _line(event: yaml.Event) -> int:
    return event.start_mark.line + 1 if event.start_mark is not None else 0


def _key(value: Value, line: int) -> str:
    """A mapping key as JSON needs it: a string. sigs.k8s.io/yaml writes booleans and numbers out."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return repr(value)
    raise DocumentError("a mapping key must be a string", line)


def read_yaml(text: str) -> Iterator[Document]:
    """The documents of a YAML stream, empty ones with the value None.

    Raises DocumentError at the first thing that is no YAML; the documents before it have been delivered.
    """
    try:
        loader = _Loader(text)
    except (yaml.YAMLError, ValueError) as error:
        raise _translate(error, text) from error
    try:
        builder: _Builder | None = None
        while loader.check_event():
            event = loader.get_event()
            if isinstance(event, DocumentStartEvent):
                builder = _Builder(_line(event))
            elif builder is not None and not builder.done:
                builder.feed(event)
                if builder.done:
                    yield builder.document
    except (yaml.YAMLError, ValueError) as error:
        raise _translate(error, text) from error
    finally:
        loader.dispose()


def _translate(error: Exception, text: str) -> DocumentError:
    if isinstance(error, yaml.MarkedYAMLError):
        mark = error.problem_mark or error.context_mark
        parts = [part for part in (error.problem, error.context) if part]
        line, column = (mark.line + 1, mark.column + 1) if mark is not None else (0, 0)
        return DocumentError(", ".join(parts) or "cannot be parsed", line, column)
    if isinstance(error, ReaderError):
        code = error.character if isinstance(error.character, int) else ord(error.character[:1] or "\0")
        line = text.count("\n", 0, error.position) + 1
        return DocumentError(f"control character U+{code:04X} is not allowed", line)
    return DocumentError(str(error) or "cannot be parsed")
