"""JSON: one document read whole, and where things are in its text.

Manifests are decoded straight into structs by msgspec; what is here for them finds the ends of concatenated documents,
the line of a syntax error and the line of a field. Only the splitting runs for a file without errors.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NoReturn

import msgspec

from kproxy.api.document.tree import Document, DocumentError, Duplicate
from kproxy.api.document.yaml_text import read_yaml

_RAW: Final = msgspec.json.Decoder(msgspec.Raw)
_OFFSET: Final = re.compile(r" ?\(byte (\d+)\)$")
_SPACE: Final = re.compile(rb"[ \t\r\n]*")
_SURROGATE: Final = re.compile(r"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")


@dataclass(slots=True)
class JsonDocument(Document):
    """A document of JSON; the line of a field is looked for in its text when it is asked for."""

    text: str = ""
    _lined: Document | None = None

    def line_of(self, path: Sequence[str | int]) -> int:
        if self._lined is None:
            self._lined = with_lines(self.text)
        return self._lined.line_of(path)


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


def with_lines(text: str) -> Document:
    """A JSON document with its lines, read as YAML, which it is; what YAML cannot read has one line. A pair of
    surrogates is two characters that YAML refuses."""
    try:
        return next(read_yaml(_SURROGATE.sub(r"\\u0020", text)))
    except (DocumentError, StopIteration):
        return Document(None, 1)
