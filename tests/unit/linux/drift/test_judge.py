"""What drift means for packets, as the model tells it."""

from __future__ import annotations

from pathlib import Path

import pytest

from kproxy.api import KubeProxyConfiguration
from kproxy.api.types.core import LoadBalancerIngress, Node, NodeAddress, ServicePort
from kproxy.api.types.discovery import EndpointPort
from kproxy.api.types.meta import ObjectMeta
from kproxy.cluster.rules import HostRules, read_rule_file
from kproxy.linux.drift.judge import effects
from kproxy.linux.iptables.executor import parse_dump
from kproxy.linux.nftables.table import Change, TableDifference
from kproxy.linux.sync.finding import Compared
from kproxy.linux.sync.iptables.describe import compare_rules, mended
from kproxy.linux.sync.iptables.desired import desired_rules, find_difference
from kproxy.linux.sync.nftables.describe import table_sides
from kproxy.netfilter.hooks import Variant
from kproxy.render import RenderedTable, RenderedTarget, Target, render_table, render_target
from kproxy.services import IPFamily
from tests.support.recorded import CLUSTERS
from tests.support.recorded import render as render_recorded
from tests.support.services.builders import make_endpoint, make_service, make_slice

LOCAL = ("127.0.0.1", "192.0.2.1")
NODE = Node(ObjectMeta("node-0"), addresses=(NodeAddress("InternalIP", "192.0.2.1"),))
DNS = make_service(
    name="dns", cluster_ips=("10.96.0.10",), ports=(ServicePort(port=53, name="dns", protocol="UDP", node_port=30053),),
    type="LoadBalancer", ingress=(LoadBalancerIngress("203.0.113.9"),), source_ranges=("192.0.2.128/25",),
)  # fmt: skip
EMPTY = make_service(name="empty", cluster_ips=("10.96.0.11",))
SLICE = make_slice(
    *(make_endpoint(f"10.244.0.{n}") for n in (2, 3, 4)),
    service="dns",
    ports=(EndpointPort(5353, "dns", "UDP"),),
)


def render() -> RenderedTarget:
    config = KubeProxyConfiguration(cluster_cidr="10.244.0.0/16")
    return render_target(Target("node-0", NODE), IPFamily.IPV4, [DNS, EMPTY], [SLICE], config)


def judge(rendered: RenderedTarget, text: str, *services: str) -> list[str]:
    compared = compare_rules(desired_rules(rendered), parse_dump(text), Variant.NFT)
    return effects(rendered.state, rendered.options, compared, LOCAL, services)


def render_nft() -> RenderedTable:
    config = KubeProxyConfiguration(cluster_cidr="10.244.0.0/16", mode="nftables")
    return render_table(Target("node-0", NODE), IPFamily.IPV4, [DNS, EMPTY], [SLICE], config)


def judge_nft(rendered: RenderedTable, text: str, *services: str, others: str = "", kept: str = "") -> list[str]:
    rules = HostRules([read_rule_file(f"{text}\n{others}", "nft list ruleset")] if text else [])
    found = TableDifference(None, Change("ip kube-proxy"), (kept,))
    compared = Compared((), lambda asked: table_sides(rendered, rules, found, asked))
    return effects(rendered.state, rendered.options, compared, LOCAL, services)


def without(text: str, *parts: str) -> str:
    lines = text.splitlines()
    gone = [line for line in lines if line.startswith("-A") and all(part in line for part in parts)]
    assert len(gone) == 1
    lines.remove(gone[0])
    return "\n".join(lines) + "\n"


def replaced(text: str, old: str, new: str) -> str:
    assert text.count(old) == 1, text
    return text.replace(old, new)


