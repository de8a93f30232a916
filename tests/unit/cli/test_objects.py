"""Where commands take a cluster from, without one."""

from __future__ import annotations

from kproxy.api import Manifests
from kproxy.api.load.reader import RawObject
from kproxy.cli.connection import Connection
from kproxy.cli.objects import Reads


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
