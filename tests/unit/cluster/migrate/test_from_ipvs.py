"""The way out of IPVS mode: every difference that the comparison finds has a reason, in both directions."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from kproxy.api import load_config, load_manifests
from kproxy.api.kubeproxyconfig.types import MODE_IPTABLES, MODE_IPVS, MODE_NFTABLES
from kproxy.cluster.evidence.unseen import ENDPOINTS, Assumed, suspect
from kproxy.cluster.inputs import read_cluster, read_config
from kproxy.cluster.migrate.analysis import Analysis, analyse
from kproxy.cluster.migrate.foreign import ForeignRules
from kproxy.cluster.migrate.report import build_report
from kproxy.cluster.migrate.switch import Switch
from kproxy.cluster.node import NodeFacts
from kproxy.cluster.rules import HostRules, read_rule_file
from kproxy.netfilter import Family
from kproxy.render import Features, select_target
from kproxy.render.ipvs.node import RenderedIpvs
from tests.support.examples import spread
from tests.support.migrate import NODE, endpoints, node, service, write
from tests.support.recorded import IPVS_CLUSTERS

NODE_PORT: dict[str, Any] = {"type": "NodePort", "port": {"nodePort": 30080}}
ON_NODE = {"clusterCIDR": "10.244.0.0/16", "hostnameOverride": NODE}
TARGETS = (MODE_NFTABLES, MODE_IPTABLES)


def facts_of(directory: Path, objects: list[dict[str, Any]], config: dict[str, Any] | None = None) -> NodeFacts:
    cluster_path, config_path = write(
        directory, objects, {"clusterCIDR": "10.244.0.0/16", "hostnameOverride": NODE, **(config or {})}
    )
    loaded = read_config(str(config_path), lambda _note: None)
    cluster = read_cluster([str(cluster_path)], lambda _note: None)
    return NodeFacts.of(cluster, loaded, select_target(cluster.nodes, loaded), Family.IPV4, Features())


def reasons(done: Analysis) -> set[str]:
    return {each.id for each in done.found}


@pytest.mark.parametrize("to", TARGETS)
@pytest.mark.parametrize("case", spread(IPVS_CLUSTERS, 2, 3), ids=lambda case: case.name)
def test_recorded_clusters_have_no_other_difference(case: Path, to: str) -> None:
    manifests = load_manifests([case / "cluster.yaml", case / "service-cidr.yaml"])
    config = load_config(str(case / "config.ipvs.yaml")).config
    for family in Family:
        facts = NodeFacts.of(manifests, config, select_target(manifests.nodes, config), family, Features())
        found = reasons(analyse(facts, Switch(MODE_IPVS, to)))
        assert "other" not in found
        assert "ipvs-leftovers" in found
        assert "random-fully" not in found
        assert "masquerade-all" not in found or facts.iptables.masquerade_all != facts.nftables.masquerade_all


@pytest.mark.parametrize("to", TARGETS)
def test_each_witness_is_treated_differently(tmp_path: Path, to: str) -> None:
    objects = [node(), service(**NODE_PORT, externalIPs=["198.51.100.9"]), endpoints(addresses=("10.244.0.5",))]
    done = analyse(facts_of(tmp_path, objects), Switch(MODE_IPVS, to))
    assert {"ipvs-address-filter", "ipvs-connections", "ipvs-no-syn", "ipvs-ping"} <= reasons(done)
    report = build_report([done], Switch(MODE_IPVS, to))
    assert (report.from_, report.to) == (MODE_IPVS, to)
    for each in report.findings:
        if each.witness is not None:
            assert each.witness.today != each.witness.then
    (refused,) = (each for each in report.findings if each.reason == "ipvs-address-filter")
    assert refused.witness is not None
    assert [each.verdict for each in refused.witness.today] == ["REJECT"]
    assert "198.51.100.9" in refused.addresses


@pytest.mark.parametrize(
    ("config", "spec", "reason"),
    [
        ({"ipvs": {"strictARP": True}}, {}, "ipvs-strict-arp"),
        ({"ipvs": {"scheduler": "lc"}}, {}, "ipvs-scheduler"),
        ({"ipvs": {"excludeCIDRs": ["192.0.2.0/24"]}}, {}, "ipvs-foreign-servers"),
        ({"nftables": {"masqueradeBit": 9}}, {}, "masquerade-mark"),
        ({"nftables": {"masqueradeAll": True}}, {}, "masquerade-all"),
        ({}, {"sessionAffinity": "ClientIP"}, "session-affinity"),
        ({}, {**NODE_PORT, "externalTrafficPolicy": "Local"}, "ipvs-local-policy"),
        ({}, NODE_PORT, "node-port-addresses"),
    ],
)
def test_what_brings_a_reason_about(tmp_path: Path, config: dict[str, Any], spec: dict[str, Any], reason: str) -> None:
    """With it there is the reason, and without it there is not."""
    other = endpoints("more", node_name="n2", addresses=("10.244.1.5",))
    other["metadata"]["labels"]["kubernetes.io/service-name"] = "web"
    slices = [endpoints(), other]
    far = [node("n2", "192.168.0.3")]
    for directory in ("with", "without"):
        (tmp_path / directory).mkdir()
    found = [
        reasons(analyse(facts_of(tmp_path / directory, [node(), *far, service(**own), *slices], settings), switch))
        for directory, own, settings in (("with", spec, config), ("without", {}, {}))
        for switch in (Switch(MODE_IPVS, MODE_NFTABLES),)
    ]
    assert [reason in each for each in found] == [True, False]
    assert not {"other"} & found[0]


@pytest.mark.parametrize("foreign", [True, False])
def test_virtual_servers_of_others_are_named_first(tmp_path: Path, foreign: bool) -> None:
    more = "-A -t 192.0.2.1:80 -s wlc\n-a -t 192.0.2.1:80 -r 192.0.2.9:80 -g -w 1\n" if foreign else ""
    listing = f"-A -t 10.96.0.9:80 -s rr\n-a -t 10.96.0.9:80 -r 10.244.0.5:8080 -m -w 1\n{more}"
    facts = facts_of(tmp_path, [node(), service(), endpoints(addresses=("10.244.0.5",))])
    rules = HostRules([read_rule_file(listing, "n1.ipvsadm")], assumed=Assumed(complete=True))
    switch = Switch(MODE_IPVS, MODE_NFTABLES)
    report = build_report([analyse(facts, switch, foreign=ForeignRules.of(rules, Family.IPV4))], switch)
    named = [each.addresses for each in report.findings if each.reason == "ipvs-foreign-servers"]
    assert named == ([("-t 192.0.2.1:80",)] if foreign else [])
    assert not foreign or report.findings[0].reason == "ipvs-foreign-servers"


@pytest.mark.parametrize("dumped", ["", "rules", "rules of others", "servers", "node ports elsewhere"])
def test_what_was_not_looked_for_is_not_ruled_out(tmp_path: Path, dumped: str) -> None:
    """Other programs' virtual servers are where a listing was read; packets meet no rules of other programs."""
    facts = facts_of(tmp_path, [node(), service(**NODE_PORT), endpoints()])
    made = RenderedIpvs.of(facts.state, facts.iptables)
    elsewhere = "-A -t 192.0.2.77:30080 -s rr\n-a -t 192.0.2.77:30080 -r 10.244.0.5:8080 -m -w 1\n"
    texts = {
        "rules": made.save_text,
        "rules of others": made.save_text.replace(":FORWARD ACCEPT", ":FORWARD DROP"),
        "servers": made.ipvsadm_text,
        "node ports elsewhere": made.ipvsadm_text + elsewhere,
    }
    foreign = None
    if dumped:
        rules = HostRules([read_rule_file(texts[dumped], "n1")], assumed=Assumed(complete=True))
        foreign = ForeignRules.of(rules, Family.IPV4)
    switch = Switch(MODE_IPVS, MODE_NFTABLES)
    report = build_report([analyse(facts, switch, foreign=foreign)], switch)
    absent = {each.reason for each in report.absent}
    assert ("ipvs-foreign-servers" in absent) is (dumped in ("servers", "node ports elsewhere"))
    assert not any(each.startswith("foreign-") for each in absent)
    open_rules = [each for each in report.undecided if each.where == "the rules of other programs"]
    assert bool(open_rules) is (dumped == "rules of others")
    assert "ipvs-foreign-servers" not in {each.reason for each in report.findings}


