"""The garbage collector: owner references carried out, as kube-controller-manager does it.

An object whose owners are all gone is collected. An owner that is deleted with Orphan loses its dependents first; with
Foreground it waits until those that block its deletion are gone. All of it follows the tables' events.
"""

from __future__ import annotations

from collections.abc import Callable, Set

from kproxy.apiserver.controllers.base import durable
from kproxy.apiserver.errors import Json
from kproxy.apiserver.kinds.resources import Resource
from kproxy.apiserver.kinds.strategy import FOREGROUND, ORPHAN
from kproxy.apiserver.registry.catalog import Catalog
from kproxy.apiserver.registry.registry import Registry
from kproxy.apiserver.registry.writes import SERVER_OPTIONS, DeleteOptions
from kproxy.apiserver.storage.store import Entry, Event, Table


class GarbageCollector:
    """Follows tables; `push` queues a job, which runs when those before it have."""

    def __init__(self, registry: Registry, catalog: Catalog, push: Callable[..., None]) -> None:
        self._registry = registry
        self._catalog = catalog
        self._push: Callable[..., None] = push
        self._dependents: dict[str, set[tuple[str, str]]] = {}

    def watch(self, resource: Resource, table: Table) -> None:
        """Follows a table."""
        for entry in table.entries.values():
            self._index(resource.storage, entry)
        table.listeners.append(lambda event: self._heard(resource.storage, event))

    def look(self, resource: Resource, entry: Entry) -> None:
        """Looks at an object that was there before."""
        if entry.owners:
            self._push(self._collect, resource.storage, entry.key)

    def _heard(self, storage: str, event: Event) -> None:
        entry, before = event.entry, event.previous
        if before is not None and before.owners != entry.owners:
            self._unindex(storage, before)
            self._push(self._unblock, before)
        if event.deleted:
            self._unindex(storage, entry)
            for dependent in self._dependents.get(entry.uid, ()):
                self._push(self._collect, *dependent)
            if entry.owners:
                self._push(self._unblock, entry)
        elif entry.owners:
            self._index(storage, entry)
            if before is None:
                self._push(self._collect, storage, entry.key)
                self._push(self._unblock, entry)

    def _index(self, storage: str, entry: Entry) -> None:
        for uid in entry.owners:
            self._dependents.setdefault(uid, set()).add((storage, entry.key))

    def _unindex(self, storage: str, entry: Entry) -> None:
        for uid in entry.owners:
            found = self._dependents.get(uid)
            if found is not None:
                found.discard((storage, entry.key))
                if not found:
                    del self._dependents[uid]

    async def _collect(self, storage: str, key: str) -> None:
        """Deletes an object whose owners are all gone, or takes those that are out of its references."""
        resource = self._catalog.by_storage(storage)
        entry = self._registry.table(resource).head(key) if resource is not None else None
        if resource is None or entry is None or not entry.owners:
            return
        references = _owners(entry)
        there = {each.get("uid") for each in references if self._exists(entry, each)}
        gone = {each.get("uid") for each in references} - there
        if not gone:
            return
        if there:
            await edit_metadata(self._registry, resource, entry, lambda meta: _drop_owners(meta, gone))
            return
        await self._registry.delete(
            resource, entry.namespace, entry.name, DeleteOptions(propagation="Background", uid=entry.uid)
        )

    def _exists(self, dependent: Entry, reference: Json) -> bool:
        """Whether an owner is there: it is in the dependent's namespace, or in none."""
        found, owner = self._owner(dependent, reference)
        return owner is not None or found is None  # a kind that is not known here may exist elsewhere: keep

    def _owner(self, dependent: Entry, reference: Json) -> tuple[Resource | None, Entry | None]:
        """The resource and the object that an owner reference names."""
        group = reference.get("apiVersion", "").rpartition("/")[0]
        resource = self._catalog.by_kind(group, reference.get("kind", ""))
        if resource is None:
            return None, None
        key = self._registry.key(resource, dependent.namespace, reference.get("name", ""))
        owner = self._registry.table(resource).head(key)
        return resource, owner if owner is not None and owner.uid == reference.get("uid") else None

    def _solid(self, dependent: Entry, reference: Json) -> bool:
        """Whether an owner is there and not itself waiting for its dependents to go."""
        resource, owner = self._owner(dependent, reference)
        return resource is None or (owner is not None and not _waits(owner))

    async def finish_owner(self, resource: Resource, key: str) -> None:
        """Orphan or Foreground: deals with the dependents, then lets the owner go."""
        entry = self._registry.table(resource).head(key)
        finalizers = (entry.value["metadata"].get("finalizers") or []) if entry is not None else []
        if entry is None:
            return
        if ORPHAN in finalizers:
            for storage, dependent in list(self._dependents.get(entry.uid, ())):
                found = self._catalog.by_storage(storage)
                head = self._registry.table(found).head(dependent) if found is not None else None
                if found is not None and head is not None:
                    uid = entry.uid
                    await edit_metadata(self._registry, found, head, lambda meta, uid=uid: _drop_owners(meta, {uid}))  # type: ignore[misc]
            await drop_finalizer(self._registry, resource, key, ORPHAN)
        elif FOREGROUND in finalizers and not await self._delete_blocking(entry):
            await drop_finalizer(self._registry, resource, key, FOREGROUND)

    async def _delete_blocking(self, owner: Entry) -> int:
        """Deletes the dependents that block the deletion of their owner; how many are left.

        A dependent with another owner only loses the reference, and one that does not block goes after the owner: as
        the garbage collector of kube-controller-manager does it.
        """
        left = 0
        for storage, dependent in list(self._dependents.get(owner.uid, ())):
            resource = self._catalog.by_storage(storage)
            head = self._registry.table(resource).head(dependent) if resource is not None else None
            if resource is None or head is None:
                continue
            references = _owners(head)
            if not any(each.get("uid") == owner.uid and each.get("blockOwnerDeletion") for each in references):
                continue
            if any(each.get("uid") != owner.uid and self._solid(head, each) for each in references):
                await edit_metadata(self._registry, resource, head, lambda meta: _drop_owners(meta, {owner.uid}))
                continue
            if not self._has_waiting_dependent(head):  # else they might wait for one another in a circle
                left += 1
            if b'"deletionTimestamp"' not in head.body:
                await self._registry.delete(
                    resource, head.namespace, head.name, DeleteOptions(propagation="Foreground")
                )
        return left

    def _has_waiting_dependent(self, owner: Entry) -> bool:
        """Whether one of an object's dependents waits for its own dependents."""
        for storage, key in self._dependents.get(owner.uid, ()):
            resource = self._catalog.by_storage(storage)
            head = self._registry.table(resource).head(key) if resource is not None else None
            if head is not None and _waits(head):
                return True
        return False

    async def _unblock(self, dependent: Entry) -> None:
        """A dependent has come, gone or lost an owner: its owners may be waiting for that."""
        for reference in _owners(dependent):
            resource, owner = self._owner(dependent, reference)
            if resource is not None and owner is not None and _waits(owner):
                await self.finish_owner(resource, owner.key)


