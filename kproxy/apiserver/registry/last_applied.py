"""kubectl's last-applied-configuration annotation in server-side apply.

An object that was applied on the client's side says in an annotation what was applied. When kubectl applies it on the
server's side (its field manager is then `kubectl` alone), the fields that still are as the annotation says
are no conflict, whoever owns them; and the annotation is kept up to date, so that it can be applied on the client's
side again. Source: k8s.io/apimachinery pkg/util/managedfields/internal (lastappliedmanager.go, lastappliedupdater.go).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from kproxy.apiserver.errors import Json
from kproxy.apiserver.kinds.resources import Resource
from kproxy.apiserver.schema import managed_fields
from kproxy.apiserver.schema.field_paths import Path, Paths, compare, named_by
from kproxy.apiserver.schema.managed_fields import FieldConflictError, Manager, conflict_error

ANNOTATION: Final = "kubectl.kubernetes.io/last-applied-configuration"
_KUBECTL: Final = "kubectl"
_MAX_ANNOTATIONS: Final = 256 * 1024
"""Bytes that all annotations of an object may have together."""
_ESCAPED: Final = str.maketrans({character: f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"})
"""What Go's JSON encoder escapes for the sake of HTML and JavaScript."""


def apply(
    live: Json | None, config: Json, resource: Resource, manager: Manager, owners: list[Manager], force: bool,
    reset: Sequence[Path],
) -> Json:  # fmt: skip
    """The object after server-side apply, not yet defaulted; see `managed_fields.apply`.

    Raises:
        StatusError: 409 with a cause for each field that another manager owns.
    """
    try:
        merged = managed_fields.apply(live, config, resource.node, manager, owners, force, reset)
    except FieldConflictError as error:
        conflicts = error.conflicts
        if manager.name == _KUBECTL and live is not None:
            unchanged = _as_last_applied(live, resource)
            conflicts = [(owner, path) for owner, path in conflicts if path not in unchanged]
        if conflicts:
            raise conflict_error(conflicts) from error
        merged = managed_fields.apply(live, config, resource.node, manager, owners, True, reset)
    if manager.name == _KUBECTL and (merged["metadata"].get("annotations") or {}).get(ANNOTATION):
        _update(merged["metadata"], {"apiVersion": resource.api_version, "kind": resource.kind, **config})
    return merged


def _as_last_applied(live: Json, resource: Resource) -> Paths:
    """The fields that the annotation names and that still are what it says."""
    found: Paths = set()
    try:
        applied: Any = msgspec.json.decode((live["metadata"].get("annotations") or {}).get(ANNOTATION) or "null")
    except msgspec.DecodeError:
        return found
    if not isinstance(applied, dict) or applied.get("apiVersion") != resource.api_version:
        return found
    bare = {key: item for key, item in applied.items() if key not in ("kind", "apiVersion")}
    named_by(bare, resource.node, (), found)
    changed: Paths = set()
    compare(bare, live, resource.node, (), changed, changed)
    return found - changed


def _update(meta: Json, config: Json) -> None:
    """Writes the annotation, unless there would be too many of them: then it goes."""
    given = dict(config.get("metadata") or {})
    if given.get("annotations"):
        given["annotations"] = {key: item for key, item in given["annotations"].items() if key != ANNOTATION}
    text = json.dumps({**config, "metadata": given}, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    annotations = {**meta["annotations"], ANNOTATION: text.translate(_ESCAPED) + "\n"}
    if sum(len(key.encode()) + len(item.encode()) for key, item in annotations.items()) > _MAX_ANNOTATIONS:
        del annotations[ANNOTATION]
    meta["annotations"] = annotations
