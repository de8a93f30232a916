"""Whether the log of a data directory is whole, before anything opens it for writing.

Three things tell that acknowledged changes are missing: the *mark*, a file beside the log with the highest revision
that was acknowledged; revisions that are not there; and SQLite's own check. A log that is only shorter than what was
being written when the server was killed has none of them: its end was never acknowledged.

It is opened read-only, as SQLite would else tidy away what it cannot read of the write-ahead log.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from kproxy.apiserver.storage.wal import read_wal
from kproxy.errors import KproxyError

_COLUMNS: Final = 8
_DIGITS: Final = 20


class StorageError(KproxyError):
    """The data directory cannot be used, or a write failed."""


class DamageError(StorageError):
    """Changes that were acknowledged are not in the log."""


class Examined(NamedTuple):
    """What a log holds.

    Attributes:
        newest: its highest revision, compacted ones included. mark: the highest that was acknowledged, 0 if not known.
        torn: octets of the write-ahead log that were being written, and are left out.
        damage: what is damaged, in words; "" if nothing is.
    """

    newest: int
    mark: int
    torn: int
    damage: str


class Mark:
    """The highest revision that was acknowledged, in a file of its own.

    It is written after the log is on disk and is not waited for: a power cut may leave it behind the log, and nothing
    leaves it before the log.
    """

    def __init__(self, log: Path) -> None:
        self.path = log.with_suffix(".mark")
        self._file = -1

    def read(self) -> int:
        """The revision; 0 if there is no such file, as an older version of kproxy left it.

        Raises:
            DamageError: the file holds something else.
        """
        try:
            text = self.path.read_bytes()
        except FileNotFoundError:
            return 0
        if not text.strip().isdigit():
            raise DamageError(f"{self.path}: a revision expected, and not {text[:30]!r}")
        return int(text)

    def write(self, revision: int) -> None:
        """Notes a revision. Raises OSError."""
        if self._file < 0:
            self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT, 0o600)
        os.pwrite(self._file, b"%0*d\n" % (_DIGITS, revision), 0)

    def close(self) -> None:
        """Closes the file."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def examine(path: Path) -> Examined:
    """Looks at a log, which may not be there yet.

    Raises:
        StorageError: it cannot be read at all, or is none.
    """
    mark, damage = 0, []
    try:
        mark = Mark(path).read()
    except DamageError as error:
        damage.append(str(error))
    try:
        wal = read_wal(wal_of(path))
    except OSError as error:
        raise StorageError(f"{wal_of(path)}: {error.strerror or error}") from error
    if not path.exists() or not path.stat().st_size:
        newest, found = 0, ""
    else:
        newest, found = _looked_through(path)
    if found:
        damage.append(found)
    if newest < mark:
        damage.append(f"it ends at revision {newest}, and revision {mark} was acknowledged")
    if wal.damaged is not None and (damage or not mark):
        damage.append(f"its write-ahead log is damaged at octet {wal.damaged}")
    return Examined(newest, mark, wal.dropped, "; ".join(damage))


def _looked_through(path: Path) -> tuple[int, str]:
    """The highest revision, and what is damaged."""
    try:
        with closing(_read_only(path)) as connection:
            if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'log'").fetchone():
                return 0, ""
            compacted = connection.execute("SELECT key FROM log WHERE revision = 0").fetchone()
            floor = int(compacted[0]) if compacted else 0
            highest, count = connection.execute(
                "SELECT coalesce(max(revision), 0), count(*) FROM log WHERE revision > ?", (floor,)
            ).fetchone()
            newest = max(highest, floor)
            said = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
            if said != "ok":
                return newest, f"the database is damaged: {said}"
            if count != newest - floor:
                return newest, f"of the {newest - floor} revisions after {floor}, {newest - floor - count} are missing"
            for row in connection.execute("SELECT * FROM log WHERE revision > 0"):
                if not _is_whole(row):
                    return newest, f"the change of revision {row[0]}, of {row[1]} {row[2]}, is damaged"
            return newest, ""
    except (sqlite3.Error, ValueError, TypeError) as error:
        return 0, f"the database is damaged: {error}"


def _read_only(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True, isolation_level=None, timeout=10)


def wal_of(path: Path) -> Path:
    """The write-ahead log of a database."""
    return path.with_name(f"{path.name}-wal")


def advice(path: Path, found: Examined) -> str:
    """What is damaged, and what a repair would keep."""
    kept, highest = len(readable_rows(path)), max(found.newest, found.mark)
    return (
        f"{path}: {found.damage}. A start would lose acknowledged changes in silence: restore a copy, or start with "
        f"--repair, which keeps the {kept} changes that can be read, sets the files aside, and goes on after revision "
        f"{highest}"
    )


def readable_rows(path: Path) -> list[tuple[Any, ...]]:
    """The rows that can be read, and whose bodies are JSON, by revision; that of revision 0 is left out."""
    found: dict[int, tuple[Any, ...]] = {}
    for order in ("ASC", "DESC"):  # from both ends up to what cannot be read
        with suppress(sqlite3.Error), closing(_read_only(path)) as connection:
            rows = connection.execute(f"SELECT * FROM log WHERE revision > 0 ORDER BY revision {order}")
            found |= {row[0]: row for row in _until_damage(rows) if _is_whole(row)}
    return [found[revision] for revision in sorted(found)]


def _until_damage(rows: sqlite3.Cursor) -> Iterator[tuple[Any, ...]]:
    with suppress(sqlite3.Error):
        yield from rows


def _is_whole(row: tuple[Any, ...]) -> bool:
    """Whether a row is an object of its own revision."""
    try:
        value = msgspec.json.decode(row[-1], type=dict[str, Any])
        return len(row) == _COLUMNS and value["metadata"]["resourceVersion"] == str(row[0])
    except (msgspec.DecodeError, UnicodeDecodeError, KeyError, TypeError):
        return False


def set_aside(path: Path) -> Path:
    """Moves the files of a log into a folder beside it, so that nothing of them is lost, and tells where.

    Raises:
        OSError: they cannot be moved.
    """
    number = 1
    while (folder := path.with_name(f"{path.stem}-damaged-{number}")).exists():
        number += 1
    folder.mkdir(mode=0o700)
    for each in (path, wal_of(path), path.with_name(f"{path.name}-shm"), Mark(path).path):
        if each.exists():
            shutil.move(each, folder / each.name)
    return folder
