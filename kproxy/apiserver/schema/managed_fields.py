"""Who owns which field: metadata.managedFields, and server-side apply.

`update_managers` is what every create, update and patch does; `apply` is server-side apply: the configuration is laid
over the object, fields its manager used to apply and no longer names go away unless another manager owns them, and a
change of what others own is a conflict unless forced. Clients may write managedFields themselves, as kubectl does when
it moves an object from client-side to server-side apply: what they send is what a write starts from. Behaviour and
wording follow k8s.io/apimachinery pkg/util/managedfields and sigs.k8s.io/structured-merge-diff.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from kproxy.api.fielderror import FieldError, invalid, too_long
from kproxy.apiserver.errors import Json, StatusError
from kproxy.apiserver.schema.field_paths import (
    Path,
    Paths,
    compare,
    from_fields_v1,
    merge,
    named_by,
    parents,
    parse_fields_v1,
    show_path,
    to_fields_v1,
    without,
)
from kproxy.apiserver.schema.types import Node

_STRIPPED: Final = frozenset(
    {("f:apiVersion",), ("f:kind",), ("f:metadata",), ()}
    | {
        ("f:metadata", f"f:{name}")
        for name in (
            "name", "namespace", "creationTimestamp", "selfLink", "uid", "clusterName", "generation", "managedFields",
            "resourceVersion", "deletionTimestamp", "deletionGracePeriodSeconds",
        )
    }
)  # fmt: skip
_OPERATIONS: Final = ("Apply", "Update")
_LONGEST_MANAGER: Final = 128
_LONGEST_SUBRESOURCE: Final = 256
_MAX_MANAGERS: Final = 10
_ANCIENT: Final = "ancient-changes"


class Manager:
    """One entry of metadata.managedFields."""

    __slots__ = ("api_version", "name", "operation", "paths", "subresource", "time")

    def __init__(self, name: str, operation: str, api_version: str, subresource: str, time: str, paths: Paths) -> None:
        self.name = name
        self.operation = operation
        self.api_version = api_version
        self.subresource = subresource
        self.time = time
        self.paths = paths

    @property
    def identity(self) -> tuple[str, str, str, str]:
        """What makes two entries the same; an applier is the same whatever version it speaks."""
        version = "" if self.operation == "Apply" else self.api_version
        return self.name, self.operation, version, self.subresource

    @property
    def shown(self) -> str:
        """How a conflict names the manager."""
        text = f'"{self.name}"'
        if self.subresource:
            text += f' with subresource "{self.subresource}"'
        if self.operation == "Update":
            text += f" using {self.api_version}"
            if self.time:
                text += f" at {self.time}"
        return text

    def entry(self) -> Json:
        """The ManagedFieldsEntry."""
        entry: Json = {"manager": self.name, "operation": self.operation, "apiVersion": self.api_version}
        if self.time:
            entry["time"] = self.time
        entry |= {"fieldsType": "FieldsV1", "fieldsV1": to_fields_v1(self.paths)}
        if self.subresource:
            entry["subresource"] = self.subresource
        return entry


def read_managers(value: Json | None) -> list[Manager]:
    """The managers of an object."""
    entries = ((value or {}).get("metadata") or {}).get("managedFields") or []
    return [
        Manager(
            entry.get("manager", ""),
            entry.get("operation", "Update"),
            entry.get("apiVersion", ""),
            entry.get("subresource", ""),
            entry.get("time") or "",
            from_fields_v1(entry.get("fieldsV1")),
        )
        for entry in entries
        if isinstance(entry, dict)
    ]


def decode_managers(entries: Any) -> list[Manager]:
    """The managers that a client's managedFields name; of two with the same identity the later one counts.

    Raises:
        ValueError: an invalid entry: an unknown operation or fieldsType, no apiVersion, or broken fieldsV1.
    """
    found: dict[tuple[str, str, str, str], Manager] = {}
    for entry in entries or ():
        operation, version = entry.get("operation"), entry.get("apiVersion")
        if operation not in _OPERATIONS or not version or entry.get("fieldsType") != "FieldsV1":
            raise ValueError("an entry of managedFields without operation, apiVersion or fieldsType")
        paths = parse_fields_v1(entry.get("fieldsV1"))
        name, subresource, time = (entry.get(key) or "" for key in ("manager", "subresource", "time"))
        manager = Manager(name, operation, version, subresource, time, paths)
        found[manager.identity] = manager
    return list(found.values())


def managers_before(given: Any, live: Json | None, subresource: str) -> list[Manager]:
    """What an update starts from: the managers that it brings, or those of the stored object.

    `[]` and `[{}]` ask for the ownership to be forgotten. Managers that cannot be decoded count as none sent, and so do
    those that come through a subresource (decodeLiveOrNew in pkg/util/managedfields/internal/fieldmanager.go).
    """
    if not subresource and given is not None:
        if given in ([], [{}]):
            return []
        try:
            return decode_managers(given)
        except ValueError:
            pass
    return read_managers(live)


def managed_fields_errors(entries: Any) -> list[FieldError]:
    """What is wrong with the names in metadata.managedFields.

    Source: k8s.io/apimachinery pkg/apis/meta/v1/validation (ValidateManagedFields).
    """
    errors = []
    for index, entry in enumerate(entries or ()):
        path = f"metadata.managedFields[{index}]"
        name = entry.get("manager", "")
        if len(name.encode()) > _LONGEST_MANAGER:
            errors.append(too_long(f"{path}.manager", _LONGEST_MANAGER))
        errors += [
            invalid(f"{path}.manager", name, f"invalid character U+{ord(character):04X} (at position {position})")
            for position, character in enumerate("" if name.isprintable() else name)
            if not character.isprintable()
        ]
        if len(entry.get("subresource", "")) > _LONGEST_SUBRESOURCE:
            errors.append(too_long(f"{path}.subresource", _LONGEST_SUBRESOURCE))
    return errors


def _write_managers(value: Json, managers: list[Manager]) -> None:
    kept = [manager for manager in managers if manager.paths]
    kept.sort(key=lambda m: (m.operation != "Apply", m.time, m.name, m.api_version, m.subresource))
    updates = [manager for manager in kept if manager.operation == "Update"]
    if len(updates) > _MAX_MANAGERS:
        merged = Manager(_ANCIENT, "Update", updates[0].api_version, "", updates[0].time, set())
        for old in updates[: len(updates) - _MAX_MANAGERS + 1]:
            merged.paths |= old.paths
            kept.remove(old)
        kept.insert(sum(manager.operation == "Apply" for manager in kept), merged)
    metadata = value["metadata"]
    if kept:
        metadata["managedFields"] = [manager.entry() for manager in kept]
    else:
        metadata.pop("managedFields", None)


def _counted(paths: Paths, reset: Sequence[Path]) -> Paths:
    """Paths that can be owned: not those the server writes, nor those that this endpoint ignores."""
    counted = paths.difference(_STRIPPED)
    for prefix in reset:
        length = len(prefix)
        counted = {path for path in counted if path[:length] != prefix}
    return counted


def update_managers(
    live: Json, new: Json, node: Node, manager: Manager, reset: Sequence[Path], previous: list[Manager]
) -> None:
    """Writes metadata.managedFields of `new`: `manager` takes what differs from `live`, all others lose it.

    `live` is the stored object, or the empty object of the type for a create; `previous` are the managers so far.
    `manager.paths` is ignored.
    """
    changed: Paths = set()
    removed: Paths = set()
    compare(live, new, node, (), changed, removed)
    changed, removed = _counted(changed, reset), _counted(removed, reset)
    managers = list(previous)
    mine = None
    for each in managers:
        if each.identity == manager.identity:
            mine = each
            each.paths = (each.paths - removed) | changed
            if changed:
                each.time = manager.time
        else:
            each.paths -= changed | removed
    if mine is None and changed:
        manager.paths = changed
        managers.append(manager)
    _write_managers(new, managers)


class FieldConflictError(Exception):
    """An applied configuration changes what others own: each path with its owner."""

    def __init__(self, conflicts: list[tuple[Manager, Path]]) -> None:
        super().__init__()
        self.conflicts = conflicts


def apply(
    live: Json | None, config: Json, node: Node, manager: Manager, owners: list[Manager], force: bool,
    reset: Sequence[Path],
) -> Json:  # fmt: skip
    """The object after server-side apply, managedFields included; not yet defaulted. `owners` are its managers so far.

    Raises:
        FieldConflictError: fields that another manager owns.
    """
    named: Paths = set()
    named_by(config, node, (), named)
    named = _counted(named, reset)
    mine = next((each for each in owners if each.identity == manager.identity), None)
    others = [each for each in owners if each is not mine]
    merged: Json = merge(live if live is not None else {"metadata": {}}, config, node)
    changed: Paths = set()
    removed: Paths = set()
    compare(live if live is not None else {}, merged, node, (), changed, removed)
    conflicts = [(each, path) for each in others for path in sorted(each.paths & changed & parents(named))]
    if conflicts and not force:
        raise FieldConflictError(conflicts)
    if mine is not None:
        gone = parents(mine.paths) - parents(named)
        for each in others:
            gone -= parents(each.paths)
        if gone:
            merged = without(merged, node, gone - set(_STRIPPED))
    for each in others:
        each.paths -= {path for other, path in conflicts if other is each}
    manager.paths = named
    if mine is not None and mine.paths == named:
        manager.time = mine.time
    merged["metadata"] = dict(merged.get("metadata") or {})
    _write_managers(merged, [*others, manager])
    return merged


def conflict_error(conflicts: list[tuple[Manager, Path]]) -> StatusError:
    """409 with a cause for each field that another manager owns."""
    causes: list[Any] = [
        {"reason": "FieldManagerConflict", "message": f"conflict with {manager.shown}", "field": show_path(path)}
        for manager, path in conflicts
    ]
    if len(conflicts) == 1:
        manager, path = conflicts[0]
        message = f"Apply failed with 1 conflict: conflict with {manager.shown}: {show_path(path)}"
    else:
        lines = []
        for shown in sorted({manager.shown for manager, _ in conflicts}):
            lines.append(f"conflicts with {shown}:")
            lines += [f"- {show_path(path)}" for manager, path in conflicts if manager.shown == shown]
        message = f"Apply failed with {len(conflicts)} conflicts: " + "\n".join(lines)
    return StatusError(409, "Conflict", message, {"causes": causes})
