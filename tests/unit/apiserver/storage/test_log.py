"""The durable log by itself."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from kproxy.apiserver.storage.log import Log, Row, StorageError


def test_what_is_handed_over_at_once_may_be_more_than_one_statement_takes(tmp_path: Path) -> None:
    """SQLite takes 32,766 values; a deletion of a collection hands over all of its changes in one turn of the loop."""
    told: list[tuple[int, Exception | None]] = []

    def committed(rows: Sequence[Row], error: Exception | None) -> None:
        told.extend((row.revision, error) for row in rows)

    bodies = (b'{"metadata":{"resourceVersion":"%d"}}' % number for number in range(1, 10_001))
    rows = [Row(number, "pods", f"a/{number}", number, 0, False, 0.0, body) for number, body in enumerate(bodies, 1)]
    log = Log(tmp_path / "log.sqlite", committed, synchronous="OFF")
    log.start()
    log.append(rows)
    log.close()
    assert told == [(row.revision, None) for row in rows]
    again = Log(tmp_path / "log.sqlite", committed)
    assert sorted(again.current()) == rows
    again.close()


def _written(path: Path) -> None:
    """A log that has been closed."""
    log = Log(path, lambda _rows, _error: None, synchronous="OFF")
    log.start()
    body = b'{"metadata":{"resourceVersion":"1"},"data":"%s"}' % (b"y" * 300)
    log.append([Row(number, "configmaps", f"a/{number}", number, 0, False, 0.0, body) for number in range(1, 101)])
    log.close()


@pytest.mark.parametrize("at", [0, 20_000])
def test_a_damaged_database_is_refused(tmp_path: Path, at: int) -> None:
    path = tmp_path / "log.sqlite"
    _written(path)
    with path.open("r+b") as file:
        file.seek(at)
        file.write(b"\xff" * 4096)
    with pytest.raises(StorageError):
        Log(path, lambda _rows, _error: None)


def test_nobody_else_reads_it(tmp_path: Path) -> None:
    """It holds Secrets; a folder that was there before may be open to all."""
    tmp_path.chmod(0o755)
    (tmp_path / "log.sqlite").touch(0o644)
    _written(tmp_path / "log.sqlite")
    assert {each.name: each.stat().st_mode & 0o777 for each in tmp_path.iterdir()} == {"log.sqlite": 0o600}
