"""What is wrong with an object's metadata, in the API server's words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from kproxy.api.fielderror import FieldError, forbidden, invalid, repeats, required
from kproxy.api.validation.meta import NameCheck, validate_meta
from kproxy.api.validation.names import check_qualified_name
from kproxy.api.wire import structs
from kproxy.api.wire.convert import convert_meta
from kproxy.apiserver.errors import Json
from kproxy.apiserver.kinds.strategy import FOREGROUND, ORPHAN
from kproxy.apiserver.schema.managed_fields import managed_fields_errors


def metadata_errors(
    value: Json, check_name: NameCheck, namespaced: bool, qualified_finalizers: bool = True
) -> list[FieldError]:
    """Errors of metadata; `check_name` says what is wrong with a name."""
    meta = value["metadata"]
    converted = convert_meta(msgspec.convert(meta, structs.WireMeta), "")
    errors = []
    if prefix := meta.get("generateName"):
        errors += [invalid("metadata.generateName", prefix, text) for text in check_name(prefix.rstrip("-.") or prefix)]
    errors += list(validate_meta(converted, check_name, namespaced=namespaced))
    errors += _finalizer_errors(meta.get("finalizers") or (), qualified_finalizers)
    errors += _owner_errors(meta.get("ownerReferences") or ())
    errors += managed_fields_errors(meta.get("managedFields"))
    return errors


def _finalizer_errors(finalizers: Sequence[str], qualified: bool) -> list[FieldError]:
    """Errors of the finalizers' names; `qualified`: each needs a slash."""
    path = "metadata.finalizers"
    errors = [invalid(path, each, text) for each in finalizers for text in check_qualified_name(each)]
    if ORPHAN in finalizers and FOREGROUND in finalizers:
        text = f"finalizer {ORPHAN} and {FOREGROUND} cannot be both set"
        errors.append(invalid(path, list(finalizers), text))
    if qualified:
        why = "name is neither a standard finalizer name nor is it fully qualified"
        errors += [
            invalid(f"{path}[{index}]", each, why)
            for index, each in enumerate(finalizers)
            if "/" not in each and each not in (FOREGROUND, ORPHAN, "kubernetes")
        ]
    return errors


def drop_repeated_owners(meta: Json) -> list[str]:
    """Leaves one of several equal ownerReferences, and says so (k8s.io/apiserver pkg/endpoints/handlers,
    dedupOwnerReferencesAndAddWarning)."""
    owners = meta.get("ownerReferences") or []
    again = dict.fromkeys(repeats(owners))
    if not again:
        return []
    repeated = ", ".join(dict.fromkeys(owners[index].get("uid", "") for index in again))
    meta["ownerReferences"] = [each for index, each in enumerate(owners) if index not in again]
    return [
        ".metadata.ownerReferences contains duplicate entries; API server dedups owner references in 1.20+, and may "
        f"reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: {repeated}"
    ]


def _owner_errors(owners: Any) -> list[FieldError]:
    errors = []
    controllers = 0
    for index, owner in enumerate(owners):
        path = f"metadata.ownerReferences[{index}]"
        errors += [
            required(f"{path}.{name}", "must not be empty")
            for name in ("apiVersion", "kind", "name", "uid")
            if not owner.get(name)
        ]
        controllers += bool(owner.get("controller"))
    if controllers > 1:
        text = "Only one reference can have Controller set to true."
        errors.append(invalid("metadata.ownerReferences", list(owners), text))
    return errors


def metadata_update_errors(value: Json, old: Json) -> list[FieldError]:
    """What may never change in metadata."""
    errors = []
    for name in ("name", "namespace", "uid", "creationTimestamp"):
        mine, theirs = value["metadata"].get(name), old["metadata"].get(name)
        if mine != theirs:
            errors.append(invalid(f"metadata.{name}", mine or "", "field is immutable"))
    if old["metadata"].get("deletionTimestamp"):
        before = set(old["metadata"].get("finalizers") or ())
        added = [each for each in value["metadata"].get("finalizers") or [] if each not in before]
        if added:
            listed = ", ".join(f'"{each}"' for each in added)
            text = "no new finalizers can be added if the object is being deleted, "
            text += f"found new finalizers []string{{{listed}}}"
            errors.append(forbidden("metadata.finalizers", text))
    return errors