def test_an_endpoint_that_is_not_chosen_any_more() -> None:
    rendered = render()
    [told] = judge(rendered, without(rendered.save_text, "-A KUBE-SVC-", "dns -> 10.244.0.3:5353"), "shop/dns:dns")
    packets, wanted, found = told.split(": A, as wanted, ")[0], *told.split(": A, as wanted, ")[1].split("; B, as ")
    assert packets.startswith("Service shop/dns:dns (UDP): packets to 10.96.0.10:53/udp from anywhere; ")
    assert "203.0.113.9:53/udp from 192.0.2.128/25" in packets
    assert wanted == "sends 1/3 to 10.244.0.2:5353, 1/3 to 10.244.0.3:5353 and 1/3 to 10.244.0.4:5353"
    assert found == "found, sends 2/3 to 10.244.0.4:5353 and 1/3 to 10.244.0.2:5353"
    nft = render_nft()
    map_of = "0 : 10.244.0.2 . 5353, 1 : 10.244.0.3 . 5353, 2 : 10.244.0.4 . 5353"
    text = replaced(nft.save_text(), f"mod 3 map {{ {map_of} }}", "mod 1 map { 0 : 10.244.0.3 . 5353 }")
    told = judge_nft(nft, text, "shop/dns:dns")[0]
    assert told.startswith("Service shop/dns:dns (UDP): packets to 10.96.0.10:53/udp from anywhere; ")
    assert told.endswith("B, as found, sends all to 10.244.0.3:5353")


def test_source_ranges_that_are_not_enforced() -> None:
    rendered, nft = render(), render_nft()
    [rule] = [line for line in nft.save_text().splitlines() if "ip saddr !=" in line and " drop" in line]
    for told in (
        judge(rendered, without(rendered.save_text, "-A KUBE-PROXY-FIREWALL"), "shop/dns:dns"),
        judge_nft(nft, replaced(nft.save_text(), f"{rule}\n", ""), "shop/dns:dns"),
    ):
        assert told[0].startswith(
            "Service shop/dns:dns (UDP): packets to 203.0.113.9:53/udp from anywhere but 192.0.2.1"
        )
        assert ": A, as wanted, drops it; B, as found, sends " in told[0]


def test_a_refusal_that_is_gone() -> None:
    rendered = render()
    told = judge(rendered, without(rendered.save_text, "-A KUBE-SERVICES", "has no endpoints"), "shop/empty")
    assert told == [
        "Service shop/empty (TCP): packets to 10.96.0.11:80/tcp from anywhere, arriving, mark 0x0/0x4000; "
        "10.96.0.11:80/tcp from anywhere, made by this host: A, as wanted, rejects it "
        "(icmp-port-unreachable); B, as found, sends all to 10.96.0.11:80 (source as it is)"
    ]
    nft = render_nft()
    [line] = [each for each in nft.save_text().splitlines() if "10.96.0.11 . tcp . 80" in each]
    text = replaced(nft.save_text(), line, "elements = { 10.96.0.99 . tcp . 80 : drop }")
    # cluster-ips-check refuses what no other element is for.
    assert judge_nft(nft, text, "shop/empty") == [
        "packets to 10.96.0.99:80/tcp from anywhere: A, as wanted, sends all to 10.96.0.99:80 (source as it is); "
        "B, as found, drops it"
    ]


def test_findings_that_concern_no_service_are_judged_by_the_first_few() -> None:
    rendered = render()
    nat = rendered.save_text.index("*nat")
    text = rendered.save_text[:nat] + rendered.save_text[nat:].replace(
        "COMMIT", "-A KUBE-POSTROUTING -s 192.0.2.77/32 -j RETURN\nCOMMIT", 1
    )
    told = "Service shop/dns:dns (UDP), Service shop/empty (TCP): every packet is treated as it should be"
    assert judge(rendered, text, "") == [told]
    assert any("shop/dns:dns" in each and "to its own destination" in each for each in judge_nft(render_nft(), "", ""))


