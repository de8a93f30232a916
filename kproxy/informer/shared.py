"""SharedInformer: one reflector, one indexer, any number of handlers; a state machine without I/O.

client-go's sharedIndexInformer. The reflector feeds a DeltaFIFO; whatever is in it is worked off before the call that
put it there returns: first the indexer, then the queues of the listeners. So the indexer is never behind what a handler
was told, and a driver has one thing to do, which is to carry out `next_action` and report.

Not thread-safe, except for `indexer`: the driver serialises calls.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Generic

from kproxy.informer.actions import ReflectorOptions
from kproxy.informer.delta_fifo import DeltaFIFO, Deltas, DeltaType
from kproxy.informer.listener import Listener, Notification, NotificationType, ResourceEventHandler
from kproxy.informer.objects import DeletedFinalStateUnknown, T
from kproxy.informer.ratelimit import Random
from kproxy.informer.reflector import Reflector
from kproxy.informer.store import NAMESPACE_INDEX, Indexer, IndexFunc, meta_namespace_index_func


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
