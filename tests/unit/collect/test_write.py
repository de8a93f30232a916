"""Writing snapshots, and reading them again."""

from __future__ import annotations

from pathlib import Path

import pytest

from kproxy.cluster.snapshot.cluster import read_snapshot
from kproxy.cluster.snapshot.files import MemoryFiles, open_files
from kproxy.collect.prune import pruned
from kproxy.collect.write import WriteError, write_snapshot
from tests.support.cluster.snapshots import vxlan_cluster


@pytest.mark.parametrize("name", ["s", "s.tar", "s.tar.gz", "s.tgz", "s.tar.zst"])
def test_what_is_written_is_read_again(name: str, tmp_path: Path) -> None:
    files = vxlan_cluster()
    path = tmp_path / name
    write_snapshot(MemoryFiles("S", files), str(path), 1_700_000_000)
    found = open_files(path)
    assert {each: found.read(each) for each in found.paths()} == files
    assert path.stat().st_mode & 0o077 == 0
    assert sorted(read_snapshot(path).hosts) == ["n1", "n2"]
    if name != "s":
        first = path.read_bytes()
        write_snapshot(MemoryFiles("S", files), str(path), 1_700_000_000)
        assert path.read_bytes() == first
        return
    with pytest.raises(WriteError, match="it is there already"):
        write_snapshot(MemoryFiles("S", files), str(path), 0)


def test_pods_and_config_maps_keep_only_what_networking_needs() -> None:
    pod = {
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "a", "namespace": "b", "annotations": {"x": "secret"}, "managedFields": []},
        "spec": {
            "nodeName": "n", "serviceAccountName": "s", "volumes": [{"secret": {"secretName": "token"}}],
            "containers": [{"name": "c", "env": [{"name": "PASSWORD", "value": "secret"}], "args": ["secret"],
                            "ports": [{"containerPort": 80}]}],
        },
        "status": {"phase": "Running", "podIP": "10.0.0.1", "conditions": [{"type": "Ready", "status": "True",
                                                                            "message": "secret"}]},
    }  # fmt: skip
    found = pruned(pod)
    assert "secret" not in str(found)
    assert found == {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "b"},
        "spec": {"nodeName": "n", "containers": [{"name": "c", "ports": [{"containerPort": 80}]}]},
        "status": {"phase": "Running", "podIP": "10.0.0.1", "conditions": [{"type": "Ready", "status": "True"}]},
    }  # fmt: skip
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "kube-proxy", "namespace": "kube-system"}}
    kept = pruned({**config, "data": {"config.conf": "mode: nftables", "kubeconfig.conf": "secret"}})
    assert kept is not None
    assert kept["data"] == {"config.conf": "mode: nftables"}
    assert pruned({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "other"}, "data": {}}) is None
