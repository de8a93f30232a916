"""One handler's queue of notifications, and what a handler is.

client-go's processorListener and syncTracker (tools/cache/shared_informer.go). Each handler has a queue of its own, so
one that is slow or raises does not hold back the others. Not thread-safe: the owner serialises calls.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import Generic, Protocol, TypeVar

import msgspec

from kproxy.informer.objects import DeletedFinalStateUnknown, KubernetesObject, T

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
