"""SharedInformer: one reflector, one indexer, any number of handlers; a state machine without I/O.

client-go's sharedIndexInformer. The reflector feeds a DeltaFIFO; whatever is in it is worked off before the call that
put it there returns: first the indexer, then the queues of the listeners. So the indexer is never behind what a handler
was told, and a driver has one thing to do, which is to carry out `next_action` and report.

Not thread-safe, except for `indexer`: the driver serialises calls. Each handler has a queue of its own
(client-go's processorListener and syncTracker), so one that is slow or raises does not hold back the others.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Generic, Protocol, TypeVar

import msgspec

from kproxy.informer.delta_fifo import DeltaFIFO, Deltas, DeltaType
from kproxy.informer.objects import DeletedFinalStateUnknown, KubernetesObject, T
from kproxy.informer.ratelimit import Random
from kproxy.informer.reflector import Reflector, ReflectorOptions
from kproxy.informer.store import NAMESPACE_INDEX, Indexer, IndexFunc, meta_namespace_index_func

HandledT = TypeVar("HandledT", bound=KubernetesObject, contravariant=True)


class ResourceEventHandler(Protocol[HandledT]):
    """What is called with changes. Calls for one handler come one at a time, each key's in order."""

    def on_add(self, item: HandledT, is_in_initial_list: bool) -> None: ...

    def on_update(self, old: HandledT, new: HandledT) -> None: ...

    def on_delete(self, item: HandledT | DeletedFinalStateUnknown[HandledT]) -> None: ...


def _ignore_add(_item: object, _initial: bool) -> None: ...


def _ignore_update(_old: object, _new: object) -> None: ...


def _ignore_delete(_item: object) -> None: ...


class ResourceEventHandlerFuncs(msgspec.Struct, Generic[T], frozen=True):
    """A handler made of functions; those left out do nothing."""

    add: Callable[[T, bool], None] = _ignore_add
    update: Callable[[T, T], None] = _ignore_update
    delete: Callable[[T | DeletedFinalStateUnknown[T]], None] = _ignore_delete

    def on_add(self, item: T, is_in_initial_list: bool) -> None:
        self.add(item, is_in_initial_list)

    def on_update(self, old: T, new: T) -> None:
        self.update(old, new)

    def on_delete(self, item: T | DeletedFinalStateUnknown[T]) -> None:
        self.delete(item)


class NotificationType(Enum):
    ADD = "add"
    UPDATE = "update"
    DELETE = "delete"


class Notification(msgspec.Struct, Generic[T], frozen=True):
    """One call of a handler. `old` is set for updates only; `initial` marks the adds of the first list."""

    type: NotificationType
    item: T | DeletedFinalStateUnknown[T]
    old: T | None = None
    initial: bool = False

    def deliver(self, handler: ResourceEventHandler[T]) -> None:
        """Calls the handler; whatever that raises comes through."""
        item = self.item
        if self.type is NotificationType.DELETE:
            handler.on_delete(item)
        elif not isinstance(item, DeletedFinalStateUnknown):
            if self.old is not None:
                handler.on_update(self.old, item)
            else:
                handler.on_add(item, self.initial)


class Listener(Generic[T]):
    """The notifications that one handler has yet to get.

    Invariants: `_initial` counts the notifications of the first list that were pushed and are not done; a removed
    listener holds none and takes none.
    """

    def __init__(self, handler: ResourceEventHandler[T]) -> None:
        self.handler = handler
        self.removed = False
        self._pending: deque[Notification[T]] = deque()
        self._initial = 0

    def push(self, notification: Notification[T]) -> None:
        if self.removed:
            return
        if notification.initial:
            self._initial += 1
        self._pending.append(notification)

    def next(self) -> Notification[T] | None:
        """Takes the oldest notification; `done` must follow when the handler has returned."""
        return self._pending.popleft() if self._pending else None

    def done(self, notification: Notification[T]) -> None:
        """The handler has dealt with it, by returning or by raising."""
        if notification.initial and not self.removed:
            self._initial -= 1

    def remove(self) -> None:
        """The handler gets nothing more."""
        self.removed = True
        self._pending.clear()
        self._initial = 0

    @property
    def initial_list_handled(self) -> bool:
        return self._initial == 0 and not self.removed

    def __len__(self) -> int:
        return len(self._pending)


class SharedInformer(Generic[T]):
    """See the module.

    Attributes:
        indexer: what is known; readable from any thread, written only here.
        reflector: where it comes from; its driver reports to it directly.

    Invariants: between calls the FIFO is empty; every listener has been pushed, in order, a notification for each
    change of the indexer since it was added, and before that an add for each object there was.
    """

    def __init__(
        self,
        random: Random,
        *,
        indexers: Mapping[str, IndexFunc[T]] | None = None,
        options: ReflectorOptions | None = None,
    ) -> None:
        functions: dict[str, IndexFunc[T]] = {NAMESPACE_INDEX: meta_namespace_index_func}
        functions.update(indexers or {})
        self.indexer: Indexer[T] = Indexer(functions)
        self.reflector: Reflector[T] = Reflector(self, random, options)
        self._fifo: DeltaFIFO[T] = DeltaFIFO(self.indexer)
        self._listeners: list[Listener[T]] = []

    @property
    def has_synced(self) -> bool:
        """Whether the indexer holds everything of a first full list."""
        return self._fifo.has_synced

    @property
    def listeners(self) -> Sequence[Listener[T]]:
        return self._listeners

    def add_listener(self, handler: ResourceEventHandler[T]) -> Listener[T]:
        """Adds a handler at any time: what is known already comes to it as adds of the initial list."""
        listener = Listener(handler)
        for item in self.indexer.list():
            listener.push(Notification(NotificationType.ADD, item, initial=True))
        self._listeners.append(listener)
        return listener

    def remove_listener(self, listener: Listener[T]) -> None:
        """Takes a handler away; what was still queued for it is dropped. Twice does no harm."""
        listener.remove()
        if listener in self._listeners:
            self._listeners.remove(listener)

    def listener_has_synced(self, listener: Listener[T]) -> bool:
        """Whether the handler has dealt with everything of the first full list."""
        return self.has_synced and listener.initial_list_handled

    # The reflector's sink.

    def add(self, item: T) -> None:
        self._fifo.add(item)
        self._drain()

    def update(self, item: T) -> None:
        self._fifo.update(item)
        self._drain()

    def delete(self, item: T) -> None:
        self._fifo.delete(item)
        self._drain()

    def replace(self, items: Sequence[T]) -> None:
        self._fifo.replace(items)
        self._drain()

    def _drain(self) -> None:
        while self._fifo.pop(self._process):
            pass

    def _process(self, key: str, deltas: Deltas[T], in_initial_list: bool) -> None:
        for delta in deltas:
            item = delta.object
            old = self.indexer.get_by_key(key)
            if delta.type is DeltaType.DELETED:
                self.indexer.delete_key(key)
                self._distribute(Notification(NotificationType.DELETE, item))
            elif isinstance(item, DeletedFinalStateUnknown):
                raise AssertionError("only a deletion carries a tombstone")
            elif old is None:
                self.indexer.add(item)
                self._distribute(Notification(NotificationType.ADD, item, initial=in_initial_list))
            else:
                self.indexer.update(item)
                same = old.metadata.resource_version == item.metadata.resource_version
                if not (delta.type is DeltaType.REPLACED and same):
                    self._distribute(Notification(NotificationType.UPDATE, item, old))

    def _distribute(self, notification: Notification[T]) -> None:
        for listener in self._listeners:
            listener.push(notification)
