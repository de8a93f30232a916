"""Whether the log of a data directory is whole, before anything opens it for writing.

Three things tell that acknowledged changes are missing: the *mark*, a file beside the log with the highest revision
that was acknowledged; revisions that are not there; and SQLite's own check. A log that is only shorter than what was
being written when the server was killed has none of them: its end was never acknowledged.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final

from kproxy.errors import KproxyError

_DIGITS: Final = 20


class StorageError(KproxyError):
    """The data directory cannot be used, or a write failed."""


class DamageError(StorageError):
    """Changes that were acknowledged are not in the log."""


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


def examine(path: Path) -> None:
    """Looks at a log, which may not be there yet.

    Raises:
        DamageError: changes that were acknowledged are missing, or it cannot be read.
    """
    mark = Mark(path).read()
    newest, damage = _looked_through(path) if path.exists() and path.stat().st_size else (0, "")
    if not damage and newest < mark:
        damage = f"it ends at revision {newest}, and revision {mark} was acknowledged"
    if damage:
        raise DamageError(
            f"{path}: {damage}. A start would lose acknowledged changes in silence: restore a copy of the directory, "
            "or take a new one"
        )


def _looked_through(path: Path) -> tuple[int, str]:
    """The highest revision, compacted ones included, and what is damaged."""
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True, timeout=10)) as connection:
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
            missing = newest - floor - count
            return newest, f"{missing} of the {newest - floor} revisions after {floor} are missing" if missing else ""
    except (sqlite3.Error, ValueError) as error:
        return 0, f"the database is damaged: {error}"


def wal_of(path: Path) -> Path:
    """The write-ahead log of a database."""
    return path.with_name(f"{path.name}-wal")
