"""The cluster behind `kproxy trace -f`: loaded once, with the Pods that only names need."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from kproxy.api import Manifests, load_manifests
from kproxy.api.kubeproxyconfig.types import KubeProxyConfiguration
from kproxy.api.load.manifests import SUFFIXES
from kproxy.cli.output import report_note
from kproxy.cluster.names import Names
from kproxy.cluster.pods import Pod, read_pods
from kproxy.render import Target, select_target


class Loaded:
    """A cluster, seen from one node."""

    def __init__(self, cluster: Manifests, config: KubeProxyConfiguration, target: Target, names: Names) -> None:
        self.cluster = cluster
        self.config = config
        self.target = target
        self._names = names
        self._told: set[str] = set()

    def resolve(self, fields: Mapping[str, object]) -> Mapping[str, object]:
        """A question's fields, names turned into addresses. Raises DataplaneError."""
        if fields.get("from") is None and fields.get("to") is None:
            return fields
        return self._names.resolve(fields, self._tell)

    def _tell(self, note: str) -> None:
        if note not in self._told:
            self._told.add(note)
            report_note(note)


def load(filenames: Sequence[str], config: KubeProxyConfiguration, node: str | None) -> Loaded:
    """Loads manifests and chooses the node.

    Raises:
        InputError: they cannot be used, or which node is meant is not said.
    """
    stdin = sys.stdin.buffer.read() if "-" in filenames else b""
    cluster = load_manifests(filenames, stdin).with_mirrored_slices()
    for warning in cluster.warnings:
        report_note(warning)
    others = {kind: count for kind, count in sorted(cluster.skipped.items()) if kind != "v1/Pod"}
    if others:
        kinds = ", ".join(f"{count} {kind}" for kind, count in others.items())
        report_note(f"skipped {sum(others.values())} objects of other kinds: {kinds}")
    target = select_target(cluster.nodes, config, node)

    @cache
    def pods() -> Mapping[str, Pod]:
        return read_pods(_contents(filenames, stdin))

    return Loaded(cluster, config, target, Names(cluster, target, pods))


def _contents(filenames: Sequence[str], stdin: bytes) -> dict[str, bytes]:
    """The bytes of each manifest file, which have been readable a moment ago."""
    found = {}
    for name in filenames:
        path = Path(name)
        if name == "-":
            found[name] = stdin
            continue
        files = sorted(path.iterdir()) if path.is_dir() else [path]
        for file in files:
            if file == path or (file.suffix in SUFFIXES and not file.is_dir()):
                found[str(file)] = file.read_bytes()
    return found
