"""JSON: one document read whole, and where things are in its text.

Manifests are decoded straight into structs by msgspec; what is here for them finds the ends of concatenated documents,
the line of a syntax error and the line of a field. Only the splitting runs for a file without errors.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from json.decoder import JSONDecodeError, scanstring  # type: ignore[attr-defined]
from typing import Any, Final, NoReturn

import msgspec

from kproxy.api.document.tree import Document, DocumentError, Duplicate

_RAW: Final = msgspec.json.Decoder(msgspec.Raw)
_OFFSET: Final = re.compile(r" ?\(byte (\d+)\)$")
_SPACE: Final = re.compile(rb"[ \t\r\n]*")
_TOKEN: Final = re.compile(r'[ \t\r\n]*([][{},:]|"|[^][{},:" \t\r\n]+)')


@dataclass(slots=True)
class JsonDocument(Document):
    """A document of JSON; the line of a field is looked for in its text when it is asked for."""

    text: str = ""

    def line_of(self, path: Sequence[str | int]) -> int:
        return JsonLines(self.text).line(path)


def read_json(text: str) -> Document:
    """The one JSON value that `text` holds; DocumentError when it holds none, or more."""
    duplicates: list[Duplicate] = []

    def mapping(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, value in pairs:
            if key in found:
                duplicates.append(Duplicate(found, key, 0))
            found[key] = value
        return found

    try:
        value = json.loads(text, object_pairs_hook=mapping, parse_constant=_no_constant, parse_int=_integer)
    except json.JSONDecodeError as error:
        raise DocumentError(error.msg, error.lineno, error.colno) from error
    except RecursionError as error:
        raise DocumentError("values are nested too deeply in one another") from error
    return JsonDocument(value, duplicates=duplicates, text=text)


def _no_constant(name: str) -> NoReturn:
    raise DocumentError(f"{name} is not a JSON value")


def _integer(digits: str) -> int | float:
    """Beyond 64 bits a float, as in YAML; Python would refuse to convert thousands of digits."""
    return int(digits) if len(digits) <= 20 else float(digits)


def split_json(data: bytes) -> Iterator[tuple[int, bytes]]:
    """The offset and bytes of each document of a file, or of concatenated JSON; the last may be malformed.

    msgspec refuses what follows the first document and says at which byte (from 1) that is, which is all there is to
    know. A piece that is no JSON is delivered as it is, whole, so that decoding it reports what is wrong.
    """
    position = 0
    view = memoryview(data)
    while (position := _skip_space(data, position)) < len(data):
        end = len(data)
        try:
            _RAW.decode(view[position:])
        except msgspec.DecodeError as error:
            message, offset = split_message(error)
            if offset and "trailing characters" in message:
                end = position + offset - 1
        except RecursionError:
            pass  # the decoder of the piece reports it
        yield position, data[position:end]
        position = end


def _skip_space(data: bytes, position: int) -> int:
    match = _SPACE.match(data, position)
    return match.end() if match else position


def split_message(error: Exception) -> tuple[str, int | None]:
    """msgspec's message without its prefix, and the byte that it names."""
    text = str(error)
    offset = None
    if found := _OFFSET.search(text):
        offset = int(found[1])
        text = text[: found.start()]
    text = text.partition(" - at `$")[0]
    if text == "Input data was truncated":
        text = "unexpected end of input"
    return text.removeprefix("JSON is malformed: "), offset


def line_and_column(data: bytes, offset: int) -> tuple[int, int]:
    """Line and column, counting from 1, of a byte; the column counts characters."""
    before = data[:offset]
    start = before.rfind(b"\n") + 1
    return before.count(b"\n") + 1, len(before[start:].decode("utf-8", "replace")) + 1


class JsonLines:
    """The lines of the fields of one JSON document.

    Remembers where the entries of arrays and objects start, so that the thousandth error of a long List is found as
    fast as the first.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._breaks = [match.start() for match in re.finditer("\n", text)]
        self._seen: dict[int, tuple[dict[str | int, tuple[int, int]], Iterator[tuple[str | int, int, int]]]] = {}

    def line(self, path: Sequence[str | int]) -> int:
        """The line, from 1, of the field at `path`, or of the deepest part of the path that exists."""
        value, field = 0, 0
        for step in path:
            found = self._entry(value, step)
            if found is None and isinstance(step, str):
                # The API server writes spec.LoadBalancerSourceRanges.
                found = self._entry(value, step[:1].lower() + step[1:])
            if found is None:
                break
            value, field = found
        match = _TOKEN.match(self._text, field)
        return bisect_left(self._breaks, match.start(1) if match else field) + 1

    def _entry(self, container: int, step: str | int) -> tuple[int, int] | None:
        """Where the value of a key or item starts, and where the key or item does; None if it is not there."""
        seen, left = self._seen.setdefault(container, ({}, self._entries(container)))
        while step not in seen:
            try:
                key, value, start = next(left)
            except (StopIteration, JSONDecodeError):
                return None
            seen.setdefault(key, (value, start))
        return seen[step]

    def _entries(self, container: int) -> Iterator[tuple[str | int, int, int]]:
        """The key or number of each entry of the object or array at `container`, its value's start and its own."""
        text = self._text
        opening = _TOKEN.match(text, container)
        if opening is None or opening[1] not in "[{":
            return
        key: str | int = -1
        token: re.Match[str] | None = opening
        while token is not None and token[1] in "[{,":
            start = value = token.end()
            first = _TOKEN.match(text, start)
            if first is None or first[1] in "]}":
                return
            key = key + 1 if isinstance(key, int) else key
            if opening[1] == "{":
                key, end = scanstring(text, first.end())
                colon = _TOKEN.match(text, end)
                if first[1] != '"' or colon is None or colon[1] != ":":
                    return
                value = colon.end()
            yield key, value, start
            token = _TOKEN.match(text, _skip_value(text, value))


def _skip_value(text: str, position: int) -> int:
    """Where the value at `position` ends, or the text. Raises JSONDecodeError."""
    depth = 0
    while match := _TOKEN.match(text, position):
        position = match.end()
        token = match[1]
        if token == '"':
            _, position = scanstring(text, position)
        elif token in "[{":
            depth += 1
        elif token in "]}":
            depth -= 1
        if depth <= 0 and token not in ",:":
            break
    return position
