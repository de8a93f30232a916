"""Where the explorer's cluster comes from: files here, a live cluster and a lab in `live`.

A source is read as a whole: `read` gives a `SourceState`, all that is known of the cluster at one moment. What follows
from it is `model`'s. A source whose `live` holds calls back when it has changed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import ClassVar, Final

from kproxy.cluster.completeness import remark_claimed_twice, remark_no_cluster_ips, remark_no_slices
from kproxy.cluster.inputs import check_rule_size, read_config, read_text, text_label
from kproxy.cluster.rules import HostRules, read_dumps
from kproxy.cluster.snapshot.cluster import Cluster, host_names
from kproxy.cluster.snapshot.files import Files, MemoryFiles, is_snapshot, is_whole, open_files
from kproxy.cluster.snapshot.host import HostFacts
from kproxy.cluster.snapshot.inferred import InferredConfigs
from kproxy.cluster.snapshot.layout import CONFIGZ, OBJECTS
from kproxy.cluster.sources import Kind, SourceName
from kproxy.cluster.together import object_files
from kproxy.dataplane import IpSet
from kproxy.errors import InputError
from kproxy.explorer.sources.rendering import AS_THEY_ARE, ObjectChoices, RenderedCluster

AGAINST: Final = "against"
BY_OBJECTS: Final = "objects"
AGAINST_BY_OBJECTS: Final = "against-objects"
"""What a question says of the source that it asks, beside "" for the page's own: the second source, and what the
objects of the page's, and of the second one, ask for."""

Changed = Callable[[Sequence[str]], None]
"""Is told that a source has changed: what, in a few words each."""
Away = Callable[[str], None]
"""Is told that a source cannot be reached, and why; "" when it can again."""


@dataclass(frozen=True)
class SourceState:
    """What a source said at one moment.

    Attributes:
        cluster: None of a single host's rules.
        rules, sets: of a single host.
        warnings: what was odd, as sentences.
    """

    label: str
    cluster: Cluster | None = None
    rules: HostRules | None = None
    sets: dict[str, IpSet] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    @property
    def rendered(self) -> bool:
        """Whether the nodes' rules are made from objects."""
        return isinstance(self.cluster, RenderedCluster)


class Source(ABC):
    """Where the cluster comes from. Without more it does not change by itself.

    Attributes:
        kind: what it is read from; dumps and objects together are a snapshot.
        label: what the page calls it.
        live: whether it changes by itself.
    """

    kind: Kind
    label: str
    live: ClassVar[bool] = False

    @abstractmethod
    def read(self) -> SourceState:
        """All of it.

        Raises:
            KproxyError: it cannot be read.
        """

    def away(self) -> str:
        """Why it cannot be reached now, "" if it can, as far as one can tell at once."""
        return ""

    def start(self, changed: Changed, away: Away) -> None:  # noqa: B027
        """Begins to follow it; calls come from other threads."""

    def stop(self) -> None:  # noqa: B027
        """Ends that."""


class StillSource(Source):
    """A source that does not change by itself; `paths` are the files that it is read from."""

    def __init__(self, kind: Kind, label: str, read: Callable[[], SourceState], paths: tuple[str, ...] = ()) -> None:
        self.kind, self.label = kind, label
        self._read = read
        self._paths = paths

    def read(self) -> SourceState:
        return self._read()

    def away(self) -> str:
        gone = [path for path in self._paths if path != "-" and not Path(path).exists()]
        return f"{gone[0]}: it is no longer there" if gone else ""


def still_source(
    names: Sequence[SourceName],
    config_path: str | None = None,
    how: ObjectChoices = AS_THEY_ARE,
    stdin: bytes = b"",
) -> StillSource:
    """One snapshot, or manifests, or one host's rules.

    Args:
        config_path, how: of manifests.
        stdin: what `-` stands for.

    Raises:
        InputError: names are of several kinds.
    """
    first = names[0]
    other = next((each for each in names if each.kind is not first.kind), None)
    if other is not None:
        raise InputError(f"{first.text} is {first.kind} and {other.text} {other.kind}: a source is one of both")
    paths = tuple(path for each in names for path in each.names)
    if first.kind is Kind.SNAPSHOT:
        if len(paths) > 1:
            raise InputError(f"{paths[0]} and {paths[1]}: one snapshot is a source")
        return StillSource(Kind.SNAPSHOT, paths[0], partial(_read_snapshot, paths[0]), paths)
    if first.kind is Kind.RULES:
        label = ", ".join(map(text_label, paths))
        return StillSource(Kind.RULES, label, partial(_read_rules, label, paths, stdin), paths)
    if first.kind is not Kind.MANIFESTS:
        raise InputError(f"{first.text}: a snapshot, manifests or rules in files expected")
    return manifest_source(paths, config_path, how, stdin)


def manifest_source(
    paths: Sequence[str], config_path: str | None, how: ObjectChoices, stdin: bytes = b""
) -> StillSource:
    """The objects of files or of snapshots: what kube-proxy would program for them on each node."""
    label = ", ".join(map(text_label, paths))
    return StillSource(
        Kind.MANIFESTS, label, partial(_read_manifests, label, tuple(paths), config_path, how, stdin), tuple(paths)
    )


def _read_snapshot(path: str) -> SourceState:
    """Of a directory files are read when they are needed."""
    warnings: list[str] = []
    return SourceState(path, Cluster(open_files(path), tell=warnings.append), warnings=tuple(warnings))


def _read_manifests(
    label: str, paths: tuple[str, ...], config_path: str | None, how: ObjectChoices, stdin: bytes
) -> SourceState:
    warnings: list[str] = []
    snapshots = {path: open_files(path) for path in paths if path != "-" and is_snapshot(path)}
    files = MemoryFiles(label)
    for held in snapshots.values():
        for path, data in _objects_of(held, configured=config_path is not None):
            files.put(path, data)
    for path, data in object_files([path for path in paths if path not in snapshots], stdin):
        files.put(path, data)
    config = None if config_path is None else read_config(config_path, warnings.append)
    cluster = RenderedCluster(files, config, how, tell=warnings.append)
    cluster.label = label
    # The rules of a snapshot's hosts tell kube-proxy's configuration if nothing else does.
    hosts = {name: HostFacts(held, name) for held in snapshots.values() for name in host_names(held)}
    cluster.inferred = InferredConfigs(hosts, cluster.manifests.nodes)
    found = cluster.manifests
    cluster.rendering.how = replace(how, complete=is_whole(found.endpoint_slices, snapshots.values()))
    warnings += [*remark_no_cluster_ips(found), *remark_no_slices(found), *remark_claimed_twice(found)]
    return SourceState(label, cluster, warnings=(*warnings, *cluster.config_notes(cluster.hosts)))


def _objects_of(files: Files, *, configured: bool) -> Iterator[tuple[str, bytes]]:
    """The objects of a snapshot, and the configurations of its nodes unless one is given."""
    for path in files.paths():
        if path.startswith(f"{OBJECTS}/") or (not configured and path.endswith(f"/{CONFIGZ}")):
            yield path, files.read(path) or b""


def _read_rules(label: str, paths: tuple[str, ...], stdin: bytes) -> SourceState:
    def text(path: str) -> str:
        if path != "-":
            return read_text(path, rules=True)
        check_rule_size(stdin, text_label(path))
        return stdin.decode("utf-8", "surrogateescape")

    rules, sets = read_dumps(paths, text)
    found = HostRules(rules)
    return SourceState(label, rules=found, sets=sets, warnings=found.assumptions())
