"""`kproxy diff` of IPVS mode: against another mode, and of what people have of two nodes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support import paths
from tests.support.cli import Run
from tests.support.cluster.ipvs_dumps import LISTING, SAVE, SETS

CLUSTER = paths.ROOT / "rules_golden" / "clusterip-single-endpoint"
SIDE = f"manifests:{CLUSTER / 'cluster.yaml'}@node-0"


@pytest.mark.parametrize("mode", ["iptables", "nftables"])
def test_against_another_mode(kproxy: Run, mode: str) -> None:
    done = kproxy("diff", SIDE, SIDE, "--mode-a", "ipvs", "--mode-b", mode, "-4", "-o", "json")
    assert done.returncode == 1, done.stderr
    told = {(each["a"], each["b"]) for each in json.loads(done.stdout)["differences"]}
    served = "sends all to 10.96.0.20:80 (delivered to this host, which has the address for virtual servers)"
    assert any(one.startswith(served) and "10.244.0.5:8080" in other for one, other in told)


def test_a_mode_is_as_itself(kproxy: Run) -> None:
    assert kproxy("diff", SIDE, SIDE, "--mode", "ipvs", "-4").returncode == 0


def test_dumps(kproxy: Run, tmp_path: Path) -> None:
    texts = {"save": SAVE, "ipset": SETS, "ipvsadm": LISTING, "other": LISTING.replace("10.244.1.7", "10.244.1.8")}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    assert kproxy("diff", "save,ipset,ipvsadm", "save,ipset,ipvsadm").returncode == 0
    done = kproxy("diff", "save,ipset,ipvsadm", "save,ipset,other")
    assert done.returncode == 1
    assert "1/2 to 10.244.1.8:8080" in done.stdout


def test_without_the_set_of_its_addresses_ipvs_is_open(kproxy: Run, tmp_path: Path) -> None:
    """Which of the virtual servers' addresses the host has for them alone is known by KUBE-IPVS-IPS."""
    for name, text in (("save", SAVE), ("ipvsadm", LISTING)):
        (tmp_path / name).write_text(text)
    done = kproxy("diff", "save,ipvsadm", "save,ipvsadm")
    assert done.returncode == 2
    assert "not seen: ipvs" in done.stdout
