"""Every wrong type in a value, not only the first.

msgspec stops at the first mismatch. When it has refused a value, `type_errors` walks the value beside the type hints of
the wire struct and reports each field whose type does not fit, with the path that the API server would print.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from functools import cache
from typing import Any, Final

import msgspec
from msgspec import inspect

from kproxy.api.fielderror import FieldError, invalid, required

_NAMES: Final = {
    inspect.IntType: "an integer",
    inspect.StrType: "a string",
    inspect.BoolType: "a boolean",
    inspect.ListType: "a list",
    inspect.DictType: "a map",
    inspect.StructType: "a map",
}


@cache
def _type_of(struct: type[msgspec.Struct]) -> inspect.Type:
    return inspect.type_info(struct)


def type_errors(value: object, struct: type[msgspec.Struct], path: str = "") -> list[FieldError]:
    """The fields of `value`, a plain decoded document, that do not fit `struct`."""
    return [error for error in _walk(value, _type_of(struct), path) if error.type is not None]


def misspelt_fields(value: object, struct: type[msgspec.Struct]) -> list[FieldError]:
    """Unknown fields whose names are all but those of fields that are not given: `nodeport`, `externalTraficPolicy`.

    The API server drops unknown fields of a lenient client in silence, and kubectl refuses them; a name that is close
    to a known one is hardly meant to be dropped.
    """
    return [error for error in _walk(value, _type_of(struct), "") if error.type is None]


def _walk(value: Any, expected: inspect.Type, path: str) -> Iterator[FieldError]:
    """Errors of both kinds; a misspelt name has no type of error."""
    options = expected.types if isinstance(expected, inspect.UnionType) else (expected,)
    if value is None:
        if not any(isinstance(option, inspect.NoneType) for option in options):
            yield required(path, f"must be {_describe(options)}")
        return
    for option in options:
        match option, value:
            case inspect.StructType(), dict():
                names = {item.encode_name: item.type for item in option.fields}
                absent = {name.lower(): name for name in names if name not in value}
                for name, item in value.items():
                    inside = f"{path}.{name}" if path else str(name)
                    if name in names:
                        yield from _walk(item, names[name], inside)
                    elif isinstance(name, str):
                        for close in get_close_matches(name.lower(), absent, n=1, cutoff=0.9):
                            yield FieldError(inside, f"unknown field, ignored: is {absent[close]!r} meant?")
                return
            case inspect.DictType(), dict():
                for name, item in value.items():
                    yield from _walk(item, option.value_type, f"{path}[{name}]")
                return
            case inspect.ListType(), list():
                for index, item in enumerate(value):
                    yield from _walk(item, option.item_type, f"{path}[{index}]")
                return
            case (inspect.StrType(), str()) | (inspect.BoolType(), bool()):
                return
            case inspect.IntType(), int() if not isinstance(value, bool):
                return
    yield invalid(path, value, f"must be {_describe(options)}, not {_what(value)}")


def _describe(options: tuple[inspect.Type, ...]) -> str:
    names = dict.fromkeys(_NAMES[type(option)] for option in options if type(option) in _NAMES)
    return " or ".join(names)


def _what(value: object) -> str:
    match value:
        case bool():
            return "a boolean"
        case int():
            return "an integer"
        case float():
            return "a number with a fraction or an exponent"
        case str():
            return "a string"
        case list():
            return "a list"
        case _:
            return "a map"


def without_fields(value: Any, paths: Iterable[tuple[str | int, ...]]) -> Any:
    """A copy of a decoded document without the fields at the given paths; in a list, an empty map takes the place."""
    copy = _copy(value)
    for steps in paths:
        parent = copy
        for step in steps[:-1]:
            parent = parent[step]
        last = steps[-1]
        if isinstance(last, int):
            parent[last] = {}
        else:
            parent.pop(last, None)
    return copy


def _copy(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _copy(item) for name, item in value.items()}
    return [_copy(item) for item in value] if isinstance(value, list) else value


def overlap(one: str, other: str) -> bool:
    """Whether one field path is the other or lies inside it."""
    short, long = sorted((one, other), key=len)
    return long.startswith(short) and (len(long) == len(short) or long[len(short)] in ".[")
