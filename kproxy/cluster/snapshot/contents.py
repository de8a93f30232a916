"""What a snapshot holds: of when and of what it is, how many objects, and of each host which files and which not."""

from __future__ import annotations

from collections import Counter
from typing import Final

import msgspec

from kproxy.cluster.snapshot import layout
from kproxy.cluster.snapshot.cluster import Cluster, kind_of_object
from kproxy.cluster.snapshot.host import HostFacts, Missing
from kproxy.cluster.snapshot.info import NodeInfo

_SAYS_WHY: Final = frozenset({layout.ERRORS})


class HostContents(msgspec.Struct, frozen=True, rename="camel"):
    """One host.

    Attributes:
        has_node: whether it is a Node; else it is a host beside them, a router or a client.
        started: when it was read, RFC 3339; "" if not known.
        via: how it was read; "" if not known.
        files: what is there, by the names of docs/snapshot.md.
        missing: what is not, with why and what follows; one entry without a file's name if nothing is there.
        unread: files of other names, which nothing reads.
    """

    name: str
    has_node: bool
    started: str
    via: str
    files: tuple[str, ...]
    missing: tuple[Missing, ...]
    unread: tuple[str, ...] = ()


class Contents(msgspec.Struct, frozen=True, rename="camel"):
    """A snapshot.

    Attributes:
        snapshot: its name.
        cluster: what snapshot.json says of where it is from; so `created`, `tool`, `via`, `serverVersion`, `redacted`.
        objects: how many of each kind.
        proxy_config: whether kube-proxy's ConfigMap is among them.
        missing: the kinds of objects that are not there.
    """

    snapshot: str
    cluster: str
    created: str
    tool: str
    via: str
    server_version: str
    redacted: bool
    objects: dict[str, int]
    proxy_config: bool
    hosts: tuple[HostContents, ...]
    missing: tuple[Missing, ...]


def contents_of(cluster: Cluster) -> Contents:
    """What a cluster's snapshot holds. Files are not read but for what they lack: whether they can be used is not said.
    Raises InputError: a file of a host cannot be read."""
    info = cluster.info
    return Contents(
        snapshot=cluster.label,
        cluster=info.source,
        **{name: getattr(info, name) for name in ("created", "tool", "via", "server_version", "redacted")},
        objects=dict(sorted(Counter(map(kind_of_object, cluster.objects)).items())),
        proxy_config=cluster.proxy_config is not None,
        hosts=tuple(_host(cluster, host) for host in cluster.hosts.values()),
        missing=cluster.missing_objects,
    )


def _host(cluster: Cluster, host: HostFacts) -> HostContents:
    begin = layout.host_file(host.name, "")
    names = tuple(path.removeprefix(begin) for path in cluster.files.paths() if path.startswith(begin))
    known = cluster.info.nodes.get(host.name, NodeInfo())
    files = tuple(name for name in layout.HOST_FILES if name in names and name not in _SAYS_WHY)
    missing = cluster.missing_of(host)
    unread = tuple(sorted(set(names) - set(layout.HOST_FILES)))
    via = known.via or cluster.info.via
    return HostContents(host.name, host.has_node, known.started, via, files, missing, unread)
