"""The objects of an API server, followed: they are listed once, then each change brings one object.

What is watched is kept as it is put into files, so that reading them again asks the server for nothing. Kinds that are
not watched, and that seldom change, are listed again with a change that comes some time later.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, Final

import msgspec

from kproxy.client import Informer, RestClient, TransportError
from kproxy.client.informer import Registration
from kproxy.cluster.snapshot.files import MemoryFiles
from kproxy.cluster.snapshot.layout import KINDS, OBJECTS
from kproxy.collect.objects import RESOURCES, collect_objects, kept_object
from kproxy.errors import KproxyError
from kproxy.explorer.sources.source import Away, Changed
from kproxy.informer import ResourceEventHandlerFuncs

QUIET: Final = 0.05
"""Seconds without a change after which what came is read."""
LONGEST: Final = 0.3
"""Seconds after the first change after which it is read in any case."""
LOOK: Final = 0.5
"""Seconds between two looks at whether the server answers."""
OTHERS: Final = 30.0
"""Seconds after which kinds that are not watched are listed again."""
_MAX_TOLD: Final = 20
_WATCHED: Final = ("Service", "EndpointSlice", "Node", "Pod")
_OTHERS: Final = tuple(kind for kind in KINDS if kind not in _WATCHED)


class FollowedObjects:
    """The objects of an API server. Thread-safe."""

    def __init__(self, client: RestClient, label: str) -> None:
        self._client = client
        self._label = label
        self._lock = threading.Condition()
        self._kept: dict[str, dict[str, tuple[str, bytes]]] = {kind: {} for kind in _WATCHED}
        self._read: dict[tuple[str, str], str] = {}
        self._others: tuple[float, MemoryFiles, list[str]] | None = None
        self._told: dict[str, None] = {}
        self._first = 0.0
        self._last = 0.0
        self._stopped = False
        self._informers: list[Informer[Any]] = []
        self._registered: list[Registration[Any]] = []
        self._changed: Changed = lambda _what: None
        self._away: Away = lambda _why: None
        self._thread = threading.Thread(target=self._run, name="explorer-watch", daemon=True)

    # --- reading ---

    def read(self) -> tuple[MemoryFiles, list[str]]:
        """The objects as they are now, as files of a snapshot; and what could not be read.

        Raises:
            TransportError: the server cannot be reached, and nothing is known yet.
        """
        if not self._registered or not all(each.has_synced for each in self._registered):
            files, failed = self._listed(KINDS)
            with self._lock:
                self._read = _versions_of(files)
            return files, failed
        rest, failed = self._rest()
        found = MemoryFiles(self._label, pack=False)
        for path in rest.paths():
            found.put(path, rest.read(path) or b"")
        with self._lock:
            self._read = {(kind, key): item[0] for kind, items in self._kept.items() for key, item in items.items()}
            lists = {kind: [items[key][1] for key in sorted(items)] for kind, items in self._kept.items()}
        for kind, encoded in lists.items():
            text = b'{"apiVersion": "v1", "kind": "List", "items": [' + b",\n".join(encoded) + b"]}"
            found.put(f"{OBJECTS}/{kind}.json", text)
        return found, failed

    def _rest(self) -> tuple[MemoryFiles, list[str]]:
        """The kinds that are not watched, as they were some seconds ago."""
        known = self._others
        if known is not None and time.monotonic() - known[0] < OTHERS:
            return known[1], known[2]
        try:
            files, failed = self._listed(_OTHERS)
        except KproxyError:
            if known is None:
                raise
            return known[1], known[2]
        self._others = time.monotonic(), files, failed
        return files, failed

    def _listed(self, kinds: tuple[str, ...]) -> tuple[MemoryFiles, list[str]]:
        files = MemoryFiles(self._label, pack=False)
        try:
            failed = collect_objects(self._client, files, lambda _text: None, kinds)
        except TransportError as error:
            raise TransportError(f"cannot reach the server {self._client.config.server}: {error.reason}") from error
        return files, [f"{each.what}: {each.message}" for each in failed]

    # --- following ---

    def start(self, changed: Changed, away: Away) -> None:
        """Follows what was read; calls come from a thread of its own."""
        self._changed, self._away = changed, away
        self._informers = [Informer(self._client, RESOURCES[kind]) for kind in _WATCHED]
        self._registered = [
            informer.add_event_handler(_handler(kind, self._saw))
            for kind, informer in zip(_WATCHED, self._informers, strict=True)
        ]
        for informer in self._informers:
            informer.start()
        self._thread.start()

    def wait_for_sync(self, timeout: float) -> bool:
        """Waits until all that is watched is known, so that reading it asks the server for nothing; False if it takes
        longer than `timeout` seconds for one kind."""
        return all(each.wait_for_sync(timeout) for each in self._registered)

    def stop(self) -> None:
        with self._lock:
            self._stopped = True
            self._lock.notify_all()
        for informer in self._informers:
            informer.stop(timeout=2.0)

    def _saw(self, kind: str, key: str, version: str, value: dict[str, Any] | None) -> None:
        """An object as it is now; version "" and None if it is gone."""
        kept = None if value is None else kept_object(kind, value)
        encoded = None if kept is None else msgspec.json.encode(kept)
        with self._lock:
            if encoded is None:
                self._kept[kind].pop(key, None)
            else:
                self._kept[kind][key] = version, encoded
            if version == self._read.get((kind, key), ""):
                return
            moment = time.monotonic()
            self._first = self._first or moment
            self._last = moment
            if len(self._told) < _MAX_TOLD:
                self._told[f"{kind} {key}"] = None
            self._lock.notify_all()

    def _run(self) -> None:
        failing = ""
        while True:
            with self._lock:
                if self._stopped:
                    return
                due = self._due()
                if due is None or due > 0:
                    self._lock.wait(LOOK if due is None else due)
                due = self._due()
                told = list(self._told) if due is not None and due <= 0 else []
                if told:
                    self._told, self._first = {}, 0.0
            if told:
                self._changed(told)
            failures = [informer.last_failure for informer in self._informers]
            why = next((str(each) for each in failures if each is not None), "")
            if why != failing:
                failing = why
                self._away(f"the API server does not answer: {why}" if why else "")

    def _due(self) -> float | None:
        """Seconds until what came is to be read; None if nothing came."""
        if not self._told:
            return None
        return min(self._last + QUIET, self._first + LONGEST) - time.monotonic()


def _handler(kind: str, saw: Callable[[str, str, str, dict[str, Any] | None], None]) -> ResourceEventHandlerFuncs[Any]:
    """An informer's handler that tells which objects changed."""

    def seen(item: Any) -> None:
        saw(kind, item.metadata.key, item.metadata.resource_version, item.raw)

    def gone(item: Any) -> None:
        saw(kind, item.metadata.key if hasattr(item, "metadata") else item.key, "", None)

    return ResourceEventHandlerFuncs(lambda item, _initial: seen(item), lambda _old, new: seen(new), gone)


def _versions_of(files: MemoryFiles) -> dict[tuple[str, str], str]:
    """The resource versions of the objects that are watched."""
    found = {}
    for kind in _WATCHED:
        data = files.read(f"{OBJECTS}/{kind}.json")
        for item in msgspec.json.decode(data)["items"] if data else ():
            metadata = item.get("metadata") or {}
            namespace = metadata.get("namespace")
            key = f"{namespace}/{metadata.get('name')}" if namespace else str(metadata.get("name"))
            found[kind, key] = str(metadata.get("resourceVersion") or "")
    return found
