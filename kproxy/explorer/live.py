"""Clusters that change by themselves: an API server's, and labs.

Objects are watched; once changes have come, and no more for a moment, the source is read again. Of a lab each node is
read, too: again when its rules have another generation, or its links another state.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import msgspec

from kproxy.api.kubeproxyconfig.types import MODE_IPTABLES
from kproxy.client import NODES, SERVICES, Informer, RestClient, TransportError
from kproxy.client.resources import ENDPOINT_SLICES, PODS, Resource
from kproxy.cluster.inputs import read_config
from kproxy.cluster.snapshot.cluster import Cluster
from kproxy.cluster.snapshot.files import Files, MemoryFiles
from kproxy.cluster.snapshot.info import SnapshotInfo
from kproxy.cluster.snapshot.layout import INFO, OBJECTS
from kproxy.collect.netns import NamespaceReader
from kproxy.collect.nodes import NodeReader, collect_nodes
from kproxy.collect.objects import collect_objects
from kproxy.errors import KproxyError
from kproxy.explorer.rendering import RenderedCluster
from kproxy.explorer.source import CLUSTER, LAB, Away, Changed, Known
from kproxy.lab.lifecycle.objects import lab_client
from kproxy.lab.links import read_links
from kproxy.lab.spec import CLIENT, FABRIC
from kproxy.lab.state import LabDirectory, LabRecord
from kproxy.linux.errors import LinuxError
from kproxy.linux.iptables.generation import nft_generation
from kproxy.linux.namespace import Namespace
from kproxy.render import Features

QUIET: Final = 0.05
"""Seconds without a change after which what came is read."""
LONGEST: Final = 0.3
"""Seconds after the first change after which it is read in any case."""
POLL: Final = 0.5
"""Seconds between two looks at a lab's nodes."""
SETTLING: Final = 1.0
"""Seconds after a change of objects after which nodes are read again whose rules have no generation."""
_MAX_TOLD: Final = 20
_WATCHED: Final[tuple[Resource[Any], ...]] = (SERVICES, ENDPOINT_SLICES, NODES, PODS)
_KINDS: Final = {"services": "Service", "endpointslices": "EndpointSlice", "nodes": "Node", "pods": "Pod"}

Versions = Mapping[tuple[str, str], str]


class Watch:
    """The objects of an API server, followed. `known` are the resource versions that were read last."""

    def __init__(self, client: RestClient, changed: Changed, away: Away) -> None:
        self._changed = changed
        self._away = away
        self._lock = threading.Condition()
        self._known: Versions = {}
        self._told: dict[str, None] = {}
        self._first = 0.0
        self._last = 0.0
        self._stopped = False
        self._informers: list[Informer[Any]] = []
        for resource in _WATCHED:
            informer: Informer[Any] = Informer(client, resource)
            informer.add_event_handler(_Handler(_KINDS[resource.plural], self._saw))
            self._informers.append(informer)
        self._thread = threading.Thread(target=self._run, name="explorer-watch", daemon=True)

    def start(self, known: Versions) -> None:
        self.read(known)
        for informer in self._informers:
            informer.start()
        self._thread.start()

    def read(self, known: Versions) -> None:
        """What has been read by now."""
        with self._lock:
            self._known = known

    def stop(self) -> None:
        with self._lock:
            self._stopped = True
            self._lock.notify_all()
        for informer in self._informers:
            informer.stop(timeout=2.0)

    def _saw(self, kind: str, key: str, version: str) -> None:
        """An object as it is now; version "" if it is gone."""
        with self._lock:
            known = self._known.get((kind, key), "")
            if version == known:
                return
            moment = time.monotonic()
            self._first = self._first or moment
            self._last = moment
            if len(self._told) < _MAX_TOLD:
                self._told[f"{kind} {key}"] = None
            self._lock.notify_all()

    def _run(self) -> None:
        failing = ""
        while True:
            with self._lock:
                if self._stopped:
                    return
                due = self._due()
                if due is None or due > 0:
                    self._lock.wait(POLL if due is None else due)
                due = self._due()
                told = list(self._told) if due is not None and due <= 0 else []
                if told:
                    self._told, self._first = {}, 0.0
            if told:
                self._changed(told)
            failures = [informer.last_failure for informer in self._informers]
            why = next((str(each) for each in failures if each is not None), "")
            if why != failing:
                failing = why
                self._away(f"the API server does not answer: {why}" if why else "")

    def _due(self) -> float | None:
        """Seconds until what came is to be read; None if nothing came."""
        if not self._told:
            return None
        return min(self._last + QUIET, self._first + LONGEST) - time.monotonic()


