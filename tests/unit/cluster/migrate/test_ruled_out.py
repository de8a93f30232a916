"""What was looked for and does not show is said, with the reason why."""

from __future__ import annotations

from pathlib import Path

import pytest

from kproxy.cluster.evidence.unseen import ENDPOINTS, Assumed, Unseen, suspect
from kproxy.cluster.inputs import read_cluster, read_config
from kproxy.cluster.migrate.analysis import analyse
from kproxy.cluster.migrate.foreign import ForeignRules
from kproxy.cluster.migrate.reasons import FOREIGN, REASONS
from kproxy.cluster.migrate.report import (
    NO_OTHER_RULES,
    NO_PACKET,
    NOT_CONFIGURED,
    OTHER_RULES,
    MigrateReport,
    build_report,
)
from kproxy.cluster.node import NodeFacts
from kproxy.cluster.rules import HostRules, read_rule_file
from kproxy.netfilter import Family
from kproxy.render import Features, select_target
from tests.support.migrate import TO_NFTABLES, endpoints, node, service, write

OPEN_HOST = "*filter\n:INPUT ACCEPT [0:0]\n:FORWARD ACCEPT [0:0]\n-A INPUT -i lo -j ACCEPT\nCOMMIT\n"
ALONE = "*nat\n:PREROUTING ACCEPT [0:0]\n:KUBE-SERVICES - [0:0]\n-A PREROUTING -j KUBE-SERVICES\nCOMMIT\n"
KUBELET = "*mangle\n:PREROUTING ACCEPT [0:0]\n:KUBE-KUBELET-CANARY - [0:0]\nCOMMIT\n"
FIREWALL = OPEN_HOST.replace("FORWARD ACCEPT", "FORWARD DROP")


def report(directory: Path, dump: str = "", *lacking: Unseen) -> MigrateReport:
    objects = [node(), service(type="NodePort", port={"nodePort": 30080}), endpoints()]
    cluster_path, config_path = write(directory, objects, {"clusterCIDR": "10.244.0.0/16"})
    config = read_config(str(config_path), lambda _note: None)
    cluster = read_cluster([str(cluster_path)], lambda _note: None)
    facts = NodeFacts.of(
        cluster, config, select_target(cluster.nodes, config), Family.IPV4, Features(), lacking=lacking
    )
    rules = HostRules([read_rule_file(dump, "dump")], assumed=Assumed(complete=True)) if dump else None
    foreign = ForeignRules.of(rules, Family.IPV4) if rules is not None else None
    return build_report([analyse(facts, TO_NFTABLES, foreign=foreign)], TO_NFTABLES)


@pytest.mark.parametrize("dump", ["", ALONE, OPEN_HOST, FIREWALL, KUBELET + OPEN_HOST])
def test_each_known_difference_is_found_or_said_to_be_absent(tmp_path: Path, dump: str) -> None:
    done = report(tmp_path, dump)
    found = {each.reason for each in done.findings}
    absent = [each.reason for each in done.absent]
    assert len(set(absent)) == len(absent)
    assert not found & set(absent)
    assert found | set(absent) == {reason.id for reason in (*REASONS, *(FOREIGN if dump else ()))}


def test_it_is_said_why(tmp_path: Path) -> None:
    why = {each.reason: each.why for each in report(tmp_path).absent}
    assert why["shared-address"] == NO_PACKET
    assert why["masquerade-all"] == why["unallocated-cluster-ips"] == NOT_CONFIGURED
    assert "host-firewall" not in why, "it is found where the node's rules are not known"

    why = {each.reason: each.why for each in report(tmp_path, OPEN_HOST).absent}
    assert why["host-firewall"] == why["foreign-mark"] == OTHER_RULES
    assert "localnet-guard" not in why

    why = {each.reason: each.why for each in report(tmp_path, ALONE).absent}
    assert why["host-firewall"] == NO_OTHER_RULES

    assert "host-firewall" not in {each.reason for each in report(tmp_path, FIREWALL).absent}
    why = {each.reason: each.why for each in report(tmp_path, KUBELET + OPEN_HOST).absent}
    assert why["localnet-guard"] == NO_PACKET


def test_what_may_be_hidden_is_named_once(tmp_path: Path) -> None:
    hidden = report(tmp_path, "", suspect("n1", None, ENDPOINTS, "a Service has no EndpointSlice")).hidden
    assert "A pod that reaches itself through another node" in hidden
    assert len(set(hidden)) == len(hidden)
