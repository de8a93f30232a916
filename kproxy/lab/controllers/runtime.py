"""What a lab's controllers run on: functions from a key and the API server's tables to writes.

    reconcile(key, tables) -> writes

They run in the API server's process, each with a work queue: a table's event queues the keys that it concerns, and a
function reads the tables as they are when its key's turn comes. Its writes are made at once and in their order, and the
next function sees them: there is no cache to wait for, and no decision is stale. Only where a webhook is asked may
another write come between; its event brings the key back, as a refusal does, with a growing delay.
"""

from __future__ import annotations

import asyncio
import datetime
import functools
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import deepcopy
from typing import Any, Final

import msgspec

from kproxy.apiserver.auth.authentication import User, account_user
from kproxy.apiserver.controllers.base import Worker
from kproxy.apiserver.errors import StatusError
from kproxy.apiserver.kinds.pods import bind
from kproxy.apiserver.registry.catalog import Catalog
from kproxy.apiserver.registry.registry import Registry
from kproxy.apiserver.registry.writes import MERGE_PATCH, DeleteOptions, Options, timestamp
from kproxy.apiserver.storage.store import Entry, Event, Table
from kproxy.client.resources import Resource
from kproxy.lab.events import NORMAL, event_of, once_more
from kproxy.lab.resources import EVENTS, PODS, Json, Object, controller_of, now

log = logging.getLogger(__name__)

_TOGETHER: Final = 0.02
"""Seconds from an event to its key's turn: events that come together are looked at once."""
_LONGEST_WAIT: Final = 30.0
"""Seconds until a key whose writes are refused is tried again, at most; the first wait is a hundredth of a second."""


class Said(msgspec.Struct, frozen=True):
    """An Event of an object of a kind. In the one of a Create, `{name}` stands for the name of what was made, and
    `{error}` for why it was not. `component`: who says it, if not the controller."""

    about: Object
    kind: str
    reason: str
    message: str
    type: str = NORMAL
    component: str = ""


class Create(msgspec.Struct, frozen=True):
    """A new object, in the namespace that its metadata names; what is said once it is there, and if it is refused."""

    resource: Resource[Any]
    body: Json
    said: Said | None = None
    refused: Said | None = None


class Patch(msgspec.Struct, frozen=True):
    """A merge patch of an object, or of one subresource of it."""

    resource: Resource[Any]
    item: Object
    patch: Json
    subresource: str = ""


class Delete(msgspec.Struct, frozen=True):
    """Deletes an object."""

    resource: Resource[Any]
    item: Object
    said: Said | None = None
    propagation: str = ""


class Bind(msgspec.Struct, frozen=True):
    """Gives a pod its node."""

    pod: Object
    node: str


class Again(msgspec.Struct, frozen=True):
    """Asks for the same key in so many seconds."""

    seconds: float


Write = Create | Patch | Delete | Bind | Said | Again


def status_writes(resource: Resource[Any], item: Object, status: Json) -> list[Write]:
    """The write of a status; none if the object has it already (nothing and zero are the same)."""
    old = item.get("status") or {}
    if all((old.get(name) or None) == (value or None) for name, value in status.items()):
        return []
    return [Patch(resource, item, {"status": status}, "status")]


class Tables:
    """The newest objects of the API server, with what is on its way to the disk. They are shared: not to be changed."""

    def __init__(self, registry: Registry, catalog: Catalog) -> None:
        self._registry = registry
        self._catalog = catalog
        self.since = now()
        """When the server began: what it did not hear before says nothing."""

    @property
    def now(self) -> datetime.datetime:
        return self._registry.now()

    def table(self, resource: Resource[Any]) -> Table:
        return self._registry.table(self._catalog.builtin(resource.group, resource.plural))

    def get(self, resource: Resource[Any], key: str) -> Object | None:
        """An object by `namespace/name`, or the name alone for a cluster-scoped one."""
        entry = self.table(resource).head(key)
        return None if entry is None else _decoded(entry)

    def all(self, resource: Resource[Any]) -> list[Object]:
        """All objects of a resource."""
        return list(map(_decoded, self.table(resource).heads()))

    def owned(self, resource: Resource[Any], owner: Object) -> list[Object]:
        """The objects whose controller is `owner`."""
        uid, entries = owner["metadata"]["uid"], self.table(resource).heads_in(owner["metadata"]["namespace"])
        found = [_decoded(entry) for entry in entries if uid in entry.owners]
        return [item for item in found if (controller_of(item) or {}).get("uid") == uid]


@functools.lru_cache(maxsize=10_000)
def _decoded(entry: Entry) -> Object:
    """What an entry holds, decoded once: an entry never changes."""
    return entry.value


Keys = Callable[[Object, Tables], Iterable[str]]
"""The keys that a change of an object concerns; asked of it as it was and as it is."""


class Reconciler(msgspec.Struct, frozen=True):
    """One controller.

    Attributes:
        component: its name in Events and in managedFields.
        reconcile: gives the writes for a key.
        follows: the resources whose changes queue keys.
    """

    component: str
    reconcile: Callable[[str, Tables], Iterable[Write]]
    follows: tuple[tuple[Resource[Any], Keys], ...]