class _Handler:
    """An informer's handler that tells which objects changed."""

    def __init__(self, kind: str, saw: Callable[[str, str, str], None]) -> None:
        self._kind = kind
        self._saw = saw

    def on_add(self, item: Any, is_in_initial_list: bool) -> None:
        self._saw(self._kind, item.metadata.key, item.metadata.resource_version)

    def on_update(self, old: Any, new: Any) -> None:
        self._saw(self._kind, new.metadata.key, new.metadata.resource_version)

    def on_delete(self, item: Any) -> None:
        key = item.metadata.key if hasattr(item, "metadata") else item.key
        self._saw(self._kind, key, "")


def versions_of(files: Files) -> dict[tuple[str, str], str]:
    """The resource versions of the objects that were read."""
    found = {}
    for kind in _KINDS.values():
        data = files.read(f"{OBJECTS}/{kind}.json")
        for item in msgspec.json.decode(data)["items"] if data else ():
            metadata = item.get("metadata") or {}
            namespace = metadata.get("namespace")
            key = f"{namespace}/{metadata.get('name')}" if namespace else str(metadata.get("name"))
            found[kind, key] = str(metadata.get("resourceVersion") or "")
    return found


def _read_objects(client: RestClient, label: str) -> tuple[MemoryFiles, list[str]]:
    files = MemoryFiles(label)
    try:
        failed = collect_objects(client, files, lambda _text: None)
    except TransportError as error:
        raise TransportError(f"cannot reach the server {client.config.server}: {error.reason}") from error
    return files, [f"{each.what}: {each.message}" for each in failed]


class ClusterSource:
    """A live cluster: its objects, and on each node the rules that follow from them."""

    kind = CLUSTER
    live = True

    def __init__(
        self,
        connect: Callable[[], RestClient],
        context: str,
        config_path: str | None,
        mode: str | None,
        features: Features,
    ) -> None:
        self._client = connect()
        self.label = context or self._client.config.server
        self._config_path = config_path
        self._mode = mode
        self._features = features
        self._watch: Watch | None = None
        self._versions: Versions = {}

    def read(self) -> Known:
        files, warnings = _read_objects(self._client, self.label)
        config = None if self._config_path is None else read_config(self._config_path, warnings.append)
        cluster = RenderedCluster(files, config, self._features, self._mode, tell=warnings.append)
        self._versions = versions_of(files)
        if self._watch is not None:
            self._watch.read(self._versions)
        return Known(
            self.label, cluster, files, rendered=True, warnings=tuple(warnings), config=config, mode=self._mode,
            features=self._features,
        )  # fmt: skip

    def away(self) -> str:
        return ""

    def start(self, changed: Changed, away: Away) -> None:
        self._watch = Watch(self._client, changed, away)
        self._watch.start(self._versions)

    def stop(self) -> None:
        if self._watch is not None:
            self._watch.stop()
        self._client.close()


