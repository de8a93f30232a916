"""`kproxy snapshot`: what a snapshot holds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.cli import Run
from tests.support.cluster.snapshots import vxlan_cluster, write_files

INFO = {
    "version": 1, "tool": "kproxy 0.1.0", "created": "2026-01-31T12:00:00Z", "via": "exec", "source": "prod",
    "serverVersion": "v1.36.2", "nodes": {"n1": {"started": "2026-01-31T12:00:01Z", "seconds": 0.8, "via": "exec"}},
    "failed": [{"what": "nodes/n2", "message": "its Pod is not running"}],
}  # fmt: skip


@pytest.fixture
def snapshot(tmp_path: Path) -> Path:
    files = {path: data for path, data in vxlan_cluster().items() if not path.startswith("nodes/n2/")}
    files["snapshot.json"] = json.dumps(INFO).encode()
    files["nodes/n1/errors"] = b"conntrack: not found\n"
    files["nodes/router/ip-addr.json"] = files["nodes/n1/ip-addr.json"]
    return write_files(tmp_path / "snap", files)


def test_what_is_there_and_what_is_missing(kproxy: Run, snapshot: Path) -> None:
    done = kproxy("snapshot", snapshot)
    assert (done.returncode, done.stderr) == (0, "")
    blocks = [block.splitlines() for block in done.stdout.split("\n\n")]
    assert blocks[0][:3] == [
        str(snapshot), "  collected  2026-01-31T12:00:00Z by kproxy 0.1.0", "  of         prod, API server v1.36.2",
    ]  # fmt: skip
    assert "2 Node" in blocks[0][3]
    (n1, n2, router) = blocks[1:]
    assert n1[:2] == ["node n1", "  collected  2026-01-31T12:00:01Z (exec)"]
    assert "iptables-save" in n1[2]
    assert "conntrack (not found)" in n1[3]
    assert n2 == ["node n2", "  has        nothing", "  missing    its Pod is not running"]
    assert router[:2] == ["host beside the nodes router", "  has        ip-addr.json"]


def test_json_has_the_same_and_what_follows(kproxy: Run, snapshot: Path) -> None:
    found = json.loads(kproxy("snapshot", snapshot, "-o", "json").stdout)
    assert (found["kind"], found["cluster"], found["objects"]["Node"]) == ("Snapshot", "prod", 2)
    n1, n2, router = found["hosts"]
    assert {"what": "nodes/n1/conntrack", "why": "not found", "then": "stale entries are not found"} in n1["missing"]
    assert (n2["files"], n2["missing"][0]["why"]) == ([], "its Pod is not running")
    assert (router["hasNode"], router["files"]) == (False, ["ip-addr.json"])


def test_files_of_other_names_are_told_of(kproxy: Run, snapshot: Path) -> None:
    (snapshot / "nodes" / "n1" / "ip-addr").write_text("1: lo: <LOOPBACK,UP,LOWER_UP> mtu 65536\n")
    done = kproxy("snapshot", snapshot)
    assert done.stdout.count("  not read   ip-addr: not a name of a snapshot's file\n") == 1
    found = json.loads(kproxy("snapshot", snapshot, "-o", "json").stdout)
    assert [each["unread"] for each in found["hosts"]] == [["ip-addr"], [], []]


def test_nodes_of_which_the_same_is_there_are_one(kproxy: Run, tmp_path: Path) -> None:
    files = vxlan_cluster()
    for path, data in vxlan_cluster().items():
        if path.startswith("nodes/n1/"):
            files[path.replace("/n1/", "/n2/")] = data
    done = kproxy("snapshot", write_files(tmp_path / "snap", files))
    assert "\nnode (2) n1, n2\n" in done.stdout


def test_rules_tell_the_configuration_that_nothing_else_tells(kproxy: Run, tmp_path: Path) -> None:
    root = write_files(tmp_path / "snap", vxlan_cluster())
    told = "n1: kube-proxy's configuration is not known; mode iptables, cluster CIDR 10.244.0.0/16, as its rules"
    for command in (
        ("explain", "-f", root, "--service", "shop/web", "--node", "n1"),
        ("render", "-f", root, "--node", "n1"),
        ("migrate", "-f", root, "--node", "n1"),
        ("diff", f"manifests:{root}@n1", f"{root}@n1"),
    ):
        done = kproxy(*command)
        assert done.stderr.count(told) == 1, done.stderr
        assert "no kube-proxy configuration" not in done.stderr
    assert done.returncode == 0, done.stdout
    assert "! -s 10.244.0.0/16" in kproxy("render", "-f", root, "--node", "n1").stdout
    given = tmp_path / "config.yaml"
    given.write_text(
        "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nclusterCIDR: 10.0.0.0/8\n"
    )
    done = kproxy("render", "-f", root, "--node", "n1", "--config", given)
    assert "! -s 10.0.0.0/8" in done.stdout
    assert "is not known" not in done.stderr


def test_what_is_no_snapshot(kproxy: Run, tmp_path: Path) -> None:
    done = kproxy("snapshot", tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "not a snapshot: no objects/*.json and no nodes/NAME/ in it" in done.stderr
