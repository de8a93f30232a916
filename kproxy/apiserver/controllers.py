"""What a cluster's controllers do that the API itself depends on.

Namespaces are emptied before they go; objects whose owners are gone are collected, or orphaned, or deleted before their
owner (Background, Orphan, Foreground); a CRD is established; aggregated ClusterRoles get their rules; Events live for
an hour; history is compacted. All of it follows the tables' events. What always has to be there is in essentials.py.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from copy import deepcopy
from datetime import timedelta
from typing import Any, Final

from kproxy.apiserver.catalog import Catalog
from kproxy.apiserver.deletion import CRD_CLEANUP, CRDS
from kproxy.apiserver.rbac import Authorizer
from kproxy.apiserver.registry import Registry
from kproxy.apiserver.resources import Resource
from kproxy.apiserver.status import ApiError, Json
from kproxy.apiserver.store import Entry, Event, Table
from kproxy.apiserver.writing import DeleteOptions, Options, shown, timestamp

log = logging.getLogger(__name__)

_EVENT_LIFE: Final = timedelta(hours=1)
_FOREGROUND: Final = "foregroundDeletion"
_ORPHAN: Final = "orphan"
_SWEEP: Final = 30.0
_AGAIN: Final = 1.0
"""Seconds until what is held by finalizers is looked at again."""


class Controllers:
    """The controllers of one server; `window`: seconds of history that compaction leaves."""

    def __init__(self, registry: Registry, catalog: Catalog, authorizer: Authorizer, window: float) -> None:
        self._registry = registry
        self._catalog = catalog
        self._authorizer = authorizer
        self._window = window
        self._queue: asyncio.Queue[Callable[[], Awaitable[None]]] = asyncio.Queue()
        self._tasks: list[asyncio.Task[None]] = []
        self._dependents: dict[str, set[tuple[str, str]]] = {}
        self._followed: set[str] = set()
        self._refused: set[str] = set()
        """CRDs whose names were not accepted when they were last looked at."""

    def start(self) -> None:
        """Follows every table, and looks once at what is there."""
        self._follow()
        self._catalog.on_change.append(self._follow)
        self._tasks = [asyncio.ensure_future(self._work()), asyncio.ensure_future(self._sweep())]
        for entry in self._catalog.crds.entries.values():
            self._push(self._establish, entry.key)
        self._push(self._aggregate)
        for resource in self._catalog.stored():
            for entry in list(self._registry.table(resource).entries.values()):
                if b'"deletionTimestamp"' in entry.body:
                    self._deleting(resource, entry)
                for uid in entry.owners:
                    self._push(self._collect, resource.storage, entry.key, uid)

    async def stop(self) -> None:
        """Ends the tasks."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _resource(self, group: str, plural: str) -> Resource:
        found = self._catalog.find(group, "v1", plural)
        assert found is not None
        return found

    def _by_storage(self, storage: str) -> Resource | None:
        return next((each for each in self._catalog.stored() if each.storage == storage), None)

    def _push(self, call: Callable[..., Awaitable[None]], *arguments: Any) -> None:
        self._queue.put_nowait(lambda: call(*arguments))

    async def _work(self) -> None:
        while True:
            job = await self._queue.get()
            try:
                await job()
            except ApiError as error:
                if error.code not in (404, 409):
                    log.warning("controller: %s", error)
            except Exception:
                log.exception("controller")

    # --- following tables ---

    def _follow(self) -> None:
        for resource in self._catalog.stored():
            if resource.storage in self._followed:
                continue
            self._followed.add(resource.storage)
            table = self._registry.table(resource)
            for entry in table.entries.values():
                self._index(resource.storage, entry)
            table.listeners.append(self._listener(resource))

    def _listener(self, resource: Resource) -> Callable[[Event], None]:
        storage = resource.storage
        special = {
            "clusterroles.rbac.authorization.k8s.io": lambda _event: self._push(self._aggregate),
            CRDS: self._crd_event,
        }.get(storage)

        def listen(event: Event) -> None:
            entry, before = event.entry, event.previous
            if before is not None and before.owners != entry.owners:
                self._unindex(storage, before)
                self._push(self._unblock, before)
            if event.deleted:
                self._unindex(storage, entry)
                for dependent in self._dependents.get(entry.uid, ()):
                    self._push(self._collect, *dependent, entry.uid)
                if entry.owners:
                    self._push(self._unblock, entry)
            else:
                if entry.owners:
                    self._index(storage, entry)
                    if before is None:
                        for uid in entry.owners:
                            self._push(self._collect, storage, entry.key, uid)
                        self._push(self._unblock, entry)
                if b'"deletionTimestamp"' in entry.body:
                    self._deleting(resource, entry)
            if special is not None:
                special(event)

        return listen

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

    def _deleting(self, resource: Resource, entry: Entry) -> None:
        if resource.storage == "namespaces":
            self._push(self._empty_namespace, entry.name)
        elif resource.storage == CRDS and CRD_CLEANUP.encode() in entry.body:
            self._push(self._empty_crd, entry.name)
        elif _FOREGROUND.encode() in entry.body or f'"{_ORPHAN}"'.encode() in entry.body:
            self._push(self._finish_owner, resource, entry.key)

    # --- garbage ---

    async def _collect(self, storage: str, key: str, uid: str) -> None:
        """Deletes an object whose owners are all gone, or takes the missing one out of its references."""
        resource = self._by_storage(storage)
        entry = self._registry.table(resource).head(key) if resource is not None else None
        if resource is None or entry is None or uid not in entry.owners or self._exists(entry, uid):
            return
        references: list[Json] = entry.value["metadata"]["ownerReferences"]
        if any(each["uid"] != uid and self._exists(entry, each["uid"]) for each in references):
            await self._edit(resource, entry, lambda meta: _drop_owner(meta, uid))
            return
        self._registry.delete(
            resource, entry.namespace, entry.name, DeleteOptions(propagation="Background", uid=entry.uid)
        )

    def _exists(self, dependent: Entry, uid: str) -> bool:
        """Whether the owner of that uid is there: an owner is in the dependent's namespace, or in none."""
        for reference in _owners(dependent):
            if reference.get("uid") == uid:
                found, owner = self._owner(dependent, reference)
                return owner is not None or found is None  # a kind that is not known here may exist elsewhere: keep
        return False

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

    async def _finish_owner(self, resource: Resource, key: str) -> None:
        """Orphan or Foreground: deals with the dependents, then lets the owner go."""
        entry = self._registry.table(resource).head(key)
        finalizers = (entry.value["metadata"].get("finalizers") or []) if entry is not None else []
        if entry is None:
            return
        if _ORPHAN in finalizers:
            for storage, dependent in list(self._dependents.get(entry.uid, ())):
                found = self._by_storage(storage)
                head = self._registry.table(found).head(dependent) if found is not None else None
                if found is not None and head is not None:
                    uid = entry.uid
                    await self._edit(found, head, lambda meta, uid=uid: _drop_owner(meta, uid))  # type: ignore[misc]
            await self._drop_finalizer(resource, key, _ORPHAN)
        elif _FOREGROUND in finalizers and not await self._delete_blocking(entry):
            await self._drop_finalizer(resource, key, _FOREGROUND)

    async def _delete_blocking(self, owner: Entry) -> int:
        """Deletes the dependents that block the deletion of their owner; how many are left.

        Who has another owner only loses the reference, and who does not block goes after the owner: as the garbage
        collector of kube-controller-manager does it.
        """
        left = 0
        for storage, dependent in list(self._dependents.get(owner.uid, ())):
            resource = self._by_storage(storage)
            head = self._registry.table(resource).head(dependent) if resource is not None else None
            if resource is None or head is None:
                continue
            references = _owners(head)
            if not any(each.get("uid") == owner.uid and each.get("blockOwnerDeletion") for each in references):
                continue
            if any(each.get("uid") != owner.uid and self._solid(head, each) for each in references):
                await self._edit(resource, head, lambda meta: _drop_owner(meta, owner.uid))
                continue
            if head.uid not in owner.owners:  # who owns its own owner cannot wait for it
                left += 1
            if b'"deletionTimestamp"' not in head.body:
                self._registry.delete(resource, head.namespace, head.name, DeleteOptions(propagation="Foreground"))
        return left

    async def _unblock(self, dependent: Entry) -> None:
        """A dependent has come, gone or lost an owner: its owners may be waiting for that."""
        for reference in _owners(dependent):
            resource, owner = self._owner(dependent, reference)
            if resource is not None and owner is not None and _waits(owner):
                await self._finish_owner(resource, owner.key)

    async def _drop_finalizer(self, resource: Resource, key: str, name: str) -> None:
        entry = self._registry.table(resource).head(key)
        if entry is not None:
            await self._edit(resource, entry, lambda meta: meta["finalizers"].remove(name))

    async def _edit(self, resource: Resource, entry: Entry, change: Callable[[Json], None]) -> None:
        value = entry.value
        change(value["metadata"])
        body = {"kind": resource.kind, "apiVersion": resource.api_version, **shown(resource, value)}
        written = self._registry.update(
            resource, entry.namespace, entry.name, body, Options(field_manager="kproxy-apiserver")
        )
        if written.done is not None:
            await written.done

    # --- namespaces ---

    async def _empty_namespace(self, name: str) -> None:
        """Deletes what is in a namespace; once nothing is left, the namespace."""
        namespaces = self._resource("", "namespaces")
        entry = self._registry.table(namespaces).head(name)
        if entry is None:
            return
        left = 0
        futures = []
        for resource in self._catalog.stored():
            if not resource.namespaced:
                continue
            for item in self._registry.table(resource).in_namespace(name):
                head = self._registry.table(resource).head(item.key)
                if head is None:
                    continue
                left += 1
                written = self._registry.delete(resource, name, item.name, DeleteOptions(grace=0))
                if written.done is not None:
                    futures.append(written.done)
        if futures:
            await asyncio.gather(*futures, return_exceptions=True)
            left = sum(
                len(self._registry.table(resource).in_namespace(name))
                for resource in self._catalog.stored()
                if resource.namespaced
            )
        if left:
            asyncio.get_running_loop().call_later(_AGAIN, self._push, self._empty_namespace, name)
            return
        entry = self._registry.table(namespaces).head(name)
        if entry is not None and entry.value["spec"].get("finalizers"):
            body = {"kind": "Namespace", "apiVersion": "v1", **deepcopy(entry.value)}
            body["spec"]["finalizers"] = [each for each in body["spec"]["finalizers"] if each != "kubernetes"]
            self._registry.update(namespaces, "", name, body, subresource="finalize")

    # --- CRDs, RBAC ---

    def _crd_event(self, event: Event) -> None:
        if event.deleted:
            value = event.entry.value
            self._refused.discard(event.entry.key)
            self._push(self._drop_instances, f"{value['spec']['names'].get('plural')}.{value['spec'].get('group')}")
        else:
            self._push(self._establish, event.entry.key)
        for name in self._refused:  # what has changed may have been in their way
            self._push(self._establish, name)

    async def _establish(self, name: str) -> None:
        """Accepts a CRD's names and says that it is served."""
        crds = self._resource("apiextensions.k8s.io", "customresourcedefinitions")
        entry = self._registry.table(crds).head(name)
        if entry is None:
            return
        value = entry.value
        names = value["spec"]["names"]
        status = value.setdefault("status", {})
        wanted = {key: item for key, item in names.items() if item}
        if value["metadata"].get("deletionTimestamp"):
            return
        conflict = self._catalog.conflicts.get(name)
        if conflict is None:
            self._refused.discard(name)
        else:
            self._refused.add(name)
        shown = [{**each, "lastTransitionTime": ""} for each in status.get("conditions") or ()]
        settled = conflict is not None or status.get("acceptedNames") == wanted
        if settled and shown == [{**each, "lastTransitionTime": ""} for each in _conditions(conflict)]:
            return
        now = timestamp(self._registry.now())
        status["acceptedNames"] = wanted if conflict is None else {"plural": "", "kind": ""}
        status["conditions"] = [{**each, "lastTransitionTime": now} for each in _conditions(conflict)]
        body = {"kind": "CustomResourceDefinition", "apiVersion": "apiextensions.k8s.io/v1", **value}
        self._registry.update(crds, "", name, body, Options(field_manager="kproxy-apiserver"), subresource="status")

    async def _empty_crd(self, name: str) -> None:
        """Deletes the objects of a CRD that is being deleted; once none is left, lets it go."""
        crds = self._resource("apiextensions.k8s.io", "customresourcedefinitions")
        resource = self._by_storage(name)
        if self._registry.table(crds).head(name) is None:
            return
        if resource is not None:
            table = self._registry.table(resource)
            futures = []
            for entry in table.heads():
                written = self._registry.delete(resource, entry.namespace, entry.name, DeleteOptions(grace=0))
                if written.done is not None:
                    futures.append(written.done)
            await asyncio.gather(*futures, return_exceptions=True)
            if table.heads():
                asyncio.get_running_loop().call_later(_AGAIN, self._push, self._empty_crd, name)
                return
        await self._drop_finalizer(crds, name, CRD_CLEANUP)

    async def _drop_instances(self, storage: str) -> None:
        """Deletes the objects of a CRD that has gone."""
        table: Table | None = self._registry.store.tables.get(storage)
        if table is None or self._by_storage(storage) is not None:
            return
        for entry in table.heads():
            self._registry.store.delete(table, entry.key, entry.value)

    async def _aggregate(self) -> None:
        """Gives aggregated ClusterRoles the rules of the roles they select."""
        roles = self._resource("rbac.authorization.k8s.io", "clusterroles")
        for entry in list(self._authorizer.cluster_roles.entries.values()):
            if b'"aggregationRule"' not in entry.body:
                continue
            head = self._authorizer.cluster_roles.head(entry.key)
            rules = self._authorizer.aggregated(head.value) if head is not None else None
            if head is None or rules is None or rules == (head.value.get("rules") or []):
                continue
            body = {"kind": "ClusterRole", "apiVersion": roles.api_version, **head.value, "rules": rules}
            written = self._registry.update(
                roles, "", head.name, body, Options(field_manager="clusterrole-aggregation-controller")
            )
            if written.done is not None:
                await written.done

    # --- time ---

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(_SWEEP)
            self._registry.store.compact(self._window)
            oldest = timestamp(self._registry.now() - _EVENT_LIFE)
            events = self._resource("", "events")
            for entry in self._registry.table(events).in_namespace(""):
                meta = entry.value["metadata"]
                if meta.get("creationTimestamp", oldest) < oldest:
                    self._push(self._expire, events, entry.namespace, entry.name)

    async def _expire(self, resource: Resource, namespace: str, name: str) -> None:
        self._registry.delete(resource, namespace, name, DeleteOptions())


