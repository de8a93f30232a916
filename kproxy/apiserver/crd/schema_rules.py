"""What a CustomResourceDefinition's schema may say: the rules that make it structural, and that its defaults fit.

`_inside` finds all schemas in one; each is asked, as in k8s.io/apiextensions-apiserver, what OpenAPI allows at all
(pkg/apis/apiextensions/validation), what makes it structural (pkg/apiserver/schema), and, once it is, whether its
default fits (pkg/apiserver/schema/defaulting). Rules in CEL are not looked at.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from typing import Any, Final

from kproxy.api.fielderror import FieldError, forbidden, invalid, not_supported, required
from kproxy.apiserver.crd.structural import compile_structural, prune
from kproxy.apiserver.crd.validation import DEEPEST, compiled_pattern, validate_value
from kproxy.apiserver.errors import Json

RULES: Final = "x-kubernetes-validations"
TYPES: Final = ("array", "boolean", "integer", "number", "object", "string")
_JUNCTORS: Final = ("anyOf", "allOf", "oneOf")
_UNSUPPORTED: Final = ("id", "additionalItems", "patternProperties", "definitions", "dependencies", "$ref")
_INT_OR_STRING: Final = [{"type": "integer"}, {"type": "string"}]
_META: Final = ("metadata", "apiVersion", "kind")
_LIST_TYPE, _MAP_KEYS = "x-kubernetes-list-type", "x-kubernetes-list-map-keys"
_PRESERVE, _EMBEDDED = "x-kubernetes-preserve-unknown-fields", "x-kubernetes-embedded-resource"
_INTSTR, _MAP_TYPE = "x-kubernetes-int-or-string", "x-kubernetes-map-type"
_NESTED: Final = (
    ("type", "must be empty to be structural"),
    ("additionalProperties", "must be undefined to be structural"),
    ("default", "must be undefined to be structural"),
    ("title", "must be empty to be structural"),
    ("description", "must be empty to be structural"),
    ("nullable", "must be false to be structural"),
    (_PRESERVE, "must be false to be structural"),
    (_EMBEDDED, "must be false to be structural"),
    (_INTSTR, "must be false to be structural"),
    (_MAP_KEYS, "must be empty to be structural"),
    (_LIST_TYPE, "must be undefined to be structural"),
)
"""What a schema inside a junctor must not say."""


_PLACES: Final = {"root": "at the root", "item": "for specified array items", "field": "for specified object fields"}
"""What a schema is that says how a value is built. Others are `nested`: they are in a junctor, and only restrict it."""


def schema_errors(schema: Json, path: str) -> list[FieldError]:
    """What is wrong with the schema of one version."""
    found = list(_inside(schema, path, "root"))
    deep = [where for where, each, _ in found if each is None]
    if deep:
        return [invalid(deep[0], "", f"must have at most {DEEPEST} levels")]
    errors: list[FieldError] = []
    if schema.get("nullable"):
        errors.append(forbidden(f"{path}.nullable", "nullable cannot be true at the root"))
    structural: list[FieldError] = []
    for where, each, level in found:
        errors += _openapi_errors(each, where)
        structural += _structural_errors(each, where, level) if level in _PLACES else _nested_errors(each, where, level)
    structural.sort(key=str)
    undeclared = (
        _undeclared(child, each, where, where + place)
        for where, each, level in found
        if level in _PLACES
        for place, child in _junctors(each)
    )
    structural += sorted((error for errors in undeclared for error in errors), key=str)
    if not errors and not structural:
        # Defaults inside additionalProperties are never applied to anything.
        for where, each, level in found:
            if level in _PLACES and ".additionalProperties" not in where:
                structural += _default_errors(each, where)
    return errors + structural


def rule_paths(schema: Json, path: str) -> Iterator[str]:
    """Where the CEL rules of a schema are."""
    for where, each, _ in _inside(schema, path, "root"):
        yield from (f"{where}.{RULES}[{index}]" for index in range(len((each or {}).get(RULES) or ())))


def _inside(schema: Json, path: str, level: str, depth: int = 0) -> Iterator[tuple[str, Any, str]]:
    """A schema and all those within it: where, what (None: it is nested too deeply), and what it is: `root`, `item`,
    `field`, `nested`, or one of the two that may say their type: `anyOf: [{type: integer}, {type: string}]`, by itself
    or in the first of allOf (`first`)."""
    if depth > DEEPEST:
        yield path, None, "nested"
        return
    yield path, schema, level
    for place, child in _below(schema):
        inner = "nested" if level not in _PLACES else "item" if place == ".items" else "field"
        yield from _inside(child, path + place, inner, depth + 1)
    excepted = (level in _PLACES or level == "first") and schema.get("anyOf") == _INT_OR_STRING
    for place, child in _junctors(schema):
        inner = "first" if place == ".allOf[0]" and level in _PLACES else "nested"
        if excepted and place.startswith(".anyOf"):
            inner = "typed"
        yield from _inside(child, path + place, inner, depth + 1)


def _below(schema: Json) -> Iterator[tuple[str, Json]]:
    """The schemas of a value's parts."""
    for name, child in (schema.get("properties") or {}).items():
        yield f".properties[{name}]", child
    for name in ("items", "additionalProperties"):
        if isinstance(schema.get(name), dict):
            yield f".{name}", schema[name]


