"""A pod's resolv.conf."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kproxy.lab.kubelet.resolver import files_of, remove_files, resolv_conf, write_files

MACHINE = "# ours\nnameserver 192.0.2.53\nsearch corp.example\noptions edns0\n"
CLUSTER = "search n.svc.cluster.local svc.cluster.local cluster.local corp.example\nnameserver 10.96.0.10\n"
CONFIG = {
    "nameservers": ["1.2.3.4"], "searches": ["mine"],
    "options": [{"name": "ndots", "value": "2"}, {"name": "rotate"}],
}  # fmt: skip


def pod(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "p", "namespace": "n", "uid": "u"}, "spec": spec}


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ({}, f"{CLUSTER}options ndots:5\n"),
        ({"dnsPolicy": "ClusterFirst", "hostNetwork": True}, None),
        ({"dnsPolicy": "ClusterFirstWithHostNet", "hostNetwork": True}, f"{CLUSTER}options ndots:5\n"),
        ({"dnsPolicy": "Default"}, None),
        ({"dnsPolicy": "None", "dnsConfig": CONFIG}, "search mine\nnameserver 1.2.3.4\noptions ndots:2 rotate\n"),
        (
            {"dnsPolicy": "Default", "dnsConfig": CONFIG},
            "search corp.example mine\nnameserver 192.0.2.53\nnameserver 1.2.3.4\noptions edns0 ndots:2 rotate\n",
        ),
        (
            {"dnsConfig": {"options": [{"name": "ndots", "value": "1"}], "nameservers": ["10.96.0.10", "a", "b", "c"]}},
            f"{CLUSTER}nameserver a\nnameserver b\noptions ndots:1\n",
        ),
    ],
)
def test_as_the_kubelet_writes_it(spec: dict[str, Any], text: str | None) -> None:
    assert resolv_conf(pod(**spec), ["10.96.0.10"], MACHINE) == text


def test_without_cluster_dns_a_pod_has_the_machines() -> None:
    assert resolv_conf(pod(), [], MACHINE) is None


def test_the_files_of_a_pod_go_with_it(tmp_path: Path) -> None:
    write_files(pod(), ["10.96.0.10"], tmp_path)
    files = files_of(tmp_path, "u")
    assert set(files) == {"/etc/resolv.conf", "/etc/nsswitch.conf"}
    assert "nameserver 10.96.0.10\n" in Path(files["/etc/resolv.conf"]).read_text()
    assert Path(files["/etc/nsswitch.conf"]).read_text().endswith("hosts: files dns\n")
    remove_files(tmp_path, "u")
    assert (files_of(tmp_path, "u"), list(tmp_path.iterdir())) == ({}, [])
    remove_files(tmp_path, "u")
