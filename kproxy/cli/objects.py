"""The objects of a cluster, of manifests or of an API server, and what its kube-proxy runs with. `Sources.read` gives
them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from kproxy.api import KubeProxyConfiguration, Manifests
from kproxy.api.load.manifests import SUFFIXES
from kproxy.api.load.reader import RawObject
from kproxy.cli.output import report_note
from kproxy.cluster.allocate import Network
from kproxy.cluster.completeness import remark_no_config
from kproxy.cluster.evidence.manifests import Lacking
from kproxy.cluster.evidence.unseen import Assumed
from kproxy.cluster.inputs import decode_cluster, decode_proxy_config, read_both, read_cluster, read_config, text_label
from kproxy.cluster.sources import SourceName
from kproxy.render import Features, Target, select_target

if TYPE_CHECKING:
    from kproxy.cli.connection import Connection
    from kproxy.client import RestClient
    from kproxy.cluster.rendered import RenderedNode
    from kproxy.cluster.snapshot.files import Files
    from kproxy.collect.collect import Collected


@dataclass(frozen=True, slots=True)
class RenderChoices:
    """How kube-proxy's rules are made of objects.

    Attributes:
        config: a file instead of the cluster's ConfigMap, of what a snapshot has, of the ConfigMap among manifests, or
            of kube-proxy's defaults.
        mode: goes before what the configuration says.
        features: what the nodes can do.
    """

    config: str | None = None
    mode: str | None = None
    features: Features = field(default_factory=Features)


AS_THEY_SAY: Final = RenderChoices()


@dataclass(frozen=True, slots=True)
class ReadObjects:
    """What was read.

    Attributes:
        label: what pages call the source.
        config_known: whether the configuration is more than kube-proxy's defaults.
        raw: every object as it was read.
        whole: whether the objects are all that the cluster has: a live one's are, and a snapshot's with EndpointSlices.
    """

    label: str
    config: KubeProxyConfiguration
    config_known: bool
    cluster: Manifests
    raw: list[RawObject]
    whole: bool = True

    def target(self, node: str | None) -> Target:
        """The node that is meant; errors are those of `select_target`."""
        return select_target(self.cluster.nodes, self.config, node)

    def on_node(self, label: str, target: Target, features: Features, assumed: Assumed) -> RenderedNode:
        """What kube-proxy would write on a node; what is not known of it is open. `label` is what messages call it."""
        from kproxy.cluster.rendered import RenderedNode  # dumps do without

        lacking = self.lacking(assumed)
        return RenderedNode(label, self.cluster, self.config, target, features, lacking, assumed).with_addresses()

    def lacking(self, assumed: Assumed) -> Lacking:
        """What Services lack that the cluster has, and whether the configuration is unknown."""
        found = Lacking.of(self.cluster, complete=self.whole, assumed=assumed)
        return replace(found, configuration=not self.config_known)


class Reads:
    """What the sources of one command have read. Two that name the same get the same objects, which are read once: what
    an API server has may be another a moment later."""

    def __init__(self) -> None:
        self._known: dict[Hashable, tuple[Manifests, list[RawObject]]] = {}
        self._snapshots: dict[str, Files | None] = {}

    def snapshot(self, name: str) -> Files | None:
        """The files of a snapshot, a directory or an archive; None of anything else. Raises InputError."""
        if name == "-" or Path(name).suffix in SUFFIXES:
            return None
        if name not in self._snapshots:
            from kproxy.cluster.snapshot.files import is_snapshot, open_files

            self._snapshots[name] = open_files(name) if is_snapshot(name) else None
        return self._snapshots[name]

    def live(self, name: SourceName, read: Callable[[SourceName], Collected]) -> Files:
        """What a live source holds, as a snapshot, which `read` gives the first time."""
        found = self._snapshots.get(name.text)
        if found is None:
            found = self._snapshots[name.text] = read(name).files
        return found

    def of(self, key: Hashable, read: Callable[[list[RawObject]], Manifests]) -> tuple[Manifests, list[RawObject]]:
        """What was read by this key, and every object as it was; else what `read` gives, which fills the list."""
        if key not in self._known:
            objects: list[RawObject] = []
            self._known[key] = read(objects), objects
        return self._known[key]


def read_files(
    filenames: tuple[str, ...],
    how: RenderChoices,
    reads: Reads,
    *,
    allocate: tuple[Network, ...],
    used: Collection[str],
    node: str | None,
    remark_config: bool,
) -> ReadObjects:
    """Manifests and snapshots; the arguments and errors are those of `Sources.read`."""

    def unpack(name: str) -> Mapping[str, bytes] | None:
        from kproxy.cluster.snapshot.cluster import object_contents

        files = reads.snapshot(name)
        return None if files is None else object_contents(files)

    def read(objects: list[RawObject]) -> Manifests:
        return read_cluster(
            filenames, report_note, objects=objects, used=looked_at, allocate=allocate,
            hint="; --allocate 10.96.0.0/12, say, gives addresses", unpack=unpack,
        )  # fmt: skip

    label, told = ", ".join(map(text_label, filenames)), how.config is not None
    # Without --config kube-proxy's ConfigMap is looked for among them.
    looked_at = used if told else {*used, "v1/ConfigMap"}
    config, (cluster, raw) = read_both(
        partial(read_config, how.config, report_note, how.mode), partial(reads.of, ("files", filenames, allocate), read)
    )
    if not told:
        from kproxy.cluster.snapshot.cluster import known_config, proxy_config_of

        # Of kinds that are skipped every object is a dict.
        known = proxy_config_of((each for each in raw if isinstance(each, dict)), label, report_note, how.mode)
        config, told = known or config, known is not None
        for files in filter(None, map(reads.snapshot, filenames)):
            found = known_config(files, raw, cluster.nodes, node, report_note)
            if found is not None:
                config, told = msgspec.structs.replace(found, mode=how.mode or found.mode), True
    for remark in () if told or not remark_config else remark_no_config(cluster, raw):
        report_note(remark)
    return ReadObjects(label, config, told, cluster, raw)


def read_live(connection: Connection, how: RenderChoices, namespace: str, reads: Reads) -> ReadObjects:
    """The same of an API server; of a `namespace`, "" for all."""
    from kproxy.client.cluster import read_objects

    client = connection.client()

    def read(objects: list[RawObject]) -> Manifests:
        return decode_cluster(dict(read_objects(client, namespace, report_note)), report_note, objects=objects)

    try:
        (config, told), (cluster, raw) = read_both(
            partial(_live_config, client, how), partial(reads.of, ("live", connection, namespace), read)
        )
    finally:
        client.close()
    return ReadObjects(connection.context or client.config.server, config, told, cluster, raw)


def _live_config(client: RestClient, how: RenderChoices) -> tuple[KubeProxyConfiguration, bool]:
    """The configuration, and whether it is more than kube-proxy's defaults."""
    from kproxy.client.cluster import ClusterReadError, read_proxy_config

    if how.config is not None:
        return read_config(how.config, report_note, how.mode), True
    try:
        found = read_proxy_config(client)
    except ClusterReadError as error:
        raise ClusterReadError(f"{error} (--config FILE gives kube-proxy's configuration instead)") from error
    if found is not None:
        return decode_proxy_config(found.data, found.source, report_note, how.mode), True
    report_note(
        "the cluster has no ConfigMap kube-system/kube-proxy: kube-proxy's defaults count, by which clusterCIDR is "
        "unknown; give its configuration with --config FILE"
    )
    return read_config(None, report_note, how.mode), False
