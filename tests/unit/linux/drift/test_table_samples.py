"""What drift means for packets in nftables mode."""

from __future__ import annotations

import pytest

from kproxy.api import KubeProxyConfiguration
from kproxy.api.types.core import LoadBalancerIngress, Node, NodeAddress, ServicePort
from kproxy.api.types.discovery import EndpointPort
from kproxy.api.types.meta import ObjectMeta
from kproxy.cluster.rules import HostRules, read_rule_file
from kproxy.linux.drift.table_samples import table_effects
from kproxy.render import RenderedTable, Target, render_table
from kproxy.services import IPFamily
from tests.support.services.builders import make_endpoint, make_service, make_slice

NODE = Node(ObjectMeta("node-0"), addresses=(NodeAddress("InternalIP", "192.0.2.1"),))
DNS = make_service(
    name="dns", cluster_ips=("10.96.0.10",), ports=(ServicePort(port=53, name="dns", protocol="UDP", node_port=30053),),
    type="LoadBalancer", ingress=(LoadBalancerIngress("203.0.113.9"),), source_ranges=("192.0.2.128/25",),
)  # fmt: skip
EMPTY = make_service(name="empty", cluster_ips=("10.96.0.11",))
SLICE = make_slice(
    *(make_endpoint(f"10.244.0.{n}") for n in (2, 3)), service="dns", ports=(EndpointPort(5353, "dns", "UDP"),)
)


def render() -> RenderedTable:
    config = KubeProxyConfiguration(cluster_cidr="10.244.0.0/16", mode="nftables")
    return render_table(Target("node-0", NODE), IPFamily.IPV4, [DNS, EMPTY], [SLICE], config)


def effects(rendered: RenderedTable, text: str, *services: str, others: str = "", kept: str = "") -> list[str]:
    rules = HostRules([read_rule_file(f"{text}\n{others}", "nft list ruleset")])
    return table_effects(rendered, ["127.0.0.1", "192.0.2.1"], rules, services, [kept])


def replaced(text: str, old: str, new: str) -> str:
    assert text.count(old) == 1, text
    return text.replace(old, new)


def test_an_endpoint_that_is_not_chosen_any_more() -> None:
    rendered = render()
    text = replaced(
        rendered.save_text(), "mod 2 map { 0 : 10.244.0.2 . 5353, 1 : 10.244.0.3 . 5353 }",
        "mod 1 map { 0 : 10.244.0.3 . 5353 }",
    )  # fmt: skip
    told = effects(rendered, text, "shop/dns:dns")
    [pods] = [each for each in told if "from pods to 10.96.0.10:53/udp" in each]
    assert pods.endswith("should go 1/2 to 10.244.0.2:5353, 1/2 to 10.244.0.3:5353; they go to 10.244.0.3:5353")
    assert any("192.0.2.1:30053/udp (node port)" in each and "masqueraded" in each for each in told)


def test_source_ranges_that_are_not_enforced() -> None:
    rendered = render()
    [rule] = [line for line in rendered.save_text().splitlines() if "ip saddr !=" in line and " drop" in line]
    [told] = effects(rendered, replaced(rendered.save_text(), f"{rule}\n", ""), "shop/dns:dns")
    assert "from outside to 203.0.113.9:53/udp" in told
    assert "should go nowhere: dropped; they go " in told


def test_an_element_that_is_gone() -> None:
    rendered = render()
    [line] = [each for each in rendered.save_text().splitlines() if "10.96.0.11 . tcp . 80" in each]
    [told] = effects(rendered, replaced(rendered.save_text(), line, "elements = { 10.96.0.99 . tcp . 80 : drop }"),
                     "shop/empty")  # fmt: skip
    # cluster-ips-check refuses what no other element is for.
    assert told == "Service shop/empty (TCP): new connections are treated as they should be (3 sample packets)"


def test_a_table_that_is_gone() -> None:
    told = table_effects(render(), ["192.0.2.1"], HostRules([]), ["shop/dns:dns"])
    assert any("they go to no endpoint" in each for each in told)
    # A finding that concerns no Service in particular is explained by the first few.
    told = table_effects(render(), ["192.0.2.1"], HostRules([]), [""])
    assert any("shop/dns:dns" in each for each in told)


@pytest.mark.parametrize("where", ["inet wall", "ip kube-proxy"])
def test_what_others_have_counts_on_both_sides(where: str) -> None:
    """Another table, and a chain of others in kube-proxy's own."""
    rendered = render()
    chain = (
        "\tchain theirs {\n\t\ttype filter hook forward priority 5; policy accept;\n"
        "\t\tip daddr 10.244.0.3 drop\n\t\tjump service-OLD12345-shop/old/tcp/\n\t}\n"
        "\tchain service-OLD12345-shop/old/tcp/ {\n\t}\n"
    )
    text = rendered.save_text()
    if where == "inet wall":
        told = effects(rendered, text, "shop/dns:dns", others=f"table {where} {{\n{chain}}}\n")
    else:
        text = replaced(text, "\tchain cluster-ips-check {", f"{chain}\n\tchain cluster-ips-check {{")
        told = effects(rendered, text, "shop/dns:dns", kept="service-OLD12345-shop/old/tcp/")
    assert told
    assert all("as they should be" in each for each in told)
