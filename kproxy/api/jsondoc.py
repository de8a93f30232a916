"""Where things are in JSON text: the ends of concatenated documents, the line of a syntax error, the line of a field.

None of this runs for a file without errors, except the splitting of a file that holds several documents.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from json.decoder import JSONDecodeError, scanstring  # type: ignore[attr-defined]
from typing import Final

import msgspec

_RAW: Final = msgspec.json.Decoder(msgspec.Raw)
_OFFSET: Final = re.compile(r" ?\(byte (\d+)\)$")
_SPACE: Final = re.compile(rb"[ \t\r\n]*")
_TOKEN: Final = re.compile(r'[ \t\r\n]*([][{},:]|"|[^][{},:" \t\r\n]+)')


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
            pass  # whoever decodes the piece will say so
        yield position, data[position:end]
        position = end


def _skip_space(data: bytes, position: int) -> int:
    match = _SPACE.match(data, position)
    return match.end() if match else position


def split_message(error: Exception) -> tuple[str, int | None]:
    """msgspec's message without its prefix, and the byte it complains of."""
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


def json_line(text: str, path: tuple[str | int, ...]) -> int:
    """The line, from 1, of the field at `path` in one JSON document, or of the deepest part of the path that exists."""
    position, line_at = 0, 0
    for step in path:
        found = _enter(text, position, step)
        if found is None and isinstance(step, str):
            # The API server writes spec.LoadBalancerSourceRanges.
            found = _enter(text, position, step[:1].lower() + step[1:])
        if found is None:
            break
        position, line_at = found
    return text.count("\n", 0, _first(text, line_at)) + 1


def _first(text: str, position: int) -> int:
    match = _TOKEN.match(text, position)
    return match.start(1) if match else position


def _enter(text: str, position: int, step: str | int) -> tuple[int, int] | None:
    """Where the value under `step` of the container at `position` starts, and where its key does."""
    opening = _TOKEN.match(text, position)
    if opening is None or opening[1] != ("{" if isinstance(step, str) else "["):
        return None
    position = opening.end()
    index = 0
    while True:
        start = position
        match = _TOKEN.match(text, position)
        if match is None or match[1] in "]}":
            return None
        if isinstance(step, int):
            if index == step:
                return start, start
        else:
            if match[1] != '"':
                return None
            try:
                key, position = scanstring(text, match.end())
            except JSONDecodeError:
                return None
            colon = _TOKEN.match(text, position)
            if colon is None or colon[1] != ":":
                return None
            position = colon.end()
            if key == step:
                return position, start
        after = _skip_value(text, position)
        comma = None if after is None else _TOKEN.match(text, after)
        if comma is None or comma[1] != ",":
            return None
        position = comma.end()
        index += 1


def _skip_value(text: str, position: int) -> int | None:
    depth = 0
    while match := _TOKEN.match(text, position):
        position = match.end()
        token = match[1]
        if token == '"':
            try:
                _, position = scanstring(text, position)
            except JSONDecodeError:
                return None
        elif token in "[{":
            depth += 1
        elif token in "]}":
            depth -= 1
        if depth <= 0 and token not in ",:":
            return position if depth == 0 else None
    return None
