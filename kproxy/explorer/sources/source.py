"""Where the explorer's cluster comes from: files here, a live cluster and a lab in `live`.

A source is read as a whole: `read` gives a `Known`, all that is known of the cluster at one moment. What follows from
it is `model`'s. A source whose `live` holds calls back when it has changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from kproxy.api import KubeProxyConfiguration
from kproxy.cluster.allocate import Network
from kproxy.cluster.completeness import remark_claimed_twice, remark_no_cluster_ips, remark_no_slices
from kproxy.cluster.inputs import check_rule_size, read_config, read_text, text_label
from kproxy.cluster.rules import HostRules, read_dumps
from kproxy.cluster.snapshot.cluster import Cluster, host_names
from kproxy.cluster.snapshot.files import Files, MemoryFiles, is_snapshot, is_whole, open_files
from kproxy.cluster.snapshot.host import HostFacts
from kproxy.cluster.snapshot.inferred import InferredConfigs
from kproxy.cluster.snapshot.layout import CONFIGZ, OBJECTS
from kproxy.cluster.together import object_files
from kproxy.dataplane import IpSet
from kproxy.explorer.sources.rendering import RenderedCluster
from kproxy.render import Features

SNAPSHOT: Final = "snapshot"
MANIFESTS: Final = "manifests"
RULES: Final = "rules"
CLUSTER: Final = "cluster"
LAB: Final = "lab"

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
        rendered: whether the nodes' rules are made from objects.
        warnings: what was odd, as sentences.
        config, mode, features, allocate, endpoints: what was given beside the cluster.
        complete: whether the objects are all that the cluster has.
    """

    label: str
    cluster: Cluster | None = None
    files: Files | None = None
    rules: HostRules | None = None
    sets: dict[str, IpSet] = field(default_factory=dict)
    rendered: bool = False
    warnings: tuple[str, ...] = ()
    config: KubeProxyConfiguration | None = None
    mode: str | None = None
    features: Features = field(default_factory=Features)
    allocate: tuple[Network, ...] = ()
    endpoints: int = 0
    complete: bool = True


class Source(Protocol):
    """Where the cluster comes from."""

    @property
    def kind(self) -> str:
        """One of the constants above."""

    @property
    def label(self) -> str:
        """What the page calls it."""

    @property
    def live(self) -> bool:
        """Whether it changes by itself."""

    def read(self) -> SourceState:
        """All of it.

        Raises:
            KproxyError: it cannot be read.
        """

    def away(self) -> str:
        """Why it cannot be reached now, "" if it can, as far as one can tell at once."""

    def start(self, changed: Changed, away: Away) -> None:
        """Begins to follow it; calls come from other threads."""

    def stop(self) -> None:
        """Ends that."""


class Still:
    """A source that does not change by itself."""

    live = False

    def start(self, changed: Changed, away: Away) -> None:
        """Nothing changes by itself."""

    def stop(self) -> None:
        """Nothing was begun."""


@dataclass(frozen=True)
class ReadSource(Still):
    """What a command has read already."""

    kind: str
    known: SourceState

    @property
    def label(self) -> str:
        return self.known.label

    def read(self) -> SourceState:
        return self.known

    def away(self) -> str:
        return ""


class SnapshotSource(Still):
    """A snapshot: a directory or an archive. Of a directory files are read when they are needed."""

    kind = SNAPSHOT

    def __init__(self, path: str) -> None:
        self.label = path
        self._path = path

    def read(self) -> SourceState:
        warnings: list[str] = []
        files = _Kept(open_files(self._path))
        return SourceState(self.label, Cluster(files, tell=warnings.append), files, warnings=tuple(warnings))

    def away(self) -> str:
        path = Path(self._path)
        return "" if path.exists() else f"{self._path}: it is no longer there"


class _Kept:
    """A snapshot's files; its objects are kept, so that they are there when the directory is not."""

    def __init__(self, files: Files) -> None:
        self.label = files.label
        self._files = files
        self._paths = files.paths()
        self._objects = MemoryFiles(files.label)
        for path in self._paths:
            if path.startswith(f"{OBJECTS}/"):
                self._objects.put(path, files.read(path) or b"")

    def paths(self) -> tuple[str, ...]:
        return self._paths

    def read(self, path: str) -> bytes | None:
        return self._objects.read(path) if path.startswith(f"{OBJECTS}/") else self._files.read(path)


