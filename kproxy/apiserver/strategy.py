"""What a resource does beyond being stored: the hooks around a write.

The order of a write is kube-apiserver's: decode, default (`default`), note who owns which field, then `prepare_create`
or `prepare_update` (which put back what the client may not write), then validation, then `allocate`, then the log.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final

import msgspec

from kproxy.api.fielderror import FieldError, invalid, required
from kproxy.api.validation.meta import NameCheck, validate_meta
from kproxy.api.validation.names import check_dns_label, check_dns_subdomain, check_qualified_name
from kproxy.api.wire import structs
from kproxy.api.wire.convert import convert_meta
from kproxy.apiserver.errors import Json
from kproxy.apiserver.schema.field_paths import Path
from kproxy.apiserver.schema.managed_fields import managed_fields_errors

if TYPE_CHECKING:
    from kproxy.apiserver.kinds.allocator import Allocators


class FieldsOf:
    """Takes the values of fields out of an object, for field selectors; equal if its paths are.

    `zeros` are the texts of fields that Go's JSON leaves out when they are false or 0; `computed` are fields that are
    not simply the value at their path.
    """

    __slots__ = ("_computed", "_split", "_zeros", "paths")

    def __init__(
        self,
        paths: tuple[str, ...],
        zeros: Mapping[str, str] | None = None,
        computed: Mapping[str, Callable[[Json], str]] | None = None,
    ) -> None:
        self.paths = paths
        self._zeros = zeros or {}
        self._computed = {path: call for path, call in (computed or {}).items() if path in paths}
        self._split = [(path, path.split(".")) for path in paths if path not in self._computed]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FieldsOf) and self.paths == other.paths

    def __hash__(self) -> int:
        return hash(self.paths)

    def __call__(self, value: Json) -> dict[str, str]:
        """The fields that are there, as text."""
        found = dict(self._zeros)
        for path, parts in self._split:
            item: Any = value
            for part in parts:
                item = item.get(part) if isinstance(item, dict) else None
            if isinstance(item, bool):
                item = "true" if item else "false"
            if isinstance(item, str | int):
                found[path] = str(item)
        for path, call in self._computed.items():
            found[path] = call(value)
        return found


SPEC: Final[Path] = ("f:spec",)
STATUS: Final[Path] = ("f:status",)


def path_fields(paths: tuple[str, ...]) -> FieldsOf:
    """A function that takes the values of dotted paths out of an object, for field selectors."""
    return FieldsOf(paths)


FOREGROUND: Final = "foregroundDeletion"
ORPHAN: Final = "orphan"
"""Finalizers of the garbage collector."""

no_fields: Final = FieldsOf(())
"""The fields of a resource that is selected by name only."""


class Context:
    """What strategies may use: allocators, the clock as RFC 3339 text, and whether this is only a dry run."""

    __slots__ = ("allocators", "dry_run", "now")

    def __init__(self, allocators: Allocators, now: str, dry_run: bool) -> None:
        self.allocators = allocators
        self.now = now
        self.dry_run = dry_run


class Strategy:
    """Hooks of a plain resource: metadata checked, nothing more. Hooks change `value` in place."""

    def check_name(self, name: str) -> tuple[str, ...]:
        """What is wrong with a name."""
        return check_dns_subdomain(name)

    has_generation: ClassVar[bool] = False
    status_on_create: ClassVar[bool] = False
    """Whether a create may bring its status along."""
    unconditional_update: ClassVar[bool] = True
    """Whether an update without resourceVersion overwrites whatever is there."""
    create_on_update: ClassVar[bool] = False
    spec_resets: ClassVar[tuple[Path, ...]] = ()
    """Fields that the main endpoint ignores, for field ownership."""
    status_resets: ClassVar[tuple[Path, ...]] = (SPEC,)

    qualified_finalizers: ClassVar[bool] = True
    """Whether a finalizer needs a slash: so it is for the kinds that kubernetes/kubernetes checks with
    pkg/apis/core/validation, not for those that only k8s.io/apimachinery pkg/api/validation looks at."""

    def default(self, value: Json) -> None:
        """The API's defaults."""

    def prepare_create(self, value: Json, context: Context) -> None:
        """Server-side values of a new object."""

    def prepare_update(self, value: Json, old: Json, context: Context) -> None:
        """Puts back what an update may not change."""

    def generation_of(self, value: Json) -> Any:
        """What counts as a change of the desired state."""
        return value.get("spec")

    def validate(self, value: Json) -> list[FieldError]:
        """Errors beyond metadata."""
        return []

    def validate_create(self, value: Json) -> list[FieldError]:
        """Errors that only a new object can have."""
        return []

    def validate_update(self, value: Json, old: Json) -> list[FieldError]:
        """Errors of a change."""
        return []

    def allocate(self, value: Json, old: Json | None, context: Context) -> list[FieldError]:
        """Takes what only one object can have. Nothing is taken when there are errors."""
        return []

    def release(self, value: Json, context: Context) -> None:
        """Gives back what a deleted object had."""

    def warnings(self, value: Json, old: Json | None) -> list[str]:
        """What the client should be warned of; `old` is what an update replaces."""
        return []


def wire_meta(value: Json) -> structs.WireMeta:
    """metadata as the validators' wire struct."""
    return msgspec.convert(value.get("metadata") or {}, structs.WireMeta)


def metadata_errors(
    value: Json, check_name: NameCheck, namespaced: bool, qualified_finalizers: bool = True
) -> list[FieldError]:
    """The API server's complaints about metadata."""
    meta = value["metadata"]
    converted = convert_meta(wire_meta(value), "")
    errors = []
    if prefix := meta.get("generateName"):
        errors += [invalid("metadata.generateName", prefix, text) for text in check_name(prefix.rstrip("-.") or prefix)]
    if namespaced or not converted.namespace:
        errors += list(validate_meta(converted, check_name, namespaced=namespaced))
    else:
        errors += list(validate_meta(converted, check_name, namespaced=False))
    errors += _finalizer_errors(meta.get("finalizers") or (), qualified_finalizers)
    errors += _owner_errors(meta.get("ownerReferences") or ())
    errors += managed_fields_errors(meta.get("managedFields"))
    return errors


def _finalizer_errors(finalizers: Sequence[str], qualified: bool) -> list[FieldError]:
    """Names of finalizers, as metadata wants them everywhere, and as the kinds of kubernetes/kubernetes do."""
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
            errors.append(invalid(f"metadata.{name}", mine, "field is immutable"))
    if old["metadata"].get("deletionTimestamp"):
        before = old["metadata"].get("finalizers") or []
        added = [each for each in value["metadata"].get("finalizers") or [] if each not in before]
        if added:
            listed = ", ".join(f'"{each}"' for each in added)
            text = "no new finalizers can be added if the object is being deleted, "
            text += f"found new finalizers []string{{{listed}}}"
            errors.append(FieldError("metadata.finalizers", f"Forbidden: {text}"))
    return errors


def label_name(value: str) -> tuple[str, ...]:
    """Names of namespaces and Services."""
    return check_dns_label(value)


def path_name(value: str) -> tuple[str, ...]:
    """Names that need only be safe in a path: RBAC objects (k8s.io/apimachinery pkg/api/validation/path)."""
    if value in (".", ".."):
        return (f"may not be '{value}'",)
    return tuple(f"may not contain '{character}'" for character in "/%" if character in value)
