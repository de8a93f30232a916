"""Counts what ResourceQuotas limit: when a quota is new or changed, and when what it limits is freed.

What is created is counted as it is admitted (registry/quotas.py). As kube-controller-manager's, it leaves a status
alone that somebody else writes (kubernetes/kubernetes pkg/controller/resourcequota).
"""

from __future__ import annotations

from collections.abc import Callable

from kproxy.apiserver.controllers.base import Worker
from kproxy.apiserver.kinds.resources import Resource
from kproxy.apiserver.registry.catalog import Catalog
from kproxy.apiserver.registry.quotas import QUOTAS, used_of
from kproxy.apiserver.registry.registry import Registry
from kproxy.apiserver.registry.writes import SERVER_OPTIONS
from kproxy.apiserver.storage.store import Event, Table

_FREES = frozenset({"persistentvolumeclaims", "pods", "services"})
"""Resources whose objects may use less after a change."""


class QuotaController:
    """Follows every table; its worker's keys are namespaces."""

    def __init__(self, registry: Registry, catalog: Catalog) -> None:
        self._registry = registry
        self._catalog = catalog
        self._quotas: Table = registry.store.tables[QUOTAS]
        self._resource: Resource = catalog.builtin("", QUOTAS)
        self._worker: Worker[str] = Worker("ResourceQuotas", self._sync)
        self._followed: set[str] = set()

    def start(self) -> None:
        """Follows the tables, and counts once."""
        self._quotas.listeners.append(self._quota_changed)
        self._follow()
        self._catalog.on_change.append(self._follow)
        for entry in self._quotas.entries.values():
            self._worker.add(entry.namespace)
        self._worker.start()

    async def stop(self) -> None:
        await self._worker.stop()

    def _follow(self) -> None:
        for resource in self._catalog.stored():
            if resource.namespaced and resource.storage not in self._followed:
                self._followed.add(resource.storage)
                self._registry.table(resource).listeners.append(self._listener(resource.storage in _FREES))

    def _quota_changed(self, event: Event) -> None:
        before = event.previous
        if not event.deleted and (before is None or before.value.get("spec") != event.entry.value.get("spec")):
            self._worker.add(event.entry.namespace)

    def _listener(self, frees: bool) -> Callable[[Event], None]:
        def listen(event: Event) -> None:
            if event.deleted or (frees and event.previous is not None):
                namespace = event.entry.namespace
                if self._quotas.entries and self._quotas.in_namespace(namespace):
                    self._worker.add(namespace)

        return listen

    async def _sync(self, namespace: str) -> None:
        for entry in self._quotas.heads_in(namespace):
            quota = entry.value
            status = {"hard": quota["spec"].get("hard") or {}, "used": used_of(self._registry.store, quota)}
            if quota.get("status") == status:
                continue
            body = {"kind": "ResourceQuota", "apiVersion": "v1", **quota, "status": status}
            result = self._registry.update(
                self._resource, namespace, entry.name, body, SERVER_OPTIONS, subresource="status"
            )
            if result.done is not None:
                await result.done
