"""What is known of a whole cluster: its objects, and its hosts."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import Any, Final

import msgspec

from kproxy.api import Manifests
from kproxy.api.addresses import canonical_ip
from kproxy.api.kubeproxyconfig.types import KubeProxyConfiguration
from kproxy.api.load.manifests import SUFFIXES, load_contents
from kproxy.api.load.reader import RawObject
from kproxy.api.types.core import Node
from kproxy.cluster.evidence.unseen import NODES as NODE_OBJECTS
from kproxy.cluster.evidence.unseen import NOTHING, SERVICES, Assumed, Unseen, suspect
from kproxy.cluster.facts.kubeproxy import find_config_text
from kproxy.cluster.inputs import decode_proxy_config
from kproxy.cluster.pods import ENDED, Pod, read_pods
from kproxy.cluster.snapshot.files import Files, open_files
from kproxy.cluster.snapshot.host import HostFacts, Missing
from kproxy.cluster.snapshot.inferred import InferredConfigs
from kproxy.cluster.snapshot.info import UNKNOWN, Failure, SnapshotInfo, read_info
from kproxy.cluster.snapshot.layout import NODES, OBJECTS
from kproxy.errors import InputError
from kproxy.words import listed

_SHOWN: Final = 3
_USED: Final = frozenset({"v1/Pod", "v1/ConfigMap"})
_WANTED: Final = {
    "Node": "nodes' addresses and podCIDRs are unknown",
    "Service": "nothing can be said of Services",
    "EndpointSlice": "the endpoints of Services are unknown",
    "Pod": "Pods are known from endpoints only",
}


class Cluster:
    """A cluster, as far as it is known.

    Attributes:
        label: what messages call it.
        info: who made the snapshot, when, and what failed.
        manifests: Services, EndpointSlices (those that mirror Endpoints, too), Nodes, ServiceCIDRs.
        pods: by `namespace/name`, those that only endpoints tell of included.
        objects: as they were read, of all kinds.
        proxy_config: kube-proxy's ConfigMap; None if it is not there. A node's own is `HostFacts.proxy_config`.
        inferred: the configurations of nodes of which neither tells.
        assumed: what `--assume` says of unseen things.
        lost_nodes: by name, the nodes that objects or a host's files name, and that have no Node object although others
            have; why, as something that was not seen.
        hosts: by name, in order; those without a Node object that nothing calls nodes are none (`HostFacts.has_node`).
    """

    def __init__(
        self, files: Files, *, tell: Callable[[str], None] = lambda _text: None, assumed: Assumed = NOTHING
    ) -> None:
        """`tell` gets what is odd, but not wrong, as sentences; `assumed` is what `--assume` says of unseen things of
        hosts. Raises InputError: the objects or snapshot.json cannot be used, or there is nothing of a cluster."""
        self.files = files
        self.label = files.label
        self.assumed = assumed
        self.info: SnapshotInfo = read_info(files)
        objects_there = list(filter(is_objects, files.paths()))
        names = host_names(files)
        if not objects_there and not names and self.info is UNKNOWN:
            raise InputError(
                f"{files.label}: not a snapshot: no objects/*.json and no nodes/NAME/ in it (documentation: Snapshots)"
            )
        objects: list[RawObject] = []
        contents = object_contents(files)
        loaded = load_contents(contents, on_object=objects.append) if contents else Manifests()
        self.manifests = loaded.with_mirrored_slices()
        self.pods: Mapping[str, Pod] = MappingProxyType(read_pods(objects))
        self.objects: Sequence[RawObject] = objects
        self.proxy_config = proxy_config_of(objects, files.label)
        self._kinds = frozenset(map(kind_of_object, objects))
        self._files_of_objects = frozenset(path.rpartition("/")[2].partition(".")[0] for path in objects_there)
        for warning in (*self.manifests.warnings, *_remarks(self.manifests)):
            tell(warning)
        known = {node.metadata.name for node in self.manifests.nodes}
        hosts = {
            name: HostFacts(files, name, _failures(self.info, name), assumed=assumed)
            for name in sorted({*names, *known})
        }
        self.lost_nodes = self._lost_nodes(known, hosts)
        for host in hosts.values():
            host.has_node = host.name in known or host.name in self.lost_nodes or not known
            host.default_mode = "" if self.proxy_config is None or not host.has_node else self.proxy_config.mode
        self.hosts: Mapping[str, HostFacts] = MappingProxyType(hosts)
        self.inferred = InferredConfigs(self.hosts, self.manifests.nodes)

    def _lost_nodes(self, known: Collection[str], hosts: Mapping[str, HostFacts]) -> Mapping[str, Unseen]:
        if not known or self.assumed.decides(NODE_OBJECTS):
            return {}
        naming = [(name, f"{NODES}/{name}") for name in sorted(hosts.keys() - known) if hosts[name].shows_kube_proxy]
        for each in self.manifests.endpoint_slices:
            naming += [(item.node_name or "", f"EndpointSlice {each.metadata.key}") for item in each.endpoints]
        naming += [(pod.node, f"Pod {pod.name}") for pod in self.pods.values() if pod.phase not in ENDED]
        found: dict[str, dict[str, None]] = {}
        for name, what in naming:
            if name and name not in known:
                found.setdefault(name, {}).setdefault(what)
        return {
            name: suspect(name, None, NODE_OBJECTS, f"it has no Node object, and it is in {listed(list(what), _SHOWN)}")
            for name, what in sorted(found.items())
        }

    def config_of(self, host: HostFacts) -> KubeProxyConfiguration | None:
        """What a node's kube-proxy runs with: its own configuration, else that of the ConfigMap, else the one that
        is `inferred`; None if nothing tells it. Raises InputError."""
        inferred = None if host.proxy_config or self.proxy_config else self.inferred.of(host.name)
        return host.proxy_config or self.proxy_config or (None if inferred is None else inferred.config)

    def is_inferred(self, name: str) -> bool:
        """Whether a node's configuration is that which is inferred."""
        host = self.hosts.get(name)
        told = (None if host is None else host.proxy_config) or self.proxy_config
        return told is None and self.inferred.of(name) is not None

    def config_notes(self, names: Iterable[str]) -> list[str]:
        """Of which of these nodes the configuration is inferred, and what it is. Raises InputError."""
        if self.proxy_config is not None:
            return []
        return self.inferred.notes(name for name in names if self.hosts[name].proxy_config is None)

    @cached_property
    def _why(self) -> Mapping[str, str]:
        """What was said of what failed, by its path."""
        return {each.what: each.message for each in self.info.failed}

    @cached_property
    def missing_objects(self) -> tuple[Missing, ...]:
        """The kinds of objects that are not there."""
        found = []
        for kind, then in _WANTED.items():
            path = f"{OBJECTS}/{kind}.json"
            if kind == "EndpointSlice" and "Endpoints" in self._kinds:
                continue  # they were mirrored
            if kind not in self._kinds and (kind not in self._files_of_objects or path in self._why):
                found.append(Missing(path, self._why.get(path, ""), then))
        return tuple(found)

    @cached_property
    def service_addresses(self) -> frozenset[str]:
        """All addresses of all Services: cluster IPs, external and load-balancer IPs."""
        found: set[str] = set()
        for service in self.manifests.services:
            found |= {*service.spec.cluster_ips, *service.spec.external_ips, *(each.ip for each in service.ingress)}
        return frozenset(canonical_ip(address) or address for address in found)

    def lost_services(self, host: HostFacts) -> Unseen | None:
        """The Services whose addresses a host's rules name, and that no object has. Raises InputError."""
        lost = sorted(host.service_addresses - self.service_addresses)
        if not lost:
            return None
        return suspect(host.name, None, SERVICES, f"rules name {listed(lost, _SHOWN)}, which no Service object has")

    @cached_property
    def missing(self) -> tuple[Missing, ...]:
        """What is not there: kinds of objects, then parts of hosts. A node of which nothing is there is named once."""
        return (*self.missing_objects, *(each for host in self.hosts.values() for each in self.missing_of(host)))

    def missing_of(self, host: HostFacts) -> tuple[Missing, ...]:
        """What is not there of one of its hosts: once, if nothing is."""
        if not host.is_empty:
            return host.missing
        path = f"{NODES}/{host.name}"
        return (Missing(path, self._why.get(path, ""), "its rules, links and routes are unknown"),)


