"""The verbs, for any resource: create, update, patch, delete and what they share.

Each write goes from the newest state to the log without a lock. It waits for nothing but webhooks, and looks at what
other writes did meanwhile before it is made; the caller then awaits `WriteResult.done`, after which the change is on
disk and visible. Reading verbs are in endpoints/lists.py and endpoints/watch.py.
"""

from __future__ import annotations

import functools
import random
import uuid
from collections.abc import Awaitable, Callable, Coroutine
from datetime import datetime
from typing import Any, Final, ParamSpec, Protocol

from kproxy.api.fielderror import invalid
from kproxy.apiserver.errors import Json, StatusError, already_exists, bad_request, conflict, not_found, stale
from kproxy.apiserver.errors import invalid as invalid_object
from kproxy.apiserver.kinds.allocator import Allocators
from kproxy.apiserver.kinds.resources import Resource
from kproxy.apiserver.kinds.strategy import Context
from kproxy.apiserver.registry import deletion, last_applied
from kproxy.apiserver.registry.checks import (
    check_name,
    check_namespace,
    check_object,
    check_patched_uid,
    check_unchanged,
    convertible,
    drop_repeated_owners,
    keep_system_fields,
    put_back,
    refuse,
    require_namespace,
)
from kproxy.apiserver.registry.coercion import decode, empty, typed
from kproxy.apiserver.registry.patching import applied_configuration, decode_patched, patched_object
from kproxy.apiserver.registry.webhooks.dispatch import Webhooks
from kproxy.apiserver.registry.webhooks.review import Write
from kproxy.apiserver.registry.writes import APPLY_PATCH, DeleteOptions, Options, WriteResult, same_but_times, timestamp
from kproxy.apiserver.schema import managed_fields
from kproxy.apiserver.schema.managed_fields import Manager
from kproxy.apiserver.storage.store import Entry, Store, Table

_SUFFIX: Final = "bcdfghjklmnpqrstvwxz2456789"
_PLAIN: Final = Options()
_TRIES: Final = 5
"""Of a write while others come between: kube-apiserver's MaxRetryWhenPatchConflicts."""


class _OvertakenError(Exception):
    """Another write came while webhooks were asked; `refusal` is what the client is told in the end."""

    def __init__(self, refusal: StatusError) -> None:
        super().__init__(str(refusal))
        self.refusal = refusal


Parameters = ParamSpec("Parameters")


def _until_settled(
    write: Callable[Parameters, Awaitable[WriteResult]],
) -> Callable[Parameters, Coroutine[Any, Any, WriteResult]]:
    """Tries a write again, from the newest state, when another one came while webhooks were asked."""

    @functools.wraps(write)
    async def tried(*arguments: Parameters.args, **named: Parameters.kwargs) -> WriteResult:
        for _ in range(_TRIES):
            try:
                return await write(*arguments, **named)
            except _OvertakenError as error:
                refusal = error.refusal
        raise refusal

    return tried


class Access(Protocol):
    """What is asked of the authorizer in the middle of a write; a user of None is the server itself."""

    def require_create(self, resource: Resource, namespace: str, name: str, user: Any) -> None:
        """Raises StatusError before an update or apply creates what the user may not create."""