def _junctors(schema: Json) -> Iterator[tuple[str, Json]]:
    """The schemas that a schema is joined with."""
    for name in _JUNCTORS:
        for index, child in enumerate(schema.get(name) or ()):
            yield f".{name}[{index}]", child
    if schema.get("not") is not None:
        yield ".not", schema["not"]


# --- OpenAPI ---


def _openapi_errors(schema: Json, path: str) -> Iterator[FieldError]:
    kind = schema.get("type", "")
    if kind == "null":
        yield forbidden(f"{path}.type", "type cannot be set to null, use nullable as an alternative")
    elif kind and kind not in TYPES:
        yield not_supported(f"{path}.type", kind, TYPES)
    yield from (forbidden(f"{path}.{name}", f"{name} is not supported") for name in _UNSUPPORTED if schema.get(name))
    if schema.get("uniqueItems"):
        text = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic"
        yield forbidden(f"{path}.uniqueItems", text)
    if schema.get(_PRESERVE) is False:
        yield invalid(f"{path}.{_PRESERVE}", False, "must be true or undefined")
    yield from _map_errors(schema, path, kind)
    yield from _list_errors(schema, path, kind)
    additional = schema.get("additionalProperties")
    if schema.get("properties") and (additional is False or isinstance(additional, dict)):
        text = "additionalProperties and properties are mutual exclusive"
        yield forbidden(f"{path}.additionalProperties", text)
    if isinstance(schema.get("items"), list):
        yield forbidden(f"{path}.items", "items must be a schema object and not an array")
    pattern = schema.get("pattern")
    if pattern and compiled_pattern(pattern) is None:
        yield invalid(f"{path}.pattern", pattern, "must be a valid regular expression")


def _map_errors(schema: Json, path: str, kind: str) -> Iterator[FieldError]:
    wanted = schema.get(_MAP_TYPE)
    if wanted is None:
        return
    if kind != "object":
        text = f"must be object if {_MAP_TYPE} is specified"
        yield invalid(f"{path}.type", kind, text) if kind else required(f"{path}.type", text)
    if wanted not in ("atomic", "granular"):
        yield not_supported(f"{path}.{_MAP_TYPE}", wanted, ("atomic", "granular"))


def _list_errors(schema: Json, path: str, kind: str) -> Iterator[FieldError]:
    wanted, keys = schema.get(_LIST_TYPE), schema.get(_MAP_KEYS) or []
    items = schema.get("items")
    of_what: Json = items if isinstance(items, dict) else {}
    if wanted is not None and kind != "array":
        text = f"must be array if {_LIST_TYPE} is specified"
        yield invalid(f"{path}.type", kind, text) if kind else required(f"{path}.type", text)
    elif wanted == "set":
        text = f"must be atomic as item of a list with {_LIST_TYPE}=set"
        if of_what.get("type") == "array" and of_what.get(_LIST_TYPE, "atomic") != "atomic":
            yield invalid(f"{path}.items.{_LIST_TYPE}", of_what.get(_LIST_TYPE), text)
        if of_what.get("type") == "object" and of_what.get(_MAP_TYPE) != "atomic":
            yield invalid(f"{path}.items.{_MAP_TYPE}", of_what.get(_MAP_TYPE), text)
    if wanted not in (None, "atomic", "set", "map"):
        yield not_supported(f"{path}.{_LIST_TYPE}", wanted, ("atomic", "set", "map"))
    if keys and wanted != "map":
        text = f"must be map if {_MAP_KEYS} is non-empty"
        where = f"{path}.{_LIST_TYPE}"
        yield required(where, text) if wanted is None else invalid(where, wanted, text)
    if wanted in ("set", "map") and of_what.get("nullable"):
        yield forbidden(f"{path}.items.nullable", f"cannot be nullable when {_LIST_TYPE} is {wanted}")
    if wanted == "map":
        yield from _map_list_errors(of_what, keys, items is None, path)


