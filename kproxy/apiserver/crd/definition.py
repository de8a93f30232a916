"""apiextensions.k8s.io/v1 CustomResourceDefinition: its defaults, what it may say, what may change.

Source: k8s.io/apiextensions-apiserver pkg/apis/apiextensions/validation. The schema's own rules are in schema_rules.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import ClassVar, Final

from kproxy.api.fielderror import FieldError, duplicate, invalid, not_supported, repeats, required
from kproxy.api.validation.names import check_dns_label, check_dns_subdomain
from kproxy.apiserver.crd.schema_rules import rule_paths, schema_errors
from kproxy.apiserver.errors import Json
from kproxy.apiserver.kinds.strategy import STATUS, Context, Strategy
from kproxy.apiserver.schema.field_paths import Path

CRDS: Final = "customresourcedefinitions.apiextensions.k8s.io"
CRD_CLEANUP: Final = "customresourcecleanup.apiextensions.k8s.io"
"""The finalizer by which a definition waits for its objects."""
_UNEVALUATED: Final = "x-kubernetes-validations are stored, but kproxy's API server does not evaluate them: "
_COLUMN_TYPES: Final = ("boolean", "date", "integer", "number", "string")


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
            for name, check in _PARTS.items():
                yield from check(version, f"{path}.{name}")

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
                    f"missing from spec.versions; {stored} was previously a storage version, and must remain in "
                    "spec.versions until a storage migration ensures no data remains persisted in "
                    f"{stored} and removes {stored} from status.storedVersions"
                )
                errors.append(invalid(f"status.storedVersions[{index}]", stored, text))
        return errors

    def warnings(self, value: Json, old: Json | None) -> list[str]:
        """Of CEL rules that a write brings, which nothing evaluates."""
        schemas = dict(_schemas(value))
        if old is not None and schemas == dict(_schemas(old)):
            return []
        paths = [at for path, schema in schemas.items() for at in rule_paths(schema, path)]
        if not paths:
            return []
        return [_UNEVALUATED + paths[0] + (f" and {len(paths) - 1} more" if len(paths) > 1 else "")]


def _schemas(value: Json) -> Iterator[tuple[str, Json]]:
    for index, version in enumerate(value["spec"].get("versions") or ()):
        schema = (version.get("schema") or {}).get("openAPIV3Schema")
        if schema is not None:
            yield f"spec.versions[{index}].schema.openAPIV3Schema", schema


def _schema_part(version: Json, path: str) -> Iterator[FieldError]:
    schema = (version.get("schema") or {}).get("openAPIV3Schema")
    if schema is None:
        yield required(f"{path}.openAPIV3Schema", "schemas are required")
        return
    yield from schema_errors(schema, f"{path}.openAPIV3Schema")


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
        if not column.get("jsonPath"):
            yield required(f"{at}.JSONPath")
        elif not column["jsonPath"].startswith("."):
            yield invalid(f"{at}.JSONPath", column["jsonPath"], "must be a simple json path starting with .")


_PARTS: Final[dict[str, Callable[[Json, str], Iterator[FieldError]]]] = {
    "schema": _schema_part,
    "subresources": _subresources_part,
    "additionalPrinterColumns": _columns_part,
}


def warning_of(group: str, version: Json, kind: str) -> str:
    """What clients are warned of when they use a version; "" if it is not deprecated."""
    if not version.get("deprecated"):
        return ""
    return version.get("deprecationWarning") or f"{group}/{version.get('name', '')} {kind} is deprecated"
