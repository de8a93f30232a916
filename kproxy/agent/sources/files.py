"""Manifests as a source: files and directories are read again when they change.

What can be read replaces what was known, all at once; what cannot be, because it is broken or half written, is logged
once, changes nothing, and is tried again every few seconds and whenever it changes. Files are looked at a few times a
second: that needs no more than a stat of each, works for every file system and for editors that replace files, and
never misses a change for good, as a lost event would be. A change is read when a look finds it as the look before did.

What is known of a file's state is always older than what was read of it: a change in between is read once more, and
never missed.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from kproxy.agent.log import event
from kproxy.agent.sources.apiserver import Sink
from kproxy.api import ManifestError, Manifests, Node, load_manifests
from kproxy.api.load.manifests import SUFFIXES

POLL: Final = 0.25
"""Seconds between looks."""

RETRY: Final = 5.0
"""Seconds until what could not be read is tried again, though it looks the same: a disk may have been away."""

FRESH: Final = 1.0
"""Seconds. A file that changed less than this before it was looked at may change again without looking different:
kernels count such times in ticks, and network file systems in seconds."""

Signature = tuple[tuple[str, int, int, int, int], ...]
"""Path, inode, size, times of change of the contents and of the file itself (so a chmod counts), of each file."""

_T = TypeVar("_T")


def signature(paths: Sequence[str]) -> Signature:
    """What tells whether any of the files changed; files that cannot be looked at are left out."""
    found = []
    for path in paths:
        names = [path]
        if os.path.isdir(path):
            try:
                names = sorted(entry.path for entry in os.scandir(path) if entry.name.endswith(SUFFIXES))
            except OSError:
                continue
        for name in names:
            try:
                status = os.stat(name)
            except OSError:
                continue
            found.append((name, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns))
    return tuple(found)


class FileSnapshot(msgspec.Struct, frozen=True):
    """How files looked, taken before they are read; `at` is seconds since 1970."""

    signature: Signature
    at: float

    @classmethod
    def of(cls, paths: Sequence[str], wall: Callable[[], float] = time.time) -> FileSnapshot:
        return cls(signature(paths), wall())

    @property
    def is_fresh(self) -> bool:
        """Whether a file had just been written, so that another write might not show."""
        return any(max(changed, turned) / 1e9 > self.at - FRESH for _, _, _, changed, turned in self.signature)


class FileSource:
    """Files, directories and, read once, `-` for standard input.

    Args:
        node_name: whose Node is meant.
        first: what the files held when they were read to begin with.
        on_synced: called once everything of `first` has been put.
        snapshot: how the files looked before `first` was read; without it they are read once more.
        clock: seconds, for the time between tries.
    """

    def __init__(
        self,
        paths: Sequence[str],
        node_name: str,
        sink: Sink,
        on_synced: Callable[[], None],
        first: Manifests,
        snapshot: FileSnapshot | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._paths = [path for path in paths if path != "-"]
        self._node_name = node_name
        self._sink = sink
        self._on_synced = on_synced
        self._stdin = "-" in paths
        self._known = Manifests()
        self._first = first
        self._put_once = False
        self._clock = clock
        # How the files looked at the last look, and before they were last read; None: they must be read.
        self._seen = snapshot.signature if snapshot is not None else None
        self._read = None if snapshot is None or snapshot.is_fresh else snapshot.signature
        self._failure = ""
        self._failed_at = 0.0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="files", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(2.0)

    def describe_waiting(self) -> str:
        return "" if self._put_once else "files"

    def look(self) -> bool:
        """Reads what changed since the last look, once it has stopped changing; whether anything was taken."""
        now = signature(self._paths)
        if now != self._seen:
            # A writer may still be at work: the next look decides.
            self._seen = now
            return False
        if now == self._read and not self._retry_due():
            return False
        self._read = now
        try:
            manifests = load_manifests(self._paths).with_mirrored_slices()
        except ManifestError as error:
            self._failed(str(error))
            return False
        if self._failure:
            self._failure = ""
            event("manifests taken again")
        self.put(manifests)
        return True

    def _retry_due(self) -> bool:
        return bool(self._failure) and not 0 <= self._clock() - self._failed_at < RETRY

    def _failed(self, reason: str) -> None:
        self._failed_at = self._clock()
        if reason != self._failure:
            self._failure = reason
            event("manifests not taken, what was known stays", level=logging.ERROR, error=reason)

    def put(self, manifests: Manifests) -> None:
        """Puts what differs from what was put last."""
        old, self._known = self._known, manifests
        services = {each.metadata.key: each for each in manifests.services}
        slices = {each.metadata.key: each for each in manifests.endpoint_slices}
        _put_changes({each.metadata.key: each for each in old.services}, services, self._sink.put_service)
        _put_changes({each.metadata.key: each for each in old.endpoint_slices}, slices, self._sink.put_slice)
        cidrs = {each.metadata.key: each for each in manifests.service_cidrs}
        _put_changes({each.metadata.key: each for each in old.service_cidrs}, cidrs, self._sink.put_service_cidr)
        before, after = (self._node(each) for each in (old, manifests))
        if before != after:
            self._sink.put_node(after)

    def _node(self, manifests: Manifests) -> Node | None:
        return next((node for node in manifests.nodes if node.metadata.name == self._node_name), None)

    def _run(self) -> None:
        self.put(self._first)
        self._put_once = True
        self._on_synced()
        if self._stdin:
            return
        while not self._stop.wait(POLL):
            try:
                self.look()
            except Exception as error:
                event("reading manifests failed", level=logging.ERROR, exception=error)


def _put_changes(old: Mapping[str, _T], new: Mapping[str, _T], put: Callable[[str, _T | None], None]) -> None:
    for key in old.keys() - new.keys():
        put(key, None)
    for key, item in new.items():
        if old.get(key) != item:
            put(key, item)


class FileWatch:
    """Whether one file, a configuration say, has changed since it was first looked at."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._first = self._contents()

    def changed(self) -> bool:
        """Whether the contents differ; a file that cannot be read just now has not changed."""
        contents = self._contents()
        return contents is not None and contents != self._first

    def _contents(self) -> bytes | None:
        try:
            return Path(self._path).read_bytes()
        except OSError:
            return None