class LabSource:
    """A lab: its objects, and of each host what its namespace holds.

    Attributes:
        lab: for faults and captures.
    """

    kind = LAB
    live = True

    def __init__(self, lab: LabDirectory, record: LabRecord) -> None:
        self.lab = lab
        self.label = f"lab {record.spec.name}"
        self._record = record
        self._client = lab_client(lab)
        self._hosts: dict[str, dict[str, bytes]] = {}
        self._seen: dict[str, object] = {}
        self._stale: dict[str, None] = {}
        self._due = 0.0
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._watch: Watch | None = None
        self._versions: Versions = {}
        self._objects: MemoryFiles | None = None
        self._poller: threading.Thread | None = None

    @property
    def record(self) -> LabRecord:
        """The lab's record as it is now."""
        return self.lab.record() or self._record

    def hosts(self) -> dict[str, str]:
        """The namespaces of nodes, fabric and client, by the name of the host."""
        record = self.record
        found = {plan.name: plan.namespace for plan in self.lab.plans(record)}
        return {**found, FABRIC: record.spec.fabric, CLIENT: record.spec.client}

    def read(self) -> Known:
        warnings: list[str] = []
        try:
            files, warnings = _read_objects(self._client, self.label)
            self._objects = files
        except KproxyError:
            # A lab's API server may be killed from the page: hosts go on, and so does what is known of objects.
            if self._objects is None:
                raise
            files = self._objects
        self._versions = versions_of(files)
        if self._watch is not None:
            self._watch.read(self._versions)
        hosts = self.hosts()
        with self._lock:
            wanted = [name for name in hosts if name not in self._hosts or name in self._stale]
            self._stale.clear()
            self._due = time.monotonic() + SETTLING
        self._collect({name: hosts[name] for name in wanted})
        whole = MemoryFiles(self.label)
        for path in files.paths():
            whole.put(path, files.read(path) or b"")
        with self._lock:
            for name in hosts:
                for path, data in self._hosts.get(name, {}).items():
                    whole.put(path, data)
        whole.put(INFO, msgspec.json.encode(SnapshotInfo(via="lab", source=self.label)))
        return Known(self.label, Cluster(whole, tell=warnings.append), whole, warnings=tuple(warnings))

    def _collect(self, namespaces: Mapping[str, str]) -> None:
        """Reads hosts anew."""
        for name, netns in namespaces.items():
            self._seen[name] = self._state(netns)
        found = MemoryFiles(self.label)
        readers: dict[str, NodeReader] = {name: NamespaceReader(netns, "lab") for name, netns in namespaces.items()}
        if not readers:
            return
        collect_nodes(readers, found, lambda _result: None)
        with self._lock:
            for name in namespaces:
                prefix = f"nodes/{name}/"
                self._hosts[name] = {path: found.read(path) or b"" for path in found.paths() if path.startswith(prefix)}

    @staticmethod
    def _state(netns: str) -> object:
        """What changes when a host's rules or links do, as far as that can be seen cheaply."""
        try:
            with Namespace.named(netns) as inside:
                generation = nft_generation(inside)
            links = {name: (link.up, link.carrier, link.bridge) for name, link in read_links(netns).items()}
        except LinuxError as error:
            return str(error)
        return generation, links

    @property
    def _without_generation(self) -> bool:
        """Whether the nodes' rules are legacy iptables', which have none."""
        spec = self.record.spec
        return spec.mode == MODE_IPTABLES and spec.variant == "legacy"

    def away(self) -> str:
        return ""

    def start(self, changed: Changed, away: Away) -> None:
        self._watch = Watch(self._client, changed, away)
        self._watch.start(self._versions)
        self._poller = threading.Thread(target=self._poll, args=(changed, away), name="explorer-lab", daemon=True)
        self._poller.start()

    def _poll(self, changed: Changed, away: Away) -> None:
        gone = False
        while not self._stopped.wait(POLL):
            if self.lab.record() is None:
                gone = True
                away(f"{self.label} is no longer up")
                continue
            if gone:
                gone = False
                away("")
            found = self._changed_hosts()
            if found:
                with self._lock:
                    self._stale |= dict.fromkeys(found)
                changed([f"host {name}" for name in found])

    def _changed_hosts(self) -> list[str]:
        hosts = self.hosts()
        found = [name for name, netns in hosts.items() if self._state(netns) != self._seen.get(name)]
        with self._lock:
            settled = self._due and time.monotonic() > self._due
            if settled:
                self._due = 0.0
        if settled and self._without_generation:
            known = dict(self._hosts)
            nodes = {name: netns for name, netns in hosts.items() if name not in (FABRIC, CLIENT)}
            self._collect(nodes)
            found += [name for name in nodes if self._hosts.get(name) != known.get(name)]
        return list(dict.fromkeys(found))

    def look(self, hosts: Iterable[str] | None = None) -> None:
        """The hosts are read anew with the next `read`."""
        with self._lock:
            self._stale |= dict.fromkeys(self.hosts() if hosts is None else hosts)

    def stop(self) -> None:
        self._stopped.set()
        if self._watch is not None:
            self._watch.stop()
        if self._poller is not None:
            self._poller.join(timeout=3.0)
        with contextlib.suppress(KproxyError):
            self._client.close()
