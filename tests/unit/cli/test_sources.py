"""SOURCE, the one grammar of where rules and objects come from, in the commands that take it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.support.cli import Run
from tests.support.cluster.snapshots import vxlan_cluster, write_files
from tests.support.paths import ROOT

MINI = ROOT / "rules_golden" / "minikube"
CLUSTER, CONFIG = MINI / "cluster.yaml", MINI / "config.yaml"
DUMP, NFT = MINI / "expected" / "minikube.v4.save", MINI / "expected" / "minikube.v4.nft"
WATCHERS = "10.103.198.138:8080"
SERVICES = """apiVersion: v1
kind: Node
metadata: {name: n1}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec: {clusterIP: 10.96.0.10, ports: [{port: 80}]}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: other}
spec: {clusterIP: 10.96.0.11, ports: [{port: 80}]}
"""


@pytest.mark.parametrize("dump", [DUMP, NFT], ids=["iptables", "nftables"])
@pytest.mark.parametrize(
    "name",
    [
        "crd-array-watchers",
        "svc/crd-array-watchers",
        "default/crd-array-watchers",
        "crd-array-watchers.default",
        "crd-array-watchers.default.svc.cluster.local:8080",
        WATCHERS,
    ],
)
def test_a_dump_knows_its_services(kproxy: Run, dump: Path, name: str) -> None:
    done = kproxy("trace", dump, "--from", "10.0.0.9:4000", "--to", name, "--summary", "--expect", "accept")
    assert done.stdout.startswith(f"tcp 10.0.0.9:4000 → {WATCHERS}: ")
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_verdict_that_is_not_the_expected_one(kproxy: Run) -> None:
    asked = ("trace", DUMP, "--from", "10.0.0.9", "--to", "crd-array-watchers", "--expect")
    assert [kproxy(*asked, each).returncode for each in ("Accept", "drop", "REJECT")] == [0, 1, 1]


def test_objects_beside_a_dump_say_what_names_stand_for(kproxy: Run) -> None:
    done = kproxy("trace", DUMP, CLUSTER, "--from", "minikube", "--to", "kubernetes", "--summary")
    assert "tcp 192.168.49.2 → 10.96.0.1:443: 100% ACCEPT" in done.stdout
    done = kproxy("trace", DUMP, "--from", "cart-0", "--to", "kubernetes")
    assert (done.returncode, "give an address, or the cluster's objects beside it" in done.stderr) == (2, True)
    done = kproxy("trace", DUMP, "--to", "nodeport/crd-array-watcher")
    assert (done.returncode, "is asked at a node: give its address and the node port" in done.stderr) == (2, True)


def test_a_name_of_several_is_an_error_that_lists_them(kproxy: Run, tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(SERVICES)
    for name in ("web", "svc/web"):
        done = kproxy("trace", "c.yaml", "--to", name)
        assert (done.returncode, done.stdout) == (2, "")
        assert f"{name} is one of other/web, shop/web: say which" in done.stderr
        assert "10.96.0.11:80" in kproxy("trace", "c.yaml", "-n", "other", "--to", name, "--summary").stdout
    done = kproxy("explain", "c.yaml", "--service", "web")
    assert "Service web is one of other/web, shop/web: say which" in done.stderr


def test_what_stands_on_standard_input_is_told_by_its_content(kproxy: Run) -> None:
    done = kproxy("trace", "-", "--to", "kubernetes", "--summary", stdin=DUMP.read_text())
    assert done.stdout.startswith("tcp ? → 10.96.0.1:443: ")
    objects = CLUSTER.read_text()
    done = kproxy("explain", "-@minikube", "--service", "kubernetes", stdin=objects)
    assert done.stdout.startswith("Service default/kubernetes on node minikube")
    assert kproxy("render", "-", "--config", CONFIG, stdin=objects).stdout == (
        kproxy("render", f"{CLUSTER}@minikube", "--config", CONFIG).stdout
    )


def test_explain_of_a_dump(kproxy: Run) -> None:
    for dump in (DUMP, NFT):
        lines = kproxy("explain", dump, "-A", "-o", "wide").stdout.splitlines()
        assert [line.split()[1] for line in lines[1:4]] == ["crd-array-watcher", "crd-array-watchers", "kubernetes"]
        found = json.loads(kproxy("explain", dump, "-n", "default", "-o", "json").stdout)
        assert found["kind"] == "Explanations"
        first = found["items"][1]
        assert first["service"] == "default/crd-array-watchers"
        (port,) = first["ports"]
        assert [each["address"] for each in port["endpoints"]] == ["10.244.0.36:8080", "10.244.0.37:8080"]
        assert port["facts"] == ["ClusterIP 10.103.198.138 port 8080"]
    both = json.loads(kproxy("explain", DUMP, CLUSTER, "--service", "crd-array-watchers", "-o", "json").stdout)
    assert both["node"] == "minikube"
    assert both["recorded"]["ports"][0]["rules"][0]["text"] in DUMP.read_text()


@pytest.mark.parametrize(
    ("lost", "chain", "listed", "row"),
    [
        ("-A KUBE-SVC-GCRHHKL6ZB4XAFBC .*-j KUBE-SEP-", "KUBE-SVC-GCRHHKL6ZB4XAFBC", 5, "0 or more"),
        ("-A KUBE-SERVICES .*-j KUBE-SVC-", "KUBE-SERVICES", 1, "1 or more"),
    ],
)
def test_explain_of_a_part_of_a_dump(kproxy: Run, tmp_path: Path, lost: str, chain: str, listed: int, row: str) -> None:
    """What is not seen is open: it is no Service without endpoints, and none that is not there."""
    kept = [line for line in DUMP.read_text().splitlines(keepends=True) if not re.match(lost, line)]
    (tmp_path / "part.save").write_text("".join(kept))
    lines = kproxy("explain", "part.save", "-A", "-o", "wide").stdout.splitlines()
    assert len({line.split()[1] for line in lines[1:]}) == listed
    assert [row in line for line in lines].count(True) == 1
    found = json.loads(kproxy("explain", "part.save", "-A", "-o", "json").stdout)["items"]
    open_ones = [
        each["service"]
        for each in found
        if any(seen["what"] == f"chain {chain}" and seen["suspected"] for seen in each["unseen"])
    ]
    assert len(open_ones) == 1
    name = open_ones[0].partition("/")[2]
    first, *_ = kproxy("explain", "part.save", "--service", name).stdout.splitlines()
    assert f"not certain: chain {chain}" in first
    absent = kproxy("explain", "part.save", "--service", "absent")
    assert (absent.returncode, "of the rules, of which not all were seen" in absent.stderr) == (2, True)


def test_a_list_of_no_services_says_what_hides_them(kproxy: Run, tmp_path: Path) -> None:
    """Rules without those that lead to Services are no cluster without Services."""
    text = DUMP.read_text()
    filter_table = f"{text[text.index('*filter') :].partition('COMMIT')[0]}COMMIT\n"
    for part, what in ((filter_table, "nat table"), (re.sub("-A KUBE-SERVICES .*\n", "", text), "chain KUBE-SERVICES")):
        (tmp_path / "part.save").write_text(part)
        done = kproxy("explain", "part.save", "-n", "kube-system", "-o", "wide")
        assert (len(done.stdout.splitlines()), f"not seen: {what} of part.save" in done.stderr) == (1, True)
        found = json.loads(kproxy("explain", "part.save", "-n", "kube-system", "-o", "json").stdout)
        assert (found["items"], [each["what"] for each in found["unseen"]]) == ([], [what])
    whole = kproxy("explain", DUMP, "-n", "kube-system", "-o", "json")
    assert (json.loads(whole.stdout)["unseen"], whole.stderr) == ([], "")


def test_explain_of_a_dump_of_another_family(kproxy: Run) -> None:
    done = kproxy("explain", DUMP, "-A", "-6")
    assert (done.returncode, done.stdout) == (2, "")
    assert "these are rules of the other family" in done.stderr


def test_audit_of_a_dump_and_manifests(kproxy: Run, tmp_path: Path) -> None:
    """A snapshot in memory: what a rule of somebody else does on the node is found."""
    ours = kproxy("audit", DUMP, CLUSTER, "--config", CONFIG, "-o", "json")
    assert json.loads(ours.stdout)["judged"] == ["minikube"]
    assert json.loads(ours.stdout)["findings"] == []
    (tmp_path / "node.save").write_text(DUMP.read_text().replace("10.244.0.37:8080", "10.244.0.99:8080"))
    done = kproxy("audit", "node.save", CLUSTER, "--config", CONFIG)
    assert done.returncode == 1
    assert "10.244.0.99:8080" in done.stdout
    named = kproxy("audit", "node.save@minikube", CLUSTER, "--config", CONFIG)
    assert named.stdout.splitlines()[1:] == done.stdout.splitlines()[1:]
    alone = kproxy("audit", "node.save")
    assert (alone.returncode, "the objects of its cluster expected beside it" in alone.stderr) == (2, True)


def test_a_snapshot_has_objects_and_hosts(kproxy: Run, tmp_path: Path) -> None:
    snapshot = write_files(tmp_path / "snap", vxlan_cluster())
    assert kproxy("render", f"{snapshot}@n1").stdout == kproxy("render", "-f", snapshot, "--node", "n1").stdout
    assert kproxy("migrate", f"{snapshot}@n1", "-o", "json").returncode in (0, 1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("render", DUMP), "is a dump of rules: this command reads manifests, a snapshot, lab:NAME or cluster:CONTEXT"),
        (("render", "netns:"), "netns: the name of a namespace expected"),
        (("render", "netns:x"), "netns:x is netns:NAME: this command reads manifests"),
        (("render", "cluster:", CLUSTER), "one of both expected, manifests or a live cluster"),
        (("render", f"{CLUSTER}@a", f"{CLUSTER}@b"), "one node expected, not a and b"),
        (("render", "nowhere.yaml"), "nowhere.yaml: no such file"),
        (("render", "cluster:x", "--kubeconfig", "/nowhere"), "/nowhere"),
        (("drift", "netns:x"), "a source expected: manifests, a snapshot, lab:NAME or cluster:CONTEXT"),
        (("audit", DUMP, "cluster:", "lab:x"), "cluster: and lab:x: one of both expected"),
        (("trace", DUMP, "netns:x", "--to", "1.1.1.1:1"), "one source of rules expected"),
        (("explain", DUMP, "-A", "-n", "default"), "-A stands alone"),
        (("collect", "lab:a", "netns:b"), "one cluster expected"),
    ],
)
def test_what_does_not_go_together(kproxy: Run, arguments: tuple[str | Path, ...], message: str) -> None:
    done = kproxy(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in " ".join(done.stderr.split())


def test_help_shows_at_most_twenty_options(kproxy: Run) -> None:
    shown = [line for line in kproxy("trace", "--help").stdout.splitlines() if line.startswith("  -")]
    assert len(shown) <= 20, shown
