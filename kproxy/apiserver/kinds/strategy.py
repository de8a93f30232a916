"""What a resource does beyond being stored: the hooks around a write.

The order of a write is kube-apiserver's: decode, default (`default`), note who owns which field, then `prepare_create`
or `prepare_update` (which put back what the client may not write), then validation, then `allocate`, then the log.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final, NamedTuple

from kproxy.api.fielderror import FieldError
from kproxy.api.validation.names import check_dns_subdomain
from kproxy.apiserver.errors import Json
from kproxy.apiserver.kinds.allocator import Allocators
from kproxy.apiserver.schema.field_paths import Path

SPEC: Final[Path] = ("f:spec",)
STATUS: Final[Path] = ("f:status",)
FOREGROUND: Final = "foregroundDeletion"
ORPHAN: Final = "orphan"
"""Finalizers of the garbage collector."""


class Context:
    """What strategies may use: allocators, the clock as RFC 3339 text, whether this is only a dry run."""

    __slots__ = ("allocators", "dry_run", "now")

    def __init__(self, allocators: Allocators, now: str, dry_run: bool) -> None:
        self.allocators = allocators
        self.now = now
        self.dry_run = dry_run


class Findings(NamedTuple):
    """What is wrong with a write; what only to warn of, where nothing is."""

    errors: list[FieldError]
    warnings: list[str]


class Strategy:
    """Hooks of a plain resource: metadata checked, nothing more. Hooks change `value` in place."""

    has_generation: ClassVar[bool] = False
    create_on_update: ClassVar[bool] = False
    qualified_finalizers: ClassVar[bool] = True
    """Whether a finalizer needs a slash: so it is for the kinds that kubernetes/kubernetes checks with
    pkg/apis/core/validation, not for those that only k8s.io/apimachinery pkg/api/validation looks at."""
    returns_deleted: ClassVar[bool] = False
    """Whether a deletion answers with the object; otherwise with a Status of success."""
    orphans: ClassVar[bool] = False
    """Whether a deletion that does not say what becomes of the dependents leaves them."""
    is_namespace: ClassVar[bool] = False
    """Whether an object is a namespace, whose path names it as the namespace, too."""
    undeletable: ClassVar[frozenset[str]] = frozenset()
    """Names of objects that must be there."""
    converts: ClassVar[bool] = False
    """Whether this version of the resource shows objects in another form than they are stored in."""
    spec_resets: tuple[Path, ...] = ()
    """Fields that the main endpoint ignores, for field ownership."""
    status_resets: ClassVar[tuple[Path, ...]] = (SPEC,)
    """The same of the status endpoint."""
    kept_by_status: ClassVar[tuple[str, ...]] = ()
    """What the status endpoint leaves as it is in metadata."""

    def check_name(self, name: str) -> tuple[str, ...]:
        """What is wrong with a name."""
        return check_dns_subdomain(name)

    # --- versions ---

    def from_version(self, value: Json) -> Json:
        """An object of this version with the names that are stored."""
        return value

    def to_version(self, value: Json) -> Json:
        """A stored object as this version spells it; `value` is the caller's own."""
        return value

    def prepare_storage(self, value: Json) -> None:
        """Takes out what the version that is stored does not have."""

    # --- writes ---

    def default(self, value: Json) -> None:
        """Sets the defaults that kube-apiserver would set."""

    def prepare_create(self, value: Json, context: Context) -> None:
        """Server-side values of a new object."""

    def prepare_update(self, value: Json, old: Json, context: Context) -> None:
        """Puts back what an update may not change."""

    def generation_of(self, value: Json) -> Any:
        """What counts as a change of the desired state."""
        return value.get("spec")

    def check(self, value: Json, old: Json | None, subresource: str = "") -> Findings:
        """What is wrong, beyond the metadata, with a new object, or with a change of `old` through a subresource. What
        was wrong with `old` already is not told again."""
        errors = self.validate(value)
        if old is None:
            errors += self.validate_create(value)
        else:
            errors = self.validate_update(value, old) + (self.ratchet(errors, value, old) if errors else [])
        return Findings(errors, [] if errors or subresource == "status" else self.warnings(value, old))

    def ratchet(self, errors: list[FieldError], value: Json, old: Json) -> list[FieldError]:
        """Those errors of an object that the one which it replaces did not have."""
        known = set(self.validate(old))
        return [each for each in errors if each not in known]

    def validate(self, value: Json) -> list[FieldError]:
        """What is wrong with an object, new or old."""
        return []

    def validate_create(self, value: Json) -> list[FieldError]:
        """Errors that only a new object can have."""
        return []

    def validate_update(self, value: Json, old: Json) -> list[FieldError]:
        """What is wrong with a change."""
        return []

    def allocate(self, value: Json, old: Json | None, context: Context) -> list[FieldError]:
        """Takes what only one object can have. Nothing is taken when there are errors."""
        return []

    def warnings(self, value: Json, old: Json | None) -> list[str]:
        """Warnings for the client; `old` is what an update replaces."""
        return []

    # --- deletion ---

    def grace_period(self, value: Json, requested: int | None) -> int:
        """Seconds that an object gets to end when it is deleted; `requested` by the client."""
        return 0

    def prepare_delete(self, value: Json, context: Context) -> None:
        """Server-side values of an object that is about to be deleted or marked."""

    def mark_deleted(self, value: Json, grace: int) -> None:
        """Notes, beside deletionTimestamp, that an object is being deleted."""
        value["metadata"]["deletionGracePeriodSeconds"] = grace

    def has_finalizers(self, value: Json) -> bool:
        """Whether finalizers still hold an object that is being deleted."""
        return bool(value["metadata"].get("finalizers"))

    def must_be_emptied(self, body: bytes) -> bool:
        """Whether a controller deletes the objects that live in this one, given as JSON, before it goes."""
        return False

    def release(self, value: Json, context: Context) -> None:
        """Gives back what a deleted object had."""


class StatusStrategy(Strategy):
    """A kind whose status only its subresource writes."""

    spec_resets: tuple[Path, ...] = (STATUS,)
    first_status: ClassVar[Json] = {}
    """The status of an object that no controller has looked at."""

    def prepare_create(self, value: Json, context: Context) -> None:
        value["status"] = dict(self.first_status)

    def prepare_update(self, value: Json, old: Json, context: Context) -> None:
        value["status"] = old.get("status") or dict(self.first_status)


def path_name(value: str) -> tuple[str, ...]:
    """Names that need only be safe in a path: RBAC objects (k8s.io/apimachinery pkg/api/validation/path)."""
    if value in (".", ".."):
        return (f"may not be '{value}'",)
    return tuple(f"may not contain '{character}'" for character in "/%" if character in value)
