"""The tables over the log, without a server."""

from __future__ import annotations

import asyncio
from pathlib import Path

from kproxy.apiserver.storage.log import Log
from kproxy.apiserver.storage.store import Store


def test_a_writer_that_gives_up_disturbs_nobody(tmp_path: Path) -> None:
    """Its write is done all the same, and so are the waits of those who saw the same version, and of other writers."""

    async def run() -> None:
        store = Store(lambda committed: Log(tmp_path / "log.sqlite", committed, synchronous="OFF"))
        store.open()
        table = store.table("configmaps")
        try:
            entry, given_up = store.put(table, "a/x", {"metadata": {"name": "x"}})
            _, other = store.put(table, "a/y", {"metadata": {"name": "y"}})
            before, left = store.waiting(entry.revision), store.waiting(entry.revision)
            assert before is not None
            assert left is not None
            given_up.cancel()
            left.cancel()
            after = store.waiting(entry.revision)
            assert after is not None
            async with asyncio.timeout(30):
                await asyncio.gather(before, after, other)
            assert list(table.entries) == ["a/x", "a/y"]
            assert store.waiting(entry.revision) is None
        finally:
            store.close()

    asyncio.run(run())
