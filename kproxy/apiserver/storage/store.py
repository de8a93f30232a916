"""The state in memory, and its history: what reads, writes and watches see.

All of it lives on the event loop. A write is a plain function call: it reads the newest state (`head`, which may hold
changes that are not yet on disk), decides, numbers its change and hands it to the log. When the log has committed, the
change becomes visible: it enters the table that reads see and the history that watches follow, in the order of
revisions. So a write needs no lock and no retry, and no client sees what a crash could take back.

An object is kept as the bytes that clients get, with what selectors need beside them. A history holds the newest events
of one resource for all its watchers, each of which only keeps a position in it.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from time import time
from typing import Any, Final

import msgspec

from kproxy.apiserver.errors import Json, internal
from kproxy.apiserver.storage.log import Log, Row, StorageError

_MAX_EVENTS: Final = 20_000
"""Events that one history keeps in memory; older ones are read from the log."""
_MAX_BYTES: Final = 64 * 1024 * 1024
"""Bytes of bodies that one history keeps."""

_CROWD: Final = 32
"""Watchers of one resource that are woken at once, always."""
_TURN: Final = 0.0001
"""Seconds between turns for each watcher of a larger crowd."""
_LONGEST_TURN: Final = 0.25

FieldsOf = Callable[[Json], dict[str, str]]


class Entry:
    """One version of one object: `body` is its JSON without kind and apiVersion, starting with metadata."""

    __slots__ = (
        "body", "created", "fields", "key", "labels", "message", "name", "namespace", "owners", "revision", "uid",
        "view",
    )  # fmt: skip

    def __init__(self, key: str, revision: int, created: int, body: bytes, value: Json, fields: dict[str, str]) -> None:
        meta = value.get("metadata") or {}
        self.key = key
        self.namespace, _, self.name = key.rpartition("/")
        self.revision = revision
        self.created = created
        self.body = body
        self.labels: dict[str, str] = meta.get("labels") or {}
        self.uid: str = meta.get("uid", "")
        self.owners: tuple[str, ...] = tuple(owner.get("uid", "") for owner in meta.get("ownerReferences") or ())
        self.fields = fields
        self.view: tuple[Any, bytes] | None = None
        """Its JSON in a version that shows it otherwise than it is stored, and that version's strategy."""
        self.message: tuple[str, bytes] | None = None
        """Its protobuf message, once a client has asked for it, and the apiVersion of that."""

    @property
    def value(self) -> Json:
        """A fresh decoded copy, for the caller to change."""
        found: Json = msgspec.json.decode(self.body)
        return found


class Event:
    """One change of one object. `previous` is None for an addition, `entry` of a deletion is the last state with the
    deletion's revision."""

    __slots__ = ("deleted", "encoded", "entry", "previous", "revision")

    def __init__(self, entry: Entry, previous: Entry | None, deleted: bool) -> None:
        self.entry = entry
        self.previous = previous
        self.deleted = deleted
        self.revision = entry.revision
        self.encoded: dict[Any, bytes] = {}


class Table:
    """One resource: the committed entries by key, the overlay of those not yet on disk, and the history."""

    def __init__(self, resource: str, fields_of: FieldsOf) -> None:
        self.resource = resource
        self.fields_of = fields_of
        self.entries: dict[str, Entry] = {}
        self.pending: dict[str, Event] = {}
        self.events: list[Event] = []
        self.revisions: list[int] = []
        self.bytes = 0
        self.dropped = 0
        """How many events have left `events`: positions count from the first event ever."""
        self.floor = 0
        """The history is complete for watches from this revision on."""
        self.waiters: set[Callable[[], None]] = set()
        self.listeners: list[Callable[[Event], None]] = []
        self._order: list[str] | None = None
        self.scratch: dict[Any, bytes] = {}
        self.woken = 0.0
        self.took = 0.0
        """Seconds that serving the crowd of watchers took the last time."""
        self.wake_timer: asyncio.TimerHandle | None = None

    def wake(self) -> None:
        """Wakes everything that waits for changes."""
        for wake in tuple(self.waiters):
            wake()

    def head(self, key: str) -> Entry | None:
        """The newest version of an object, on disk or on its way."""
        event = self.pending.get(key)
        if event is None:
            return self.entries.get(key)
        return None if event.deleted else event.entry

    def heads(self) -> list[Entry]:
        """The newest version of every object."""
        if not self.pending:
            return list(self.entries.values())
        settled = [entry for key, entry in self.entries.items() if key not in self.pending]
        return settled + [event.entry for event in self.pending.values() if not event.deleted]

    def heads_in(self, namespace: str) -> list[Entry]:
        """The newest version of every object of a namespace."""
        pending = [e.entry for e in self.pending.values() if not e.deleted and e.entry.namespace == namespace]
        return [entry for entry in self.in_namespace(namespace) if entry.key not in self.pending] + pending

    def ordered(self) -> list[str]:
        """The keys in the order of lists: by namespace, then name."""
        if self._order is None:
            self._order = sorted(self.entries)
        return self._order

    def in_namespace(self, namespace: str) -> list[Entry]:
        """The committed entries of a namespace ("": all), in order."""
        keys = self.ordered()
        if namespace:
            keys = keys[bisect_left(keys, f"{namespace}/") : bisect_left(keys, f"{namespace}0")]  # "0" follows "/"
        entries = self.entries
        return [entries[key] for key in keys]

    def apply(self, event: Event) -> None:
        """Makes a committed change visible."""
        key = event.entry.key
        if event.deleted:
            self.entries.pop(key, None)
            self._order = None
        else:
            if key not in self.entries:
                self._order = None
            self.entries[key] = event.entry
        self.events.append(event)
        self.revisions.append(event.revision)
        self.bytes += len(event.entry.body)
        if len(self.events) > _MAX_EVENTS or (self.bytes > _MAX_BYTES and len(self.events) > 16):
            self._shorten()
        for listener in self.listeners:
            listener(event)

    def _shorten(self) -> None:
        count = len(self.events) // 2
        self.floor = self.revisions[count - 1]
        self.bytes -= sum(len(event.entry.body) for event in self.events[:count])
        self.dropped += count
        del self.events[:count], self.revisions[:count]
        self.scratch.clear()

    def position(self, revision: int) -> int:
        """The position of the first event after `revision`."""
        return self.dropped + bisect_right(self.revisions, revision)


