"""What drift means for packets, as the model tells it."""

from __future__ import annotations

from pathlib import Path

import pytest

from kproxy.api import KubeProxyConfiguration
from kproxy.api.types.core import LoadBalancerIngress, Node, NodeAddress, ServicePort
from kproxy.api.types.discovery import EndpointPort
from kproxy.api.types.meta import ObjectMeta
from kproxy.linux.drift.samples import mended, rule_effects
from kproxy.linux.iptables.dump import parse_dump
from kproxy.linux.sync.desired import desired_rules
from kproxy.linux.sync.difference import find_difference
from kproxy.render import RenderedTarget, Target, render_target
from kproxy.services import IPFamily
from tests.support.recorded import CLUSTERS
from tests.support.recorded import render as render_recorded
from tests.support.services.builders import make_endpoint, make_service, make_slice

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
    wanted, dump = desired_rules(rendered), parse_dump(text)
    return rule_effects(rendered, wanted, ["127.0.0.1", "192.0.2.1"], dump, find_difference(wanted, dump), services)


def without(text: str, *parts: str) -> str:
    lines = text.splitlines()
    gone = [line for line in lines if line.startswith("-A") and all(part in line for part in parts)]
    assert len(gone) == 1
    lines.remove(gone[0])
    return "\n".join(lines) + "\n"


def test_an_endpoint_that_is_not_chosen_any_more() -> None:
    rendered = render()
    text = without(rendered.save_text, "-A KUBE-SVC-", "dns -> 10.244.0.3:5353")
    told = judge(rendered, text, "shop/dns:dns")
    (pods,) = [each for each in told if "from pods to 10.96.0.10:53/udp:" in each]
    was, now = pods.removeprefix(
        "Service shop/dns:dns (UDP): new connections from pods to 10.96.0.10:53/udp: should go "
    ).split("; they go ")
    assert was == "1/3 to 10.244.0.2:5353, 1/3 to 10.244.0.3:5353, 1/3 to 10.244.0.4:5353"
    assert sorted(now.split(", ")) == ["1/3 to 10.244.0.2:5353", "2/3 to 10.244.0.4:5353"]
    assert any("from an allowed source to 203.0.113.9:53/udp" in each for each in told)
    assert any("192.0.2.1:30053/udp (node port)" in each and "masqueraded" in each for each in told)


def test_source_ranges_that_are_not_enforced() -> None:
    rendered = render()
    told = judge(rendered, without(rendered.save_text, "-A KUBE-PROXY-FIREWALL"), "shop/dns:dns")
    (text,) = told
    assert "from outside to 203.0.113.9:53/udp" in text
    assert "an allowed source" not in text
    assert text.endswith("should go nowhere: dropped; they go to no endpoint")


def test_a_refusal_that_is_gone() -> None:
    rendered = render()
    told = judge(rendered, without(rendered.save_text, "-A KUBE-SERVICES", "has no endpoints"), "shop/empty")
    assert told == [
        "Service shop/empty (TCP): new connections from pods to 10.96.0.11:80/tcp, from outside to 10.96.0.11:80/tcp, "
        "from this node to 10.96.0.11:80/tcp: should go nowhere: refused; they go to no endpoint"
    ]


def test_a_finding_that_changes_nothing_for_new_connections_says_so() -> None:
    rendered = render()
    nat = rendered.save_text.index("*nat")
    text = rendered.save_text[:nat] + rendered.save_text[nat:].replace(
        "COMMIT", "-A KUBE-POSTROUTING -s 192.0.2.77/32 -j RETURN\nCOMMIT", 1
    )
    told = judge(rendered, text, "")
    assert len(told) == 2
    assert all("are treated as they should be" in each for each in told)


def test_rules_of_others_count_on_both_sides() -> None:
    rendered = render()
    dropped = rendered.save_text.replace("-A KUBE-FORWARD ", "-A FORWARD -d 10.244.0.3/32 -j DROP\n-A KUBE-FORWARD ", 1)
    assert all("as they should be" in each for each in judge(rendered, dropped, "shop/dns:dns"))


def test_a_jump_to_a_chain_that_is_gone_is_no_verdict() -> None:
    rendered = render()
    nat = rendered.save_text.index("*nat")
    text = rendered.save_text[:nat] + rendered.save_text[nat:].replace(
        "-A KUBE-SERVICES ", "-A KUBE-SERVICES -j NOT-THERE\n-A KUBE-SERVICES ", 1
    )
    told = judge(rendered, text, "shop/dns:dns")
    assert told
    assert all("model cannot" in each for each in told)


def test_too_many_services_are_counted() -> None:
    rendered = render_recorded(
        max(CLUSTERS, key=lambda case: len(_ports(render_recorded(case, IPFamily.IPV4)))), IPFamily.IPV4
    )
    names = [str(name) for name in _ports(rendered)]
    text = rendered.save_text.replace("-j KUBE-MARK-MASQ", "-j RETURN")
    told = judge(rendered, text, *names)
    assert (len(names) > 20) == ("were not asked about" in told[-1])


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
