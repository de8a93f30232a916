"""Custom resources: structural schemas as types, validation, pruning, defaulting; and what a CRD may say.

A structural schema is compiled into the same `Node`s as the built-in kinds, so that patches and field ownership work
alike. Sources: k8s.io/apiextensions-apiserver pkg/apiserver/schema and pkg/apis/apiextensions/validation. Left out, and
said so in docs/limits.md: CEL rules, conversion webhooks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from copy import deepcopy
from functools import lru_cache
from typing import Any, ClassVar, Final

from kproxy.api.addresses import canonical_ip
from kproxy.api.names import check_dns_label, check_dns_subdomain
from kproxy.api.problems import FieldError, duplicate, invalid, not_supported, required, show
from kproxy.apiserver.fields import DEDUCED, Path
from kproxy.apiserver.schema import OBJECT_META, Node, Prop, named
from kproxy.apiserver.status import Json
from kproxy.apiserver.strategy import STATUS, Context, Strategy

_TYPES: Final = ("array", "boolean", "integer", "number", "object", "string")
_KINDS: Final = {"array": "list", "boolean": "boolean", "integer": "integer", "number": "number", "string": "string"}
_DEEPEST: Final = 64


def compile_structural(schema: Json, *, root: bool = False) -> Node:
    """The type that a structural schema describes."""
    if not schema and not root:
        return DEDUCED
    kind = schema.get("type", "")
    if schema.get("x-kubernetes-int-or-string"):
        node = Node("intstr")
    elif kind == "object" or root or "properties" in schema:
        node = _object(schema, root)
    elif kind in _KINDS:
        node = Node(_KINDS[kind])
    else:
        return DEDUCED
    node.schema = schema
    node.nullable = bool(schema.get("nullable"))
    node.default = schema.get("default")
    if node.kind == "list":
        items = schema.get("items")
        node.item = compile_structural(items) if isinstance(items, dict) else DEDUCED
        node.list_type = schema.get("x-kubernetes-list-type", "atomic")
        node.list_keys = tuple(schema.get("x-kubernetes-list-map-keys", ()))
    return node


def _object(schema: Json, root: bool) -> Node:
    properties = schema.get("properties") or {}
    additional = schema.get("additionalProperties")
    node = Node("object")
    node.list_type = "atomic" if schema.get("x-kubernetes-map-type") == "atomic" else "granular"
    node.preserve = bool(schema.get("x-kubernetes-preserve-unknown-fields"))
    node.embedded = bool(schema.get("x-kubernetes-embedded-resource"))
    node.required = tuple(schema.get("required", ()))
    for name, child in properties.items():
        compiled = compile_structural(child)
        node.props[name] = Prop(compiled, child.get("default"), name in node.required, False, True)
    if root or node.embedded:
        for name in ("apiVersion", "kind"):
            node.props[name] = Prop(Node("string"), None, False, False, True)
        node.props["metadata"] = Prop(named(OBJECT_META), None, False, False, True)
    if isinstance(additional, dict):
        node.item = compile_structural(additional)
    elif additional is True or node.preserve:
        node.item = DEDUCED
    if not node.props and node.item is not None:
        node.kind = "map"
    return node


def prune(value: Any, node: Node, path: str, unknown: list[str]) -> Any:
    """The value without fields that the schema does not have; their paths go to `unknown`."""
    if node is DEDUCED:
        return value
    if isinstance(value, dict) and node.kind in ("object", "map"):
        kept = {}
        for key, item in value.items():
            where = f"{path}.{key}" if path else key
            prop = node.props.get(key)
            if prop is not None:
                kept[key] = item if prop.node.name == "ObjectMeta" else prune(item, prop.node, where, unknown)
            elif node.item is not None:
                kept[key] = prune(item, node.item, where, unknown)
            elif node.preserve:
                kept[key] = item
            else:
                unknown.append(where)
        return kept
    if isinstance(value, list) and node.kind == "list" and node.item is not None:
        return [prune(item, node.item, f"{path}[{index}]", unknown) for index, item in enumerate(value)]
    return value


def default_values(value: Any, node: Node) -> Any:
    """Fills in defaults; `null` where null is not allowed counts as absent if there is a default, and is dropped."""
    if isinstance(value, dict) and node.kind in ("object", "map") and node is not DEDUCED:
        for key, prop in node.props.items():
            if key in value and value[key] is None and not prop.node.nullable:
                del value[key]
            if key not in value and prop.default is not None:
                value[key] = deepcopy(prop.default)
        for key, item in value.items():
            child = node.props[key].node if key in node.props else node.item
            if child is not None and child.name != "ObjectMeta":
                default_values(item, child)
    elif isinstance(value, list) and node.kind == "list" and node.item is not None:
        for item in value:
            default_values(item, node.item)
    return value


@lru_cache(1024)
def _pattern(text: str) -> re.Pattern[str] | None:
    try:
        return re.compile(text)
    except re.error:
        return None


def validate_value(value: Any, schema: Json, path: str, depth: int = 0) -> Iterator[FieldError]:
    """Errors of a value against an OpenAPI schema, in the words of kube-openapi's validator."""
    if depth > _DEEPEST:
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
        shown = show(_type_name(value))
        yield FieldError(where, f"Invalid value: {shown}: {where} in body must be of type {kind}: {shown}")
        return
    if "enum" in schema and value not in schema["enum"]:
        choices = ", ".join(show(choice) for choice in schema["enum"])
        yield FieldError(where, f"Unsupported value: {show(value)}: supported values: {choices}")
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
        yield FieldError(where, f"Too long: may not be more than {schema['maxLength']} bytes")
    if "minLength" in schema and len(value) < schema["minLength"]:
        yield invalid(where, value, f"{where} in body should be at least {schema['minLength']} chars long")
    if "pattern" in schema:
        pattern = _pattern(schema["pattern"])
        if pattern is not None and not pattern.search(value):
            yield invalid(where, value, f"{where} in body should match '{schema['pattern']}'")
    form = schema.get("format", "")
    family = canonical_ip(value) if form in ("ipv4", "ipv6") else None
    wrong = {
        "ipv4": form == "ipv4" and (family is None or ":" in family),
        "ipv6": form == "ipv6" and (family is None or ":" not in family),
        "date-time": form == "date-time" and not re.fullmatch(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d.*", value),
        "date": form == "date" and not re.fullmatch(r"\d{4}-\d\d-\d\d", value),
        "uuid": form == "uuid" and not re.fullmatch(r"(?i)[0-9a-f]{8}-?([0-9a-f]{4}-?){3}[0-9a-f]{12}", value),
    }
    if wrong.get(form):
        yield invalid(where, value, f"{where} in body must be of type {form}: {show(value)}")


def _check_number(value: float, schema: Json, where: str) -> Iterator[FieldError]:
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is not None and (value < low or (schema.get("exclusiveMinimum") and value == low)):
        relation = "greater than" if schema.get("exclusiveMinimum") else "greater than or equal to"
        yield invalid(where, value, f"{where} in body should be {relation} {low}")
    if high is not None and (value > high or (schema.get("exclusiveMaximum") and value == high)):
        relation = "less than" if schema.get("exclusiveMaximum") else "less than or equal to"
        yield invalid(where, value, f"{where} in body should be {relation} {high}")
    if (step := schema.get("multipleOf")) and value % step:
        yield invalid(where, value, f"{where} in body should be a multiple of {step}")


def _check_list(value: list[Any], schema: Json, where: str, depth: int) -> Iterator[FieldError]:
    if "maxItems" in schema and len(value) > schema["maxItems"]:
        yield FieldError(where, f"Too many: {len(value)}: must have at most {schema['maxItems']} items")
    if "minItems" in schema and len(value) < schema["minItems"]:
        yield invalid(where, len(value), f"{where} in body should have at least {schema['minItems']} items")
    kind = schema.get("x-kubernetes-list-type")
    if kind in ("set", "map"):
        keys = schema.get("x-kubernetes-list-map-keys") or ()
        seen: list[Any] = []
        for index, item in enumerate(value):
            identity = {key: item.get(key) for key in keys} if kind == "map" and isinstance(item, dict) else item
            if identity in seen:
                yield duplicate(f"{where}[{index}]", identity)
            seen.append(identity)
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
        yield FieldError(where, f"Too many: {len(value)}: must have at most {schema['maxProperties']} items")
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


class CustomResourceStrategy(Strategy):
    """Objects of one version of a CustomResourceDefinition."""

    has_generation: ClassVar[bool] = True

    def __init__(self, schema: Json, node: Node, status: bool) -> None:
        self._schema = schema
        self._node = node
        self._status = status

    @property
    def resets(self) -> tuple[Path, ...]:
        """Fields that the main endpoint ignores."""
        return (STATUS,) if self._status else ()

    def default(self, value: Json) -> None:
        default_values(value, self._node)

    def prepare_create(self, value: Json, context: Context) -> None:
        if self._status:
            value.pop("status", None)

    def prepare_update(self, value: Json, old: Json, context: Context) -> None:
        if self._status:
            value.pop("status", None)
            if "status" in old:
                value["status"] = old["status"]

    def generation_of(self, value: Json) -> Any:
        return {
            name: item for name, item in value.items() if name not in ("metadata", "status", "kind", "apiVersion")
        } | ({} if self._status else {"status": value.get("status")})

    def validate(self, value: Json) -> list[FieldError]:
        return list(validate_value(value, self._schema, ""))


class CustomResourceDefinitionStrategy(Strategy):
    """apiextensions.k8s.io/v1 CustomResourceDefinition."""

    has_generation: ClassVar[bool] = True
    spec_resets: ClassVar[tuple[Path, ...]] = (STATUS,)

    def default(self, value: Json) -> None:
        spec = value["spec"]
        names = spec["names"]
        names.setdefault("singular", names.get("kind", "").lower())
        names.setdefault("listKind", f"{names.get('kind', '')}List")
        spec.setdefault("conversion", {"strategy": "None"})
        for version in spec.get("versions") or ():
            version.setdefault("served", False)
            version.setdefault("storage", False)

    def prepare_create(self, value: Json, context: Context) -> None:
        stored = [each.get("name", "") for each in value["spec"].get("versions") or () if each.get("storage")]
        value["status"] = {"conditions": None, "acceptedNames": {"plural": "", "kind": ""}, "storedVersions": stored}

    def prepare_update(self, value: Json, old: Json, context: Context) -> None:
        status = deepcopy(old.get("status") or {})
        known = status.get("storedVersions") or []
        for each in value["spec"].get("versions") or ():
            if each.get("storage") and each.get("name") not in known:
                known = [*known, each.get("name", "")]
        status["storedVersions"] = known
        value["status"] = status

    def validate(self, value: Json) -> list[FieldError]:
        spec, name = value["spec"], value["metadata"].get("name", "")
        names = spec["names"]
        errors: list[FieldError] = []
        wanted = f"{names.get('plural', '')}.{spec.get('group', '')}"
        if name != wanted:
            errors.append(invalid("metadata.name", name, 'must be spec.names.plural+"."+spec.group'))
        if not spec.get("group"):
            errors.append(required("spec.group"))
        elif "." not in spec["group"]:
            errors.append(invalid("spec.group", spec["group"], "should be a domain with at least one dot"))
        else:
            errors += [invalid("spec.group", spec["group"], text) for text in check_dns_subdomain(spec["group"])]
        if spec.get("scope") not in ("Cluster", "Namespaced"):
            errors.append(not_supported("spec.scope", spec.get("scope", ""), ("Cluster", "Namespaced")))
        for field in ("plural", "singular", "kind", "listKind"):
            text = names.get(field, "")
            if not text:
                errors.append(required(f"spec.names.{field}"))
            else:
                errors += [invalid(f"spec.names.{field}", text, why) for why in check_dns_label(text.lower())]
        if names.get("kind") and names.get("kind") == names.get("listKind"):
            errors.append(invalid("spec.names.listKind", names["listKind"], "kind and listKind may not be the same"))
        errors += self._version_errors(spec)
        conversion = spec.get("conversion") or {}
        if conversion.get("strategy") not in ("None",):
            errors.append(not_supported("spec.conversion.strategy", conversion.get("strategy", ""), ("None",)))
        return errors

    def _version_errors(self, spec: Json) -> Iterator[FieldError]:
        versions = spec.get("versions") or []
        if not versions:
            yield invalid("spec.versions", versions, "must have exactly one version marked as storage version")
        elif sum(bool(each.get("storage")) for each in versions) != 1:
            names = [{"name": each.get("name")} for each in versions]
            yield invalid("spec.versions", names, "must have exactly one version marked as storage version")
        for index, version in enumerate(versions):
            path = f"spec.versions[{index}]"
            name = version.get("name", "")
            yield from (invalid(f"{path}.name", name, text) for text in check_dns_label(name))
            if name in [each.get("name") for each in versions[:index]]:
                yield duplicate(f"{path}.name", name)
            schema = (version.get("schema") or {}).get("openAPIV3Schema")
            if schema is None:
                yield required(f"{path}.schema.openAPIV3Schema", "schemas are required")
            else:
                where = f"{path}.schema.openAPIV3Schema"
                if schema.get("type") != "object":
                    yield (
                        required(f"{where}.type", "must not be empty at the root")
                        if not schema.get("type")
                        else invalid(f"{where}.type", schema["type"], "must be object at the root")
                    )
                yield from _schema_errors(schema, where, 0)
            for place, column in enumerate(version.get("additionalPrinterColumns") or ()):
                at = f"{path}.additionalPrinterColumns[{place}]"
                if not column.get("jsonPath"):
                    yield required(f"{at}.JSONPath")
                if column.get("type") not in ("boolean", "date", "integer", "number", "string"):
                    kinds = ("boolean", "date", "integer", "number", "string")
                    yield not_supported(f"{at}.type", column.get("type", ""), kinds)

    def validate_update(self, value: Json, old: Json) -> list[FieldError]:
        spec, before = value["spec"], old["spec"]
        errors = [
            invalid(f"spec.{name}", spec.get(name), "field is immutable")
            for name in ("group", "scope")
            if spec.get(name) != before.get(name)
        ]
        errors += [
            invalid(f"spec.names.{name}", spec["names"].get(name), "field is immutable")
            for name in ("plural", "kind")
            if spec["names"].get(name) != before["names"].get(name)
        ]
        present = {each.get("name") for each in spec.get("versions") or ()}
        for index, stored in enumerate((value.get("status") or {}).get("storedVersions") or ()):
            if stored not in present:
                text = (
                    "missing from spec.versions; v1 was previously a storage version, and must remain in spec.versions "
                )
                text += "until a storage migration ensures no data remains persisted in v1 and removes v1 from "
                text += "status.storedVersions"
                errors.append(invalid(f"status.storedVersions[{index}]", stored, text.replace("v1", str(stored))))
        return errors


def _schema_errors(schema: Any, path: str, depth: int) -> Iterator[FieldError]:
    """What makes a schema not structural, as far as it is checked."""
    if not isinstance(schema, dict) or depth > _DEEPEST:
        yield invalid(path, "", "must be a schema")
        return
    kind = schema.get("type", "")
    preserved = schema.get("x-kubernetes-preserve-unknown-fields") or schema.get("x-kubernetes-int-or-string")
    if kind and kind not in _TYPES:
        yield not_supported(f"{path}.type", kind, _TYPES)
    if not kind and not preserved:
        yield required(f"{path}.type", "must not be empty for specified object fields")
    for name, child in (schema.get("properties") or {}).items():
        yield from _schema_errors(child, f"{path}.properties[{name}]", depth + 1)
    if isinstance(schema.get("additionalProperties"), dict):
        if schema.get("properties"):
            yield FieldError(
                f"{path}.additionalProperties", "Forbidden: additionalProperties and properties are mutual exclusive"
            )
        yield from _schema_errors(schema["additionalProperties"], f"{path}.additionalProperties", depth + 1)
    if kind == "array":
        if not isinstance(schema.get("items"), dict):
            yield required(f"{path}.items", "must be specified")
        else:
            yield from _schema_errors(schema["items"], f"{path}.items", depth + 1)
    if "pattern" in schema and _pattern(schema["pattern"]) is None:
        yield invalid(f"{path}.pattern", schema["pattern"], "must be a valid regular expression")
    if schema.get("x-kubernetes-list-type") == "map" and not schema.get("x-kubernetes-list-map-keys"):
        yield required(f"{path}.x-kubernetes-list-map-keys", "must not be empty if x-kubernetes-list-type is map")