class Registry:
    """Writes to the resources of one store, whose tables are all there. `now` gives the time, `rng` draws names and
    values, `access` knows what a user may write, `webhooks` are asked about the writes of users."""

    def __init__(
        self, store: Store, allocators: Allocators, rng: random.Random, now: Callable[[], datetime], access: Access,
        webhooks: Webhooks,
    ) -> None:  # fmt: skip
        self.store = store
        self.allocators = allocators
        self._rng = rng
        self._now = now
        self._access = access
        self._webhooks = webhooks
        self._namespaces = store.tables["namespaces"]

    def now(self) -> datetime:
        """The time, UTC."""
        return self._now()

    def _suffix(self) -> str:
        """The end of a name that is made."""
        return "".join(self._rng.choices(_SUFFIX, k=5))

    def table(self, resource: Resource) -> Table:
        return self.store.table(resource.storage, resource.fields_of)

    @staticmethod
    def key(resource: Resource, namespace: str, name: str) -> str:
        """The key of an object in its table."""
        return f"{namespace}/{name}" if resource.namespaced else name

    def head(self, resource: Resource, namespace: str, name: str) -> Entry:
        """The newest version of an object.

        Raises:
            StatusError: 404.
        """
        entry = self.table(resource).head(self.key(resource, namespace, name))
        if entry is None:
            raise not_found(resource.group, resource.plural, name)
        return entry

    def _context(self, dry_run: bool) -> Context:
        return Context(self.allocators, timestamp(self._now()), dry_run)

    # --- create ---

    async def create(
        self,
        resource: Resource,
        namespace: str,
        body: Any,
        options: Options = _PLAIN,
        *,
        user: Any = None,
        applied: Json | None = None,
    ) -> WriteResult:
        """Creates an object. `applied` is what server-side apply has made, with its managedFields."""
        if applied is None:
            value, warnings = decode(resource, body, options)
        else:
            value, warnings = applied, []
        meta = value["metadata"]
        check_namespace(resource, namespace, meta)
        if meta.get("resourceVersion"):
            raise bad_request("resourceVersion should not be set on objects to be created")
        warnings += options.note(drop_repeated_owners(meta))
        now = timestamp(self._now())
        for name in ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"):
            meta.pop(name, None)
        meta.pop("generation", None)
        given = meta.pop("managedFields", None) if applied is None else None
        resource.strategy.default(value)
        if applied is None:
            manager = Manager(options.field_manager, "Update", resource.api_version, "", now, set())
            before = convertible(resource, managed_fields.managers_before(given, None, ""))
            resets = self._resets(resource, "")
            form = resource.stored_as or resource
            managed_fields.update_managers(empty(form), value, form.node, manager, resets, before)
        if resource.namespaced:
            require_namespace(self._namespaces, resource, namespace, meta.get("name", ""))
        write = self._write(resource, "CREATE", namespace, meta.get("name", ""), value, None, user, options)
        value = await self._webhooks.mutate(write)
        meta = value["metadata"]
        check_namespace(resource, namespace, meta)
        if not meta.get("name") and meta.get("generateName"):
            value["metadata"] = meta = {"name": meta["generateName"][:58] + self._suffix(), **meta}
        owners = meta.pop("managedFields", None)
        meta["uid"] = str(uuid.UUID(int=self._rng.getrandbits(128), version=4))
        if resource.strategy.has_generation:
            meta["generation"] = 1
        meta["creationTimestamp"] = now
        if owners:
            meta["managedFields"] = owners
        context = Context(self.allocators, now, options.dry_run)
        resource.strategy.prepare_create(value, context)
        warnings += options.note(check_object(resource, value, None))
        name = meta["name"]
        table, key = self.table(resource), self.key(resource, namespace, name)
        write.name, write.value = name, value
        await self._webhooks.validate(write)
        warnings += write.warnings
        if table.head(key) is not None:
            raise already_exists(resource.group, resource.plural, name)
        refuse(resource, name, resource.strategy.allocate(value, None, context))
        resource.strategy.prepare_storage(value)
        if options.dry_run:
            return WriteResult(value, None, 201, warnings)
        entry, done = self.store.put(table, key, value)
        return WriteResult(value, done, 201, warnings, entry)

    @staticmethod
    def _resets(resource: Resource, subresource: str) -> tuple[tuple[str, ...], ...]:
        return resource.strategy.status_resets if subresource == "status" else resource.strategy.spec_resets

    # --- update ---

    @_until_settled
    async def update(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        body: Any,
        options: Options = _PLAIN,
        *,
        subresource: str = "",
        user: Any = None,
    ) -> WriteResult:
        """Replaces an object, or one subresource of it."""
        value, warnings = decode(resource, body, options)
        meta = value["metadata"]
        check_name(meta, name)
        check_namespace(resource, namespace, meta)
        table = self.table(resource)
        entry = table.head(self.key(resource, namespace, name))
        if entry is None:
            if resource.strategy.create_on_update and not subresource and not meta.get("resourceVersion"):
                self._access.require_create(resource, namespace, name, user)
                return await self.create(resource, namespace, body, options, user=user)
            raise not_found(resource.group, resource.plural, name)
        if not meta.get("name"):
            raise bad_request("name must be provided" if resource.custom else "the name of the object must be set")
        version = meta.get("resourceVersion", "")
        if not version and resource.custom:
            errors = [invalid("metadata.resourceVersion", 0, "must be specified for an update")]
            raise invalid_object(resource.group, resource.kind, name, errors)
        return await self._replace(resource, entry, value, options, subresource, warnings, user)

    async def _replace(
        self,
        resource: Resource,
        entry: Entry,
        value: Json,
        options: Options,
        subresource: str,
        warnings: list[str],
        user: Any,
        *,
        applied: bool = False,
        manager_time: bool = True,
    ) -> WriteResult:
        live = entry.value
        meta, old = value["metadata"], live["metadata"]
        name = old["name"]
        check_unchanged(resource, meta, old)
        warnings += options.note(drop_repeated_owners(meta))
        given = meta.pop("managedFields", None)
        resource.strategy.default(value)
        keep_system_fields(meta, old)
        if applied:
            if given:
                meta["managedFields"] = given
        else:
            moment = timestamp(self._now()) if manager_time else ""
            manager = Manager(options.field_manager, "Update", resource.api_version, subresource, moment, set())
            owners = convertible(resource, managed_fields.managers_before(given, live, subresource))
            node = (resource.stored_as or resource).node
            managed_fields.update_managers(live, value, node, manager, self._resets(resource, subresource), owners)
        namespace = old.get("namespace", "")
        write = self._write(resource, "UPDATE", namespace, name, value, live, user, options, subresource)
        mutated = await self._webhooks.mutate(write)
        if mutated is not value:
            value, meta = mutated, mutated["metadata"]
            check_name(meta, name)
            keep_system_fields(meta, old)
        context = self._context(options.dry_run)
        put_back(resource, value, live, subresource, context)
        if resource.strategy.has_generation:
            before = old.get("generation", 1)
            changed = resource.strategy.generation_of(value) != resource.strategy.generation_of(live)
            meta["generation"] = before + 1 if changed else before
        warnings += options.note(check_object(resource, value, live, subresource))
        write.value = value
        await self._webhooks.validate(write)
        warnings += write.warnings
        self._check_newest(resource, entry)
        if not subresource:
            refuse(resource, name, resource.strategy.allocate(value, live, context))
        resource.strategy.prepare_storage(value)
        if same_but_times(value, live):
            # The version may not be on disk yet.
            return WriteResult(live, self.store.waiting(entry.revision), 200, warnings, entry)
        if options.dry_run:
            meta["resourceVersion"] = old["resourceVersion"]
            return WriteResult(value, None, 200, warnings)
        table = self.table(resource)
        if old.get("deletionTimestamp") and deletion.finished(resource, value):
            shown = {**value, "metadata": dict(meta)}
            shown["metadata"]["resourceVersion"] = old["resourceVersion"]
            resource.strategy.release(live, context)
            _, done = self.store.delete(table, entry.key, value)
            return WriteResult(shown, done, 200, warnings)
        entry, done = self.store.put(table, entry.key, value)
        return WriteResult(value, done, 200, warnings, entry)

    def _write(
        self, resource: Resource, operation: str, namespace: str, name: str, value: Json | None, old: Json | None,
        user: Any, options: Options | DeleteOptions, subresource: str = "",
    ) -> Write:  # fmt: skip
        """What webhooks are asked about; the objects are given to them as they are."""
        where = name if resource.storage == "namespaces" else namespace
        sent = options.sent(operation)
        return Write(
            resource, operation, where, name, value, old, user, sent, subresource, options.dry_run, options.noted
        )

    def _check_newest(self, resource: Resource, entry: Entry) -> None:
        """Raises _OvertakenError if another write came while webhooks were asked."""
        head = self.table(resource).head(entry.key)
        if head is None or head.revision != entry.revision:
            raise _OvertakenError(stale(resource.group, resource.plural, entry.name))

    # --- patch ---

    @_until_settled
    async def patch(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        patch: Any,
        media: str,
        options: Options,
        *,
        subresource: str = "",
        user: Any = None,
    ) -> WriteResult:
        """Applies a patch of a media type that the resource takes (check_media); server-side apply creates what is not
        there."""
        if media == APPLY_PATCH:
            return await self._apply(resource, namespace, name, patch, options, subresource, user)
        entry = self.head(resource, namespace, name)
        live = {"kind": resource.kind, "apiVersion": resource.api_version, **resource.strategy.to_version(entry.value)}
        patched = patched_object(resource, live, patch, media)
        value, warnings = decode_patched(resource, patched, patch, media, options)
        meta = value["metadata"]
        if resource.namespaced and meta.get("namespace") != namespace:
            raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
        check_name(meta, name)
        check_patched_uid(resource, meta, entry)
        return await self._replace(resource, entry, value, options, subresource, warnings, user)

    async def _apply(
        self, resource: Resource, namespace: str, name: str, config: Any, options: Options,
        subresource: str, user: Any,
    ) -> WriteResult:  # fmt: skip
        bare = applied_configuration(resource, namespace, name, config)
        entry = self.table(resource).head(self.key(resource, namespace, name))
        if entry is None and subresource:
            raise not_found(resource.group, resource.plural, name)
        if entry is None:
            self._access.require_create(resource, namespace, name, user)
            if uid := (bare.get("metadata") or {}).get("uid"):
                why = f"uid mismatch: the provided object specified uid {uid}, and no existing object was found"
                raise conflict(resource.group, resource.plural, name, why)
        now = timestamp(self._now())
        manager = Manager(options.field_manager, "Apply", resource.api_version, subresource, now, set())
        live = entry.value if entry is not None else None
        resets = self._resets(resource, subresource)
        owners = convertible(resource, managed_fields.read_managers(live))
        form = resource.stored_as or resource
        merged = last_applied.apply(live, bare, form, manager, owners, options.force, resets)
        value = typed(form, merged)[0]
        meta = value["metadata"]
        meta["name"] = name
        if entry is None:
            meta.pop("resourceVersion", None)  # a create refuses one; an apply that creates does not
            return await self.create(resource, namespace, None, options, user=user, applied=value)
        check_namespace(resource, namespace, meta)
        asked = (config.get("metadata") or {}).get("resourceVersion")
        if asked and asked != str(entry.revision):
            raise stale(resource.group, resource.plural, name)
        meta["resourceVersion"] = str(entry.revision)
        return await self._replace(resource, entry, value, options, subresource, [], user, applied=True)

    # --- subresources ---

    async def admit(
        self, resource: Resource, namespace: str, name: str, subresource: str, value: Json, old: Json | None, user: Any,
        noted: list[str], *, dry_run: bool = False, connects: bool = False,
    ) -> None:  # fmt: skip
        """Asks the webhooks about what is sent to a subresource with a kind of its own: Binding, Eviction, Scale,
        TokenRequest, PodExecOptions. `old` is what was there, of an update; `noted` gets their warnings.

        Raises:
            StatusError: one denies it, or wants to change it.
        """
        operation = "CONNECT" if connects else "CREATE" if old is None else "UPDATE"
        options = Options(dry_run, noted=noted)
        write = self._write(resource, operation, namespace, name, value, old, user, options, subresource)
        await self._webhooks.mutate(write)
        await self._webhooks.validate(write)

    async def set_replicas(
        self, resource: Resource, entry: Entry, path: list[str], replicas: int, options: Options, version: str
    ) -> WriteResult:
        """Writes the replicas of a workload through its scale subresource."""
        if version and version != str(entry.revision):
            raise stale(resource.group, resource.plural, entry.name)
        value = entry.value
        target = value
        for part in path[:-1]:
            target = target.setdefault(part, {})
            if not isinstance(target, dict):
                raise bad_request(f"{resource.kind} {entry.name}: .{part} is no object, so it holds no replicas")
        target[path[-1]] = replicas
        value["metadata"].pop("resourceVersion")
        return await self._replace(resource, entry, value, options, "scale", [], None, manager_time=False)

    # --- delete ---

    @_until_settled
    async def delete(
        self, resource: Resource, namespace: str, name: str, options: DeleteOptions, user: Any = None
    ) -> WriteResult:
        """Deletes an object, or marks it as being deleted when something holds it. `user`: who asks for it; None: the
        server itself."""
        deletion.check_deletable(resource, name)
        entry = self.head(resource, namespace, name)
        live = entry.value
        deletion.check_preconditions(resource, name, live, options)
        write = self._write(resource, "DELETE", namespace, name, None, live, user, options)
        await self._webhooks.mutate(write)
        await self._webhooks.validate(write)
        self._check_newest(resource, entry)
        value = entry.value
        deletion.set_finalizers(value["metadata"], options.propagation, orphans=resource.strategy.orphans)
        context = self._context(options.dry_run)
        resource.strategy.prepare_delete(value, context)
        grace = resource.strategy.grace_period(value, options.grace)
        if grace > 0 or resource.strategy.has_finalizers(value):
            result = self._mark(resource, entry, value, grace, options)
            result.warnings += write.warnings
            return result
        if not options.dry_run:
            resource.strategy.release(live, context)
            _, done = self.store.delete(self.table(resource), entry.key, value)
        else:
            done = None
        if resource.strategy.returns_deleted:
            return WriteResult(live, done, 200, write.warnings)
        status = deletion.success(resource, name, value["metadata"]["uid"])
        return WriteResult(live, done, 200, write.warnings, status=status)

    def _mark(self, resource: Resource, entry: Entry, value: Json, grace: int, options: DeleteOptions) -> WriteResult:
        deletion.mark(resource, value, grace, self._now())
        if value == entry.value or options.dry_run:
            return WriteResult(value, self.store.waiting(entry.revision))
        entry, done = self.store.put(self.table(resource), entry.key, value)
        return WriteResult(value, done, entry=entry)