def _conditions(conflict: tuple[str, str] | None) -> list[Json]:
    """The conditions of a CRD, without their times."""
    if conflict is None:
        return [
            {"type": "NamesAccepted", "status": "True", "reason": "NoConflicts", "message": "no conflicts found"},
            {
                "type": "Established", "status": "True", "reason": "InitialNamesAccepted",
                "message": "the initial names have been accepted",
            },
        ]  # fmt: skip
    text = "not all names are accepted"
    return [
        {"type": "NamesAccepted", "status": "False", "reason": conflict[0], "message": conflict[1]},
        {"type": "Established", "status": "False", "reason": "NotAccepted", "message": text},
    ]


def _owners(dependent: Entry) -> list[Json]:
    found: list[Json] = dependent.value["metadata"].get("ownerReferences") or []
    return found


def _waits(owner: Entry) -> bool:
    """Whether an object that is being deleted waits for its dependents."""
    if b'"deletionTimestamp"' not in owner.body or _FOREGROUND.encode() not in owner.body:
        return False
    meta = owner.value["metadata"]
    return bool(meta.get("deletionTimestamp")) and _FOREGROUND in (meta.get("finalizers") or ())


def _drop_owner(meta: Json, uid: str) -> None:
    meta["ownerReferences"] = [each for each in meta.get("ownerReferences") or () if each.get("uid") != uid]
    if not meta["ownerReferences"]:
        del meta["ownerReferences"]
