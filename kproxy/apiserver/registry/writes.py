"""What a write is asked for, and what it gives back."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from kproxy.apiserver.errors import Json
from kproxy.apiserver.storage.store import Entry

JSON_PATCH: Final = "application/json-patch+json"
MERGE_PATCH: Final = "application/merge-patch+json"
STRATEGIC_PATCH: Final = "application/strategic-merge-patch+json"
APPLY_PATCH: Final = "application/apply-patch+yaml"
PATCHES: Final = (JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, APPLY_PATCH)
CUSTOM_PATCHES: Final = (JSON_PATCH, MERGE_PATCH, APPLY_PATCH)
"""The media types of patches, and those that a custom resource takes."""


@dataclass(frozen=True, slots=True)
class Options:
    """What a writing request asks for beside its object."""

    dry_run: bool = False
    field_manager: str = "unknown"
    field_validation: str = "Warn"
    force: bool = False
    noted: list[str] | None = None
    """Where warnings go that are known before the write is decided, so that they stand beside a refusal, too."""

    def sent(self, operation: str) -> Json:
        """The CreateOptions or UpdateOptions that webhooks are told; {} of a connection, which has none."""
        if operation == "CONNECT":
            return {}
        kind = f"{operation.capitalize()}Options"
        dry: Json = {"dryRun": ["All"]} if self.dry_run else {}
        asked = {"fieldManager": self.field_manager, "fieldValidation": self.field_validation}
        return {"kind": kind, "apiVersion": "meta.k8s.io/v1", **dry, **asked}

    def note(self, warnings: list[str]) -> list[str]:
        """Notes warnings, and returns them."""
        if self.noted is not None:
            self.noted.extend(warnings)
        return warnings


SERVER_OPTIONS: Final = Options(field_manager="kproxy-apiserver")
"""Of what the server writes itself."""


@dataclass(slots=True)
class DeleteOptions:
    """metav1.DeleteOptions."""

    grace: int | None = None
    propagation: str = ""
    uid: str = ""
    resource_version: str = ""
    dry_run: bool = False
    noted: list[str] | None = None
    """As of Options."""

    def sent(self, _operation: str) -> Json:
        """The DeleteOptions that webhooks are told."""
        found: Json = {"kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1"}
        conditions = {"uid": self.uid, "resourceVersion": self.resource_version}
        wanted = {key: text for key, text in conditions.items() if text}
        if self.grace is not None:
            found["gracePeriodSeconds"] = self.grace
        more = {"preconditions": wanted, "propagationPolicy": self.propagation, "dryRun": ["All"] * self.dry_run}
        return found | {key: value for key, value in more.items() if value}


@dataclass(slots=True)
class WriteResult:
    """The outcome of a write: the object as the client gets it (without kind and apiVersion), when it is durable, and
    what to warn of. `status`: answer with a Status of success instead of the object."""

    value: Json
    done: asyncio.Future[None] | None = None
    code: int = 200
    warnings: list[str] = field(default_factory=list)
    entry: Entry | None = None
    status: Json | None = None


def timestamp(moment: datetime) -> str:
    """RFC 3339 with seconds, as metav1.Time prints it."""
    return moment.replace(microsecond=0, tzinfo=None).isoformat() + "Z"


def utc_now() -> datetime:
    return datetime.now(UTC)


def same_but_times(value: Json, live: Json) -> bool:
    """Whether two versions of an object differ in nothing but the times of field ownership."""
    mine, theirs = value["metadata"], live["metadata"]
    if {k: v for k, v in value.items() if k != "metadata"} != {k: v for k, v in live.items() if k != "metadata"}:
        return False
    left = {key: item for key, item in mine.items() if key != "managedFields"}
    right = {key: item for key, item in theirs.items() if key != "managedFields"}
    if left != right:
        return False
    return _timeless(mine.get("managedFields")) == _timeless(theirs.get("managedFields"))


def _timeless(entries: Any) -> list[Json]:
    return [{key: item for key, item in entry.items() if key != "time"} for entry in entries or ()]
