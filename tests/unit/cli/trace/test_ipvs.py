"""`kproxy trace` of what people have of a node whose kube-proxy is in IPVS mode."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.cli import Run
from tests.support.cluster.ipvs_dumps import LISTING, SAVE, SETS


@pytest.fixture
def dumps(tmp_path: Path) -> list[str]:
    for name, text in (("save", SAVE), ("ipset", SETS), ("ipvsadm", LISTING)):
        (tmp_path / name).write_text(text)
    return ["save", "ipset", "ipvsadm"]


def outcomes(kproxy: Run, *arguments: str) -> list[tuple[str, str, str, bool]]:
    done = kproxy("trace", *arguments, "-o", "json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)["outcomes"]
    return [(each["probability"], each["verdict"], each.get("dst", ""), each["masquerade"]) for each in found]


def test_a_pod_asks_a_cluster_ip(kproxy: Run, dumps: list[str]) -> None:
    assert outcomes(kproxy, *dumps, "--from", "10.244.0.9", "--to", "10.96.0.10:80") == [
        ("1/2", "ACCEPT", "10.244.0.5:8080", False),
        ("1/2", "ACCEPT", "10.244.1.7:8080", False),
    ]


def test_a_client_that_ipvs_knows(kproxy: Run, dumps: list[str], tmp_path: Path) -> None:
    known = (
        "IPVS connection entries\npro expire state       source             virtual            destination\n"
        "TCP 179:01 ASSURED     10.244.0.9:0       10.96.0.10:80      10.244.1.7:8080\n"
    )
    (tmp_path / "known").write_text(known)
    asked = ("--to", "10.96.0.10:80")
    assert outcomes(kproxy, *dumps, "known", "--from", "10.244.0.9", *asked) == [
        ("1/1", "ACCEPT", "10.244.1.7:8080", False)
    ]
    assert len(outcomes(kproxy, *dumps, "known", "--from", "10.244.0.8", *asked)) == 2
    done = kproxy("trace", *dumps[:2], "known", "--from", "10.244.0.9", *asked)
    assert "not seen: ipvs" in done.stdout, "connections do not show all virtual servers"


def test_somebody_outside_asks_a_node_port(kproxy: Run, dumps: list[str]) -> None:
    arguments = (*dumps, "--from", "198.51.100.7", "--to", "192.0.2.1:30080")
    assert outcomes(kproxy, *arguments) == [("1/1", "ACCEPT", "10.244.0.5:8080", True)]


def test_other_ports_of_a_cluster_ip_are_refused(kproxy: Run, dumps: list[str]) -> None:
    (found,) = outcomes(kproxy, *dumps, "--from", "10.244.0.9", "--to", "10.96.0.10:22")
    assert found[1] == "REJECT"


def test_without_the_listing_ipvs_is_not_seen(kproxy: Run, dumps: list[str]) -> None:
    done = kproxy("trace", *dumps[:2], "--from", "10.244.0.9", "--to", "10.96.0.10:80")
    assert "INDETERMINATE" in done.stdout
    assert "not seen: ipvs" in done.stdout


def test_the_listing_alone_leaves_open_what_rules_do(kproxy: Run, dumps: list[str]) -> None:
    done = kproxy("trace", "ipvsadm", "--from", "10.244.0.9", "--to", "10.96.0.10:80")
    assert "INDETERMINATE" in done.stdout
    assert "nft iptables" in done.stdout


@pytest.mark.parametrize("lines", [1, 3], ids=["title", "headings"])
def test_a_listing_that_was_cut_refuses_nothing(kproxy: Run, dumps: list[str], tmp_path: Path, lines: int) -> None:
    """kube-proxy's sets name a virtual server that was not read."""
    (tmp_path / "ipvsadm").write_text("".join(LISTING.splitlines(keepends=True)[:lines]))
    done = kproxy("trace", *dumps, "--from", "10.244.0.9", "--to", "10.96.0.10:80")
    assert "INDETERMINATE" in done.stdout
    assert "set KUBE-CLUSTER-IP has 10.96.0.10, port 80, and no virtual server was read for it" in done.stdout


def test_a_listing_that_lacks_its_end_refuses_nothing(kproxy: Run, dumps: list[str], tmp_path: Path) -> None:
    (tmp_path / "ipset").write_text(f"{SETS}add KUBE-IPVS-IPS 10.96.0.20\n")
    done = kproxy("trace", *dumps, "--from", "10.244.0.9", "--to", "10.96.0.20:80")
    assert "INDETERMINATE" in done.stdout
    assert "set KUBE-IPVS-IPS has 10.96.0.20, and no virtual server was read for it" in done.stdout


