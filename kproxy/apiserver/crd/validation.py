"""Values against schemas: validation of custom resources, and of the defaults that a CRD brings, in the words of
kube-openapi's validator (k8s.io/kube-openapi pkg/validation/validate).

The formats are those of k8s.io/kube-openapi pkg/validation/strfmt (and govalidator's patterns) and
k8s.io/apiextensions-apiserver pkg/apis/apiextensions/validation. A dash in a format's name does not count: `date-time`
is `datetime`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import date, time
from fractions import Fraction
from typing import Any, Final

from kproxy.api.addresses import canonical_cidr, canonical_ip
from kproxy.api.fielderror import (
    FieldError,
    duplicate,
    invalid,
    not_listed,
    repeats,
    required,
    show,
    too_long,
    too_many,
)
from kproxy.apiserver.errors import Json
from kproxy.apiserver.patterns import Pattern, compiled

_LETTER: Final = r"[^\W\d_]"
_WORD: Final = r"[^\W_]"
_UNITS: Final = (
    "ns|us|\u00b5s|ms|s|m|h|d|w|nanos?|nanoseconds?|micros?|microseconds?|millis?|milliseconds?|secs?|seconds?|mins?|minutes?|"
    "hrs?|hours?|days?|wks?|weeks?"
)
_HOSTNAME: Final = rf"{_WORD}(-?{_WORD}{{0,62}})?|({_WORD}([\w-]{{0,61}}{_WORD})?\.)+{_LETTER}{{2,63}}"
_URI: Final = re.compile(r"(?:[A-Za-z][A-Za-z0-9+.-]*:|/)[^\s\x00-\x1f\x7f]*")
"""An absolute URI or an absolute path."""


def _matches(pattern: str) -> Callable[[str], bool]:
    compiled = re.compile(pattern)
    return lambda text: compiled.fullmatch(text) is not None


def _date(text: str) -> bool:
    try:
        return bool(re.fullmatch(r"\d{4}-\d\d-\d\d", text)) and bool(date.fromisoformat(text))
    except ValueError:
        return False


def _datetime(text: str) -> bool:
    day, _, rest = text.lower().partition("t")
    found = re.fullmatch(r"(\d\d:\d\d:\d\d)(.\d+)?(z|[+-]\d\d:\d\d)", rest)
    try:
        return _date(day) and found is not None and bool(str(time.fromisoformat(found[1])))
    except ValueError:
        return False


FORMATS: Final[dict[str, Callable[[str], bool]]] = {
    "byte": _matches(r"([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})"),
    "cidr": lambda text: canonical_cidr(text) is not None,
    "date": _date,
    "datetime": _datetime,
    "duration": _matches(rf"[+-]?(0|([0-9.]+\s*({_UNITS})\s*)+)"),
    "email": _matches(r'([^<>@]*<)?("[^"]+"|[^\s@<>]+)@[^\s@<>]+>?'),
    "hostname": lambda text: re.fullmatch(_HOSTNAME, text) is not None and all(len(p) < 64 for p in text.split(".")),
    "ipv4": lambda text: ":" not in (canonical_ip(text) or ":"),
    "ipv6": lambda text: ":" in (canonical_ip(text) or ""),
    "password": lambda text: True,
    "uri": lambda text: _URI.fullmatch(text) is not None,
    "uuid": _matches("(?i)[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}"),
}  # fmt: skip
"""Whether a text has a format, by the format's name without dashes; other formats are no constraint."""

NUMBERS: Final[dict[str, tuple[float, float]]] = {
    "int32": (-(2**31), 2**31 - 1),
    "int64": (-(2**63), 2**63 - 1),
    "float": (-3.4028234663852886e38, 3.4028234663852886e38),
}
"""The smallest and the largest number of each format."""


def has_format(text: str, name: str) -> bool:
    """Whether a text has a format."""
    check = FORMATS.get(name.replace("-", ""))
    return check is None or check(text)


DEEPEST: Final = 64
"""Levels of a schema or a value that are followed."""


def compiled_pattern(text: str) -> Pattern | None:
    """The expression, None if it is none."""
    try:
        return compiled(text)
    except ValueError:
        return None


def validate_value(value: Any, schema: Json, path: str, depth: int = 0) -> Iterator[FieldError]:
    """Errors of a value against an OpenAPI schema, in the words of kube-openapi's validator."""
    if depth > DEEPEST:
        yield invalid(path, "", "nested too deeply")
        return
    where = path or "<nil>"
    if value is None:
        if not schema.get("nullable") and schema.get("type"):
            yield invalid(where, "null", f'{where} in body must be of type {schema["type"]}: "null"')
        return
    kind = schema.get("type", "")
    if schema.get("x-kubernetes-int-or-string"):
        if isinstance(value, bool) or not isinstance(value, int | str):
            yield invalid(
                where, _type_name(value), f'{where} in body must be of type integer or string: "{_type_name(value)}"'
            )
            return
    elif kind and not _is_type(value, kind):
        name = _type_name(value)
        yield invalid(where, name, f"{where} in body must be of type {kind}: {show(name)}")
        return
    if "enum" in schema and value not in schema["enum"]:
        choices = ", ".join(show(choice) for choice in schema["enum"])
        yield not_listed(where, show(value), choices)
    if isinstance(value, str):
        yield from _check_string(value, schema, where)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield from _check_number(value, schema, where)
    elif isinstance(value, list):
        yield from _check_list(value, schema, where, depth)
    elif isinstance(value, dict):
        yield from _check_object(value, schema, path, where, depth)
    yield from _check_combined(value, schema, path, where, depth)