class ManifestSource(Still):
    """Manifests: what kube-proxy would program for them on each node."""

    kind = MANIFESTS

    def __init__(
        self,
        filenames: Sequence[str],
        config_path: str | None,
        mode: str | None,
        features: Features,
        stdin: bytes = b"",
        allocate: Sequence[Network] = (),
        endpoints: int = 0,
    ) -> None:
        """
        Args:
            stdin: what `-` stands for.
            allocate: where Services without cluster IPs get theirs.
            endpoints: how many a Service gets that has a selector and no EndpointSlice.
        """
        self.label = ", ".join(map(text_label, filenames))
        self._filenames = tuple(filenames)
        self._config_path = config_path
        self._mode = mode
        self._features = features
        self._stdin = stdin
        self._allocate = tuple(allocate)
        self._endpoints = endpoints

    def read(self) -> SourceState:
        warnings: list[str] = []
        files = MemoryFiles(self.label)
        for path, data in self._contents():
            files.put(path, data)
        config = None
        if self._config_path is not None:
            config = read_config(self._config_path, warnings.append)
        given = self._features, self._mode, self._allocate, self._endpoints
        cluster = RenderedCluster(files, config, *given, tell=warnings.append)
        cluster.label = self.label
        cluster.inferred = InferredConfigs(self._hosts(), cluster.manifests.nodes)
        found = cluster.manifests
        cluster.rendering.complete = is_whole(found.endpoint_slices, self._snapshots())
        warnings += [*remark_no_cluster_ips(found), *remark_no_slices(found), *remark_claimed_twice(found)]
        return SourceState(
            self.label,
            cluster,
            files,
            rendered=True,
            warnings=(*warnings, *cluster.config_notes(cluster.hosts)),
            config=config,
            mode=self._mode,
            features=self._features,
            allocate=self._allocate,
            endpoints=self._endpoints,
            complete=cluster.rendering.complete,
        )

    def _contents(self) -> Iterator[tuple[str, bytes]]:
        """The manifests, by names in `objects/`: their content decides what they are, so each may have any of these. Of
        a snapshot also the configurations of its nodes, unless one is given."""
        wanted = (f"{OBJECTS}/",) if self._config_path is not None else (f"{OBJECTS}/", f"/{CONFIGZ}")
        for held in self._snapshots():
            for path in held.paths():
                if path.startswith(wanted) or path.endswith(wanted):
                    yield path, held.read(path) or b""
        yield from object_files([name for name in self._filenames if not _is_held(name)], self._stdin)

    def _hosts(self) -> dict[str, HostFacts]:
        """The hosts of snapshots, whose rules tell kube-proxy's configuration if nothing else does."""
        return {name: HostFacts(files, name) for files in self._snapshots() for name in host_names(files)}

    def _snapshots(self) -> list[Files]:
        return [open_files(name) for name in self._filenames if _is_held(name)]

    def away(self) -> str:
        gone = [name for name in self._filenames if name != "-" and not Path(name).exists()]
        return f"{gone[0]}: it is no longer there" if gone else ""


def _is_held(name: str) -> bool:
    """Whether the objects are those of a snapshot."""
    return name != "-" and is_snapshot(name)


class RulesSource(Still):
    """The rules of one host, from dumps."""

    kind = RULES

    def __init__(self, paths: Sequence[str], stdin: bytes) -> None:
        self.label = ", ".join(map(text_label, paths))
        self._paths = tuple(paths)
        self._stdin = stdin

    def read(self) -> SourceState:
        rules, sets = read_dumps(self._paths, self._text)
        found = HostRules(rules)
        return SourceState(self.label, rules=found, sets=sets, warnings=found.assumptions())

    def _text(self, path: str) -> str:
        if path != "-":
            return read_text(path, rules=True)
        check_rule_size(self._stdin, text_label(path))
        return self._stdin.decode("utf-8", "surrogateescape")

    def away(self) -> str:
        gone = [path for path in self._paths if path != "-" and not Path(path).exists()]
        return f"{gone[0]}: it is no longer there" if gone else ""
