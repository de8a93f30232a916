"""What the small API server of these tests holds: versioned objects, their history, pages, watches; no I/O.

It answers as kube-apiserver v1.36.2 was recorded to (tests/reference/kubectl/): Status bodies, continue tokens, what
counts as too old or too new. `compact` forgets history, as etcd does after five minutes and at a restart.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Kind:
    """A resource that the server has."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def qualified(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural


KINDS = (
    Kind("", "v1", "services", "Service"),
    Kind("", "v1", "endpoints", "Endpoints"),
    Kind("", "v1", "nodes", "Node", False),
    Kind("", "v1", "namespaces", "Namespace", False),
    Kind("", "v1", "configmaps", "ConfigMap"),
    Kind("apps", "v1", "deployments", "Deployment"),
    Kind("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice"),
    Kind("example.org", "v1", "fruits", "Fruit"),
)


class StatusError(Exception):
    """An answer that is a Status."""

    def __init__(self, code: int, reason: str, message: str, details: Json | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.body: Json = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": message,
            "reason": reason,
            "code": code,
        }
        if details is not None:
            self.body["details"] = details


def expired(version: int, current: int) -> StatusError:
    return StatusError(410, "Expired", f"too old resource version: {version} ({current})")


@dataclass(frozen=True, slots=True)
class Change:
    """One write. `object` has the version of the write, for a deletion too."""

    version: int
    type: str
    kind: Kind
    key: str
    object: Json

    def event(self) -> Json:
        return {"type": self.type, "object": self.object}


@dataclass(slots=True)
class Storage:
    """All objects. `version` is that of the last write; of `history` nothing up to `compacted` is left."""

    version: int = 100
    compacted: int = 0
    objects: dict[tuple[str, str], Json] = field(default_factory=dict)
    history: list[Change] = field(default_factory=list)
    snapshots: dict[int, dict[tuple[str, str], Json]] = field(default_factory=dict)

    def put(self, kind: Kind, body: Mapping[str, Any]) -> Json:
        """Creates or replaces an object."""
        value = copy.deepcopy(dict(body))
        value["kind"], value["apiVersion"] = kind.kind, kind.api_version
        meta = value.setdefault("metadata", {})
        if kind.namespaced:
            meta.setdefault("namespace", "default")
        key = object_key(meta)
        old = self.objects.get((kind.qualified, key))
        self.version += 1
        meta["resourceVersion"] = str(self.version)
        meta.setdefault("uid", old["metadata"]["uid"] if old else f"00000000-0000-4000-8000-{self.version:012d}")
        meta.setdefault("creationTimestamp", "2026-01-02T03:04:05Z")
        self.objects[kind.qualified, key] = value
        self.history.append(Change(self.version, "MODIFIED" if old else "ADDED", kind, key, value))
        return value

    def delete(self, kind: Kind, key: str) -> Json:
        """Deletes an object. Raises StatusError."""
        self.get(kind, key)
        self.version += 1
        gone = copy.deepcopy(self.objects.pop((kind.qualified, key)))
        gone["metadata"]["resourceVersion"] = str(self.version)
        self.history.append(Change(self.version, "DELETED", kind, key, gone))
        return gone

    def get(self, kind: Kind, key: str) -> Json:
        """One object. Raises StatusError."""
        if (kind.qualified, key) not in self.objects:
            name = key.rpartition("/")[2]
            details = {"name": name, "kind": kind.plural} | ({"group": kind.group} if kind.group else {})
            raise StatusError(404, "NotFound", f'{kind.qualified} "{name}" not found', details)
        return self.objects[kind.qualified, key]

    def compact(self) -> None:
        """Forgets all history and every snapshot of a list."""
        self.compacted = self.version
        self.history.clear()
        self.snapshots.clear()

    def page(
        self,
        kind: Kind,
        namespace: str = "",
        *,
        limit: int = 0,
        continue_token: str = "",
        resource_version: str = "",
        selectors: Selectors | None = None,
    ) -> Json:
        """A page. Raises StatusError."""
        if resource_version.isdigit() and int(resource_version) > self.version:
            message = f"Timeout: Too large resource version: {resource_version}, current: {self.version}"
            causes = [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]
            raise StatusError(504, "Timeout", message, {"causes": causes, "retryAfterSeconds": 1})
        version, start, contents = self.version, "", self.objects
        if continue_token:
            version, start = _read_token(continue_token)
            if version not in self.snapshots:
                message = "The provided continue parameter is too old to display a consistent list result."
                raise StatusError(410, "Expired", message)
            contents = self.snapshots[version]
        wanted = selectors or Selectors()
        items = [
            (key, value)
            for (qualified, key), value in sorted(contents.items())
            if qualified == kind.qualified and key > start and wanted.match(value, namespace)
        ]
        meta: Json = {"resourceVersion": str(version)}
        if limit and len(items) > limit and resource_version != "0":
            self.snapshots.setdefault(version, dict(contents))
            meta["continue"] = json.dumps([version, items[limit - 1][0]])
            meta["remainingItemCount"] = len(items) - limit
            items = items[:limit]
        return {
            "kind": f"{kind.kind}List",
            "apiVersion": kind.api_version,
            "metadata": meta,
            "items": [_bare(value) for _, value in items],
        }

    def changes(self, kind: Kind, since: int) -> list[Change]:
        """What was written after a version, oldest first. Raises StatusError if that is forgotten."""
        if since < self.compacted:
            raise expired(since, self.compacted)
        return [change for change in self.history if change.version > since and change.kind == kind]

    def initial(self, kind: Kind, namespace: str, selectors: Selectors) -> list[Json]:
        """The objects as the synthetic ADDED events of a watch from nothing."""
        return [
            {"type": "ADDED", "object": value}
            for (qualified, _), value in sorted(self.objects.items())
            if qualified == kind.qualified and selectors.match(value, namespace)
        ]

    def keys(self, kind: Kind) -> dict[str, str]:
        """What is there: resourceVersion by key."""
        return {
            key: value["metadata"]["resourceVersion"]
            for (qualified, key), value in self.objects.items()
            if qualified == kind.qualified
        }