class Store:
    """All tables over one log. Call `open` inside the running event loop."""

    def __init__(
        self,
        log_of: Callable[[Callable[[Sequence[Row], Exception | None], None]], Log],
        tell: Callable[[str], None] = lambda _text: None,
    ) -> None:
        """`tell` gets what an operator should know, as sentences: that writing failed."""
        self._tell = tell
        self._loop = asyncio.get_running_loop()
        self._log = log_of(self._committed_in_thread)
        self.tables: dict[str, Table] = {}
        self.revision = 0
        """The newest revision that is on disk and visible."""
        self._next = 0
        self.compacted = 0
        self.failed: Exception | None = None
        self._events: dict[int, tuple[Table, Event]] = {}
        self._futures: dict[int, asyncio.Future[None]] = {}
        self._followers: dict[int, list[asyncio.Future[None]]] = {}
        self._unsaved: dict[str, list[Row]] = {}
        self._gathered: list[Row] = []

    def open(self) -> None:
        """Reads the log. Tables added later find their rows.

        Raises:
            StorageError: the log cannot be read.
        """
        try:
            self.revision = self._next = self._log.newest()
            self.compacted = self._log.compacted()
            for row in self._log.current():
                self._unsaved.setdefault(row.resource, []).append(row)
        except sqlite3.Error as error:
            raise StorageError(f"the log cannot be read: {error}") from error
        self._log.start()

    def close(self) -> None:
        """Waits for what is being written, and closes the log."""
        self._log.close()

    def table(self, resource: str, fields_of: FieldsOf = lambda _value: {}) -> Table:
        """The table of a resource, made on first use from what the log holds."""
        found = self.tables.get(resource)
        if found is None:
            found = self.tables[resource] = Table(resource, fields_of)
            found.floor = self.revision
            for row in self._unsaved.pop(resource, ()):
                try:
                    found.entries[row.key] = self.entry(found, row)
                except msgspec.DecodeError as error:
                    raise StorageError(
                        f"the log's revision {row.revision}, of {resource}, is damaged: {error}"
                    ) from error
        return found

    @staticmethod
    def entry(table: Table, row: Row) -> Entry:
        """A row of the log as an entry."""
        value: Json = msgspec.json.decode(row.body)
        return Entry(row.key, row.revision, row.created, row.body, value, table.fields_of(value))

    @property
    def why_failed(self) -> str:
        """Why nothing is written any more; "" while writing works."""
        return "" if self.failed is None else f"storage failed: {self.failed}"

    @property
    def next_revision(self) -> int:
        """The revision that the next change gets."""
        return self._next + 1

    # --- writing ---

    def put(self, table: Table, key: str, value: Json) -> tuple[Entry, asyncio.Future[None]]:
        """Creates or replaces an object; metadata.resourceVersion of `value` is set here.

        The future is done when the change is on disk and visible.
        """
        previous = table.head(key)
        return self._write(table, key, value, previous, deleted=False)

    def delete(self, table: Table, key: str, value: Json) -> tuple[Entry, asyncio.Future[None]]:
        """Removes an object whose last state is `value`."""
        return self._write(table, key, value, table.head(key), deleted=True)

    def _write(
        self, table: Table, key: str, value: Json, previous: Entry | None, *, deleted: bool
    ) -> tuple[Entry, asyncio.Future[None]]:
        if self.failed is not None:
            raise internal(self.why_failed)
        self._next += 1
        revision = self._next
        value["metadata"]["resourceVersion"] = str(revision)
        body = msgspec.json.encode(value)
        created = revision if previous is None else previous.created
        entry = Entry(key, revision, created, body, value, table.fields_of(value))
        event = table.pending[key] = Event(entry, previous, deleted)
        self._events[revision] = (table, event)
        future = self._futures[revision] = self._loop.create_future()
        before = 0 if previous is None else previous.revision
        if not self._gathered:
            self._loop.call_soon(self._hand_over)
        self._gathered.append(Row(revision, table.resource, key, created, before, deleted, time(), body))
        return entry, future

    def _hand_over(self) -> None:
        """Gives the log what this turn of the loop has written: it becomes one transaction."""
        rows, self._gathered = self._gathered, []
        self._log.append(rows)

    def _committed_in_thread(self, rows: Sequence[Row], error: Exception | None) -> None:
        revisions = [row.revision for row in rows]
        with contextlib.suppress(RuntimeError):  # the loop has been closed: no writer waits any more
            self._loop.call_soon_threadsafe(self._committed, revisions, error)

    def _committed(self, revisions: Iterable[int], error: Exception | None) -> None:
        touched: dict[str, Table] = {}
        futures: list[asyncio.Future[None]] = []
        if error is not None and self.failed is None:
            self.failed = error
            self._tell(f"{self.why_failed}: all writes are refused until the server is started again")
        for revision in revisions:
            table, event = self._events.pop(revision)
            futures += (self._futures.pop(revision), *self._followers.pop(revision, ()))
            if table.pending.get(event.entry.key) is event:
                del table.pending[event.entry.key]
            if error is not None:
                table.scratch.clear()
                continue
            table.apply(event)
            self.revision = revision
            touched[table.resource] = table
        for future in futures:
            if not future.done():
                if error is None:
                    future.set_result(None)
                else:
                    future.set_exception(internal(f"storage failed: {error}"))
                    future.exception()  # a writer that went away leaves it unread
        for table in touched.values():
            table.scratch.clear()
            self._wake(table)

    def _wake(self, table: Table) -> None:
        """Wakes watchers: at once, but a crowd not again before it has had time to be served.

        Serving a watcher costs about the same for one event as for twenty, so a crowd is better served in turns.
        """
        crowd = len(table.waiters)
        if crowd <= _CROWD:
            table.wake()
            return
        now = self._loop.time()
        if table.wake_timer is not None:
            return
        due = table.woken + min(max(crowd * _TURN, 2 * table.took), _LONGEST_TURN)
        if due > now:
            table.wake_timer = self._loop.call_at(due, self._wake_crowd, table)
        else:
            self._wake_crowd(table)

    def _wake_crowd(self, table: Table) -> None:
        table.wake_timer = None
        table.woken = self._loop.time()
        table.wake()
        # Their tasks run in the next turn of the loop; what comes after that turn sees how long it took.
        self._loop.call_soon(self._loop.call_soon, self._loop.call_soon, self._served, table)

    def _served(self, table: Table) -> None:
        table.took = self._loop.time() - table.woken

    def waiting(self, revision: int) -> asyncio.Future[None] | None:
        """What is done when a revision is on disk; None if it is.

        It is the caller's own: neither does giving up disturb the writer, nor a writer that gives up its followers.
        """
        if revision not in self._futures:
            return None
        future: asyncio.Future[None] = self._loop.create_future()
        self._followers.setdefault(revision, []).append(future)
        return future

    # --- history ---

    def compact(self, window: float) -> None:
        """Forgets history that is older than `window` seconds."""
        revision = self._log.revision_before(time() - window)
        if revision > self.compacted:
            self._log.compact(revision)
            self.compacted = revision
            for table in self.tables.values():
                table.floor = max(table.floor, min(revision, self.revision))

    def events_since(self, table: Table, revision: int, upto: int) -> list[Event]:
        """Events after `revision` up to `upto`, read from the log; for watches that start before the history."""
        return [
            Event(self.entry(table, row), self.entry(table, before) if before is not None else None, row.deleted)
            for row, before in self._log.since(table.resource, revision, upto)
        ]

    def entries_at(self, table: Table, revision: int) -> list[Entry]:
        """The entries of a resource as they were at `revision`, in order."""
        if revision >= self.revision:
            return table.in_namespace("")
        if revision >= table.floor:
            state = dict(table.entries)
            for event in reversed(table.events[bisect_right(table.revisions, revision) :]):
                if event.previous is None:
                    state.pop(event.entry.key, None)
                else:
                    state[event.entry.key] = event.previous
            return [state[key] for key in sorted(state)]
        rows = self._log.at(table.resource, revision)
        return sorted((self.entry(table, row) for row in rows), key=lambda entry: entry.key)


__all__ = ["Entry", "Event", "StorageError", "Store", "Table"]
