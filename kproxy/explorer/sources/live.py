"""Clusters that change by themselves: an API server's, and labs.

Objects are watched (`follow`); once changes have come, and no more for a moment, they are read again. Of a lab each
node is read, too: again when its rules have another generation, or its links another state.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

import msgspec

from kproxy.api.kubeproxyconfig.types import MODE_IPTABLES
from kproxy.client import RestClient
from kproxy.cluster.completeness import remark_claimed_twice
from kproxy.cluster.inputs import read_config
from kproxy.cluster.snapshot.cluster import Cluster
from kproxy.cluster.snapshot.files import MemoryFiles
from kproxy.cluster.snapshot.info import SnapshotInfo
from kproxy.cluster.snapshot.layout import INFO
from kproxy.cluster.sources import Kind
from kproxy.collect.netns import NamespaceReader
from kproxy.collect.nodes import NodeReader, collect_nodes
from kproxy.errors import KproxyError
from kproxy.explorer.sources.follow import FollowedObjects
from kproxy.explorer.sources.rendering import AS_THEY_ARE, ObjectChoices, RenderedCluster
from kproxy.explorer.sources.source import Away, Changed, Source, SourceState
from kproxy.lab.lifecycle.objects import lab_client
from kproxy.lab.links import read_links
from kproxy.lab.spec import CLIENT, FABRIC
from kproxy.lab.state import LabDirectory, LabRecord
from kproxy.linux.errors import LinuxError
from kproxy.linux.namespace import Namespace
from kproxy.linux.nfnetlink import nft_generation

POLL: Final = 0.5
"""Seconds between two looks at a lab's nodes."""
UPLINK: Final = "eth0"
"""A node's end of its cable."""
SETTLING: Final = 1.0
"""Seconds after a change of objects after which nodes are read again whose rules have no generation."""


class ClusterSource(Source):
    """A live cluster: its objects, and on each node the rules that follow from them."""

    kind = Kind.CLUSTER
    live = True

    def __init__(
        self,
        connect: Callable[[], RestClient],
        context: str,
        config_path: str | None = None,
        how: ObjectChoices = AS_THEY_ARE,
    ) -> None:
        self._client = connect()
        self.label = context or self._client.config.server
        self._config_path = config_path
        self._how = how
        self._objects = FollowedObjects(self._client, self.label)

    def read(self) -> SourceState:
        files, warnings = self._objects.read()
        config = None if self._config_path is None else read_config(self._config_path, warnings.append)
        cluster = RenderedCluster(files, config, self._how, tell=warnings.append)
        return SourceState(self.label, cluster, warnings=(*warnings, *remark_claimed_twice(cluster.manifests)))

    def start(self, changed: Changed, away: Away) -> None:
        self._objects.start(changed, away)

    def stop(self) -> None:
        self._objects.stop()
        self._client.close()


class HostState(NamedTuple):
    """What tells cheaply that a host has changed.

    Attributes:
        rules: their generation, or why the host cannot be read.
        links: whether each is up, and its bridge.
    """

    rules: object
    links: Mapping[str, tuple[bool, str]]


def changes(name: str, before: HostState | None, now: HostState) -> list[str]:
    """What is another of a host, in words; cables are called as those who break them do."""
    if before is None or before == now:
        return [] if before == now else [f"host {name}"]
    found = [f"rules of {name}"] if before.rules != now.rules else []
    others = {link for link in {*before.links, *now.links} if before.links.get(link) != now.links.get(link)}
    # The fabric's end of a cable has the name of its node.
    cables = {link: link for link in others if name == FABRIC and _bridged(link, before, now)}
    if name not in (FABRIC, CLIENT) and UPLINK in others:
        cables = {UPLINK: name}
    for link, node in cables.items():
        found.append(f"the link of {node} is {'up' if now.links.get(link, (False, ''))[0] else 'down'}")
    if others - cables.keys():
        found.append(f"interfaces of {name}")
    return found


def _bridged(link: str, *states: HostState) -> bool:
    """Whether a link is on a bridge before and after."""
    return all(link in each.links and each.links[link][1] for each in states)


class LabSource(Source):
    """A lab: its objects, and of each host what its namespace holds.

    Attributes:
        lab: for faults and captures.
    """

    kind = Kind.LAB
    live = True

    def __init__(self, lab: LabDirectory, record: LabRecord) -> None:
        self.lab = lab
        self.label = f"lab {record.spec.name}"
        self._record = record
        self._client = lab_client(lab)
        self._hosts: dict[str, dict[str, bytes]] = {}
        self._seen: dict[str, HostState] = {}
        self._stale: dict[str, None] = {}
        self._due = 0.0
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._objects = FollowedObjects(self._client, self.label)
        self._last: MemoryFiles | None = None
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

    def read(self) -> SourceState:
        warnings: list[str] = []
        try:
            files, warnings = self._objects.read()
            self._last = files
        except KproxyError:
            # A lab's API server may be killed from the page: hosts go on, and so does what is known of objects.
            if self._last is None:
                raise
            files = self._last
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
        return SourceState(self.label, Cluster(whole, tell=warnings.append), warnings=tuple(warnings))

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
    def _state(netns: str) -> HostState:
        """What changes when a host's rules or links do, as far as that can be seen cheaply."""
        try:
            with Namespace.named(netns) as inside:
                generation = nft_generation(inside)
            links = {name: (link.up and link.carrier, link.bridge) for name, link in read_links(netns).items()}
        except LinuxError as error:
            return HostState(str(error), {})
        return HostState(generation, links)

    @property
    def _without_generation(self) -> bool:
        """Whether the nodes' rules are legacy iptables', which have none."""
        spec = self.record.spec
        return spec.mode == MODE_IPTABLES and spec.variant == "legacy"

    def start(self, changed: Changed, away: Away) -> None:
        self._objects.start(changed, away)
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
                changed(list(dict.fromkeys(words for each in found.values() for words in each)))

    def _changed_hosts(self) -> dict[str, list[str]]:
        """Hosts that are others than they were when they were read, each with what changed in words."""
        hosts = self.hosts()
        states = {name: self._state(netns) for name, netns in hosts.items()}
        found = {name: changes(name, self._seen.get(name), now) for name, now in states.items()}
        found = {name: words for name, words in found.items() if words}
        with self._lock:
            settled = self._due and time.monotonic() > self._due
            if settled:
                self._due = 0.0
        if settled and self._without_generation:
            known = dict(self._hosts)
            nodes = {name: netns for name, netns in hosts.items() if name not in (FABRIC, CLIENT)}
            self._collect(nodes)
            for name in nodes:
                if name not in found and self._hosts.get(name) != known.get(name):
                    found[name] = [f"rules of {name}"]
        return found

    def look(self, hosts: Iterable[str] | None = None) -> None:
        """The hosts are read anew with the next `read`."""
        with self._lock:
            self._stale |= dict.fromkeys(self.hosts() if hosts is None else hosts)

    def stop(self) -> None:
        self._stopped.set()
        self._objects.stop()
        if self._poller is not None:
            self._poller.join(timeout=3.0)
        with contextlib.suppress(KproxyError):
            self._client.close()
