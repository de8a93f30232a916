"""Reading all nodes at once: the script is executed on each, and what it printed becomes files."""

from __future__ import annotations

import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Protocol

from kproxy.cluster.snapshot.files import MemoryFiles
from kproxy.cluster.snapshot.info import Failure, NodeInfo
from kproxy.cluster.snapshot.layout import ERRORS, NODES, host_file
from kproxy.cluster.snapshot.script import read_stream, stream_script
from kproxy.errors import KproxyError

PARALLEL: Final = 16
"""Nodes that are read at a time."""


class NodeReader(Protocol):
    """How a node is read."""

    @property
    def via(self) -> str:
        """How, in one word."""

    def read(self) -> Mapping[str, bytes]:
        """The node's files, by their names in its directory.

        Raises:
            KproxyError: it cannot be read, or not to the end.
        """


class ScriptReader(ABC):
    """A node that is read by executing the script there."""

    __slots__ = ()

    def read(self) -> Mapping[str, bytes]:
        """See `NodeReader`."""
        boundary = f"@@kproxy-{secrets.token_hex(12)}"
        return dict(read_stream([self.run(stream_script(boundary))], boundary))

    @abstractmethod
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
    readers: Mapping[str, NodeReader], files: MemoryFiles, done: Callable[[NodeResult], None], parallel: int = PARALLEL
) -> list[NodeResult]:
    """Reads all nodes and puts their files into `files`.

    Args:
        readers: by the name of the node.
        done: called with each node's result, as it comes, by this thread.
    """
    results = []
    with ThreadPoolExecutor(min(parallel, max(1, len(readers)))) as pool:
        waiting = [pool.submit(_collect, name, reader) for name, reader in readers.items()]
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


def _collect(name: str, reader: NodeReader) -> tuple[NodeResult, Mapping[str, bytes]]:
    started, begin = datetime.now(UTC), time.monotonic()

    def info() -> NodeInfo:
        return NodeInfo(rfc3339(started), round(time.monotonic() - begin, 3), reader.via)

    try:
        found = reader.read()
    except KproxyError as error:
        return NodeResult(name, info(), str(error)), {}
    return NodeResult(name, info(), errors=len(found.get(ERRORS, b"").splitlines())), found


def rfc3339(moment: datetime) -> str:
    """`2026-01-31T12:00:00Z`."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