@dataclass(frozen=True, slots=True)
class Selectors:
    """`a=b,c,!d` label selectors and `metadata.name=x` or `spec.clusterIP!=x` field
    selectors; no more than tests need."""

    labels: str = ""
    fields: str = ""

    def match(self, value: Json, namespace: str = "") -> bool:
        meta = value["metadata"]
        if namespace and meta.get("namespace", "") != namespace:
            return False
        labels = meta.get("labels") or {}
        for part in filter(None, self.labels.split(",")):
            if part.startswith("!"):
                if part[1:] in labels:
                    return False
                continue
            name, equals, text = part.partition("=")
            if name not in labels or (equals and labels[name] != text.lstrip("=")):
                return False
        for part in filter(None, self.fields.split(",")):
            name, _, text = part.partition("=")
            if name == "spec.clusterIP!":  # of Services
                if (value.get("spec") or {}).get("clusterIP", "") == text:
                    return False
                continue
            if name != "metadata.name":
                message = f'"{name}" is not a known field selector: only "metadata.name", "metadata.namespace"'
                raise StatusError(400, "BadRequest", message)
            if meta["name"] != text:
                return False
        return True


def object_key(meta: Json) -> str:
    return f"{meta['namespace']}/{meta['name']}" if meta.get("namespace") else str(meta["name"])


def _bare(value: Json) -> Json:
    """An object as an item of a list, where kind and apiVersion are left out."""
    return {name: part for name, part in value.items() if name not in ("kind", "apiVersion")}


def bookmark(kind: Kind, version: int, initial_events_end: bool = False) -> Json:
    """A BOOKMARK event, as the server spells it."""
    meta: Json = {"resourceVersion": str(version), "creationTimestamp": None}
    if initial_events_end:
        meta["annotations"] = {"k8s.io/initial-events-end": "true"}
    return {"type": "BOOKMARK", "object": {"kind": kind.kind, "apiVersion": kind.api_version, "metadata": meta}}


def _read_token(token: str) -> tuple[int, str]:
    try:
        version, start = json.loads(token)
    except ValueError as error:
        raise StatusError(400, "BadRequest", "invalid continue token: continue key is not valid") from error
    return int(version), str(start)
