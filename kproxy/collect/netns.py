"""Nodes that are network namespaces of this machine."""

from __future__ import annotations

from dataclasses import dataclass

from kproxy.cluster.snapshot.script import SECONDS
from kproxy.linux.errors import ToolFailedError
from kproxy.linux.namespace import Namespace
from kproxy.linux.process import run


@dataclass(frozen=True, slots=True)
class NamespaceRunner:
    """Executes the script in a network namespace, with this machine's tools."""

    netns: str
    via: str = "netns"

    def run(self, script: str) -> bytes:
        with Namespace.named(self.netns) as inside:
            done = run(inside, ["sh", "-c", script], timeout=SECONDS)
        if done.code:
            raise ToolFailedError(f"the script failed in namespace {self.netns}: {done.reason}")
        return done.stdout.encode(errors="surrogateescape")
