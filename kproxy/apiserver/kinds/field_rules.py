"""Defaults and validation as tables: one line a field.

A line is a path and what is asked of the value there, several things with `;` between them::

    spec.ports[].port        needed; range 1 65535
    spec.concurrencyPolicy   one-of Allow Forbid Replace

`[]` stands for each item of a list; `<name>` takes in a table that several kinds share.
Only a value that is there is looked at, but for `needed`. The lines of a table make a tree: an object is walked once.

The checks are those of kubernetes/kubernetes pkg/apis/*/validation and k8s.io/apimachinery pkg/api/validation, with
their words.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec

from kproxy.api.addresses import check_ip
from kproxy.api.fielderror import (
    FieldError,
    duplicate,
    forbidden,
    invalid,
    not_supported,
    repeats,
    required,
    too_many,
)
from kproxy.api.validation.meta import validate_labels
from kproxy.api.validation.names import (
    check_dns_label,
    check_dns_subdomain,
    check_label_value,
    check_port_name,
    check_qualified_name,
)
from kproxy.apiserver.errors import Json

Check = Callable[[Any, str], Sequence[FieldError]]
_NOTHING: Final[tuple[Any, ...]] = (None, "", [], {})
_ENV: Final = re.compile(r"[\x20-\x3c\x3e-\x7e]+")
_ENV_TEXT: Final = "a valid environment variable name must consist only of printable ASCII characters other than '='"
_PERCENT: Final = re.compile(r"[0-9]+%")
_PERCENT_TEXT: Final = (
    "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for "
    "validation is '[0-9]+%')"
)
_CONFIG_KEY: Final = re.compile("[-._a-zA-Z0-9]+")
_CONFIG_KEY_TEXT: Final = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or "
    "'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
)


# --- checks of one value ---


def check_environment_name(value: str) -> tuple[str, ...]:
    """The name of an environment variable."""
    return () if _ENV.fullmatch(value) else (_ENV_TEXT,)


def check_config_key(value: str) -> tuple[str, ...]:
    """A key of a ConfigMap or Secret."""
    if len(value) > 253:
        return ("must be no more than 253 bytes",)
    return () if _CONFIG_KEY.fullmatch(value) and value not in (".", "..") else (_CONFIG_KEY_TEXT,)


def _trimmed(value: str) -> tuple[str, ...]:
    return ("must not have leading or trailing whitespace",) if value != value.strip() else ()


def _ip(value: str) -> tuple[str, ...]:
    return tuple(check_ip(value, True))


_TEXTS: Final[dict[str, Callable[[str], tuple[str, ...]]]] = {
    "env-name": check_environment_name,
    "ip": _ip,
    "label": check_dns_label,
    "label-value": check_label_value,
    "port-name": check_port_name,
    "qualified": check_qualified_name,
    "subdomain": check_dns_subdomain,
    "trimmed": _trimmed,
}
"""Checks of a text that is not empty: what is wrong with it."""


def _needed(value: Any, path: str) -> Sequence[FieldError]:
    return [required(path)] if value in _NOTHING else ()


def _set(value: Any, path: str) -> Sequence[FieldError]:
    return [required(path)] if value is None else ()


def _text(check: Callable[[str], tuple[str, ...]]) -> Check:
    def of(value: Any, path: str) -> Sequence[FieldError]:
        if isinstance(value, str) and value and (texts := check(value)):
            return [invalid(path, value, text) for text in texts]
        return ()

    return of


def _one_of(*words: str) -> Check:
    choices = ["" if word == "''" else word for word in words]

    def of(value: Any, path: str) -> Sequence[FieldError]:
        return [not_supported(path, value, choices)] if value is not None and value not in choices else ()

    return of


def _minimum(least: str) -> Check:
    bound = int(least)

    text = "must be greater than 0" if bound == 1 else f"must be greater than or equal to {bound}"

    def of(value: Any, path: str) -> Sequence[FieldError]:
        return [invalid(path, value, text)] if isinstance(value, int) and value < bound else ()

    return of


def _range(least: str, most: str) -> Check:
    low, high = int(least), int(most)
    text = f"must be between {low} and {high}, inclusive"

    def of(value: Any, path: str) -> Sequence[FieldError]:
        return [invalid(path, value, text)] if isinstance(value, int) and not low <= value <= high else ()

    return of


_port_number = _range("1", "65535")
_not_negative = _minimum("0")


def _port(value: Any, path: str) -> Sequence[FieldError]:
    """A port by number or name."""
    if isinstance(value, str):
        return [invalid(path, value, text) for text in check_port_name(value)]
    return _port_number(value, path)


def _count(value: Any, path: str) -> Sequence[FieldError]:
    """How many, or which part of a hundred."""
    if isinstance(value, str):
        if not _PERCENT.fullmatch(value):
            return [invalid(path, value, _PERCENT_TEXT)]
        return [invalid(path, value, "must not be greater than 100%")] if int(value[:-1]) > 100 else ()
    return _not_negative(value, path)


def _surge(value: Any, path: str) -> Sequence[FieldError]:
    """As `count`, and more than a hundred percent."""
    return () if isinstance(value, str) and _PERCENT.fullmatch(value) else _count(value, path)


def _labels(value: Any, path: str) -> Sequence[FieldError]:
    return list(validate_labels(path, value)) if value else ()


def _unique(*names: str) -> Check:
    """No two items of a list have the same values of these fields; without fields, no two are the same."""

    def of(value: Any, path: str) -> Sequence[FieldError]:
        if not value or len(value) == 1:
            return ()
        keys = [[item.get(name) for name in names] if names else item for item in value]
        found = []
        for index in repeats(keys):
            key, item = keys[index], value[index]
            if key != [None]:
                shown = (key[0] if len(names) == 1 else item) if names else item
                found.append(duplicate(f"{path}[{index}]" + (f".{names[0]}" if len(names) == 1 else ""), shown))
        return found

    return of


def _at_most(most: str) -> Check:
    limit = int(most)

    def of(value: Any, path: str) -> Sequence[FieldError]:
        return [too_many(path, len(value), limit)] if isinstance(value, list) and len(value) > limit else ()

    return of


def _selector(value: Any, path: str) -> Sequence[FieldError]:
    return list(selector_errors(value, path)) if value else ()


def selector_errors(selector: Any, path: str) -> Iterator[FieldError]:
    """Errors of a metav1.LabelSelector."""
    selector = selector or {}
    yield from validate_labels(f"{path}.matchLabels", selector.get("matchLabels") or {})
    for index, term in enumerate(selector.get("matchExpressions") or ()):
        where = f"{path}.matchExpressions[{index}]"
        key, operator, values = term.get("key", ""), term.get("operator"), term.get("values") or []
        yield from (invalid(f"{where}.key", key, text) for text in check_qualified_name(key))
        for position, value in enumerate(values):
            yield from (invalid(f"{where}.values[{position}]", value, text) for text in check_label_value(value))
        if operator in ("In", "NotIn"):
            if not values:
                yield required(f"{where}.values", "must be specified when `operator` is 'In' or 'NotIn'")
        elif operator in ("Exists", "DoesNotExist"):
            if values:
                text = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
                yield forbidden(f"{where}.values", text)
        else:
            yield invalid(f"{where}.operator", operator, "not a valid selector operator")


_PLAIN: Final[dict[str, Check]] = {
    "count": _count,
    "labels": _labels,
    "needed": _needed,
    "port": _port,
    "selector": _selector,
    "set": _set,
    "surge": _surge,
    **{name: _text(check) for name, check in _TEXTS.items()},
}
_WITH_WORDS: Final[dict[str, Callable[..., Check]]] = {
    "at-most": _at_most,
    "min": _minimum,
    "one-of": _one_of,
    "range": _range,
    "unique": _unique,
}


def _check(words: str) -> Check:
    name, *rest = words.split()
    return _WITH_WORDS[name](*rest) if name in _WITH_WORDS else _PLAIN[name]


# --- tables ---


class Rules:
    """A table's tree. `errors` walks a value, `path` being where it is in its object."""

    __slots__ = ("_checks", "_fields", "_items")

    def __init__(self) -> None:
        self._checks: list[Check] = []
        self._fields: dict[str, Rules] = {}
        self._items: Rules | None = None

    def add(self, path: str, checks: Iterable[Check], shared: Rules | None = None) -> None:
        """Adds checks, and all that another table asks, at a path."""
        at = self
        for part in re.findall(r"[^.\[\]]+|\[\]", path):
            at = at._step(part)
        at._checks += checks
        if shared is not None:
            at._take(shared)

    def _step(self, part: str) -> Rules:
        if part == "[]":
            self._items = self._items or Rules()
            return self._items
        return self._fields.setdefault(part, Rules())

    def _take(self, other: Rules) -> None:
        self._checks += other._checks
        for name, rules in other._fields.items():
            self._step(name)._take(rules)
        if other._items is not None:
            self._step("[]")._take(other._items)

    def errors(self, value: Any, path: str) -> list[FieldError]:
        """What is wrong with a value."""
        found: list[FieldError] = []
        self._walk(value, path, found)
        return found

    def _walk(self, value: Any, path: str, found: list[FieldError]) -> None:
        for check in self._checks:
            found += check(value, path)
        if isinstance(value, dict):
            dot = f"{path}." if path else ""
            for name, rules in self._fields.items():
                item = value.get(name)
                if item is not None or rules._checks:
                    rules._walk(item, dot + name, found)
        elif isinstance(value, list) and self._items is not None:
            for index, item in enumerate(value):
                self._items._walk(item, f"{path}[{index}]", found)