def test_without_endpoints_nothing_of_them_is_ruled_out(tmp_path: Path) -> None:
    switch = Switch(MODE_IPVS, MODE_NFTABLES)
    facts = facts_of(tmp_path, [node(), service(**NODE_PORT, sessionAffinity="ClientIP")])
    lacking = (suspect("cluster.yaml", None, ENDPOINTS, "no EndpointSlices"),)
    report = build_report([analyse(dataclasses.replace(facts, lacking=lacking), switch)], switch)
    absent = {each.reason for each in report.absent}
    of_settings = {"ipvs-strict-arp", "ipvs-scheduler", "masquerade-mark", "masquerade-all", "random-fully"}
    assert absent == of_settings | {"unallocated-cluster-ips"}
    assert "session-affinity" in {each.reason for each in report.findings}


@pytest.mark.parametrize(
    ("before", "then", "configured", "is_from"),
    [
        ("", MODE_NFTABLES, MODE_IPVS, MODE_IPVS),
        ("", MODE_NFTABLES, "", MODE_IPTABLES),
        ("", MODE_NFTABLES, MODE_NFTABLES, MODE_IPTABLES),
        ("", MODE_IPTABLES, MODE_IPTABLES, MODE_NFTABLES),
        (MODE_IPVS, MODE_NFTABLES, MODE_IPTABLES, MODE_IPVS),
        (MODE_NFTABLES, MODE_IPTABLES, MODE_IPVS, MODE_NFTABLES),
    ],
)
def test_the_mode_that_is_left(before: str, then: str, configured: str, is_from: str) -> None:
    assert Switch.of(before, then, configured) == (is_from, then)
