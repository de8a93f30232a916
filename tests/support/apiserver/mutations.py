"""Single-field mutations of objects, drawn from the schemas of the OpenAPI document, and verdicts that are known."""

from __future__ import annotations

import copy
import fnmatch
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kproxy.apiserver.schema.types import definitions

Json = dict[str, Any]
_PREFIX = "#/components/schemas/"
_ODD, _LONG = "A_ b!/..", "x" * 300
_SCALARS = ("Time", "MicroTime", "Quantity", "IntOrString", "FieldsV1", "RawExtension", "JSON")


@dataclass(frozen=True)
class Mutation:
    """One changed field: where (`spec.ports[].port`), how, and the object with it."""

    path: str
    how: str
    value: Json


def mutations(sample: Json, schema_name: str) -> Iterator[Mutation]:
    """Every single-field mutation of an object whose type is a schema of the OpenAPI document."""
    schema = definitions()[schema_name]
    fields = {key: each for key, each in schema["properties"].items() if key not in ("apiVersion", "kind", "status")}
    for steps, found in _places(sample, {"properties": fields}, ()):
        for how, value in _changes(sample, steps, found):
            path = ".".join(str(step) for step in steps if not isinstance(step, int))
            path += "[]" if isinstance(steps[-1], int) else ""
            yield Mutation(path, how, value)


def _resolved(schema: Json) -> tuple[Json, str]:
    """A schema without its reference, and the name of what it referred to."""
    reference = schema.get("$ref") or (schema.get("allOf") or [{}])[0].get("$ref")
    if reference is None:
        return schema, ""
    name = reference.removeprefix(_PREFIX)
    return definitions()[name], name.rpartition(".")[2]


def _places(value: Any, schema: Json, steps: tuple[Any, ...]) -> Iterator[tuple[tuple[Any, ...], Json]]:
    """Where an object has a field, and the schema of what is there; of a list only its first item."""
    for name, child in (schema.get("properties") or {}).items():
        if not isinstance(value, dict) or name not in value or name == "managedFields":
            continue
        here, kind = _resolved(child)
        if kind in _SCALARS:
            yield (*steps, name), {"type": kind}
            continue
        yield (*steps, name), here
        yield from _places(value[name], here, (*steps, name))
        if here.get("type") == "array" and isinstance(value[name], list) and value[name]:
            item, kind = _resolved(here["items"])
            where = (*steps, name, 0)
            if kind not in _SCALARS and not item.get("properties"):
                yield where, item
            yield from _places(value[name][0], item, where)


def _changes(sample: Json, steps: tuple[Any, ...], schema: Json) -> Iterator[tuple[str, Json]]:
    def changed(value: Any) -> Json:
        found = copy.deepcopy(sample)
        at: Any = found
        for step in steps[:-1]:
            at = at[step]
        if value is _GONE:
            del at[steps[-1]]
        else:
            at[steps[-1]] = value
        return found

    held: Any = sample
    for step in steps:
        held = held[step]
    yield "removed", changed(_GONE)
    match schema.get("type"):
        case "string":
            for how, value in (("empty", ""), ("odd", _ODD), ("long", _LONG), ("type", {"a": 1})):
                yield how, changed(value)
        case "integer" | "number":
            for how, number in (("negative", -1), ("zero", 0), ("huge", 70000), ("big", 2**31), ("type", "x")):
                yield how, changed(number)
        case "IntOrString":
            for how, count in (("negative", -1), ("odd", _ODD), ("percent", "101%"), ("type", True)):
                yield how, changed(count)
        case "Quantity":
            for how, value in (("negative", "-1"), ("odd", "x")):
                yield how, changed(value)
        case "boolean":
            yield "flipped", changed(not held)
            yield "type", changed("x")
        case "array":
            yield "none", changed([])
            yield "type", changed("x")
            if held:
                yield "twice", changed([held[0], *held])
        case "object":
            yield "type", changed("x")
            if schema.get("properties"):
                yield "none", changed({})
                yield "unknown", changed({**held, "noSuchField": 1})


_GONE = object()


def known_verdicts() -> list[tuple[str, str, str, bool]]:
    """Kind, path and way of mutation as patterns, and whether Kubernetes takes it; the last that fits counts."""
    found = []
    for line in (Path(__file__).parent / "verdicts.txt").read_text().splitlines():
        words = line.partition("#")[0].split()
        if words:
            kind, path, ways, verdict = words
            assert verdict in ("valid", "invalid"), line
            found += [(kind, path, way, verdict == "valid") for way in ways.split(",")]
    return found


def verdict_of(kind: str, mutation: Mutation, known: list[tuple[str, str, str, bool]]) -> bool | None:
    """Whether Kubernetes takes a mutation; None if that is not recorded."""
    for wanted, path, how, valid in reversed(known):
        if (
            how == mutation.how
            and (wanted == "*" or kind in wanted.split(","))
            and fnmatch.fnmatchcase(mutation.path, path)
        ):
            return valid
    return None