@functools.cache
def rules(table: str, **shared: Rules) -> Rules:
    """The rules of a table; `shared` are the tables that it names in angle brackets."""
    made = Rules()
    for line in table.splitlines():
        path, _, asked = line.strip().partition(" ")
        if not path:
            continue
        parts = [part.strip() for part in asked.split(";")]
        names = [part[1:-1] for part in parts if part.startswith("<")]
        made.add(path, [_check(part) for part in parts if part and part[0] != "<"])
        for name in names:
            made.add(path, (), shared[name])
    return made


Defaults = tuple[tuple[tuple[str, ...], str, Any], ...]


@functools.cache
def defaults(table: str) -> Defaults:
    """The defaults of a table whose lines are a path and a JSON value."""
    found = []
    for line in table.splitlines():
        path, _, text = line.strip().partition(" ")
        if path:
            *parents, name = re.findall(r"[^.\[\]]+|\[\]", path)
            found.append((tuple(parents), name, msgspec.json.decode(text.strip())))
    return tuple(found)


def set_defaults(value: Json, table: Defaults) -> None:
    """Sets what is absent, in place, where the object that holds it is there."""
    for parents, name, default in table:
        for holder in _holders(value, parents):
            if isinstance(holder, dict) and holder.get(name) is None:
                holder[name] = dict(default) if isinstance(default, dict) else default


def _holders(value: Any, parents: tuple[str, ...]) -> Iterator[Any]:
    if not parents:
        yield value
    elif parents[0] == "[]":
        for item in value if isinstance(value, list) else ():
            yield from _holders(item, parents[1:])
    elif isinstance(value, dict):
        yield from _holders(value.get(parents[0]), parents[1:])