class Runtime:
    """Runs reconcilers. Made and started inside the server's event loop."""

    def __init__(self, registry: Registry, catalog: Catalog, tables: Tables, reconcilers: Sequence[Reconciler]) -> None:
        self._registry = registry
        self._catalog = catalog
        self._tables = tables
        # A queue for each, so that a webhook that does not answer keeps none but its own from working.
        self._workers = {each: Worker(each.component, functools.partial(self._sync, each)) for each in reconcilers}
        self._failures: Counter[tuple[str, str]] = Counter()

    def start(self) -> None:
        """Follows the tables, and looks once at all that is there."""
        for each, worker in self._workers.items():
            for resource, keys in each.follows:
                follow(self._tables, resource, keys, functools.partial(worker.add_after, delay=_TOGETHER))
            worker.start()

    async def stop(self) -> None:
        for worker in self._workers.values():
            await worker.stop()

    async def _sync(self, reconciler: Reconciler, key: str) -> None:
        component, worker, work = reconciler.component, self._workers[reconciler], (reconciler.component, key)
        # All writes of this turn are on disk with the last one; without a pause the loop would serve nobody else.
        done: asyncio.Future[None] | None = None
        try:
            for write in list(reconciler.reconcile(key, self._tables)):
                if isinstance(write, Again):
                    worker.add_after(key, write.seconds)
                else:
                    done = await self._make(component, write) or done
        except StatusError as error:
            if error.code not in (404, 409):
                log.warning("%s %s: %s", component, key, error)
            worker.add_after(key, min(_LONGEST_WAIT, 0.01 * 2.0 ** self._failures[work]))
            self._failures[work] = min(self._failures[work] + 1, 20)
        else:
            self._failures.pop(work, None)
        await (done if done is not None else asyncio.sleep(0))

    async def _make(self, component: str, write: Create | Patch | Delete | Bind | Said) -> asyncio.Future[None] | None:
        """Makes one write; what is done when it is on disk. Raises StatusError."""
        if isinstance(write, Said):
            await self._say(component, write)
            return None
        kind = PODS if isinstance(write, Bind) else write.resource
        resource = self._catalog.builtin(kind.group, kind.plural)
        options, user = Options(field_manager=component), account_user("kube-system", component)
        if isinstance(write, Bind):
            return await self._bind(write, resource, user)
        if isinstance(write, Create):
            return await self._create(component, resource, write, options, user)
        meta = write.item["metadata"]
        namespace, name = meta.get("namespace", ""), meta["name"]
        if isinstance(write, Patch):
            part = write.subresource
            result = await self._registry.patch(
                resource, namespace, name, write.patch, MERGE_PATCH, options, subresource=part, user=user
            )
            return result.done
        deleting = DeleteOptions(propagation=write.propagation, uid=meta["uid"])
        result = await self._registry.delete(resource, namespace, name, deleting, user)
        if write.said is not None:
            await self._say(component, write.said)
        return result.done

    async def _create(
        self, component: str, resource: Any, write: Create, options: Options, user: User
    ) -> asyncio.Future[None] | None:
        # The registry completes what it is given, and templates are shared.
        body = deepcopy(write.body)
        try:
            namespace = body["metadata"].get("namespace", "")
            made = await self._registry.create(resource, namespace, body, options, user=user)
        except StatusError as error:
            if write.refused is not None:
                await self._say(component, write.refused, error=error.message)
            raise
        if write.said is not None:
            await self._say(component, write.said, name=made.value["metadata"]["name"])
        return made.done

    async def _bind(self, write: Bind, resource: Any, user: User) -> asyncio.Future[None] | None:
        meta, table = write.pod["metadata"], self._tables.table(PODS)
        namespace, name, target = meta["namespace"], meta["name"], {"kind": "Node", "name": write.node}
        binding: Json = {"metadata": {"name": name, "namespace": namespace}, "target": target}
        await self._registry.admit(resource, namespace, name, "binding", binding, None, user, [])
        entry = table.head(f"{namespace}/{name}")
        value = entry.value if entry is not None else {}
        if entry is None or bind(value, binding, timestamp(self._registry.now())):
            return None  # it has gone, or has a node: its event says so
        return self._registry.store.put(table, entry.key, value)[1]

    # --- Events ---

    async def _say(self, component: str, said: Said, **parts: str) -> None:
        message = said.message
        for part, text in parts.items():
            message = message.replace(f"{{{part}}}", text)
        speaker = said.component or component
        event = event_of(said.about, said.kind, said.reason, message, component=speaker, type=said.type)
        namespace, name = event["metadata"]["namespace"], event["metadata"]["name"]
        resource, options = self._catalog.builtin("", EVENTS.plural), Options(field_manager=speaker)
        try:
            known = self._tables.get(EVENTS, f"{namespace}/{name}")
            if known is not None:
                await self._registry.patch(resource, namespace, name, once_more(known), MERGE_PATCH, options)
            else:
                await self._registry.create(resource, namespace, event, options)
        except StatusError as error:
            log.warning("event %s refused: %s", said.reason, error)


def follow(tables: Tables, resource: Resource[Any], keys: Keys, queue: Callable[[str], None]) -> None:
    """Queues the keys that each change of a resource concerns, and those of what is there."""

    def concerned(items: Iterable[Object]) -> Iterator[str]:
        for item in items:
            yield from keys(item, tables)

    def heard(event: Event) -> None:
        entries = [event.entry] if event.previous is None else [event.previous, event.entry]
        for key in dict.fromkeys(concerned(map(_decoded, entries))):
            queue(key)

    table = tables.table(resource)
    table.listeners.append(heard)
    for key in dict.fromkeys(concerned(tables.all(resource))):
        queue(key)
