"""The nftables renderer against what kube-proxy v1.36.2 really wrote."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from kproxy.render import Features, render_table, select_target
from kproxy.services import IPFamily
from tests.support.recorded import CLUSTERS, SUFFIX, comparable_nftables, load_nftables, render_nftables

families = pytest.mark.parametrize("family", list(IPFamily), ids=lambda family: family.value)
clusters = pytest.mark.parametrize("case", CLUSTERS, ids=lambda case: case.name)


@families
@clusters
def test_object_for_object_like_kube_proxy(case: Path, family: IPFamily) -> None:
    recorded = (case / f"kube-proxy.{SUFFIX[family]}.nft").read_text()
    assert comparable_nftables(render_nftables(case, family).restore_text) == comparable_nftables(recorded)


@families
@clusters
def test_order_of_documents_does_not_matter(case: Path, family: IPFamily) -> None:
    manifests, config = load_nftables(case)
    target = select_target(manifests.nodes, config)
    services, slices = list(manifests.services), list(manifests.endpoint_slices)
    chance = random.Random(case.name)
    chance.shuffle(services)
    chance.shuffle(slices)
    shuffled = render_table(target, family, services, slices, config, service_cidrs=manifests.service_cidrs)
    assert shuffled.restore_text == render_nftables(case, family).restore_text


@families
@pytest.mark.parametrize("case", CLUSTERS[::8], ids=lambda case: case.name)
def test_every_object_has_its_provenance(case: Path, family: IPFamily) -> None:
    rendered = render_nftables(case, family)
    found = list(rendered.objects())
    assert "".join(f"{each.text}\n" for each in found) == rendered.restore_text
    for each in found:
        name = each.origin.service_port
        if name is None:
            assert each.origin.reason.startswith(f"base {each.kind}: ")
            continue
        own = f"{name.namespace}/{name.name}/{name.protocol.lower()}/{name.port}"
        service_port = rendered.state.service_ports[name]
        addresses = (service_port.cluster_ip, *service_port.external_ips, *service_port.load_balancer_vips)
        assert own in each.text or each.kind == "element"
        if each.origin.endpoint is not None:
            assert each.origin.endpoint in rendered.state.endpoints[name]
        elif each.kind == "element" and own not in each.text:
            assert f"{name}" in each.text or any(ip in each.text for ip in addresses)


def test_objects_without_comments_where_the_kernel_knows_none() -> None:
    case = CLUSTERS[0]
    with_comments = render_nftables(case, IPFamily.IPV4).restore_text
    without = render_nftables(case, IPFamily.IPV4, Features(object_comments=False)).restore_text
    assert without.startswith("add table ip kube-proxy\nadd chain")
    assert "add set ip kube-proxy cluster-ips { type ipv4_addr ; }\n" in without
    assert "add chain ip kube-proxy reject-chain\n" in without
    for kind in ("rule", "element"):
        lines = [line for line in with_comments.splitlines() if line.startswith(f"add {kind}")]
        assert lines == [line for line in without.splitlines() if line.startswith(f"add {kind}")]
