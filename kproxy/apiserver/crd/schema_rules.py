"""What a CustomResourceDefinition's schema may say: the rules that make it structural, and that its defaults fit.

Three passes over one schema, as in k8s.io/apiextensions-apiserver: what OpenAPI allows at all
(pkg/apis/apiextensions/validation), what makes it structural (pkg/apiserver/schema), and, once it is, its defaults
(pkg/apiserver/schema/defaulting). Rules in CEL are not looked at.
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


def schema_errors(schema: Json, path: str) -> list[FieldError]:
    """What is wrong with the schema of one version."""
    errors: list[FieldError] = []
    if schema.get("nullable"):
        errors.append(forbidden(f"{path}.nullable", "nullable cannot be true at the root"))
    errors += _openapi_errors(schema, path, 0)
    structural = sorted(_structural_errors(schema, path, 0, "root"), key=str)
    structural += sorted(_incomplete(schema, schema, path, path, 0), key=str)
    if not errors and not structural:
        structural = list(_default_errors(schema, path))
    return errors + structural


def rule_paths(schema: Json, path: str) -> Iterator[str]:
    """Where the CEL rules of a schema are."""
    for where, each in _inside(schema, path):
        yield from (f"{where}.{RULES}[{index}]" for index in range(len(each.get(RULES) or ())))


def _inside(schema: Any, path: str) -> Iterator[tuple[str, Json]]:
    """A schema and all those within it, with their paths."""
    if isinstance(schema, dict):
        yield path, schema
        for name in (*_JUNCTORS, "not"):
            found = schema.get(name) or ()
            for index, child in enumerate(found if isinstance(found, list) else [found]):
                yield from _inside(child, f"{path}.{name}" if name == "not" else f"{path}.{name}[{index}]")
        for place, child in _below(schema):
            yield from _inside(child, path + place)


# --- OpenAPI ---


def _openapi_errors(schema: Any, path: str, depth: int) -> Iterator[FieldError]:
    if not isinstance(schema, dict) or depth > DEEPEST:
        yield invalid(path, "", "must be a schema")
        return
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
    properties, additional = schema.get("properties") or {}, schema.get("additionalProperties")
    if properties and (additional is False or isinstance(additional, dict)):
        text = "additionalProperties and properties are mutual exclusive"
        yield forbidden(f"{path}.additionalProperties", text)
    if isinstance(additional, dict):
        yield from _openapi_errors(additional, f"{path}.additionalProperties", depth + 1)
    for name, child in properties.items():
        yield from _openapi_errors(child, f"{path}.properties[{name}]", depth + 1)
    for name in _JUNCTORS:
        for index, child in enumerate(schema.get(name) or ()):
            yield from _openapi_errors(child, f"{path}.{name}[{index}]", depth + 1)
    if schema.get("not") is not None:
        yield from _openapi_errors(schema["not"], f"{path}.not", depth + 1)
    items = schema.get("items")
    if isinstance(items, list):
        yield forbidden(f"{path}.items", "items must be a schema object and not an array")
    elif items is not None:
        yield from _openapi_errors(items, f"{path}.items", depth + 1)


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


def _structural_errors(schema: Any, path: str, depth: int, level: str) -> Iterator[FieldError]:
    if not isinstance(schema, dict) or depth > DEEPEST:
        return  # the first pass has said so
    kind = schema.get("type", "")
    items, properties = schema.get("items"), schema.get("properties") or {}
    if kind == "array" and items is None:
        yield required(f"{path}.items", "must be specified")
    yield from _structural_errors(items, f"{path}.items", depth + 1, "item")
    for name, child in properties.items():
        yield from _structural_errors(child, f"{path}.properties[{name}]", depth + 1, "field")
    additional = schema.get("additionalProperties")
    if additional is not None and level == "root":
        yield forbidden(f"{path}.additionalProperties", "must not be used at the root")
    yield from _structural_errors(additional, f"{path}.additionalProperties", depth + 1, "field")
    if schema.get(_INTSTR):
        for name in (_PRESERVE, _EMBEDDED):
            if schema.get(name):
                yield invalid(f"{path}.{name}", True, f"must be false if {_INTSTR} is true")
    yield from _value_errors(schema, path, depth, _is_int_or_string(schema))
    if not kind and not schema.get(_INTSTR) and not schema.get(_PRESERVE):
        places = {"root": "at the root", "item": "for specified array items", "field": "for specified object fields"}
        yield required(f"{path}.type", f"must not be empty {places[level]}")
    if level == "root" and kind and kind != "object":
        yield invalid(f"{path}.type", kind, "must be object at the root")
    if level == "root":
        yield from _meta_errors(properties, path)


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


def _is_int_or_string(schema: Json) -> tuple[bool, bool]:
    """Whether anyOf, or the first of allOf, is the one exception: `anyOf: [{type: integer}, {type: string}]`."""
    every = schema.get("allOf") or [{}]
    return schema.get("anyOf") == _INT_OR_STRING, every[0].get("anyOf") == _INT_OR_STRING


def _value_errors(schema: Json, path: str, depth: int, skip: tuple[bool, bool]) -> Iterator[FieldError]:
    for name in _JUNCTORS:
        if name == "anyOf" and skip[0]:
            continue
        for index, child in enumerate(schema.get(name) or ()):
            inner = name == "allOf" and index == 0 and skip[1]
            yield from _nested_errors(child, f"{path}.{name}[{index}]", depth + 1, inner)
    if schema.get("not") is not None:
        yield from _nested_errors(schema["not"], f"{path}.not", depth + 1, False)
    pattern = schema.get("pattern")
    if pattern and compiled_pattern(pattern) is None:
        yield invalid(f"{path}.pattern", pattern, "must be a valid regular expression")


def _nested_errors(schema: Any, path: str, depth: int, skip_any_of: bool) -> Iterator[FieldError]:
    if not isinstance(schema, dict) or depth > DEEPEST:
        return
    yield from _value_errors(schema, path, depth, (skip_any_of, False))
    if schema.get("items") is not None:
        yield from _nested_errors(schema["items"], f"{path}.items", depth + 1, False)
    for name, child in (schema.get("properties") or {}).items():
        yield from _nested_errors(child, f"{path}.properties[{name}]", depth + 1, False)
    yield from (
        forbidden(f"{path}.{name}", text) for name, text in _NESTED if schema.get(name) not in (None, "", False, [])
    )
    if "metadata" in (schema.get("properties") or {}):
        yield forbidden(f"{path}.properties[metadata]", "must not be specified in a nested context")


def _incomplete(nested: Json, schema: Json, where: str, at: str, depth: int) -> Iterator[FieldError]:
    """What the junctors of `nested`, found at `at`, speak of and `schema`, found at `where`, does not have."""
    if depth > DEEPEST:
        return
    for name in (*_JUNCTORS, "not"):
        found = nested.get(name)
        children = found if isinstance(found, list) else [] if found is None else [found]
        for index, child in enumerate(children):
            found_at = f"{at}.{name}" if name == "not" else f"{at}.{name}[{index}]"
            yield from _incomplete_in(child, schema, where, found_at, depth + 1)
    if nested is schema:
        for path, child in _below(schema):
            yield from _incomplete(child, child, where + path, where + path, depth + 1)


def _below(schema: Json) -> Iterator[tuple[str, Json]]:
    for name, child in (schema.get("properties") or {}).items():
        yield f".properties[{name}]", child
    for name in ("items", "additionalProperties"):
        if isinstance(schema.get(name), dict):
            yield f".{name}", schema[name]


def _incomplete_in(nested: Any, schema: Json, where: str, at: str, depth: int) -> Iterator[FieldError]:
    if not isinstance(nested, dict):
        return
    yield from _incomplete(nested, schema, where, at, depth)
    for path, child in _below(nested):
        own = dict(_below(schema)).get(path)
        if own is None:
            yield required(where + path, f"because it is defined in {at}{path}")
        else:
            yield from _incomplete_in(child, own, where + path, at + path, depth + 1)


# --- defaults ---


def _default_errors(schema: Json, path: str) -> Iterator[FieldError]:
    """Defaults that do not fit their own schema; those inside additionalProperties are never applied to anything."""
    default = schema.get("default")
    if default is not None:
        where = f"{path}.default"
        if prune(deepcopy(default), compile_structural(schema), "", []) != default:
            yield invalid(where, default, "must not have unknown fields")
        yield from validate_value(default, schema, where)
    if isinstance(schema.get("items"), dict):
        yield from _default_errors(schema["items"], f"{path}.items")
    for name, child in (schema.get("properties") or {}).items():
        yield from _default_errors(child, f"{path}.properties[{name}]")
