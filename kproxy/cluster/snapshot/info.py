"""snapshot.json: by whom a snapshot was made, when, how, and what failed."""

from __future__ import annotations

from datetime import datetime
from typing import Final

import msgspec

from kproxy.cluster.snapshot.files import Files
from kproxy.cluster.snapshot.layout import FORMAT_VERSION, INFO
from kproxy.errors import InputError


class Failure(msgspec.Struct, frozen=True, rename="camel"):
    """Something that could not be collected: `what` is a path of the snapshot, or a node's directory."""

    what: str
    message: str


class NodeInfo(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """How a node was read: when the script began (RFC 3339), how long it took, and by what."""

    started: str = ""
    seconds: float = 0.0
    via: str = ""


class SnapshotInfo(msgspec.Struct, frozen=True, rename="camel"):
    """What snapshot.json says. Unknown fields are ignored, so that older versions read newer files.

    Attributes:
        version: of the format; 0 without the file.
        tool: `kproxy 1.2.3`.
        created: RFC 3339.
        via: how nodes were read: exec, agent, netns, lab, none or script.
        source: the cluster, as the kubeconfig's context or the lab names it.
        server_version: the API server's.
        redacted: whether names and addresses were replaced.
    """

    version: int = FORMAT_VERSION
    tool: str = ""
    created: str = ""
    via: str = ""
    source: str = ""
    server_version: str = ""
    redacted: bool = False
    nodes: dict[str, NodeInfo] = msgspec.field(default_factory=dict)
    failed: tuple[Failure, ...] = ()

    @property
    def apart(self) -> float:
        """Seconds from when the objects began to be read to when the last node's rules had been; 0 if not known."""
        begun = seconds_of(self.created)
        ends = [(seconds_of(each.started), each.seconds) for each in self.nodes.values()]
        found = [start + took - begun for start, took in ends if start is not None and begun is not None]
        return round(max([0.0, *found]), 3)


def seconds_of(time: str) -> float | None:
    """A time of RFC 3339 in seconds, None if it is none."""
    try:
        return datetime.fromisoformat(time).timestamp()
    except ValueError:
        return None


UNKNOWN: Final = SnapshotInfo(version=0)


def read_info(files: Files) -> SnapshotInfo:
    """What snapshot.json says; `UNKNOWN` without it. Raises InputError: it is malformed, or of a newer format."""
    data = files.read(INFO)
    if data is None:
        return UNKNOWN
    try:
        found = msgspec.json.decode(data, type=SnapshotInfo)
    except msgspec.DecodeError as error:
        raise InputError(f"{files.label}: {INFO}: {error}") from error
    if found.version > FORMAT_VERSION:
        raise InputError(
            f"{files.label}: {INFO}: version: {found.version} is of a newer kproxy; this one reads {FORMAT_VERSION}"
        )
    return found