def test_rules_of_others_count_on_both_sides() -> None:
    """In iptables; in another table of nftables, and in a chain of others in kube-proxy's own."""
    rendered, nft = render(), render_nft()
    dropped = rendered.save_text.replace("-A KUBE-FORWARD ", "-A FORWARD -d 10.244.0.3/32 -j DROP\n-A KUBE-FORWARD ", 1)
    chain = (
        "\tchain theirs {\n\t\ttype filter hook forward priority 5; policy accept;\n"
        "\t\tip daddr 10.244.0.3 drop\n\t\tjump service-OLD12345-shop/old/tcp/\n\t}\n"
        "\tchain service-OLD12345-shop/old/tcp/ {\n\t}\n"
    )
    inside = replaced(nft.save_text(), "\tchain cluster-ips-check {", f"{chain}\n\tchain cluster-ips-check {{")
    for told in (
        judge(rendered, dropped, "shop/dns:dns"),
        judge_nft(nft, nft.save_text(), "shop/dns:dns", others=f"table inet wall {{\n{chain}}}\n"),
        judge_nft(nft, inside, "shop/dns:dns", kept="service-OLD12345-shop/old/tcp/"),
    ):
        assert told == ["Service shop/dns:dns (UDP): every packet is treated as it should be"]


def test_a_rule_that_leads_to_a_service_that_no_finding_concerns() -> None:
    rendered = render()
    service = next(
        line for line in rendered.save_text.splitlines() if line.startswith("-A KUBE-SERVICES") and "SVC" in line
    )
    text = replaced(
        rendered.save_text, f"{service}\n", f"{service}\n-A KUBE-SERVICES -d 10.96.0.11/32 -j {service.split()[-1]}\n"
    )
    told = judge(rendered, text, "shop/empty")
    start = (
        "Service shop/empty: packets to 10.96.0.11 (udp) from anywhere: A, as wanted, sends all to 10.96.0.11:8000; "
    )
    start += "B, as found, sends 1/3 to 10.244.0.2:5353"
    assert told[0].startswith(start)


def test_a_jump_to_a_chain_that_is_gone_is_no_verdict() -> None:
    rendered = render()
    nat = rendered.save_text.index("*nat")
    text = rendered.save_text[:nat] + rendered.save_text[nat:].replace(
        "-A KUBE-SERVICES ", "-A KUBE-SERVICES -j NOT-THERE\n-A KUBE-SERVICES ", 1
    )
    told = judge(rendered, text, "shop/dns:dns")
    assert ["model cannot" in each for each in told] == [True]


def test_too_many_services_are_counted() -> None:
    rendered = render_recorded(
        max(CLUSTERS, key=lambda case: len(_ports(render_recorded(case, IPFamily.IPV4)))), IPFamily.IPV4
    )
    names = [str(name) for name in _ports(rendered)]
    text = rendered.save_text.replace("-j KUBE-MARK-MASQ", "-j RETURN")
    told = judge(rendered, text, *names)
    assert (len(names) > 20) == ("were not judged" in told[-1])


def _ports(rendered: RenderedTarget) -> list[object]:
    return list(rendered.state.service_ports)


@pytest.mark.parametrize("case", CLUSTERS[:8], ids=lambda case: str(case.name))
@pytest.mark.parametrize("family", list(IPFamily), ids=lambda family: str(family.value))
def test_mended_rules_are_the_wanted_ones(case: Path, family: IPFamily) -> None:
    """From nothing, and from another cluster's rules."""
    rendered = render_recorded(case, family)
    wanted, right = desired_rules(rendered), parse_dump(rendered.save_text)
    expected = {
        (table, name): chain.rules
        for table, chains in right.tables.items()
        for name, chain in chains.items()
        if chain.rules
    }
    for text in ("", render_recorded(CLUSTERS[9], family).save_text):
        dump = parse_dump(text)
        found = mended(wanted, dump, find_difference(wanted, dump))
        rules = {(table, name): list(rules) for table, chains in found.items() for name, (_, rules) in chains.items()}
        assert {place: lines for place, lines in rules.items() if lines} == expected
