"""Where rules and objects come from, as users name it: one grammar for all commands.

    PATH[@NODE]                   a dump of rules, manifests, or a snapshot, told by what is there
    -[@NODE]                      standard input
    manifests:PATH[,PATH][@NODE]  the objects of files or a snapshot
    netns:NAME[@NODE]             a network namespace of this machine, which is that node
    lab:[NAME][@NODE]             a lab
    cluster:[CONTEXT][@NODE]      an API server; without a name, that of the kubeconfig's current context

A context's name may hold an @, a node's may not: the last @ comes before the node.

Nothing live is opened here. Whoever reads a live source gives a snapshot, so that what was not seen is said in one
place.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Final, NamedTuple

from kproxy.api.load.manifests import SUFFIXES
from kproxy.cluster.inputs import first_octets
from kproxy.cluster.snapshot.files import is_snapshot
from kproxy.errors import InputError

_START: Final = 200
"""How many bytes of a file tell whether it is nft's JSON."""


class Kind(StrEnum):
    """What a source is."""

    RULES = "rules"
    MANIFESTS = "manifests"
    SNAPSHOT = "snapshot"
    NETNS = "netns"
    LAB = "lab"
    CLUSTER = "cluster"


_NAMED: Final = (Kind.MANIFESTS, Kind.NETNS, Kind.LAB, Kind.CLUSTER)


class SourceName(NamedTuple):
    """A source as it was named: `names` are its paths, or the one name of what is live; `node` is "" if none is named.

    >>> read_name("lab:shop@worker-1")
    SourceName(text='lab:shop@worker-1', kind=<Kind.LAB: 'lab'>, names=('shop',), node='worker-1')
    """

    text: str
    kind: Kind
    names: tuple[str, ...]
    node: str = ""

    @property
    def label(self) -> str:
        """What messages call it."""
        if self.kind is Kind.NETNS:
            return f"namespace {self.names[0]}"
        if self.kind in (Kind.LAB, Kind.CLUSTER):
            return self.text.removesuffix(":")
        return "standard input" if self.names == ("-",) else self.text

    @property
    def is_rendered(self) -> bool:
        """Whether its rules are those that kube-proxy would make of its objects."""
        return self.kind in (Kind.MANIFESTS, Kind.CLUSTER)


def read_name(text: str) -> SourceName:
    """What a user names. Raises InputError: it is empty, or lacks a name."""
    scheme, colon, rest = text.partition(":")
    if colon and scheme in _NAMED:
        return _named(Kind(scheme), text, rest)
    path, _, node = text.rpartition("@")
    if "-" in (text, path) or not text:
        return SourceName(text, Kind.RULES, _paths(text, path or text), node if path else "")
    for name, host in ((text, ""), (path, node)):
        if name and is_snapshot(name):
            return SourceName(text, Kind.SNAPSHOT, (name,), host)
    if Path(text).is_file():
        return SourceName(text, Kind.MANIFESTS if _holds_manifests(Path(text)) else Kind.RULES, (text,))
    first = Path((path or text).partition(",")[0])
    if first.is_dir() or _holds_manifests(first):
        return SourceName(text, Kind.MANIFESTS, _paths(text, path or text), node if path else "")
    if path and first.is_file():
        return SourceName(text, Kind.RULES, _paths(text, path), node)
    return SourceName(text, Kind.RULES, _paths(text, text))


def _named(kind: Kind, text: str, rest: str) -> SourceName:
    name, _, node = rest.rpartition("@") if "@" in rest else (rest, "", "")
    if kind is Kind.NETNS and not name:
        raise InputError("netns: the name of a namespace expected")
    if kind is Kind.MANIFESTS:
        if not name.strip(","):
            raise InputError(f"{text}: a path expected, as in manifests:cluster.yaml@worker-1")
        return SourceName(text, kind, _paths(text, name), node)
    return SourceName(text, kind, (name,), node)


def _paths(text: str, names: str) -> tuple[str, ...]:
    """The files of a name; a single one may have a comma in its own."""
    if not names:
        raise InputError("the name of a file expected, not an empty one")
    found = (names,) if names == "-" or Path(names).exists() else tuple(names.split(","))
    if "" in found:
        raise InputError(f"{text!r}: the name of a file expected before and after each comma, without blanks")
    return found


def _holds_manifests(path: Path) -> bool:
    """Whether a file has manifests, by its name. What nft -j prints is refused where rules are read, with a reason."""
    begin = first_octets(path, _START) if path.suffix == ".json" else b""
    return path.suffix in SUFFIXES and not b"".join(begin.split()).startswith(b'{"nftables"')
