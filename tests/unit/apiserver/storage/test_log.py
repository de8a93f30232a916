"""The durable log by itself."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kproxy.apiserver.storage.log import Log, Row


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