def read_snapshot(path: str | os.PathLike[str]) -> Cluster:
    """Reads a snapshot: a directory, .tar.gz, .tar.zst or .tar. Errors are `Cluster`'s."""
    return Cluster(open_files(path))


def object_contents(files: Files) -> dict[str, bytes]:
    """The files of a snapshot that hold objects, by the names that messages give them; empty ones are left out. Raises
    InputError: one cannot be read."""
    found = {f"{files.label}: {path}": files.read(path) or b"" for path in files.paths() if is_objects(path)}
    return {label: data for label, data in found.items() if data.strip()}


def known_config(
    files: Files, objects: Sequence[RawObject], nodes: Sequence[Node], node: str | None, tell: Callable[[str], None]
) -> KubeProxyConfiguration | None:
    """The configuration of a node's kube-proxy, or of any, as `Cluster.config_of` has it, where a snapshot is read for
    its objects. `tell` is told what was inferred. Raises InputError: it cannot be used."""
    hosts = {name: HostFacts(files, name) for name in host_names(files)}
    own = None if node is None or node not in hosts else hosts[node].proxy_config
    if (found := own or proxy_config_of(objects, files.label)) is not None:
        return found
    inferred, name = InferredConfigs(hosts, nodes), node or next(iter(hosts), "")
    for text in () if name in hosts and hosts[name].proxy_config is not None else inferred.notes([name]):
        tell(text)
    told = inferred.of(name)
    return None if told is None else told.config


