"""A second source by its name alone: what is there tells whether it is a snapshot, manifests or rules."""

from __future__ import annotations

from collections.abc import Sequence

from kproxy.api.load.manifests import SUFFIXES
from kproxy.cluster.allocate import Network
from kproxy.cluster.inputs import named_file
from kproxy.cluster.snapshot.files import is_snapshot
from kproxy.errors import InputError
from kproxy.explorer.sources.source import (
    MANIFESTS,
    RULES,
    SNAPSHOT,
    ManifestSource,
    RulesSource,
    SnapshotSource,
    Source,
)
from kproxy.render import Features


def kind_of(name: str) -> str:
    """What is there, as `kproxy diff` tells it: a directory or YAML and JSON are manifests, another file is rules.

    Raises:
        InputError: the name is empty.
    """
    path = named_file(name)
    if name != "-" and is_snapshot(path):
        return SNAPSHOT
    return MANIFESTS if path.is_dir() or path.suffix in SUFFIXES else RULES


def source_named(
    names: Sequence[str],
    config_path: str | None,
    mode: str | None,
    features: Features,
    stdin: bytes = b"",
    allocate: Sequence[Network] = (),
    endpoints: int = 0,
) -> Source:
    """One snapshot, or manifests, or one host's rules.

    Args:
        config_path, mode, features, allocate, endpoints: of manifests.
        stdin: what `-` stands for.

    Raises:
        InputError: a name is empty, or names are of several kinds.
    """
    kinds = {name: kind_of(name) for name in names}
    kind = kinds[names[0]]
    other = next((name for name in names if kinds[name] != kind), None)
    if other is not None:
        raise InputError(f"{names[0]} is {kind} and {other} {kinds[other]}: a source is one of both")
    if kind == SNAPSHOT:
        if len(names) > 1:
            raise InputError(f"{names[0]} and {names[1]}: one snapshot is a source")
        return SnapshotSource(names[0])
    if kind == RULES:
        return RulesSource(names, stdin)
    return ManifestSource(names, config_path, mode, features, stdin, allocate, endpoints)
