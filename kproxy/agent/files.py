"""Manifests as a source: files and directories are read again when they change.

What can be read replaces what was known, all at once; what cannot be, because it is broken or half written, is told
once and changes nothing. Files are looked at a few times a second: that needs no more than a stat of each, works for
every file system and for editors that replace files, and never misses a change for good, as a lost event would be.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeVar

from kproxy.agent.log import event
from kproxy.agent.sources import Sink
from kproxy.api import ManifestError, Manifests, Node, load_manifests
from kproxy.api.manifests import SUFFIXES

POLL: Final = 0.25
"""Seconds between looks."""

Signature = tuple[tuple[str, int, int, int], ...]
"""Path, inode, size and time of change of each file."""

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
            found.append((name, status.st_ino, status.st_size, status.st_mtime_ns))
    return tuple(found)


class FileSource:
    """Files, directories and, read once, `-` for standard input.

    Args:
        node_name: whose Node is meant.
        first: what the files held when they were read to begin with.
        on_synced: called once everything of `first` has been put.
    """

    def __init__(
        self, paths: Sequence[str], node_name: str, sink: Sink, on_synced: Callable[[], None], first: Manifests
    ) -> None:
        self._paths = [path for path in paths if path != "-"]
        self._all = list(paths)
        self._node_name = node_name
        self._sink = sink
        self._on_synced = on_synced
        self._stdin = "-" in paths
        self._known = Manifests()
        self._first = first
        self._put_once = False
        self._seen = signature(self._paths)
        self._read = self._seen
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
        """Reads what changed since the last look, once it has stopped changing; whether anything was read."""
        now = signature(self._paths)
        if now != self._seen:
            # Somebody may still be writing: the next look decides.
            self._seen = now
            return False
        if now == self._read:
            return False
        self._read = now
        try:
            manifests = load_manifests(self._paths).with_mirrored_slices()
        except ManifestError as error:
            event("manifests not taken, what was known stays", level=logging.ERROR, error=str(error))
            return False
        self.put(manifests)
        return True

    def put(self, manifests: Manifests) -> None:
        """Puts what differs from what was put last."""
        old, self._known = self._known, manifests
        services = {each.metadata.key: each for each in manifests.services}
        slices = {each.metadata.key: each for each in manifests.endpoint_slices}
        _put_changes({each.metadata.key: each for each in old.services}, services, self._sink.put_service)
        _put_changes({each.metadata.key: each for each in old.endpoint_slices}, slices, self._sink.put_slice)
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
