"""Nodes that are network namespaces of this machine."""

from __future__ import annotations

from dataclasses import dataclass

from kproxy.cluster.snapshot.script import MAX_OCTETS, SECONDS
from kproxy.collect.nodes import ScriptReader
from kproxy.linux.namespace import Namespace
from kproxy.linux.process import stream


@dataclass(frozen=True, slots=True)
class NamespaceReader(ScriptReader):
    """Executes the script in a network namespace, with this machine's tools."""

    netns: str
    via: str = "netns"

    def run(self, script: str) -> bytes:
        with Namespace.named(self.netns) as inside:
            printed = stream(inside, ["sh", "-c", script], timeout=SECONDS, max_octets=MAX_OCTETS)
            return b"".join(printed)
