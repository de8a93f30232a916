"""Checks that every write shares: its namespace, its metadata, what its kind says of it; what an update may not write
through each endpoint; what is wrong with metadata, in the API server's words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from kproxy.api.fielderror import FieldError, invalid, repeats, required
from kproxy.api.fielderror import forbidden as forbidden_field
from kproxy.api.validation.meta import NameCheck, validate_meta
from kproxy.api.validation.names import check_qualified_name
from kproxy.api.wire import structs
from kproxy.api.wire.convert import convert_meta
from kproxy.apiserver.errors import Json, bad_request, conflict, forbidden, not_found, stale, too_large
from kproxy.apiserver.errors import invalid as invalid_object
from kproxy.apiserver.kinds.resources import Resource
from kproxy.apiserver.kinds.strategy import FOREGROUND, ORPHAN, Context
from kproxy.apiserver.schema.managed_fields import Manager, managed_fields_errors
from kproxy.apiserver.storage.store import Entry, Table

MAX_STORED: Final = 3 << 20
"""Octets of an object as JSON. Clients that apply it one after the other make it larger each time; etcd has such a
bound for kube-apiserver (--max-request-bytes, half of this, of protobuf)."""


def check_name(meta: Json, name: str) -> None:
    """Refuses an object with another name than the request's.

    Raises:
        StatusError: 400.
    """
    given = meta.get("name", "")
    if given and given != name:
        raise bad_request(f"the name of the object ({given}) does not match the name on the URL ({name})")


def check_patched_uid(resource: Resource, meta: Json, entry: Entry) -> None:
    """Refuses a patch that changes the UID: unlike that of an update it is no precondition, but a field like others.

    Raises:
        StatusError: 422.
    """
    if meta.get("uid") and meta["uid"] != entry.uid:
        errors = [invalid("metadata.uid", meta["uid"], "field is immutable")]
        raise invalid_object(resource.group, resource.kind, entry.name, errors)


def check_namespace(resource: Resource, namespace: str, meta: Json) -> None:
    """Puts the request's namespace into an object's metadata.

    Raises:
        StatusError: 400: the object names another.
    """
    given = meta.get("namespace", "")
    if resource.namespaced:
        if given and given != namespace:
            raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
        meta["namespace"] = namespace
    elif given:
        meta.pop("namespace")


def require_namespace(namespaces: Table, resource: Resource, namespace: str, name: str) -> None:
    """Refuses a new object in a namespace that is not there, or that is being deleted.

    Raises:
        StatusError: 404 or 403.
    """
    entry = namespaces.head(namespace)
    if entry is None:
        raise not_found("", "namespaces", namespace)
    if b'"deletionTimestamp"' in entry.body and entry.value["metadata"].get("deletionTimestamp"):
        why = f"unable to create new content in namespace {namespace} because it is being terminated"
        error = forbidden(resource.group, resource.plural, name, why)
        cause = {"reason": "NamespaceTerminating", "message": f"namespace {namespace} is being terminated"}
        error.details = {**(error.details or {}), "causes": [cause | {"field": "metadata.namespace"}]}
        raise error


def check_unchanged(resource: Resource, meta: Json, old: Json) -> None:
    """Refuses an update of an object other than the one that the client has read: `meta` is what it sent.

    Raises:
        StatusError: 409.
    """
    version = meta.get("resourceVersion", "")
    if version and version != old["resourceVersion"]:
        raise stale(resource.group, resource.plural, old["name"])
    if meta.get("uid") and meta["uid"] != old["uid"]:
        why = f"Precondition failed: UID in precondition: {meta['uid']}, UID in object meta: {old['uid']}"
        raise conflict(resource.group, resource.plural, old["name"], why)


def check_object(resource: Resource, value: Json, old: Json | None, subresource: str = "") -> list[str]:
    """What to warn the writer of; `old` is None for a new object.

    Raises:
        StatusError: 422, with all that is wrong; 413: it is too large, with the fields that each client owns.
    """
    strategy = resource.strategy
    size = len(msgspec.json.encode(value))
    if size > MAX_STORED and (old is None or size > len(msgspec.json.encode(old))):
        raise too_large(f"an object may have {MAX_STORED} octets, managedFields included, and this one has {size}")
    errors = metadata_errors(value, strategy.check_name, resource.namespaced, strategy.qualified_finalizers)
    if old is not None:
        errors += metadata_update_errors(value, old)
    found = strategy.check(value, old, subresource)
    refuse(resource, value["metadata"].get("name", ""), errors + found.errors)
    return found.warnings


def refuse(resource: Resource, name: str, errors: list[FieldError]) -> None:
    """Raises StatusError 422 if there are errors."""
    if errors:
        raise invalid_object(resource.group, resource.kind, name, errors)


def convertible(resource: Resource, managers: list[Manager]) -> list[Manager]:
    """Managers without those of a version in which the objects are not served: their fields cannot be converted."""
    return [each for each in managers if each.api_version in (resource.api_versions or (resource.api_version,))]


def keep_system_fields(meta: Json, old: Json) -> None:
    """Puts back what only the server writes in metadata."""
    for name in (
        "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "resourceVersion",
        "generation", "selfLink",
    ):  # fmt: skip
        if name in old:
            meta[name] = old[name]
        else:
            meta.pop(name, None)


def put_back(resource: Resource, value: Json, live: Json, subresource: str, context: Context) -> None:
    """Puts back what this endpoint may not write."""
    if subresource == "status":
        status = value.get("status")
        meta = value["metadata"]
        for name in [name for name in value if name not in ("metadata", "status")]:
            del value[name]
        for name, item in live.items():
            if name not in ("metadata", "status"):
                value[name] = item
        value.pop("status", None)
        if status is not None:
            value["status"] = status
        for name in resource.strategy.kept_by_status:
            meta.pop(name, None)
            if name in live["metadata"]:
                meta[name] = live["metadata"][name]
    elif subresource == "finalize":
        finalizers = value["spec"].get("finalizers")
        for name, item in live.items():
            if name != "metadata":
                value[name] = dict(item) if isinstance(item, dict) else item
        value["spec"].pop("finalizers", None)
        if finalizers:
            value["spec"]["finalizers"] = finalizers
    else:
        resource.strategy.prepare_update(value, live, context)


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
            errors.append(forbidden_field("metadata.finalizers", text))
    return errors
