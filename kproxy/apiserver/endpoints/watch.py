"""watch: the history of a resource, followed by any number of clients.

A watcher is a position in its resource's history, not a queue: a change is stored once, and encoded once for all
watchers that want the same media type. A watcher that falls behind the history in memory is told 410 and closed, one
that does not read is dropped, so a slow client costs a bounded amount of memory and does not slow others down.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Any, Final

from kproxy.apiserver.endpoints import negotiation
from kproxy.apiserver.endpoints.lists import Selection, check_list_options, selection_of, version_of, wait_for
from kproxy.apiserver.endpoints.negotiation import MediaType
from kproxy.apiserver.endpoints.request import Request
from kproxy.apiserver.errors import Json, expired, too_many_requests
from kproxy.apiserver.kinds.resources import Resource
from kproxy.apiserver.registry.catalog import Catalog
from kproxy.apiserver.registry.registry import Registry
from kproxy.apiserver.schema.protobuf import MEDIA_TYPE as PROTOBUF
from kproxy.apiserver.schema.protobuf import encode_envelope, watch_frame
from kproxy.apiserver.storage.store import Entry, Event, Table

BOOKMARK_EVERY: Final = 60.0
_LONGEST: Final = 3600.0
"""Seconds that a watch without timeoutSeconds lasts."""
_MAX_CHUNK: Final = 512 * 1024
_INITIAL_END: Final = "k8s.io/initial-events-end"


class Watches:
    """The watches of one server, at most `limit`. Those of a resource that is no longer served end."""

    def __init__(self, registry: Registry, catalog: Catalog, limit: int) -> None:
        self._registry = registry
        self._catalog = catalog
        catalog.on_change.append(self._wake_all)
        self._limit = limit
        self.count = 0
        self.closing = asyncio.Event()

    def serves(self, resource: Resource) -> bool:
        """Whether a resource is still there: a CRD, or a version of it, may have gone."""
        return self._catalog.find(resource.group, resource.version, resource.plural) is not None

    def close(self) -> None:
        self.closing.set()
        self._wake_all()

    def _wake_all(self) -> None:
        for table in self._registry.store.tables.values():
            table.wake()

    def open(self, request: Request, resource: Resource, negotiated: MediaType) -> Watcher:
        """A watcher for a request.

        Raises:
            StatusError: 400 or 422 for bad options, 429 when there are too many watches.
        """
        check_list_options(request, watching=True)
        if self.count >= self._limit:
            raise too_many_requests("too many watches, please try again later")
        return Watcher(self, self._registry, request, resource, negotiated)


class Watcher:
    """One watch: iterate over `chunks`, each a run of whole events, newline after each."""

    def __init__(
        self, watches: Watches, registry: Registry, request: Request, resource: Resource, negotiated: MediaType
    ) -> None:
        self._watches = watches
        self._registry = registry
        self._store = registry.store
        self._resource = resource
        self._negotiated = negotiated
        self._selection: Selection = selection_of(request, resource)
        self._version = version_of(request)
        self._bookmarks = bool(request.flag("allowWatchBookmarks"))
        self._initial = request.flag("sendInitialEvents")
        self._include = request.query.get("includeObject", "")
        seconds = request.number("timeoutSeconds")
        self._timeout = min(float(seconds), 86400.0) if seconds and seconds > 0 else _LONGEST
        self._table: Table = registry.table(resource)
        self._wake = asyncio.Event()
        self._gone = False
        self._first_row = True
        self._encoded_as = (resource.api_version, negotiated.media, negotiated.shape, negotiated.version)

    async def ready(self) -> None:
        """Waits until the state is as new as an opening state must be.

        Raises:
            StatusError: 504 when it does not become so.
        """
        if self._initial and self._version is not None:
            await wait_for(self._store, self._version)

    def stop(self) -> None:
        """Ends the watch: the client has gone."""
        self._gone = True
        self._wake.set()

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        """The bytes of events as they happen, until the time is over or the client has gone."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._timeout
        next_bookmark = loop.time() + BOOKMARK_EVERY
        watches, table = self._watches, self._table
        watches.count += 1
        wake: Callable[[], None] = self._wake.set
        table.waiters.add(wake)
        try:
            opening, position = self._opening()
            for start in range(0, len(opening), 256):
                yield b"".join(opening[start : start + 256])
            if position is None:
                return
            while not self._gone and not watches.closing.is_set():
                if position < table.dropped:
                    yield self._expired(position, table.revisions[0] if table.revisions else self._store.revision)
                    return
                end = table.dropped + len(table.events)
                if position < end:
                    chunk, position = self._gather(position, end)
                    if chunk:
                        yield chunk
                    continue
                if not watches.serves(self._resource):
                    return
                self._wake.clear()
                now = loop.time()
                if now >= deadline:
                    return
                if self._bookmarks and now >= next_bookmark:
                    next_bookmark = now + BOOKMARK_EVERY
                    yield self._bookmark()
                timer = loop.call_at(min(deadline, next_bookmark) if self._bookmarks else deadline, wake)
                await self._wake.wait()
                timer.cancel()
        finally:
            table.waiters.discard(wake)
            watches.count -= 1

    def _opening(self) -> tuple[list[bytes], int | None]:
        """What comes before the changes, and the position of the first change; None ends the watch."""
        table, version, store = self._table, self._version, self._store
        current = table.dropped + len(table.events)
        if self._initial or (self._initial is None and version in (None, 0)):
            opening = [
                self._line("ADDED", entry)
                for entry in table.in_namespace(self._selection.namespace)
                if self._selection.matches(entry)
            ]
            if self._initial and self._bookmarks:
                opening.append(self._bookmark({_INITIAL_END: "true"}))
            return opening, current
        if version is None or version == 0:
            return [], current
        if version < store.compacted:
            return [self._expired(version, store.compacted)], None
        if version >= table.floor:
            return [], table.position(version)
        # Older than the history in memory: one read of the log.
        upto = table.revisions[0] - 1 if table.revisions else store.revision
        older = store.events_since(table, version, upto)
        return [line for event in older if (line := self._of_event(event))], table.dropped

    def _expired(self, version: int, oldest: int) -> bytes:
        return self._line_of("ERROR", expired(version, oldest).status)

    def _gather(self, position: int, end: int) -> tuple[bytes, int]:
        """The lines of events from a position on, at most _MAX_CHUNK bytes or one event; shared among watchers."""
        table = self._table
        key = (position, end, self._selection, self._encoded_as) if self._negotiated.shape != "Table" else None
        if key is not None and key in table.scratch:
            return table.scratch[key], end
        lines: list[bytes] = []
        size = 0
        offset = table.dropped
        while position < end and size < _MAX_CHUNK:
            line = self._of_event(table.events[position - offset])
            position += 1
            if line:
                lines.append(line)
                size += len(line)
        chunk = b"".join(lines)
        if key is not None and position == end:
            table.scratch[key] = chunk
        return chunk, position

    def _of_event(self, event: Event) -> bytes:
        """The line of a change as this watch sees it; b"" when it does not concern it."""
        entry, previous, selection = event.entry, event.previous, self._selection
        if selection.everything:
            if selection.namespace and entry.namespace != selection.namespace:
                return b""
            kind = "DELETED" if event.deleted else "ADDED" if previous is None else "MODIFIED"
            return self._cached(event, kind)
        before = previous is not None and selection.matches(previous)
        after = not event.deleted and selection.matches(entry)
        if before and after:
            return self._cached(event, "MODIFIED")
        if after:
            return self._cached(event, "ADDED")
        if not before:
            return b""
        if event.deleted:
            return self._cached(event, "DELETED")
        # It has left the selection: the client sees the last state that was in it, at the version of the change.
        assert previous is not None
        value = previous.value
        value["metadata"]["resourceVersion"] = str(event.revision)
        return self._line_of_value("DELETED", value)

    def _cached(self, event: Event, kind: str) -> bytes:
        if self._negotiated.shape == "Table":
            return self._line(kind, event.entry)
        key = (kind, self._encoded_as)
        line = event.encoded.get(key)
        if line is None:
            line = event.encoded[key] = self._line(kind, event.entry)
        return line

    def _line(self, kind: str, entry: Entry) -> bytes:
        if not self._negotiated.shape and self._negotiated.media == PROTOBUF:
            return watch_frame(kind, negotiation.enveloped(self._resource, entry))
        if not self._negotiated.shape:
            return b"".join(
                (b'{"type":"', kind.encode(), b'","object":', negotiation.full(self._resource, entry), b"}\n")
            )
        return self._line_of_value(kind, entry.value)

    def _line_of_value(self, kind: str, value: Json) -> bytes:
        value = self._resource.strategy.to_version(value)
        if self._negotiated.shape == "Table":
            version = {"resourceVersion": value["metadata"]["resourceVersion"]}
            now = self._registry.now()
            row: Json = negotiation.table(self._resource, [value], version, now, self._include, header=self._first_row)
            self._first_row = False
            return self._line_of(kind, row)
        if self._negotiated.shape:
            return self._line_of(kind, negotiation.partial(value))
        return self._line_of(kind, {"kind": self._resource.kind, "apiVersion": self._resource.api_version, **value})

    def _line_of(self, kind: str, shown: Any) -> bytes:
        if self._negotiated.media == PROTOBUF:
            return watch_frame(kind, encode_envelope(shown))
        return negotiation.encode({"type": kind, "object": shown}) + b"\n"

    def _bookmark(self, annotations: Json | None = None) -> bytes:
        metadata: Json = {"resourceVersion": str(self._store.revision)}
        if annotations:
            metadata["annotations"] = annotations
        if self._negotiated.shape == "Table":
            rows = [{"cells": [], "object": negotiation.partial({"metadata": metadata})}]
            shown: Json = {"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata,
                           "columnDefinitions": None, "rows": rows}  # fmt: skip
            return self._line_of("BOOKMARK", shown)
        if self._negotiated.shape:
            return self._line_of("BOOKMARK", negotiation.partial({"metadata": metadata}))
        kind = {"kind": self._resource.kind, "apiVersion": self._resource.api_version}
        return self._line_of("BOOKMARK", {**kind, "metadata": metadata})
