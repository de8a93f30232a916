"""kill -9 under load: what was acknowledged is there after a restart, and watchers end equal."""

from __future__ import annotations

import http.client
import json
import random
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.apiserver.process import Process
from tests.support.waiting import PATIENCE, eventually

MAPS = "/api/v1/namespaces/default/configmaps"


def _write(server: Process, worker: int, acknowledged: dict[str, str | None], doubtful: set[str]) -> None:
    """Creates, changes and deletes until the server is gone; notes what was acknowledged."""
    headers = {"Authorization": "Bearer t", "Content-Type": "application/json"}
    connection = server.connect()
    for number in range(10_000):
        name = f"w{worker}-{time.monotonic_ns()}"
        steps: list[tuple[str, str, Any, str | None]] = [
            ("POST", MAPS, {"metadata": {"name": name}, "data": {"v": "1"}}, "1")
        ]
        if number % 2:
            steps.append(("PUT", f"{MAPS}/{name}", {"metadata": {"name": name}, "data": {"v": "2"}}, "2"))
        if number % 3 == 0:
            steps.append(("DELETE", f"{MAPS}/{name}", None, None))
        for method, path, body, value in steps:
            doubtful.add(name)
            try:
                connection.request(method, path, json.dumps(body) if body else None, headers)
                response = connection.getresponse()
                response.read()
            except (OSError, http.client.HTTPException):
                return
            assert response.status < 300
            acknowledged[name] = value
            doubtful.discard(name)


def _watch(server: Process, version: str, seen: dict[str, str | None], versions: list[str]) -> None:
    """Follows the objects until the server is gone."""
    connection = server.connect()
    try:
        connection.request("GET", f"{MAPS}?watch=1&resourceVersion={version}", headers={"Authorization": "Bearer t"})
        response = connection.getresponse()
        while line := response.readline():
            event = json.loads(line)
            meta = event["object"]["metadata"]
            seen[meta["name"]] = None if event["type"] == "DELETED" else event["object"]["data"]["v"]
            versions.append(meta["resourceVersion"])
    except (OSError, http.client.HTTPException, ValueError):
        return


def _rounds(directory: Path, rounds: int) -> None:
    rng = random.Random(7)
    acknowledged: dict[str, str | None] = {}
    doubtful: set[str] = set()
    seen: dict[str, str | None] = {}
    versions = ["0"]
    for _ in range(rounds):
        server = Process(directory)
        if versions == ["0"]:
            versions = [server.get(MAPS)["metadata"]["resourceVersion"]]
        threads = [threading.Thread(target=_write, args=(server, n, acknowledged, doubtful)) for n in range(4)]
        threads.append(threading.Thread(target=_watch, args=(server, versions[-1], seen, versions)))
        for thread in threads:
            thread.start()
        before = len(acknowledged)
        eventually(lambda: len(acknowledged) > before + 3)  # noqa: B023  # used at once
        time.sleep(rng.uniform(0.3, 1.5))
        server.kill()
        for thread in threads:
            thread.join(PATIENCE)
    server = Process(directory)
    stored = {item["metadata"]["name"]: item["data"]["v"] for item in server.get(MAPS)["items"]}
    # The watcher goes on from its version, and ends equal.
    catching = threading.Thread(target=_watch, args=(server, versions[-1], seen, versions), daemon=True)
    catching.start()
    deadline = time.monotonic() + PATIENCE
    while {k: v for k, v in seen.items() if v} != stored and time.monotonic() < deadline:
        time.sleep(0.05)
    server.kill()
    assert len(acknowledged) > 20
    lost = {n: (v, stored.get(n)) for n, v in acknowledged.items() if n not in doubtful and stored.get(n) != v}
    assert not lost
    assert {name: value for name, value in seen.items() if value} == stored


def test_kill_loses_nothing_acknowledged(tmp_path: Path) -> None:
    _rounds(tmp_path, 3)


@pytest.mark.soak
def test_kill_many_times(tmp_path: Path) -> None:
    _rounds(tmp_path, 25)
