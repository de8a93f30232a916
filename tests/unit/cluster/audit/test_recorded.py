"""Recorded clusters, audited as snapshots of one node with kube-proxy's own rules: nothing may be found."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from kproxy.cluster.audit import Severity, audit
from kproxy.cluster.snapshot.cluster import Cluster
from kproxy.cluster.snapshot.files import MemoryFiles
from kproxy.netfilter import print_save
from kproxy.render import select_target
from kproxy.render.iptables.save import saved_ruleset
from kproxy.render.nftables.save import save_text
from kproxy.services import IPFamily
from tests.support.recorded import CLUSTERS, SUFFIX, load, load_nftables

_SAVES = {IPFamily.IPV4: "iptables-save", IPFamily.IPV6: "ip6tables-save"}


def snapshot(case: Path, mode: str) -> dict[str, bytes]:
    manifests, config = load(case) if mode == "iptables" else load_nftables(case)
    node = f"nodes/{select_target(manifests.nodes, config).node_name}"
    settings = (case / ("config.yaml" if mode == "iptables" else "config.nftables.yaml")).read_text()
    files = {f"objects/{name}": (case / name).read_bytes() for name in ("cluster.yaml", "service-cidr.yaml")}
    files[f"{node}/kube-proxy/configz"] = json.dumps({"kubeproxy.config.k8s.io": yaml.safe_load(settings)}).encode()
    if mode == "iptables":
        for family, name in _SAVES.items():
            text = (case / f"kube-proxy.{SUFFIX[family]}.restore").read_text()
            files[f"{node}/{name}"] = print_save(saved_ruleset(text, family)).encode()
    else:
        texts = [save_text((case / f"kube-proxy.{suffix}.nft").read_text()) for suffix in SUFFIX.values()]
        files[f"{node}/nft"] = "".join(texts).encode()
    return files


def check(case: Path, mode: str) -> None:
    report = audit(Cluster(MemoryFiles("recorded", snapshot(case, mode))))
    assert [each for each in report.findings if each.severity is not Severity.INFO] == []


@pytest.mark.parametrize("mode", ["iptables", "nftables"])
@pytest.mark.parametrize("case", CLUSTERS[4:80:40], ids=lambda case: case.name)
def test_some_recorded_clusters(case: Path, mode: str) -> None:
    check(case, mode)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["iptables", "nftables"])
@pytest.mark.parametrize("part", range(2))
def test_more_recorded_clusters(part: int, mode: str) -> None:
    for case in CLUSTERS[part::8]:
        check(case, mode)
