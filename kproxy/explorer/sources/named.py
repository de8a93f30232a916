"""A second source by its name alone: what is there tells whether it is a snapshot, manifests or rules."""

from __future__ import annotations

from collections.abc import Sequence

from kproxy.cluster.allocate import Network
from kproxy.cluster.sources import read_name
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
    kinds = {name: read_name(name).kind for name in names}
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
    if kind != MANIFESTS:
        raise InputError(f"{names[0]}: a snapshot, manifests or rules in files expected")
    return ManifestSource(names, config_path, mode, features, stdin, allocate, endpoints)
