"""The renderer against what kube-proxy v1.36.2 really wrote."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path

import pytest

from kproxy.api import KubeProxyConfiguration
from kproxy.render import Features, render_target, select_target
from kproxy.services import IPFamily, health_check_node_ports, local_ready_endpoints
from tests.support.recorded import CLUSTERS, MINIKUBE, SUFFIX, comparable, load, render

families = pytest.mark.parametrize("family", list(IPFamily), ids=lambda family: family.value)
clusters = pytest.mark.parametrize("case", CLUSTERS, ids=lambda case: case.name)


def test_all_recorded_clusters_are_here() -> None:
    assert len(CLUSTERS) == 80


@families
@clusters
def test_rule_for_rule_like_kube_proxy(case: Path, family: IPFamily) -> None:
    recorded = (case / f"kube-proxy.{SUFFIX[family]}.restore").read_text()
    assert comparable(render(case, family).restore_text) == comparable(recorded)


@families
@clusters
def test_health_check_node_ports(case: Path, family: IPFamily) -> None:
    recorded = json.loads((case / f"kube-proxy.{SUFFIX[family]}.health.json").read_text())
    state = render(case, family).state
    ports = health_check_node_ports(state.service_ports)
    assert ports == recorded["healthCheckNodePorts"]
    ready = {service: count for service, count in local_ready_endpoints(state.endpoints).items() if service in ports}
    assert ready == recorded["localReadyEndpoints"]


@families
@clusters
def test_order_of_documents_does_not_matter(case: Path, family: IPFamily) -> None:
    manifests, config = load(case)
    target = select_target(manifests.nodes, config)
    wanted = render(case, family).restore_text
    for seed in range(3):
        rng = random.Random(seed)
        services, slices = list(manifests.services), list(manifests.endpoint_slices)
        rng.shuffle(services)
        rng.shuffle(slices)
        assert render_target(target, family, services, slices, config).restore_text == wanted


@families
@clusters
def test_every_rule_has_its_provenance(case: Path, family: IPFamily) -> None:
    rendered = render(case, family)
    rules = list(rendered.rules())
    assert [rule.text for rule in rules] == [line for line in rendered.save_text.splitlines() if line.startswith("-A")]
    for rule in rules:
        name = rule.origin.service_port
        if name is None:
            assert rule.origin.reason.startswith("base rule: ")
        else:
            assert f"{name}" in rule.text or rule.chain in rendered.renderer.chains_of(name)
            if rule.origin.endpoint is not None:
                assert rule.origin.endpoint in rendered.state.endpoints[name]


def test_minikube_as_recorded() -> None:
    recorded = (MINIKUBE / "kube-proxy.v4.restore").read_text()
    assert comparable(render(MINIKUBE, IPFamily.IPV4).restore_text) == comparable(recorded)


@pytest.mark.parametrize("family", list(IPFamily))
@pytest.mark.parametrize("variant", ["nft", "legacy"])
def test_minikube_as_iptables_save_printed_it_on_a_real_node(family: IPFamily, variant: str) -> None:
    """The recording node's API server had another address, and a Go map another order; all else is the same bytes."""
    command = "ip6tables" if family.is_ipv6 else "iptables"
    recorded = (MINIKUBE / f"{command}-{variant}-save.{SUFFIX[family]}.txt").read_text()
    saved = render(MINIKUBE, family, Features(nfacct=True)).save_text

    def lines(text: str, address: str, port: str, chain: str) -> list[str]:
        text = text.replace(f"{address}:{port}", "API").replace(f"{address}/32", "API").replace(chain, "KUBE-SEP-API")
        kept = (line for line in text.splitlines() if not line.startswith("#"))
        return sorted(re.sub(r"\[\d+:\d+\]", "[0:0]", line) for line in kept)

    ours = lines(saved, "192.168.49.2", "8443", "KUBE-SEP-VPILYQBSPPXYB66K")
    assert ours == lines(recorded, "192.168.0.2", "6443", "KUBE-SEP-CQRAHCCC7XPEWYB2")


@pytest.mark.parametrize(
    ("service", "port", "chain"),
    [
        ("default/crd-array-watcher", "", "KUBE-SVC-HW2XM7FRY33HEVYM"),
        ("default/crd-array-watcher", "", "KUBE-SEP-PLQTWCYKKRRVAV4U"),
        ("kube-system/kube-dns", "dns", "KUBE-SVC-TCOU7JCQXEZGVUNU"),
        ("kube-system/kube-dns", "metrics", "KUBE-SVC-JD5MR3NA4I4DYORP"),
        ("default/crd-array-watchers", "", "KUBE-SVC-GCRHHKL6ZB4XAFBC"),
        ("kubearmor/kubearmor-controller-webhook-service", "", "KUBE-SVC-5WLEADX2DETM25TL"),
    ],
)
def test_chain_names_that_the_article_shows(service: str, port: str, chain: str) -> None:
    rendered = render(MINIKUBE, IPFamily.IPV4)
    (name,) = (n for n in rendered.state.service_ports if n.service == service and n.port == port)
    assert chain in rendered.renderer.chains_of(name)


def test_features_of_the_target_host() -> None:
    with_nfacct = render(MINIKUBE, IPFamily.IPV4, Features(nfacct=True, random_fully=False)).restore_text
    without = render(MINIKUBE, IPFamily.IPV4).restore_text
    assert with_nfacct.count("-m nfacct") == 2
    assert "nfacct" not in without
    assert "--random-fully" in without
    assert "--random-fully" not in with_nfacct
    assert "nfacct" not in render(MINIKUBE, IPFamily.IPV6, Features(nfacct=True)).restore_text.replace(
        "ct_state_invalid_dropped_pkts -j DROP", ""
    ).replace("-m nfacct --nfacct-name ", "")


def test_configuration_defaults_render() -> None:
    manifests, _ = load(MINIKUBE)
    target = select_target(manifests.nodes, KubeProxyConfiguration())
    assert target.node_name == "minikube"
    text = render_target(target, IPFamily.IPV4, manifests.services, manifests.endpoint_slices).restore_text
    assert "! -s 10.244.0.0/16" not in text, "without clusterCIDR nothing tells pod traffic"