def host_names(files: Files) -> list[str]:
    """The hosts of which a snapshot has files, in order."""
    return sorted(
        {path.split("/")[1] for path in files.paths() if path.startswith(f"{NODES}/") and path.count("/") > 1}
    )


def is_objects(path: str) -> bool:
    """Whether a file of a snapshot holds objects."""
    return path.startswith(f"{OBJECTS}/") and path.endswith(SUFFIXES)


def _failures(info: SnapshotInfo, host: str) -> list[Failure]:
    path = f"{NODES}/{host}"
    return [each for each in info.failed if each.what == path or each.what.startswith(f"{path}/")]


def value_of_object(each: RawObject) -> dict[str, Any]:
    """An object as it was read."""
    found: dict[str, Any] = each if isinstance(each, dict) else msgspec.json.decode(each)
    return found


class _Header(msgspec.Struct):
    kind: str = ""


_HEADER: Final = msgspec.json.Decoder(_Header)


def kind_of_object(each: RawObject) -> str:
    return str(each["kind"]) if isinstance(each, dict) else _HEADER.decode(each).kind


def proxy_config_of(
    objects: Iterable[RawObject], label: str, tell: Callable[[str], None] = lambda _text: None, mode: str | None = None
) -> KubeProxyConfiguration | None:
    """The configuration in kube-proxy's ConfigMap; None if it is not among these objects. `label` is what messages call
    them, `tell` gets what is odd in it, `mode` goes before what it says. Raises InputError: it cannot be used."""
    found = find_config_text(value_of_object(each) for each in objects if kind_of_object(each) == "ConfigMap")
    return None if found is None else decode_proxy_config(found.data, f"{label}: {found.source}", tell, mode)


def _remarks(manifests: Manifests) -> list[str]:
    """Kinds of objects that were skipped; Secrets are never looked at, and do not belong in a snapshot."""
    skipped = {kind: count for kind, count in manifests.skipped.items() if kind not in _USED}
    found = []
    if skipped.pop("v1/Secret", 0):
        found.append("there are Secrets in the snapshot: they are not read, and should not be in it")
    if skipped:
        kinds = ", ".join(f"{count} {kind}" for kind, count in skipped.items())
        found.append(f"skipped objects of other kinds: {kinds}")
    return found