def _check_combined(value: Any, schema: Json, path: str, where: str, depth: int) -> Iterator[FieldError]:
    for each in schema.get("allOf") or ():
        yield from validate_value(value, each, path, depth + 1)
    if "anyOf" in schema and not any(_valid(value, each, depth) for each in schema["anyOf"]):
        yield invalid(where, value, f"{where} in body must validate at least one schema (anyOf)")
    if "oneOf" in schema and sum(_valid(value, each, depth) for each in schema["oneOf"]) != 1:
        yield invalid(where, value, f"{where} in body must validate one and only one schema (oneOf)")
    if "not" in schema and _valid(value, schema["not"], depth):
        yield invalid(where, value, f"{where} in body must not validate the schema (not)")


def _valid(value: Any, schema: Json, depth: int) -> bool:
    return next(validate_value(value, schema, "", depth + 1), None) is None


def _check_string(value: str, schema: Json, where: str) -> Iterator[FieldError]:
    if "maxLength" in schema and len(value) > schema["maxLength"]:
        yield too_long(where, schema["maxLength"])
    if "minLength" in schema and len(value) < schema["minLength"]:
        yield invalid(where, value, f"{where} in body should be at least {schema['minLength']} chars long")
    if "pattern" in schema:
        pattern = compiled_pattern(schema["pattern"])
        if pattern is not None and not pattern.search(value):
            yield invalid(where, value, f"{where} in body should match '{schema['pattern']}'")
    form = schema.get("format", "")
    if form and not has_format(value, form):
        yield invalid(where, value, f"{where} in body must be of type {form}: {show(value)}")


def _check_number(value: float, schema: Json, where: str) -> Iterator[FieldError]:
    form = schema.get("format") or ("int64" if schema.get("type") == "integer" else "")
    least, most = NUMBERS.get(form, (value, value))
    if not least <= value <= most:
        shown = f"with format {form}" if schema.get("format") else "(default format)"
        yield invalid(where, value, f"Checked value must be of type {schema.get('type')} {shown}")
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is not None and (value < low or (schema.get("exclusiveMinimum") and value == low)):
        relation = "greater than" if schema.get("exclusiveMinimum") else "greater than or equal to"
        yield invalid(where, value, f"{where} in body should be {relation} {low}")
    if high is not None and (value > high or (schema.get("exclusiveMaximum") and value == high)):
        relation = "less than" if schema.get("exclusiveMaximum") else "less than or equal to"
        yield invalid(where, value, f"{where} in body should be {relation} {high}")
    if (step := schema.get("multipleOf")) and Fraction(repr(value)) % Fraction(repr(step)):
        yield invalid(where, value, f"{where} in body should be a multiple of {step}")


def _check_list(value: list[Any], schema: Json, where: str, depth: int) -> Iterator[FieldError]:
    if "maxItems" in schema and len(value) > schema["maxItems"]:
        yield too_many(where, len(value), schema["maxItems"])
    if "minItems" in schema and len(value) < schema["minItems"]:
        yield invalid(where, len(value), f"{where} in body should have at least {schema['minItems']} items")
    kind = schema.get("x-kubernetes-list-type")
    keys = schema.get("x-kubernetes-list-map-keys") or ()
    if kind in ("set", "map"):
        maps = kind == "map"
        identities = [
            {key: each.get(key) for key in keys} if maps and isinstance(each, dict) else each for each in value
        ]
        for index in repeats(identities):
            yield duplicate(f"{where}[{index}]", identities[index])
    items = schema.get("items")
    if isinstance(items, dict):
        for index, item in enumerate(value):
            yield from validate_value(item, items, f"{where}[{index}]", depth + 1)


def _check_object(value: Json, schema: Json, path: str, where: str, depth: int) -> Iterator[FieldError]:
    prefix = f"{path}." if path else ""
    for name in schema.get("required") or ():
        if name not in value:
            yield required(f"{prefix}{name}")
    if "maxProperties" in schema and len(value) > schema["maxProperties"]:
        yield too_many(where, len(value), schema["maxProperties"])
    if "minProperties" in schema and len(value) < schema["minProperties"]:
        yield invalid(where, len(value), f"{where} in body should have at least {schema['minProperties']} properties")
    properties = schema.get("properties") or {}
    additional = schema.get("additionalProperties")
    for name, item in value.items():
        if name in properties:
            if not (path == "" and name in ("metadata", "kind", "apiVersion")):
                yield from validate_value(item, properties[name], f"{prefix}{name}", depth + 1)
        elif isinstance(additional, dict):
            yield from validate_value(item, additional, f"{prefix}{name}", depth + 1)


def _is_type(value: Any, kind: str) -> bool:
    match kind:
        case "object":
            return isinstance(value, dict)
        case "array":
            return isinstance(value, list)
        case "string":
            return isinstance(value, str)
        case "boolean":
            return isinstance(value, bool)
        case "integer":
            return not isinstance(value, bool) and (
                isinstance(value, int) or (isinstance(value, float) and value.is_integer())
            )
        case "number":
            return isinstance(value, int | float) and not isinstance(value, bool)
    return True


def _type_name(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
    return "object"
