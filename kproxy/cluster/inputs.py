"""What users give of a cluster, read from files: manifests, a KubeProxyConfiguration, text.

Readers that find something odd, but nothing wrong, give it to `tell` as one sentence.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TypeVar

from kproxy.api import Manifests, load_manifests
from kproxy.api.document.read import read_documents
from kproxy.api.document.tree import Document, DocumentError
from kproxy.api.kubeproxyconfig.decode import decode_config, load_config
from kproxy.api.kubeproxyconfig.types import MODE_IPTABLES, KubeProxyConfiguration, LoadedConfig
from kproxy.api.load.manifests import load_contents
from kproxy.api.load.reader import RawObject
from kproxy.api.octets import MOST, read_octets
from kproxy.cluster.allocate import Network, allocate_addresses
from kproxy.cluster.completeness import remark_no_cluster_ips
from kproxy.errors import InputError, Location

Tell = Callable[[str], None]
_Cluster = TypeVar("_Cluster")
_Config = TypeVar("_Config")

MAX_RULES: Final = 50_000_000
"""Octets of one file of rules."""
_MAX_RULE_LINE: Final = 1_000_000
_GZIP: Final = b"\x1f\x8b"


def named_file(name: str) -> Path:
    """The file that a user names. Raises InputError: the name is empty, as a script's unset variable is."""
    if not name:
        raise InputError("the name of a file expected, not an empty one")
    return Path(name)


def text_label(name: str | Path) -> str:
    """What messages call a file, or `-`."""
    return "standard input" if name == "-" else str(name)


def read_text(name: str | Path, *, rules: bool = False) -> str:
    """Reads a UTF-8 file, `-` for standard input; of `rules` or ipsets within `check_rule_size`. Raises InputError."""
    label = text_label(name)
    if isinstance(name, str):
        named_file(name)
    try:
        data = read_octets(name, most=MAX_RULES if rules else MOST)
        if rules:
            check_rule_size(data, label)
        return data.decode("utf-8")
    except OSError as error:
        raise InputError(f"{label}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        if error.object[:2] == _GZIP:
            raise InputError(f"{label}: a gzip archive: text expected, and no snapshot") from error
        raise InputError(f"{label}: not UTF-8 text: {error.reason} at byte {error.start}") from error
    except ValueError as error:
        raise InputError(f"{label}: {error}") from error


def first_octets(path: str | Path, most: int) -> bytes:
    """How a file begins; nothing of what is no file, or cannot be read: it is told where it is read."""
    with suppress(OSError):
        if Path(path).is_file():
            with open(path, "rb") as file:
                return file.read(most)
    return b""


def check_rule_size(data: bytes, label: str) -> None:
    """Refuses what no node's rules are: more than 50 MB, or a line of more than 1 MB, but for JSON, which is refused
    for what it is. 10,000 Services with 10 endpoints each are 34 MB. Raises InputError."""
    if len(data) > MAX_RULES:
        raise InputError(f"{label}: larger than {MAX_RULES // 1_000_000} MB: one node's rules expected")
    if data[:4096].lstrip()[:1] == b"{":
        return
    start = 0
    while len(data) - start > _MAX_RULE_LINE:
        end = data.rfind(b"\n", start, start + _MAX_RULE_LINE + 1)
        if end < 0:
            line = data.count(b"\n", 0, start) + 1
            raise InputError(f"{label}: line {line}: longer than 1 MB: one node's rules expected")
        start = end + 1


def read_document(path: Path) -> Document:
    """Reads a file that holds one document of YAML or JSON. Raises InputError: it cannot be read, is neither, holds
    several documents, or repeats a key."""
    try:
        documents = read_documents(read_text(path))
    except DocumentError as error:
        raise InputError(f"{Location(str(path), line=error.line)}: {error.message}") from error
    if len(documents) != 1:
        raise InputError(f"{path}: one YAML document expected, not {len(documents)}")
    for duplicate in documents[0].duplicates:
        raise InputError(f"{Location(str(path), line=duplicate.line)}: {duplicate.message}")
    return documents[0]


def read_config(path: str | None, tell: Tell, mode: str | None = None) -> KubeProxyConfiguration:
    """Reads a configuration; kube-proxy's defaults without a path. `mode`, if given, goes before what it says. Raises
    InputError: it cannot be used."""
    if path is None:
        return KubeProxyConfiguration(mode=mode or MODE_IPTABLES)
    return _config_of(load_config(str(named_file(path)), mode), tell)


def read_cluster(
    filenames: Sequence[str],
    tell: Tell,
    *,
    objects: list[RawObject] | None = None,
    used: Collection[str] = (),
    allocate: Sequence[Network] = (),
    hint: str = "",
    unpack: Callable[[str], Mapping[str, bytes] | None] | None = None,
) -> Manifests:
    """Reads manifests, Endpoints mirrored.

    Args:
        tell: gets the warnings, and which kinds of objects were skipped.
        objects: gets every object as it was read.
        used: kinds (`v1/Pod`) that the caller takes from `objects`: they do not count as skipped.
        allocate: gives Services without cluster IPs addresses. hint: how the user would say that.
        unpack: see `load_manifests`.

    Raises:
        InputError: they cannot be used.
    """
    loaded = load_manifests(filenames, on_object=None if objects is None else objects.append, unpack=unpack)
    return _told(allocate_addresses(loaded, allocate) if allocate else loaded, tell, used, hint)


def decode_cluster(
    contents: Mapping[str, bytes], tell: Tell, *, objects: list[RawObject] | None = None, used: Collection[str] = ()
) -> Manifests:
    """The same for contents that are in memory, by the names that messages give them: what an API server sent."""
    return _told(load_contents(contents, on_object=None if objects is None else objects.append), tell, used)


def decode_proxy_config(data: bytes, source: str, tell: Tell, mode: str | None = None) -> KubeProxyConfiguration:
    """A configuration that is in memory, as `read_config`."""
    return _config_of(decode_config(data, source, mode), tell)


def _config_of(loaded: LoadedConfig, tell: Tell) -> KubeProxyConfiguration:
    for warning in loaded.warnings:
        tell(warning)
    return loaded.config


def in_namespace(cluster: Manifests, namespace: str) -> Manifests:
    """The cluster with only those Services, EndpointSlices and Endpoints that are in a namespace."""
    kept: dict[str, Any] = {}
    for kind in ("services", "endpoint_slices", "endpoints"):
        kept[kind] = tuple(each for each in getattr(cluster, kind) if each.metadata.namespace == namespace)
    return replace(cluster, **kept)


def _told(loaded: Manifests, tell: Tell, used: Collection[str], hint: str = "") -> Manifests:
    manifests = loaded.with_mirrored_slices()
    for warning in (*manifests.warnings, *remark_no_cluster_ips(manifests, hint)):
        tell(warning)
    skipped = {kind: count for kind, count in sorted(manifests.skipped.items()) if kind not in used}
    if skipped:
        kinds = ", ".join(f"{count} {kind}" for kind, count in skipped.items())
        tell(f"skipped {sum(skipped.values())} objects of other kinds: {kinds}")
    return manifests


def read_both(config: Callable[[], _Config], cluster: Callable[[], _Cluster]) -> tuple[_Config, _Cluster]:
    """Reads both, so that what is wrong in one does not hide what is wrong in the other.

    Raises:
        InputError: what is wrong in either.
    """
    try:
        found = cluster()
    except InputError as error:
        try:
            config()
        except InputError as other:
            raise InputError(f"{other}\n{error}") from error
        raise
    return config(), found
