"""The durable log: SQLite, one table, one writer thread.

Every change is one row, and the current state of a key is its newest row; there is no other table. Revisions grow by
one. The event loop numbers changes and hands them over; the thread writes whatever has gathered in one transaction
(group commit) and reports back after the commit, so nothing is acknowledged or seen by a watcher before it is on disk.
`synchronous=FULL` makes a commit wait for the disk, so it survives a power cut, not only kill -9.

Row 0 holds the revision up to which history has been compacted, as text in `key`.
"""

from __future__ import annotations

import contextlib
import os
import queue
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Final, NamedTuple

from kproxy.errors import KproxyError

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS log (
    revision INTEGER PRIMARY KEY,
    resource TEXT NOT NULL,
    key TEXT NOT NULL,
    created INTEGER NOT NULL,
    previous INTEGER NOT NULL,
    deleted INTEGER NOT NULL,
    time REAL NOT NULL,
    body BLOB NOT NULL
);
CREATE UNIQUE INDEX IF NOT EXISTS log_by_key ON log (resource, key, revision);
"""
_MAX_ROWS: Final = 512
"""Changes in one transaction: bounds how long the first of them waits."""
_VERSION: Final = 1


class StorageError(KproxyError):
    """The data directory cannot be used, or a write failed."""


class Row(NamedTuple):
    """One change, and a row of the table. `key` is `namespace/name` or `name`; `created` is the revision that made the
    object, `previous` the one before this (0: none), `time` seconds since the epoch. `body` is JSON without kind and
    apiVersion; that of a deletion is the last state with the revision of the deletion."""

    revision: int
    resource: str
    key: str
    created: int
    previous: int
    deleted: bool
    time: float
    body: bytes


Committed = Callable[[Sequence[Row], Exception | None], None]


class Log:
    """The log in `path`. `on_commit` is called in the writer thread with each batch, and the error if it failed.

    Raises:
        StorageError: it cannot be used, or is damaged.
    """

    def __init__(self, path: Path, on_commit: Committed, *, synchronous: str = "FULL") -> None:
        self._path = path
        self._on_commit = on_commit
        self._queue: queue.SimpleQueue[Sequence[Row] | int | None] = queue.SimpleQueue()
        self._failed: Exception | None = None
        try:
            self._reader = self._open(synchronous)
            said = self._reader.execute("PRAGMA quick_check(1)").fetchone()[0]
        except (sqlite3.Error, OSError) as error:
            raise StorageError(f"{path}: {error}") from error
        if said != "ok":
            raise StorageError(f"{path}: the database is damaged: {said}; restore a copy, or take a new directory")
        self._synchronous = synchronous
        self._reading = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="apiserver-log", daemon=True)

    def _open(self, synchronous: str) -> sqlite3.Connection:
        # Objects hold Secrets: nobody else may read them, whatever the folder's mode is.
        os.close(os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600))
        for each in (self._path, *(self._path.with_name(f"{self._path.name}-{end}") for end in ("wal", "shm"))):
            with contextlib.suppress(FileNotFoundError):
                each.chmod(0o600)
        connection = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False, timeout=10)
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute(f"PRAGMA synchronous={synchronous}")
        connection.execute("PRAGMA journal_size_limit=67108864")
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        if version not in (0, _VERSION):
            raise StorageError(f"{self._path}: written by another version of kproxy (format {version})")
        connection.executescript(_SCHEMA)
        connection.execute(f"PRAGMA user_version={_VERSION}")
        return connection

    def start(self) -> None:
        self._thread.start()

    def append(self, rows: Sequence[Row]) -> None:
        """Hands changes to the writer; rows must come in the order of their revisions."""
        self._queue.put(rows)

    def compact(self, revision: int) -> None:
        """Lets the writer drop what was superseded or deleted at or before `revision`."""
        self._queue.put(revision)

    def close(self) -> None:
        """Writes what is queued, and closes."""
        if self._thread.is_alive():
            self._queue.put(None)
            self._thread.join()
        self._reader.close()

    # --- reading ---

    def current(self) -> Iterator[Row]:
        """The newest row of every key that is not deleted."""
        with self._reading:
            rows = self._reader.execute(
                "SELECT l.* FROM log l JOIN (SELECT max(revision) AS newest FROM log WHERE revision > 0 "
                "GROUP BY resource, key) n ON l.revision = n.newest WHERE NOT l.deleted ORDER BY l.resource, l.key"
            ).fetchall()
        for row in rows:
            yield Row(*row)

    def at(self, resource: str, revision: int) -> list[Row]:
        """The state of a resource as it was at `revision`, ordered by key."""
        with self._reading:
            rows = self._reader.execute(
                "SELECT l.* FROM log l JOIN (SELECT max(revision) AS newest FROM log "
                "WHERE resource = ? AND revision > 0 AND revision <= ? GROUP BY key) n "
                "ON l.revision = n.newest WHERE NOT l.deleted",
                (resource, revision),
            ).fetchall()
        return [Row(*row) for row in rows]

    def since(self, resource: str, revision: int, upto: int) -> list[tuple[Row, Row | None]]:
        """Changes of a resource after `revision` up to `upto`, each with the state before it."""
        with self._reading:
            rows = self._reader.execute(
                "SELECT l.*, p.* FROM log l LEFT JOIN log p ON p.revision = l.previous AND l.previous > 0 "
                "WHERE l.resource = ? AND l.revision > ? AND l.revision <= ? ORDER BY l.revision",
                (resource, revision, upto),
            ).fetchall()
        return [(Row(*row[:8]), Row(*row[8:]) if row[8] is not None else None) for row in rows]

    def newest(self) -> int:
        """The highest revision in the log; 0 when it is empty."""
        with self._reading:
            found: int = self._reader.execute("SELECT coalesce(max(revision), 0) FROM log").fetchone()[0]
        return max(found, self.compacted())

    def compacted(self) -> int:
        """The revision up to which history is gone."""
        with self._reading:
            row = self._reader.execute("SELECT key FROM log WHERE revision = 0").fetchone()
        return int(row[0]) if row else 0

    def revision_before(self, moment: float) -> int:
        """The newest revision written before `moment`, seconds since the epoch; 0 if there is none."""
        with self._reading:
            found: int | None = self._reader.execute(
                "SELECT revision FROM log WHERE time < ? AND revision > 0 ORDER BY revision DESC LIMIT 1", (moment,)
            ).fetchone()
        return found[0] if isinstance(found, tuple) else 0

    # --- the writer thread ---

    def _run(self) -> None:
        connection = self._open(self._synchronous)
        try:
            running = True
            while running:
                item = self._queue.get()
                batch: list[Row] = []
                while True:
                    if item is None:
                        running = False
                    elif isinstance(item, int):
                        self._write_all(connection, batch)
                        batch = []
                        self._compact(connection, item)
                    else:
                        batch += item
                    if len(batch) >= _MAX_ROWS:
                        break
                    try:
                        item = self._queue.get_nowait()
                    except queue.Empty:
                        break
                self._write_all(connection, batch)
        finally:
            connection.close()

    def _write_all(self, connection: sqlite3.Connection, rows: list[Row]) -> None:
        for start in range(0, len(rows), _MAX_ROWS):
            self._write(connection, rows[start : start + _MAX_ROWS])

    def _write(self, connection: sqlite3.Connection, batch: list[Row]) -> None:
        if self._failed is None:
            try:
                # One statement: SQLite gives up the GIL at each, and getting it back may take a switch interval.
                values = ",".join(["(?,?,?,?,?,?,?,?)"] * len(batch))
                connection.execute(f"INSERT INTO log VALUES {values}", list(chain.from_iterable(batch)))
            except sqlite3.Error as error:
                self._failed = error  # memory is ahead of the disk from here on: nothing more is accepted
        self._on_commit(batch, self._failed)

    def _compact(self, connection: sqlite3.Connection, revision: int) -> None:
        try:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute(
                "DELETE FROM log WHERE revision > 0 AND revision <= ?1 AND (deleted OR EXISTS (SELECT 1 FROM log n "
                "WHERE n.resource = log.resource AND n.key = log.key AND n.revision > log.revision "
                "AND n.revision <= ?1))",
                (revision,),
            )
            connection.execute("INSERT OR REPLACE INTO log VALUES (0, '', ?, 0, 0, 1, 0, x'')", (str(revision),))
            connection.execute("COMMIT")
        except sqlite3.Error:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
