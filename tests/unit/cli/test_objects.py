"""Where commands take a cluster from, without one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kproxy.api import KubeProxyConfiguration, Manifests
from kproxy.api.load.reader import RawObject
from kproxy.cli.connection import Connection
from kproxy.cli.objects import ReadObjects, Reads, RenderChoices
from kproxy.cli.sources import Sources
from kproxy.cluster.sources import Kind, SourceName


def test_the_same_connection_is_read_once() -> None:
    """With the same flags, a repeatable one among them."""

    def connection(group: str) -> Connection:
        return Connection("config", None, (("as_groups", (group, "b")), ("server", "https://127.0.0.1:6443")))

    read: list[str] = []
    reads = Reads()

    def reader(name: str) -> Manifests:
        def read_it(objects: list[RawObject]) -> Manifests:
            read.append(name)
            objects.append({"kind": name})
            return Manifests()

        found, objects = reads.of(("live", connection(name), ""), read_it)
        assert objects == [{"kind": name}]
        return found

    assert reader("a") is reader("a")
    reader("c")
    assert read == ["a", "c"]
    assert connection("a").given == ("--kubeconfig", "--as-group", "--server")


def test_a_live_cluster_is_read_each_time_unless_what_was_read_is_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    """A difference that may go by itself is looked at again, in other objects."""
    seen: list[Reads] = []

    def read(_connection: Connection, _how: RenderChoices, _namespace: str, reads: Reads) -> ReadObjects:
        seen.append(reads)
        return ReadObjects("here", KubeProxyConfiguration(), True, Manifests(), [])

    monkeypatch.setattr("kproxy.cli.sources.read_live", read)
    alone = Sources((SourceName("cluster:", Kind.CLUSTER, ("",)),))
    shared = replace(alone, reads=Reads())
    for each in (alone, alone, shared, shared):
        assert each.read().whole
    assert len(set(map(id, seen))) == 3