def test_virtual_servers_of_marks_stay_open(kproxy: Run, dumps: list[str], tmp_path: Path) -> None:
    (tmp_path / "ipvsadm").write_text(f"{LISTING}FWM  5 rr\n  -> 10.244.0.5:0 Masq 1 0 0\n")
    done = kproxy("trace", *dumps, "--from", "10.244.0.9", "--to", "10.96.0.10:80")
    assert "virtual servers of firewall marks" in done.stdout


def test_a_comparison_leaves_ipvs_open(kproxy: Run, dumps: list[str], tmp_path: Path) -> None:
    (tmp_path / "other").write_text(SAVE.replace("10.244.0.0/16", "10.245.0.0/16"))
    done = kproxy("diff", "save", "other")
    assert done.returncode in (1, 2)
    assert "not seen of neither" not in done.stdout
    assert "ipvs" in done.stdout + done.stderr


def test_a_snapshot_answers_as_its_dumps_do(kproxy: Run, dumps: list[str], tmp_path: Path) -> None:
    """Without a file of its addresses those of the virtual servers are the node's, as kube-proxy makes them."""
    files = tmp_path / "snap" / "nodes" / "n1"
    files.mkdir(parents=True)
    for name, text in (("iptables-save", SAVE), ("ipset-save", SETS), ("ipvs", LISTING)):
        (files / name).write_text(text)
    status = {"addresses": [{"type": "InternalIP", "address": "192.0.2.1"}]}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}, "status": status}
    (tmp_path / "snap" / "objects").mkdir()
    (tmp_path / "snap" / "objects" / "Node.json").write_text(json.dumps(node))
    for ask in (("10.244.0.9", "10.96.0.10:80"), ("198.51.100.7", "192.0.2.1:30080"), ("10.244.0.9", "10.96.0.10:22")):
        asked = ("--from", ask[0], "--to", ask[1])
        assert outcomes(kproxy, "snap@n1", *asked) == outcomes(kproxy, *dumps, *asked)
        assert "not seen" not in kproxy("trace", "snap@n1", *asked).stdout
    (files / "ipvs").unlink()
    assert "INDETERMINATE" in kproxy("trace", "snap@n1", "--from", "10.244.0.9", "--to", "10.96.0.10:80").stdout


CLUSTER = """apiVersion: v1
kind: Node
metadata: {name: n1}
spec: {podCIDR: 10.244.0.0/24}
status: {addresses: [{type: InternalIP, address: 192.0.2.1}]}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: default}
spec:
  type: NodePort
  clusterIP: 10.96.0.10
  ports: [{port: 80, targetPort: 8080, nodePort: 30080}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, namespace: default, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{port: 8080, protocol: TCP}]
endpoints:
- {addresses: [10.244.0.5], nodeName: n1, conditions: {ready: true}}
- {addresses: [10.244.1.7], nodeName: n2, conditions: {ready: true}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: kube-proxy, namespace: kube-system}
data:
  config.conf: |
    apiVersion: kubeproxy.config.k8s.io/v1alpha1
    kind: KubeProxyConfiguration
    mode: MODE
    clusterCIDR: 10.244.0.0/16
"""


@pytest.mark.parametrize(
    ("src", "dst", "ends"),
    [
        ("10.244.0.9", "10.96.0.10:80", {("10.244.0.5:8080", False), ("10.244.1.7:8080", False)}),
        ("198.51.100.7", "192.0.2.1:30080", {("10.244.0.5:8080", True), ("10.244.1.7:8080", True)}),
    ],
)
def test_manifests_tell_the_same(kproxy: Run, tmp_path: Path, src: str, dst: str, ends: set[tuple[str, bool]]) -> None:
    (tmp_path / "cluster.yaml").write_text(CLUSTER.replace("MODE", "ipvs"))
    found = outcomes(kproxy, "-f", "cluster.yaml", "--node", "n1", "--from", src, "--to", dst)
    assert {(each[2], each[3]) for each in found} == ends
    assert {each[:2] for each in found} == {("1/2", "ACCEPT")}


def test_the_mode_changes_what_a_cluster_ip_does_with_other_ports(kproxy: Run, tmp_path: Path) -> None:
    (tmp_path / "cluster.yaml").write_text(CLUSTER.replace("MODE", "iptables"))
    arguments = ("-f", "cluster.yaml", "--node", "n1", "--from", "10.244.0.9", "--to", "10.96.0.10:22")
    assert [each[1] for each in outcomes(kproxy, *arguments)] == ["ACCEPT"]
    assert [each[1] for each in outcomes(kproxy, *arguments, "--mode", "ipvs")] == ["REJECT"]