def _map_list_errors(items: Json, keys: list[str], missing: bool, path: str) -> Iterator[FieldError]:
    where = f"{path}.{_MAP_KEYS}"
    if not keys:
        yield required(where, f"must not be empty if {_LIST_TYPE} is map")
    if missing:
        yield required(f"{path}.items", f"must have a schema if {_LIST_TYPE} is map")
    elif items.get("type") != "object":
        text = f"must be object if parent array's {_LIST_TYPE} is map"
        yield invalid(f"{path}.items.type", items.get("type", ""), text)
        return
    properties = items.get("properties") or {}
    # Told once: each of the two shows all keys.
    if len(set(keys)) < len(keys):
        yield invalid(where, keys, "must not contain duplicate entries")
    if any(key not in properties for key in keys):
        yield invalid(where, keys, "entries must all be names of item properties")
    for key in keys:
        at = f"{path}.items.properties[{key}]"
        found = properties.get(key)
        if found is None:
            continue
        if found.get("type") in ("array", "object"):
            text = f"must be a scalar type if parent array's {_LIST_TYPE} is map"
            yield invalid(f"{at}.type", items.get("type"), text)
        if key not in (items.get("required") or ()) and found.get("default") is None:
            text = f"this property is in {_MAP_KEYS}, so it must have a default or be a required property"
            yield required(f"{at}.default", text)
        if found.get("nullable"):
            yield forbidden(f"{at}.nullable", f"this property is in {_MAP_KEYS}, so it cannot be nullable")


# --- structure ---


def _structural_errors(schema: Json, path: str, level: str) -> Iterator[FieldError]:
    """What makes a schema structural that says how a value is built."""
    kind = schema.get("type", "")
    if kind == "array" and schema.get("items") is None:
        yield required(f"{path}.items", "must be specified")
    if schema.get("additionalProperties") is not None and level == "root":
        yield forbidden(f"{path}.additionalProperties", "must not be used at the root")
    if schema.get(_INTSTR):
        for name in (_PRESERVE, _EMBEDDED):
            if schema.get(name):
                yield invalid(f"{path}.{name}", True, f"must be false if {_INTSTR} is true")
    if not kind and not schema.get(_INTSTR) and not schema.get(_PRESERVE):
        yield required(f"{path}.type", f"must not be empty {_PLACES[level]}")
    if level == "root":
        if kind and kind != "object":
            yield invalid(f"{path}.type", kind, "must be object at the root")
        yield from _meta_errors(schema.get("properties") or {}, path)


def _meta_errors(properties: Json, path: str) -> Iterator[FieldError]:
    for name, wanted in (("kind", "string"), ("apiVersion", "string"), ("metadata", "object")):
        found = properties.get(name)
        if found is not None and found.get("type") != wanted:
            yield invalid(f"{path}.properties[{name}].type", found.get("type", ""), f"must be {wanted}")
    metadata = properties.get("metadata")
    if metadata is not None:
        rest = {name: value for name, value in metadata.items() if name not in ("type", "default", "description")}
        if set(rest.get("properties") or ()) <= {"name", "generateName"}:
            rest.pop("properties", None)
        if any(rest.values()):
            text = "must not specify anything other than name and generateName, but metadata is implicitly specified"
            yield forbidden(f"{path}.properties[metadata]", text)


def _nested_errors(schema: Json, path: str, level: str) -> Iterator[FieldError]:
    """What a schema in a junctor must not say."""
    if level == "typed":
        return
    yield from (
        forbidden(f"{path}.{name}", text) for name, text in _NESTED if schema.get(name) not in (None, "", False, [])
    )
    if "metadata" in (schema.get("properties") or {}):
        yield forbidden(f"{path}.properties[metadata]", "must not be specified in a nested context")


def _undeclared(nested: Json, schema: Json, where: str, at: str) -> Iterator[FieldError]:
    """What a schema in a junctor, found at `at`, speaks of and `schema`, found at `where`, does not have."""
    for place, child in _junctors(nested):
        yield from _undeclared(child, schema, where, at + place)
    own = dict(_below(schema))
    for place, child in _below(nested):
        if place not in own:
            yield required(where + place, f"because it is defined in {at}{place}")
        else:
            yield from _undeclared(child, own[place], where + place, at + place)


def _default_errors(schema: Json, path: str) -> Iterator[FieldError]:
    """A default that does not fit its own schema."""
    default = schema.get("default")
    if default is not None:
        where = f"{path}.default"
        if prune(deepcopy(default), compile_structural(schema), "", []) != default:
            yield invalid(where, default, "must not have unknown fields")
        yield from validate_value(default, schema, where)
