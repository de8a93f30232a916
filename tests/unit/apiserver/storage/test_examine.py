"""A log that is damaged is refused; one whose end was being written is not; no revision is given twice."""

from __future__ import annotations

import random
import shutil
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from kproxy.apiserver.storage.examine import DamageError, StorageError, wal_of
from kproxy.apiserver.storage.log import Log, Row
from tests.support.waiting import eventually

CHANGES = 100


def row(revision: int) -> Row:
    body = b'{"metadata":{"name":"x","resourceVersion":"%d"},"data":"%s"}' % (revision, b"y" * 300)
    return Row(revision, "configmaps", f"a/{revision}", revision, 0, False, 0.0, body)


def ignore(_rows: Sequence[Row], error: Exception | None) -> None:
    assert error is None


def _has_come_to(log: Log, revision: int) -> bool:
    return log._mark.read() == revision


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a server that was killed: all changes were acknowledged, most are in the write-ahead log alone."""
    running, copy = (tmp_path_factory.mktemp(name) for name in ("running", "copy"))
    log = Log(running / "log.sqlite", ignore, synchronous="OFF")
    log.start()
    for revision in range(1, CHANGES + 1):
        log.append([row(revision)])
        eventually(partial(_has_come_to, log, revision))
    for each in running.iterdir():
        shutil.copy(each, copy / each.name)
    log.close()
    return copy


@pytest.fixture
def folder(killed: Path, tmp_path: Path) -> Path:
    for each in killed.iterdir():
        shutil.copy(each, tmp_path / each.name)
    return tmp_path


def test_what_was_acknowledged_is_there(folder: Path) -> None:
    log = Log(folder / "log.sqlite", ignore)
    assert (log.newest(), len(list(log.current()))) == (CHANGES, CHANGES)
    log.close()


@pytest.mark.parametrize("seed", range(40))
def test_damage_is_never_taken_for_an_end(folder: Path, seed: int) -> None:
    """Random octets anywhere in the write-ahead log, or its end cut off: in no case does a change go in silence."""
    random_ = random.Random(seed)
    wal = wal_of(folder / "log.sqlite")
    at = random_.randrange(wal.stat().st_size)
    with wal.open("r+b") as file:
        if seed % 4 == 0:
            file.truncate(at)
        else:
            file.seek(at)
            file.write(random_.randbytes(64))
    before = wal.read_bytes()
    try:
        log = Log(folder / "log.sqlite", ignore)
    except DamageError:
        assert wal.read_bytes() == before, "looking changes nothing"
        return
    assert len(list(log.current())) == CHANGES
    log.close()


def test_what_was_being_written_is_left_out(folder: Path) -> None:
    """As a crash leaves it: the last change is not whole, and was not acknowledged."""
    wal = wal_of(folder / "log.sqlite")
    (folder / "log.mark").write_text(f"{CHANGES - 1:020d}\n")
    with wal.open("r+b") as file:
        file.truncate(wal.stat().st_size - 100)
    log = Log(folder / "log.sqlite", ignore)
    assert log.newest() == CHANGES - 1
    log.close()


@pytest.mark.parametrize("damage", ["missing", "page", "mark", "none"])
def test_a_damaged_database_is_one_error(folder: Path, damage: str) -> None:
    path = folder / "log.sqlite"
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        if damage == "missing":
            connection.execute("DELETE FROM log WHERE revision = 7")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    if damage == "page":
        with path.open("r+b") as file:
            file.seek(path.stat().st_size // 2)
            file.write(b"\xff" * 4096)
    if damage == "mark":
        (folder / "log.mark").write_text("seven\n")
    if damage == "none":
        path.write_bytes(b"no database" * 1000)
    with pytest.raises(StorageError):
        Log(path, ignore)


def test_nobody_else_reads_it(tmp_path: Path) -> None:
    """It holds Secrets; a folder that was there before may be open to all."""
    tmp_path.chmod(0o755)
    (tmp_path / "log.sqlite").touch(0o644)
    log = Log(tmp_path / "log.sqlite", ignore)
    log.start()
    log.append([row(1)])
    log.close()
    assert {each.name: each.stat().st_mode & 0o777 for each in tmp_path.iterdir()} == {
        "log.sqlite": 0o600, "log.mark": 0o600,
    }  # fmt: skip
