"""Reading all nodes at once: the script is executed on each, and what it printed becomes files."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Protocol

from kproxy.cluster.snapshot.files import MemoryFiles
from kproxy.cluster.snapshot.info import Failure, NodeInfo
from kproxy.cluster.snapshot.layout import ERRORS, NODES, host_file
from kproxy.cluster.snapshot.script import parse_stream, stream_script
from kproxy.errors import KproxyError

PARALLEL: Final = 16
"""Nodes that are read at a time."""


class Runner(Protocol):
    """Where a node's script is executed."""

    @property
    def via(self) -> str:
        """How, in one word."""

    def run(self, script: str) -> bytes:
        """What `sh -c SCRIPT` prints.

        Raises:
            KproxyError: it cannot be executed, or not to its end.
        """


@dataclass(frozen=True, slots=True)
class NodeResult:
    """What came of one node: how it went, and why not; `errors` counts the parts that are not there."""

    name: str
    info: NodeInfo
    failure: str = ""
    errors: int = 0


def collect_nodes(
    runners: Mapping[str, Runner], files: MemoryFiles, done: Callable[[NodeResult], None], parallel: int = PARALLEL
) -> list[NodeResult]:
    """Reads all nodes and puts their files into `files`.

    Args:
        runners: by the name of the node.
        done: called with each node's result, as it comes, by this thread.
    """
    results = []
    with ThreadPoolExecutor(min(parallel, max(1, len(runners)))) as pool:
        waiting = [pool.submit(_collect, name, runner) for name, runner in runners.items()]
        for future in as_completed(waiting):
            result, found = future.result()
            for name, data in found.items():
                files.put(host_file(result.name, name), data)
            done(result)
            results.append(result)
    return sorted(results, key=lambda result: result.name)


def failures_of(results: list[NodeResult]) -> list[Failure]:
    """The nodes of which nothing came, for snapshot.json."""
    return [Failure(f"{NODES}/{each.name}", each.failure) for each in results if each.failure]


def _collect(name: str, runner: Runner) -> tuple[NodeResult, dict[str, bytes]]:
    boundary = f"@@kproxy-{secrets.token_hex(12)}"
    started, begin = datetime.now(UTC), time.monotonic()

    def info() -> NodeInfo:
        return NodeInfo(rfc3339(started), round(time.monotonic() - begin, 3), runner.via)

    try:
        found = parse_stream(runner.run(stream_script(boundary)), boundary)
    except KproxyError as error:
        return NodeResult(name, info(), str(error)), {}
    return NodeResult(name, info(), errors=len(found.get(ERRORS, b"").splitlines())), found


def rfc3339(moment: datetime) -> str:
    """`2026-01-31T12:00:00Z`."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
