"""A snapshot of a cluster: objects, nodes, and how it went."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

import msgspec

from kproxy import __version__
from kproxy.client import RestClient
from kproxy.cluster.snapshot.files import MemoryFiles
from kproxy.cluster.snapshot.info import Failure, NodeInfo, SnapshotInfo
from kproxy.cluster.snapshot.layout import INFO
from kproxy.collect.nodes import NodeReader, NodeResult, collect_nodes, failures_of, rfc3339
from kproxy.collect.objects import collect_objects, server_version


@dataclass(frozen=True, slots=True)
class Collected:
    """A snapshot in memory, and what became of each node."""

    files: MemoryFiles
    info: SnapshotInfo
    nodes: tuple[NodeResult, ...]


class Collector:
    """Collects objects first, then nodes: which nodes there are may follow from the objects."""

    def __init__(self, label: str, via: str, source: str, tell: Callable[[str], None]) -> None:
        """
        Args:
            label: what messages call the snapshot.
            via, source: for snapshot.json.
            tell: gets what has been done, as it goes.
        """
        self.files = MemoryFiles(label)
        self._info = SnapshotInfo(
            tool=f"kproxy {__version__}", created=rfc3339(datetime.now(UTC)), via=via, source=source
        )
        self._tell = tell
        self._failed: list[Failure] = []

    def objects(self, client: RestClient) -> None:
        """Reads the objects. Raises TransportError."""
        self._failed += collect_objects(client, self.files, self._tell)
        self._info = msgspec.structs.replace(self._info, server_version=server_version(client))
        for each in self._failed:
            self._tell(f"{each.what}: {each.message}")

    def nodes(self, readers: Mapping[str, NodeReader], unreachable: Mapping[str, str]) -> Collected:
        """Reads the nodes.

        Args:
            unreachable: nodes for which there is no reader, and why.
        """
        count = 0

        def done(result: NodeResult) -> None:
            nonlocal count
            count += 1
            what = result.failure or f"{result.info.seconds:.1f} s"
            parts = f", {result.errors} part{'' if result.errors == 1 else 's'} missing" if result.errors else ""
            self._tell(f"[{count}/{len(readers)}] {result.name}: {what}{parts}")

        results = collect_nodes(readers, self.files, done)
        results += [NodeResult(name, NodeInfo(via=self._info.via), why) for name, why in unreachable.items()]
        for name, why in unreachable.items():
            self._tell(f"{name}: {why}")
        info = msgspec.structs.replace(
            self._info,
            nodes={each.name: each.info for each in results},
            failed=(*self._failed, *failures_of(results)),
        )
        text = json.dumps(msgspec.to_builtins(info), indent=1, ensure_ascii=False)
        self.files.put(INFO, f"{text}\n".encode("utf-8", "surrogateescape"))
        return Collected(self.files, info, tuple(results))
