"""DeltaFIFO: what happened to each object since it was last looked at, keys in the order they first changed.

client-go's tools/cache/delta_fifo.go. The producer is a Reflector; the consumer pops one key with all its deltas at a
time. The queue compares with what the consumer knows (`known_objects`), so that a relist yields a tombstone for every
object that went unseen. Nothing waits here: `pop` on an empty queue answers False.

Not thread-safe: its owner serialises calls. In particular nothing may be put in while a popped item is being processed,
or a relist could miss an object that is neither in the queue nor yet known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import Generic, Protocol, TypeVar

import msgspec

from kproxy.informer.objects import DeletedFinalStateUnknown, KubernetesObject, T

KnownT = TypeVar("KnownT", bound=KubernetesObject, covariant=True)


class DeltaType(StrEnum):
    """What a delta says of its object. Replaced: a list has it, which may be news or not."""

    ADDED = "Added"
    UPDATED = "Updated"
    DELETED = "Deleted"
    REPLACED = "Replaced"


class Delta(msgspec.Struct, Generic[T], frozen=True):
    """One change and the object's state after it; for a deletion, before it or a tombstone."""

    type: DeltaType
    object: T | DeletedFinalStateUnknown[T]


Deltas = list[Delta[T]]
"""The deltas of one key, oldest first; never empty in the queue."""

Process = Callable[[str, Deltas[T], bool], None]
"""Consumes one key's deltas; the flag says whether they belong to the first list."""


class KnownObjects(Protocol[KnownT]):
    """What the consumer has processed so far: a Store."""

    def list_keys(self) -> list[str]: ...

    def get_by_key(self, key: str) -> KnownT | None: ...


class DeltaFIFO(Generic[T]):
    """See the module.

    Invariants: `_items` holds exactly the keys waiting, in queue order (a dict keeps it; a key that is queued again
    keeps its place), none with empty deltas. `_initial` counts how many keys of the first list are still to be popped.
    """

    def __init__(self, known_objects: KnownObjects[T]) -> None:
        self._known = known_objects
        self._items: dict[str, Deltas[T]] = {}
        self._populated = False
        self._initial = 0

    def add(self, item: T) -> None:
        """The object was created, or is new to the watcher."""
        self._populated = True
        self._queue(item.metadata.key, Delta(DeltaType.ADDED, item))

    def update(self, item: T) -> None:
        """Queues a change of an object."""
        self._populated = True
        self._queue(item.metadata.key, Delta(DeltaType.UPDATED, item))

    def delete(self, item: T) -> None:
        """The object was deleted. One that is neither known nor queued is left out: an earlier relist said so."""
        self._populated = True
        key = item.metadata.key
        if key in self._items or self._known.get_by_key(key) is not None:
            self._queue(key, Delta(DeltaType.DELETED, item))

    def replace(self, items: Iterable[T]) -> None:
        """A full list: a Replaced delta for each, and a tombstone for whatever is queued or known and not in it."""
        fresh = {item.metadata.key: item for item in items}
        for key, item in fresh.items():
            self._queue(key, Delta(DeltaType.REPLACED, item))
        gone: dict[str, T | None] = {}
        for key, deltas in self._items.items():
            if key not in fresh:
                last = deltas[-1].object
                gone[key] = last.object if isinstance(last, DeletedFinalStateUnknown) else last
        for key in self._known.list_keys():
            if key not in fresh and key not in gone:
                gone[key] = self._known.get_by_key(key)
        for key, last_state in gone.items():
            self._queue(key, Delta(DeltaType.DELETED, DeletedFinalStateUnknown(key, last_state)))
        if not self._populated:
            self._populated = True
            self._initial = len(fresh) + len(gone)

    def pop(self, process: Process[T]) -> bool:
        """Hands the first key's deltas to `process`; False if nothing waits.

        The key is out of the queue before `process` runs and does not come back if that raises.
        """
        if not self._items:
            return False
        key = next(iter(self._items))
        deltas = self._items.pop(key)
        in_initial_list = self._initial > 0
        try:
            process(key, deltas, in_initial_list)
        finally:
            if in_initial_list:
                self._initial -= 1
        return True

    @property
    def has_synced(self) -> bool:
        """Whether everything of the first list has been popped, or the first thing put in was no list."""
        return self._populated and self._initial == 0

    def __len__(self) -> int:
        return len(self._items)

    def _queue(self, key: str, delta: Delta[T]) -> None:
        deltas = self._items.setdefault(key, [])
        deltas.append(delta)
        compress(deltas)


def compress(deltas: Deltas[T]) -> None:
    """Merges the last two deltas if both say Deleted; the one that knows the final state stays.

    As client-go's dedupDeltas: nothing else is merged, because a consumer may care for every state in between.
    """
    if len(deltas) < 2:
        return
    before, last = deltas[-2:]
    if before.type is last.type is DeltaType.DELETED:
        deltas[-2:] = [before if isinstance(last.object, DeletedFinalStateUnknown) else last]
