"""Every wrong type in a value, not only the first.

msgspec stops at the first mismatch. When it has refused a value, `type_errors` walks the value beside the type hints of
the struct and reports each field whose type does not fit, with the path that the API server would print. A type of our
own has a method `of` that makes a value of it or raises ValueError.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from difflib import get_close_matches
from functools import cache
from typing import Any, Final, Protocol, cast

import msgspec
from msgspec import inspect

from kproxy.api.fielderror import FieldError, invalid, not_supported, required

_NAMES: Final = {
    inspect.IntType: "an integer",
    inspect.FloatType: "a number",
    inspect.StrType: "a string",
    inspect.BoolType: "a boolean",
    inspect.ListType: "a list",
    inspect.VarTupleType: "a list",
    inspect.DictType: "a map",
    inspect.StructType: "a map",
}


_GIVEN: Final = {bool: "a boolean", int: "an integer", str: "a string", list: "a list", dict: "a map"}


class _Own(Protocol):
    @classmethod
    def of(cls, value: object) -> object: ...


@cache
def _type_of(struct: type[msgspec.Struct]) -> inspect.Type:
    return inspect.type_info(struct)


Unknown = Callable[[str, str, Mapping[str, inspect.Type], Mapping[str, object]], Iterable[FieldError]]
"""What to say of an unknown field: of the path up to its name, the name, the known fields, and the fields given."""


def type_errors(value: object, struct: type[msgspec.Struct], path: str = "") -> list[FieldError]:
    """The fields of `value`, a plain decoded document, that do not fit `struct`."""
    return list(_walk(value, _type_of(struct), path, lambda *_: ()))


def unknown_fields(value: object, struct: type[msgspec.Struct], say: Unknown) -> list[FieldError]:
    """What `say` has to say of the fields of `value` that `struct` does not have."""
    return [error for error in _walk(value, _type_of(struct), "", say) if error.type is None]


def misspelt(prefix: str, name: str, known: Mapping[str, object], given: Mapping[str, object]) -> Iterator[FieldError]:
    """A word on a name that is all but that of a field that is not given: `nodeport`, `externalTraficPolicy`.

    The API server drops unknown fields of a lenient client in silence, and kubectl refuses them; a name that is close
    to a known one is hardly meant to be dropped.
    """
    absent = {field.lower(): field for field in known if field not in given}
    for close in get_close_matches(name.lower(), absent, n=1, cutoff=0.9):
        yield FieldError(prefix + name, f"unknown field, ignored: is {absent[close]!r} meant?")


def mistyped(path: str, value: object, expected: str) -> FieldError:
    """A value of the wrong type."""
    return invalid(path, value, f"must be {expected}, not {_what(value)}")


def _walk(value: Any, expected: inspect.Type, path: str, unknown: Unknown) -> Iterator[FieldError]:
    """Errors of types, and what is said of unknown fields, which has no type of error."""
    options = expected.types if isinstance(expected, inspect.UnionType) else (expected,)
    if value is None and not isinstance(expected, inspect.CustomType):
        if not any(isinstance(option, inspect.NoneType) for option in options):
            yield required(path, f"must be {_describe(options)}")
        return
    for option in options:
        match option, value:
            case inspect.StructType(), dict():
                prefix = f"{path}." if path else ""
                names = {item.encode_name: item.type for item in option.fields}
                for name, item in value.items():
                    if name in names:
                        yield from _walk(item, names[name], prefix + name, unknown)
                    elif isinstance(name, str):
                        yield from unknown(prefix, name, names, value)
                return
            case inspect.DictType(), dict():
                for name, item in value.items():
                    yield from _walk(item, option.value_type, f"{path}[{name}]", unknown)
                return
            case inspect.ListType() | inspect.VarTupleType(), list():
                for index, item in enumerate(value):
                    yield from _walk(item, option.item_type, f"{path}[{index}]", unknown)
                return
            case (inspect.StrType(), str()) | (inspect.BoolType(), bool()):
                return
            case inspect.LiteralType(values=known), _:
                if value not in known:
                    yield not_supported(path, value, map(str, known))
                return
            case inspect.CustomType(cls=own), _:
                try:
                    cast("type[_Own]", own).of(value)
                except ValueError as error:
                    yield invalid(path, value, str(error))
                return
            case (inspect.IntType(ge=low, le=high), int()) | (inspect.FloatType(ge=low, le=high), int() | float()) if (
                not isinstance(value, bool)
            ):
                if low is not None and high is not None and not low <= value <= high:
                    yield invalid(path, value, f"must be within the range [{low}, {high}]")
                return
    yield mistyped(path, value, _describe(options))


def _describe(options: tuple[inspect.Type, ...]) -> str:
    names = dict.fromkeys(_NAMES[type(option)] for option in options if type(option) in _NAMES)
    return " or ".join(names)


def _what(value: object) -> str:
    return next(
        (name for kind, name in _GIVEN.items() if isinstance(value, kind)), "a number with a fraction or an exponent"
    )


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
