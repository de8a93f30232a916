"""What can be wrong with a manifest or a configuration, in the API server's words.

Validators yield `FieldError`s: a field path in the API server's notation and the text of one of its field.Error kinds
(k8s.io/apimachinery/pkg/util/validation/field). The loader adds where the object came from, which makes a `Problem`,
and raises all problems of all files together as one `ManifestError`.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from enum import StrEnum
from typing import NamedTuple

import msgspec

from kproxy.errors import InputError, Location


class ErrorType(StrEnum):
    """The kinds of field.Error, by the reasons that a Status gives for its causes."""

    REQUIRED = "FieldValueRequired"
    INVALID = "FieldValueInvalid"
    NOT_SUPPORTED = "FieldValueNotSupported"
    DUPLICATE = "FieldValueDuplicate"
    NOT_FOUND = "FieldValueNotFound"
    FORBIDDEN = "FieldValueForbidden"
    TOO_LONG = "FieldValueTooLong"
    TOO_MANY = "FieldValueTooMany"
    INTERNAL = "InternalError"


class FieldError(NamedTuple):
    """What is wrong with one field: `spec.ports[0].port`, the text that follows the path, and the kind of error.

    The functions below make one of each kind; what no API server would refuse, a warning say, has no kind.
    """

    path: str
    message: str
    type: ErrorType | None = None

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong, and where; `str()` gives `file: document N: line L: field: message`."""

    location: Location
    message: str

    def __str__(self) -> str:
        return f"{self.location}: {self.message}"


class ProblemError(InputError):
    """Input that cannot be used. `problems` holds every one found, in input order; the text has a line for each."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems: tuple[Problem, ...] = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


class ManifestError(ProblemError):
    """Manifests that cannot be used."""


_SHOWN = 200
"""Characters of a refused value that a message repeats: a whole file must not end up in one line."""


def show(value: object) -> str:
    """A value as field.Error prints it: strings quoted, numbers and booleans bare, the rest as JSON.

    >>> show("a"), show(70000), show(True), show(("10.0.0.1",))
    ('"a"', '70000', 'true', '["10.0.0.1"]')
    """
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=_plain)
    except (TypeError, ValueError, RecursionError):
        text = json.dumps(str(type(value).__name__))
    text = printable(text[: _SHOWN + 1])
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."


def _plain(value: object) -> object:
    """What JSON has no form for: mappings, by key, and values that a file holds as text, such as a duration."""
    if isinstance(value, Mapping):
        return dict(sorted(value.items()))
    return str(value) if isinstance(value, msgspec.Struct) else type(value).__name__


def printable(text: str) -> str:
    """Text from a manifest that may go into a message.

    A lone surrogate would break the encoding of a log, a control character could drive a terminal.
    """
    return text if text.isprintable() else "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in text)


def required(path: str, detail: str = "") -> FieldError:
    """field.Required: a value has to be there."""
    return FieldError(path, f"Required value: {detail}" if detail else "Required value", ErrorType.REQUIRED)


def invalid(path: str, value: object, detail: str) -> FieldError:
    """field.Invalid: a value of the right type that the rules refuse."""
    return FieldError(path, f"Invalid value: {show(value)}: {detail}", ErrorType.INVALID)


def refused(path: str, value: object, details: Iterable[str]) -> Iterator[FieldError]:
    """field.Invalid for each detail that a check of the value gave; none if it is legal."""
    return (invalid(path, value, detail) for detail in details)


def not_supported(path: str, value: object, supported: Iterable[str]) -> FieldError:
    """field.NotSupported: not one of an enumeration, which the API server lists in alphabetical order."""
    choices = ", ".join(json.dumps(choice) for choice in sorted(supported))
    return not_listed(path, show(value), choices)


def not_listed(path: str, shown: str, choices: str) -> FieldError:
    """field.NotSupported, of a value and choices as they are to be shown."""
    return FieldError(path, f"Unsupported value: {shown}: supported values: {choices}", ErrorType.NOT_SUPPORTED)


def unknown_field(prefix: str, name: str, known: Collection[str]) -> FieldError:
    """A field that there is not, and the one that is probably meant; `prefix` is its path up to its name."""
    near = get_close_matches(name.lower(), [one.lower() for one in known], 1, 0.8)
    meant = next((one for one in sorted(known) if near and one.lower() == near[0]), None)
    hint = f"; is {json.dumps(prefix + meant, ensure_ascii=False)} meant?" if meant else ""
    return FieldError(prefix + name, f"unknown field {json.dumps(prefix + name, ensure_ascii=False)}{hint}")


def duplicate(path: str, value: object) -> FieldError:
    """field.Duplicate: a value that has to be unique is not."""
    return FieldError(path, f"Duplicate value: {show(value)}", ErrorType.DUPLICATE)


def repeats(items: Sequence[object]) -> list[int]:
    """Where items stand that equal one before them. It takes time for each item once: a list is as long as a client
    wants."""
    seen: set[bytes] = set()
    found = []
    for index, item in enumerate(items):
        key = msgspec.json.encode(item, order="deterministic")
        if key in seen:
            found.append(index)
        seen.add(key)
    return found


def forbidden(path: str, detail: str) -> FieldError:
    """field.Forbidden: a value where none may be."""
    return FieldError(path, f"Forbidden: {detail}", ErrorType.FORBIDDEN)


def too_many(path: str, count: int, limit: int) -> FieldError:
    """field.TooMany: a list that is too long."""
    return FieldError(path, f"Too many: {count}: must have at most {limit} items", ErrorType.TOO_MANY)


def too_long(path: str, limit: int) -> FieldError:
    """field.TooLong: a text that is too long."""
    return FieldError(path, f"Too long: may not be more than {limit} bytes", ErrorType.TOO_LONG)


def internal(path: str, detail: str) -> FieldError:
    """field.InternalError: the server could not do what the value asks for."""
    return FieldError(path, f"Internal error: {detail}", ErrorType.INTERNAL)