async def drop_finalizer(registry: Registry, resource: Resource, key: str, name: str) -> None:
    """Takes a finalizer off an object; the last lets it go."""
    entry = registry.table(resource).head(key)
    if entry is not None:
        await edit_metadata(registry, resource, entry, lambda meta: meta["finalizers"].remove(name))


async def edit_metadata(registry: Registry, resource: Resource, entry: Entry, change: Callable[[Json], None]) -> None:
    """Changes the metadata of an object, and waits until that is durable."""
    value = entry.value
    change(value["metadata"])
    body = {"kind": resource.kind, "apiVersion": resource.api_version, **resource.strategy.to_version(value)}
    await durable([await registry.update(resource, entry.namespace, entry.name, body, SERVER_OPTIONS)])


def _owners(dependent: Entry) -> list[Json]:
    found: list[Json] = dependent.value["metadata"].get("ownerReferences") or []
    return found


def _waits(owner: Entry) -> bool:
    """Whether an object that is being deleted waits for its dependents."""
    if b'"deletionTimestamp"' not in owner.body or FOREGROUND.encode() not in owner.body:
        return False
    meta = owner.value["metadata"]
    return bool(meta.get("deletionTimestamp")) and FOREGROUND in (meta.get("finalizers") or ())


def _drop_owners(meta: Json, uids: Set[str | None]) -> None:
    meta["ownerReferences"] = [each for each in meta.get("ownerReferences") or () if each.get("uid") not in uids]
    if not meta["ownerReferences"]:
        del meta["ownerReferences"]
