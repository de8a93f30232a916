"""What a cluster's controllers do that the API itself depends on.

Namespaces are emptied before they go; a CRD is established; aggregated ClusterRoles get their rules; Events live for an
hour; history is compacted. All of it follows the tables' events. Owner references are in garbage.py, what always has to
be there in system_objects.py.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Set
from copy import deepcopy
from datetime import timedelta
from typing import Any, Final

from kproxy.apiserver.auth.rbac import Authorizer
from kproxy.apiserver.controllers.base import Worker, durable
from kproxy.apiserver.controllers.flags import AGGREGATION, GARBAGE, NAMESPACES
from kproxy.apiserver.controllers.garbage import GarbageCollector, drop_finalizer
from kproxy.apiserver.crd.definition import CRD_CLEANUP, CRDS
from kproxy.apiserver.errors import Json
from kproxy.apiserver.kinds.resources import Resource
from kproxy.apiserver.kinds.strategy import FOREGROUND, ORPHAN
from kproxy.apiserver.registry.catalog import Catalog
from kproxy.apiserver.registry.registry import Registry
from kproxy.apiserver.registry.writes import SERVER_OPTIONS, DeleteOptions, Options, timestamp
from kproxy.apiserver.storage.store import Entry, Event, Table

_EVENT_LIFE: Final = timedelta(hours=1)
_SWEEP: Final = 30.0
_AGAIN: Final = 1.0
"""Seconds until what is held by finalizers is looked at again."""


Job = tuple[Callable[..., Awaitable[None]], tuple[Any, ...]]
"""A method of a controller, and what it is called with; equal ones wait in the queue once."""


async def _run(job: Job) -> None:
    call, arguments = job
    await call(*arguments)


class Controllers:
    """The controllers of one server; `window`: seconds of history that compaction leaves, `chosen`: those that run, by
    their names in chosen.py."""

    def __init__(
        self, registry: Registry, catalog: Catalog, authorizer: Authorizer, window: float, chosen: Set[str]
    ) -> None:
        self._chosen = chosen
        self._registry = registry
        self._catalog = catalog
        self._authorizer = authorizer
        self._window = window
        self._worker: Worker[Job] = Worker("controller", _run)
        self._sweeper: asyncio.Task[None] | None = None
        self._garbage = GarbageCollector(registry, catalog, self._push)
        self._followed: set[str] = set()

    def start(self) -> None:
        """Follows every table, and looks once at what is there."""
        self._follow()
        self._catalog.on_change.append(self._follow)
        self._worker.start()
        self._sweeper = asyncio.ensure_future(self._sweep())
        for entry in self._catalog.crds.entries.values():
            self._push(self._establish, entry.key)
        self._push(self._aggregate)
        for resource in self._catalog.stored():
            for entry in list(self._registry.table(resource).entries.values()):
                if b'"deletionTimestamp"' in entry.body:
                    self._deleting(resource, entry)
                if GARBAGE in self._chosen:
                    self._garbage.look(resource, entry)

    async def stop(self) -> None:
        await self._worker.stop()
        if self._sweeper is not None:
            self._sweeper.cancel()
            await asyncio.gather(self._sweeper, return_exceptions=True)

    def _push(self, call: Callable[..., Awaitable[None]], *arguments: Any) -> None:
        self._worker.add((call, arguments))

    # --- following tables ---

    def _follow(self) -> None:
        for resource in self._catalog.stored():
            if resource.storage in self._followed:
                continue
            self._followed.add(resource.storage)
            table = self._registry.table(resource)
            if GARBAGE in self._chosen:
                self._garbage.watch(resource, table)
            table.listeners.append(self._listener(resource))

    def _listener(self, resource: Resource) -> Callable[[Event], None]:
        storage = resource.storage
        special = {
            "clusterroles.rbac.authorization.k8s.io": lambda _event: self._push(self._aggregate),
            CRDS: self._crd_event,
        }.get(storage)

        def listen(event: Event) -> None:
            if not event.deleted and b'"deletionTimestamp"' in event.entry.body:
                self._deleting(resource, event.entry)
            if special is not None:
                special(event)

        return listen

    def _deleting(self, resource: Resource, entry: Entry) -> None:
        if resource.strategy.must_be_emptied(entry.body):
            if not resource.strategy.is_namespace:
                self._push(self._empty_crd, entry.name)
            elif NAMESPACES in self._chosen:
                self._push(self._empty_namespace, entry.name)
        elif GARBAGE in self._chosen and (FOREGROUND.encode() in entry.body or f'"{ORPHAN}"'.encode() in entry.body):
            self._push(self._garbage.finish_owner, resource, entry.key)

    # --- namespaces ---

    async def _empty_namespace(self, name: str) -> None:
        """Deletes what is in a namespace, its Pods first; once nothing is left, the namespace.

        What Pods need, and what guards them, must outlive them. Source: pkg/controller/namespace/deletion
        (OrderedNamespaceDeletion).
        """
        namespaces = self._catalog.builtin("", "namespaces")
        entry = self._registry.table(namespaces).head(name)
        if entry is None:
            return
        others = [each for each in self._catalog.stored() if each.namespaced and each.storage != "pods"]
        for resources in ([self._catalog.builtin("", "pods")], others):
            if left := await self._delete_all(resources, name):
                await self._say_what_is_left(name, left)
                self._worker.add_after((self._empty_namespace, (name,)), _AGAIN)
                return
        entry = self._registry.table(namespaces).head(name)
        if entry is not None and entry.value["spec"].get("finalizers"):
            body = {"kind": "Namespace", "apiVersion": "v1", **deepcopy(entry.value)}
            body["spec"]["finalizers"] = [each for each in body["spec"]["finalizers"] if each != "kubernetes"]
            await self._registry.update(namespaces, "", name, body, subresource="finalize")

    async def _say_what_is_left(self, name: str, left: dict[Resource, list[Entry]]) -> None:
        """Writes the conditions of a namespace that cannot go yet."""
        namespaces = self._catalog.builtin("", "namespaces")
        entry = self._registry.table(namespaces).head(name)
        if entry is None:
            return
        value, now = entry.value, timestamp(self._registry.now())
        value["status"]["conditions"] = _merged(value["status"].get("conditions") or (), _remaining(left), now)
        body = {"kind": "Namespace", "apiVersion": "v1", **value}
        await self._registry.update(namespaces, "", name, body, SERVER_OPTIONS, subresource="status")

    async def _delete_all(self, resources: list[Resource], namespace: str) -> dict[Resource, list[Entry]]:
        """Deletes the objects of some resources in a namespace; returns those that are left."""
        for resource in resources:
            await self._delete_entries(resource, self._registry.table(resource).in_namespace(namespace))
        found = {resource: self._registry.table(resource).in_namespace(namespace) for resource in resources}
        return {resource: entries for resource, entries in found.items() if entries}

    async def _delete_entries(self, resource: Resource, entries: list[Entry]) -> None:
        table = self._registry.table(resource)
        await durable(
            [
                await self._registry.delete(resource, entry.namespace, entry.name, DeleteOptions(grace=0))
                for entry in entries
                if table.head(entry.key) is not None
            ]
        )

    # --- CRDs, RBAC ---

    def _crd_event(self, event: Event) -> None:
        if event.deleted:
            value = event.entry.value
            self._push(self._drop_instances, f"{value['spec']['names'].get('plural')}.{value['spec'].get('group')}")
        else:
            self._push(self._establish, event.entry.key)

    async def _establish(self, name: str) -> None:
        """Accepts a CRD's names and says that it is served."""
        crds = self._catalog.builtin("apiextensions.k8s.io", "customresourcedefinitions")
        entry = self._registry.table(crds).head(name)
        if entry is None:
            return
        value = entry.value
        names = value["spec"]["names"]
        status = value.setdefault("status", {})
        desired = {key: item for key, item in names.items() if item}
        if value["metadata"].get("deletionTimestamp"):
            return
        held = status.get("conditions") or []
        conditions = _merged(held, _ESTABLISHED, timestamp(self._registry.now()))
        if status.get("acceptedNames") == desired and conditions == held:
            return
        status |= {"acceptedNames": desired, "conditions": conditions}
        body = {"kind": "CustomResourceDefinition", "apiVersion": "apiextensions.k8s.io/v1", **value}
        await self._registry.update(crds, "", name, body, SERVER_OPTIONS, subresource="status")

    async def _empty_crd(self, name: str) -> None:
        """Deletes the objects of a CRD that is being deleted; once none is left, lets it go."""
        crds = self._catalog.builtin("apiextensions.k8s.io", "customresourcedefinitions")
        resource = self._catalog.by_storage(name)
        if self._registry.table(crds).head(name) is None:
            return
        if resource is not None:
            table = self._registry.table(resource)
            await self._delete_entries(resource, table.heads())
            if table.heads():
                self._worker.add_after((self._empty_crd, (name,)), _AGAIN)
                return
        await drop_finalizer(self._registry, crds, name, CRD_CLEANUP)

    async def _drop_instances(self, storage: str) -> None:
        """Deletes the objects of a CRD that has gone."""
        table: Table | None = self._registry.store.tables.get(storage)
        if table is None or self._catalog.by_storage(storage) is not None:
            return
        for entry in table.heads():
            self._registry.store.delete(table, entry.key, entry.value)

    async def _aggregate(self) -> None:
        """Gives aggregated ClusterRoles the rules of the roles they select."""
        if AGGREGATION not in self._chosen:
            return
        roles = self._catalog.builtin("rbac.authorization.k8s.io", "clusterroles")
        for entry in list(self._authorizer.cluster_roles.entries.values()):
            if b'"aggregationRule"' not in entry.body:
                continue
            head = self._authorizer.cluster_roles.head(entry.key)
            rules = self._authorizer.aggregated(head.value) if head is not None else None
            if head is None or rules is None or rules == (head.value.get("rules") or []):
                continue
            body = {"kind": "ClusterRole", "apiVersion": roles.api_version, **head.value, "rules": rules}
            options = Options(field_manager="clusterrole-aggregation-controller")
            await durable([await self._registry.update(roles, "", head.name, body, options)])

    # --- time ---

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(_SWEEP)
            self._registry.store.compact(self._window)
            oldest = timestamp(self._registry.now() - _EVENT_LIFE)
            events = self._catalog.builtin("", "events")
            for entry in self._registry.table(events).in_namespace(""):
                meta = entry.value["metadata"]
                if meta.get("creationTimestamp", oldest) < oldest:
                    self._push(self._expire, events, entry.namespace, entry.name)

    async def _expire(self, resource: Resource, namespace: str, name: str) -> None:
        await self._registry.delete(resource, namespace, name, DeleteOptions())


