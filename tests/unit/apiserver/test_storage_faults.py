"""Objects of all kinds through kill -9 and a full disk."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.apiserver.objects import collection, objects
from tests.support.apiserver.process import Process

Json = dict[str, Any]
FIRST = ("ServiceCIDR", "RuntimeClass", "PriorityClass", "ServiceAccount")
"""What objects of other kinds name comes before them."""


@contextmanager
def started(directory: Path, *more: str) -> Iterator[Process]:
    server = Process(directory, *more)
    try:
        yield server
    finally:
        server.kill()


def ordered() -> list[Json]:
    """One object of each kind."""
    return sorted(objects(), key=lambda value: value["kind"] not in FIRST)


def path_of(created: Json) -> str:
    return f"{collection(created)}/{created['metadata']['name']}"


def create_all(server: Process, wanted: list[Json]) -> list[Json]:
    """What the server has acknowledged, in order."""
    acknowledged = []
    for value in wanted:
        status, answer = server.request("POST", collection(value), value)
        assert status == 201, answer
        acknowledged.append(answer)
    return acknowledged


def is_there(server: Process, created: Json) -> bool:
    """Whether an object is there, as it was acknowledged but for what controllers write."""
    status, found = server.request("GET", path_of(created))
    if status == 404:
        return False
    assert status == 200, found
    assert found["metadata"]["uid"] == created["metadata"]["uid"]
    kept = {key: value for key, value in created.items() if key not in ("metadata", "status")}
    assert {key: value for key, value in found.items() if key not in ("metadata", "status")} == kept
    return True


def log_of(directory: Path) -> Path:
    """What SQLite has written and not yet moved into the database."""
    (found,) = (directory / "data").glob("*-wal")
    return found


def test_a_full_disk_refuses_writes_and_keeps_what_was_acknowledged(tmp_path: Path) -> None:
    wanted = ordered()
    half = len(wanted) // 2
    with started(tmp_path) as server:
        acknowledged = create_all(server, wanted[:half])
        # No file may grow beyond this: a write that would is told that it cannot be done, as on a full disk.
        limit = log_of(tmp_path).stat().st_size + 100_000
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
        refused: Json = {}
        for value in wanted[half:]:
            status, answer = server.request("POST", collection(value), value)
            if status != 201:
                refused = value
                break
            acknowledged.append(answer)
        assert refused, "nothing was refused"
        assert (status, answer["reason"]) == (500, "InternalError")
        assert "storage failed" in answer["message"]
        status, said = server.request("GET", "/readyz")
        assert status == 500
        assert "[-]etcd failed: storage failed: " in said
        assert server.process.stderr is not None
        noted = ""  # in lines of a terminal's width
        while "all writes are refused until the server is started again" not in " ".join(noted.split()):
            noted += (line := server.process.stderr.readline())
            assert line, noted
        assert all(is_there(server, created) for created in acknowledged)
        assert server.request("GET", path_of(refused))[0] == 404
    with started(tmp_path) as server:
        assert all(is_there(server, created) for created in acknowledged)
        create_all(server, wanted[len(acknowledged) :])
