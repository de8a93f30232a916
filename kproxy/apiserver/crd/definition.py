"""apiextensions.k8s.io/v1 CustomResourceDefinition: its defaults, what it may say, what may change.

Source: k8s.io/apiextensions-apiserver pkg/apis/apiextensions/validation. The schema's own rules are in schema_rules.py.
What all versions have in common is checked once, and reported as kube-apiserver does: `spec.validation` instead of
`spec.versions[0].schema`, since its internal type has one place for it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import ClassVar, Final

from kproxy.api.fielderror import FieldError, duplicate, invalid, not_supported, repeats, required, too_many
from kproxy.api.validation.names import check_dns_label, check_dns_subdomain
from kproxy.apiserver.crd.schema_rules import rule_paths, schema_errors, unknown_formats
from kproxy.apiserver.errors import Json
from kproxy.apiserver.kinds.strategy import STATUS, Context, Strategy
from kproxy.apiserver.schema.field_paths import Path

CRDS: Final = "customresourcedefinitions.apiextensions.k8s.io"
CRD_CLEANUP: Final = "customresourcecleanup.apiextensions.k8s.io"
"""The finalizer by which a definition waits for its objects."""
_PROTECTED: Final = ("k8s.io", "kubernetes.io")
_APPROVAL: Final = "api-approved.kubernetes.io"
_UNEVALUATED: Final = "x-kubernetes-validations are stored, but kproxy's API server does not evaluate them: "
_MAX_SELECTABLE: Final = 8
_COLUMN_TYPES: Final = ("boolean", "date", "integer", "number", "string")
_COLUMN_FORMATS: Final = (
    "binary", "bsonobjectid", "byte", "cidr", "creditcard", "date", "date-time", "datetime", "double", "duration",
    "email", "float", "hexcolor", "hostname", "int32", "int64", "ipv4", "ipv6", "isbn", "isbn10", "isbn13", "mac",
    "password", "rgbcolor", "ssn", "uri", "uuid", "uuid3", "uuid4", "uuid5",
)  # fmt: skip


class CustomResourceDefinitionStrategy(Strategy):
    """apiextensions.k8s.io/v1 CustomResourceDefinition."""

    qualified_finalizers: ClassVar[bool] = False
    has_generation: ClassVar[bool] = True
    spec_resets: tuple[Path, ...] = (STATUS,)

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

    def prepare_delete(self, value: Json, context: Context) -> None:
        """Waits for its objects: a finalizer, and a condition that says so (k8s.io/apiextensions-apiserver
        pkg/registry/customresourcedefinition/etcd.go)."""
        meta = value["metadata"]
        if meta.get("deletionTimestamp"):
            return
        meta["finalizers"] = [each for each in meta.get("finalizers") or () if each != CRD_CLEANUP] + [CRD_CLEANUP]
        terminating = {
            "type": "Terminating", "status": "True", "lastTransitionTime": context.now,
            "reason": "InstanceDeletionPending",
            "message": "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
        }  # fmt: skip
        status = value.setdefault("status", {})
        status["conditions"] = [*(status.get("conditions") or ()), terminating]

    def must_be_emptied(self, body: bytes) -> bool:
        return CRD_CLEANUP.encode() in body

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
        errors += _approval_errors(value)
        for field in ("shortNames", "categories"):
            for index, text in enumerate(names.get(field) or ()):
                errors += [invalid(f"spec.names.{field}[{index}]", text, why) for why in check_dns_label(text)]
        if spec.get("preserveUnknownFields"):
            text = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema "
            text += "instead"
            errors.append(invalid("spec.preserveUnknownFields", True, text))
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
        again = set(repeats([each.get("name") for each in versions]))
        for index, version in enumerate(versions):
            path = f"spec.versions[{index}]"
            name = version.get("name", "")
            yield from (invalid(f"{path}.name", name, text) for text in check_dns_label(name))
            if index in again:
                yield duplicate(f"{path}.name", name)
            yield from _deprecation_errors(version, path)
        for shared, path, version in _shared_parts(versions):
            yield from _PARTS[shared](version, path)

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

    def warnings(self, value: Json, old: Json | None) -> list[str]:
        """Of unknown formats that a write brings, and of CEL rules, which nothing evaluates."""
        schemas, before = dict(_schemas(value)), dict(_schemas(old)) if old is not None else {}
        if schemas == before:
            return []
        known = {name for schema in before.values() for name in unknown_formats(schema)}
        formats = dict.fromkeys(name for schema in schemas.values() for name in unknown_formats(schema))
        found = [f"unrecognized format {json.dumps(name)}" for name in formats if name not in known]
        paths = [at for path, schema in schemas.items() for at in rule_paths(schema, path)]
        if paths:
            found.append(_UNEVALUATED + paths[0])
            if len(paths) > 1:
                found[-1] += f" and {len(paths) - 1} more"
        return found


def _schemas(value: Json) -> Iterator[tuple[str, Json]]:
    for index, version in enumerate(value["spec"].get("versions") or ()):
        schema = (version.get("schema") or {}).get("openAPIV3Schema")
        if schema is not None:
            yield f"spec.versions[{index}].schema.openAPIV3Schema", schema


def _shared_parts(versions: list[Json]) -> Iterator[tuple[str, str, Json]]:
    """(part, path, version) for each part of each version; once only for a part that is the same in all of them."""
    for part, shared in (
        ("schema", "spec.validation"), ("subresources", "spec.subresources"),
        ("additionalPrinterColumns", "spec.additionalPrinterColumns"), ("selectableFields", "spec.selectableFields"),
    ):  # fmt: skip
        if versions and all(each.get(part) == versions[0].get(part) for each in versions):
            yield part, shared, versions[0]
        else:
            for index, version in enumerate(versions):
                yield part, f"spec.versions[{index}].{part}", version


def _schema_part(version: Json, path: str) -> Iterator[FieldError]:
    schema = (version.get("schema") or {}).get("openAPIV3Schema")
    if schema is None:
        where = path.replace("spec.validation", "spec.versions[0].schema")
        yield required(f"{where}.openAPIV3Schema", "schemas are required")
        return
    has_status = "status" in (version.get("subresources") or {})
    yield from schema_errors(schema, f"{path}.openAPIV3Schema", has_status=has_status)


def _subresources_part(version: Json, path: str) -> Iterator[FieldError]:
    scale = (version.get("subresources") or {}).get("scale")
    if scale is None:
        return
    for name, roots, said in (
        ("specReplicasPath", (".spec.",), "under .spec"), ("statusReplicasPath", (".status.",), "under .status"),
        ("labelSelectorPath", (".spec.", ".status."), "under either .spec or .status"),
    ):  # fmt: skip
        text, where = scale.get(name, ""), f"{path}.scale.{name}"
        if not text:
            if name != "labelSelectorPath":
                yield required(where)
        elif not text.startswith("."):
            yield invalid(where, text, "must be a simple json path starting with .")
        elif not text.startswith(roots):
            yield invalid(where, text, f"should be a json path {said}")


def _columns_part(version: Json, path: str) -> Iterator[FieldError]:
    for index, column in enumerate(version.get("additionalPrinterColumns") or ()):
        at = f"{path}[{index}]"
        if not column.get("name"):
            yield required(f"{at}.name")
        if not column.get("type"):
            yield required(f"{at}.type", f"must be one of {','.join(_COLUMN_TYPES)}")
        elif column["type"] not in _COLUMN_TYPES:
            yield invalid(f"{at}.type", column["type"], f"must be one of {','.join(_COLUMN_TYPES)}")
        if column.get("format") and column["format"] not in _COLUMN_FORMATS:
            yield invalid(f"{at}.format", column["format"], f"must be one of {','.join(_COLUMN_FORMATS)}")
        if not column.get("jsonPath"):
            yield required(f"{at}.JSONPath")
        elif not column["jsonPath"].startswith("."):
            yield invalid(f"{at}.JSONPath", column["jsonPath"], "must be a simple json path starting with .")


def _selectable_part(version: Json, path: str) -> Iterator[FieldError]:
    schema: Json = (version.get("schema") or {}).get("openAPIV3Schema") or {}
    seen: set[str] = set()
    for index, each in enumerate(version.get("selectableFields") or ()):
        at, text = f"{path}[{index}]", each.get("jsonPath", "")
        if not text:
            yield required(f"{at}.jsonPath")
            continue
        found, problem = _schema_at(schema, text)
        if problem:
            yield invalid(f"{at}.jsonPath", text, f"is an invalid path: {problem}")
            continue
        if text.split(".")[1] == "metadata":
            yield invalid(at, text, "must not point to fields in metadata")
        if found.get("type") not in ("string", "boolean", "integer"):
            why = "must point to a field of type string, boolean or integer. Enum string fields and strings with "
            yield invalid(at, text, f"{why}formats are allowed.")
        if text in seen:
            yield duplicate(at, text)
        seen.add(text)
    if len(seen) > _MAX_SELECTABLE:
        yield too_many(path, len(seen), _MAX_SELECTABLE)


def _schema_at(schema: Json, path: str) -> tuple[Json, str]:
    """The schema that a path of property names leads to, or what is wrong with the path."""
    if not re.fullmatch(r"(\.[A-Za-z_][A-Za-z0-9_-]*)+", path):
        return {}, "must be a simple path of field names, each after a dot"
    for name in path.split(".")[1:]:
        found = (schema.get("properties") or {}).get(name)
        if not isinstance(found, dict):
            return {}, f"does not refer to a valid field: {name}"
        schema = found
    return schema, ""


_PARTS: Final[dict[str, Callable[[Json, str], Iterator[FieldError]]]] = {
    "schema": _schema_part,
    "subresources": _subresources_part,
    "additionalPrinterColumns": _columns_part,
    "selectableFields": _selectable_part,
}


def _deprecation_errors(version: Json, path: str) -> Iterator[FieldError]:
    text = version.get("deprecationWarning")
    if text is None:
        return
    where = f"{path}.deprecationWarning"
    if not version.get("deprecated"):
        yield invalid(where, text, "can only be set for deprecated versions")
    if not text.strip():
        yield invalid(where, text, "must not be empty")
    if len(text) > 256:
        yield invalid(where, text, "must be <= 256 characters long")
    odd = next((position for position, character in enumerate(text) if not character.isprintable()), -1)
    if odd >= 0:
        why = f"must only contain printable UTF-8 characters; non-printable character found at index {odd}"
        yield invalid(where, text, why)


def _is_protected(value: Json) -> bool:
    group = value["spec"].get("group") or ""
    return group in _PROTECTED or group.endswith(tuple(f".{name}" for name in _PROTECTED))


def _approval_errors(value: Json) -> Iterator[FieldError]:
    """A group of the Kubernetes project needs the annotation of its approval, or one that says there is none."""
    if not _is_protected(value):
        return
    given = (value["metadata"].get("annotations") or {}).get(_APPROVAL, "")
    where, see = f"metadata.annotations[{_APPROVAL}]", "see https://github.com/kubernetes/enhancements/pull/1111"
    if not given:
        yield required(where, f'protected groups must have approval annotation "{_APPROVAL}", {see}')
    elif not given.startswith(("unapproved", "http://", "https://")):
        text = f'protected groups must have approval annotation "{_APPROVAL}" with either a URL or a reason starting '
        yield invalid(where, given, f'{text}with "unapproved", {see}')


def approval_conditions(value: Json) -> list[Json]:
    """What a CRD of a protected group says of its approval (pkg/controller/apiapproval), without the time."""
    if not _is_protected(value):
        return []
    given = (value["metadata"].get("annotations") or {}).get(_APPROVAL, "")
    approved = not given.startswith("unapproved")
    return [
        {
            "type": "KubernetesAPIApprovalPolicyConformant", "status": str(approved),
            "reason": "ApprovedAnnotation" if approved else "UnapprovedAnnotation",
            "message": f"approved in {given}" if approved else f'not approved: "{given}"',
        }
    ]  # fmt: skip


def warning_of(group: str, version: Json, kind: str) -> str:
    """What clients are warned of when they use a version; "" if it is not deprecated."""
    if not version.get("deprecated"):
        return ""
    return version.get("deprecationWarning") or f"{group}/{version.get('name', '')} {kind} is deprecated"


class Names:
    """The names that the accepted CRDs of one group have: no two of them may be the same.

    Source: k8s.io/apiextensions-apiserver pkg/controller/status/naming_controller.go.
    """

    def __init__(self) -> None:
        self._resources: set[str] = set()
        self._kinds: set[str] = set()

    def conflict(self, names: Json) -> tuple[str, str] | None:
        """Reason and message (of the last one) if another CRD has a name already; else the names are taken."""
        found: tuple[str, str] | None = None
        resources = {"Plural": [names.get("plural")], "Singular": [names.get("singular")]}
        resources["ShortNames"] = list(names.get("shortNames") or ())
        kinds = {"Kind": names.get("kind"), "ListKind": names.get("listKind")}
        for field, texts in resources.items():
            if taken := [f'"{text}"' for text in texts if text in self._resources]:
                found = f"{field}Conflict", f"{', '.join(taken)} is already in use"
        for field, text in kinds.items():
            if text in self._kinds:
                found = f"{field}Conflict", f'"{text}" is already in use'
        if found is not None:
            return found
        self._resources.update(text for texts in resources.values() for text in texts if text)
        self._kinds.update(text for text in kinds.values() if text)
        return None