def _merged(held: Iterable[Json], wanted: list[Json], now: str) -> list[Json]:
    """Conditions with others in their place, by type; the time of one that says the same as before stays."""
    found = {each["type"]: each for each in held}
    for each in wanted:
        old = found.get(each["type"], {})
        same = old.get("status") == each["status"]
        found[each["type"]] = {**each, "lastTransitionTime": old.get("lastTransitionTime", now) if same else now}
    return list(found.values())


def _remaining(left: dict[Resource, list[Entry]]) -> list[Json]:
    """The conditions of a namespace in which something is left, without their times.

    Source: pkg/controller/namespace/deletion/status_condition_utils.go.
    """
    counted = sorted(f"{each.plural}.{each.group} has {len(found)} resource instances" for each, found in left.items())
    holders = Counter(
        finalizer
        for entries in left.values()
        for entry in entries
        for finalizer in entry.value["metadata"].get("finalizers") or ()
    )
    held = ", ".join(f"{name} in {number} resource instances" for name, number in sorted(holders.items()))
    rows = (
        ("DiscoveryFailure", "ResourcesDiscovered", "All resources successfully discovered"),
        ("GroupVersionParsingFailure", "ParsedGroupVersions", "All legacy kube types successfully parsed"),
        ("ContentFailure", "ContentDeleted", "All content successfully deleted, may be waiting on finalization"),
    )
    kept = (True, "SomeFinalizersRemain", f"Some content in the namespace has finalizers remaining: {held}")
    none = (False, "ContentHasNoFinalizers", "All content-preserving finalizers finished")
    shown = [(f"NamespaceDeletion{name}", False, reason, message) for name, reason, message in rows]
    shown.append(
        (
            "NamespaceContentRemaining",
            True,
            "SomeResourcesRemain",
            f"Some resources are remaining: {', '.join(counted)}",
        )
    )
    shown.append(("NamespaceFinalizersRemaining", *(kept if holders else none)))
    return [
        {"type": name, "status": str(is_so), "reason": reason, "message": message}
        for name, is_so, reason, message in shown
    ]


_ESTABLISHED: Final[list[Json]] = [
    {"type": "NamesAccepted", "status": "True", "reason": "NoConflicts", "message": "no conflicts found"},
    {
        "type": "Established", "status": "True", "reason": "InitialNamesAccepted",
        "message": "the initial names have been accepted",
    },
]  # fmt: skip
"""The conditions of a CRD, without their times."""
