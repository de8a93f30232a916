"""The fields of nft's JSON, checked, and as words of a script."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, cast

WORD: Final = re.compile(r'[^\s{}(),;=!<>&|^"#\[\]@$\\]+')


class MalformedError(Exception):
    """Something else was expected; `path` leads from the object to it."""

    def __init__(self, expected: str, path: str = "") -> None:
        super().__init__(expected)
        self.expected = expected
        self.path = path


class UnknownError(Exception):
    """A statement or expression without words for it."""


def single_item(item: object) -> tuple[str, Any]:
    if not isinstance(item, dict) or len(item) != 1:
        raise MalformedError("an object with one key expected")
    return cast(tuple[str, Any], next(iter(item.items())))


def as_object(value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise MalformedError("an object expected")
    return value


def text_field(body: Mapping[str, Any], key: str) -> str:
    value = body.get(key)
    if not isinstance(value, str) or not value:
        raise MalformedError("a name expected", f".{key}")
    return word(value)


def number_field(body: Mapping[str, Any], key: str, default: int | None = None) -> int:
    value = body.get(key, default)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise MalformedError("a number expected", f".{key}")
    return value


def word(value: str) -> str:
    if WORD.fullmatch(value):
        return value
    return quoted(value)


def quoted(value: object) -> str:
    if not isinstance(value, str) or '"' in value or "\n" in value:
        raise MalformedError("a string without quotes and line breaks expected")
    return f'"{value}"'


def as_list(value: object) -> list[Any]:
    """nft leaves out the brackets around a single item."""
    return value if isinstance(value, list) else [] if value is None else [value]


def joined_names(value: object, separator: str = ",") -> str:
    return separator.join(word(item) if isinstance(item, str) else str(as_integer(item)) for item in as_list(value))


def as_integer(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise MalformedError("a number expected")
    return value


def handle_comment(body: Mapping[str, Any]) -> str:
    handle = body.get("handle")
    return f" # handle {handle}\n" if isinstance(handle, int) and handle >= 0 else "\n"
