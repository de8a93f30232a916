"""`--rules`: what other programs' rules on a node have to do with the switch."""

from __future__ import annotations

from pathlib import Path

import pytest

from kproxy.cli.migrate.text import report_lines
from kproxy.cluster.evidence.unseen import Assumed
from kproxy.cluster.inputs import read_cluster, read_config
from kproxy.cluster.migrate.analysis import Analysis, Found, analyse
from kproxy.cluster.migrate.foreign import ForeignRules
from kproxy.cluster.migrate.report import build_report, witness_record
from kproxy.cluster.migrate.witness import sources_differ
from kproxy.cluster.node import NodeFacts
from kproxy.cluster.rules import HostRules, read_rule_file
from kproxy.dataplane import Host
from kproxy.dataplane.model.hostfile import parse_host
from kproxy.dataplane.symbolic.host_rules import SideRules
from kproxy.netfilter import Family, Jump, Rule
from kproxy.render import Features, RenderedTarget, select_target
from kproxy.render.iptables.save import saved_ruleset
from tests.support.migrate import QUIET, TO_NFTABLES, endpoints, node, service, write

NODE_PORT = [node(), service(type="NodePort", port={"nodePort": 30080}), endpoints()]
OURS = {"cluster-ip-ports", "node-port-addresses"}
KUBE = """*nat
:PREROUTING ACCEPT [0:0]
:KUBE-SERVICES - [0:0]
:KUBE-MARK-MASQ - [0:0]
-A PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
%s
COMMIT
"""
FILTER = """*filter
:INPUT ACCEPT [0:0]
:FORWARD %s [0:0]
:OUTPUT ACCEPT [0:0]
%s
COMMIT
"""
CNI_MARK = "-A PREROUTING -i eni+ ! -d 10.71.0.0/16 -j MARK --set-xmark 0x80/0x80"
MARKS = "table inet mine { chain a { type filter hook forward priority 0; %s; } }"


def run(directory: Path, *texts: str, quiet: bool = True, host: Host | None = None) -> tuple[NodeFacts, list[Found]]:
    cluster_path, config_path = write(directory, NODE_PORT, QUIET if quiet else {"clusterCIDR": "10.244.0.0/16"})
    config = read_config(str(config_path), lambda _note: None)
    cluster = read_cluster([str(cluster_path)], lambda _note: None)
    facts = NodeFacts.of(cluster, config, select_target(cluster.nodes, config), Family.IPV4, Features(), host=host)
    files = [read_rule_file(text, f"dump {number}") for number, text in enumerate(texts)]
    rules = HostRules(files, assumed=Assumed(complete=True))
    done = analyse(facts, TO_NFTABLES, foreign=ForeignRules.of(rules, Family.IPV4))
    assert done.undecided == ()
    return facts, list(done.found)


@pytest.mark.parametrize(
    ("text", "reasons"),
    [
        (FILTER % ("ACCEPT", "-A INPUT -i lo -j ACCEPT"), set()),
        (FILTER % ("DROP", "-A INPUT -i lo -j ACCEPT"), {"host-firewall"}),
        (FILTER % ("ACCEPT", "-A FORWARD -p tcp -j REJECT"), {"host-firewall"}),
        (FILTER % ("ACCEPT", "-A FORWARD -m mark --mark 0x4000/0x4000 -j ACCEPT"), {"foreign-mark"}),
        (FILTER % ("ACCEPT", "-A FORWARD -m mark --mark 0x8/0x8 -j ACCEPT"), set()),
        (KUBE % "-A KUBE-SERVICES -d 10.96.0.9 -j KUBE-MARK-MASQ", set()),
        (KUBE % "-A PREROUTING -i tun0 -j KUBE-MARK-MASQ", {"foreign-kube-chains"}),
        (KUBE % "-A PREROUTING -i tun0 -j KUBE-SERVICES", {"foreign-kube-chains"}),
        (KUBE % "-A PREROUTING -p tcp --dport 30080 -j DNAT --to-destination 10.0.0.1", {"foreign-hook-order"}),
        (
            "table inet mine { chain a { type filter hook forward priority 0; meta mark and 0x4000 != 0 accept; }\n"
            "chain b { type filter hook input priority 0; meta mark 0x10 accept; } }",
            {"foreign-mark"},
        ),
        (MARKS % "meta mark 0x10 accept", {"foreign-mark"}),
        (MARKS % "meta mark != 0 accept", {"foreign-mark"}),
        (MARKS % "meta mark and 0xff == 0x10 accept", set()),
        (MARKS % "meta mark set meta mark or 0x4000", {"foreign-mark"}),
        (MARKS % "meta mark set meta mark and 0xffffbfff", {"foreign-mark"}),
        (MARKS % "meta mark set meta mark and 0xffffff00 or 0x10", set()),
        (MARKS % "meta mark set ct mark", {"foreign-mark"}),
        (MARKS % "meta mark vmap { 0x10 : accept }", {"foreign-mark"}),
        ("table inet mine { chain a { type filter hook forward priority 10; policy drop; } }", set()),
        # Marks: behind kube-proxy's jump packets that it translates do not meet the rule; in nftables mode they may.
        (KUBE % CNI_MARK, {"foreign-hook-order"}),
        ("*mangle\n:PREROUTING ACCEPT [0:0]\n" + CNI_MARK + "\nCOMMIT\n", set()),
        (KUBE % "-A PREROUTING -i eni+ -j CONNMARK --set-xmark 0x80/0x80", {"foreign-hook-order"}),
    ],
)
def test_rules_of_others(tmp_path: Path, text: str, reasons: set[str]) -> None:
    _, found = run(tmp_path, text)
    assert {each.id for each in found} == OURS | reasons


def test_a_mark_that_routes_is_shown_by_where_packets_leave(tmp_path: Path) -> None:
    """`--host`: the policy rules of the node send marked packets elsewhere."""
    host = parse_host({
        "interfaces": [{"name": "ens5", "addresses": ["172.18.0.2/16"]}, {"name": "eni0"}, {"name": "wg0"}],
        "routes": [
            {"to": "default", "via": "172.18.0.1", "dev": "ens5"},
            {"to": "10.244.0.0/16", "dev": "eni0"},
            {"to": "0.0.0.0/0", "dev": "wg0", "table": "80"},
        ],
        "rules": [{"fwmark": "0x80/0x80", "table": "80", "priority": 100}],
    })  # fmt: skip
    facts, found = run(tmp_path, KUBE % CNI_MARK, host=host)
    (order,) = [each for each in found if each.id == "foreign-hook-order"]
    assert order.witness is not None
    record = witness_record(facts, order, TO_NFTABLES)
    assert record is not None
    assert record.in_ == "eni0"
    assert all(each.text.endswith(", by eni0") for each in record.today)
    assert all(each.text.endswith(", by eni0 or wg0") for each in record.then)


def test_the_rules_are_named(tmp_path: Path) -> None:
    facts, found = run(tmp_path, KUBE % "-A PREROUTING -i tun0 -j KUBE-MARK-MASQ")
    (named,) = [each for each in found if each.id == "foreign-kube-chains"]
    assert named.rules == ("nat PREROUTING 2: -A PREROUTING -i tun0 -j KUBE-MARK-MASQ",)
    assert facts.node_ports


@pytest.mark.parametrize(
    ("text", "reason", "met"),
    [
        (KUBE % "-A PREROUTING -s 198.51.100.0/24 -j KUBE-MARK-MASQ", "foreign-kube-chains", ("ACCEPT", "ACCEPT")),
        # no packet that is tried meets these
        (KUBE % "-A PREROUTING -i tun0 -j KUBE-SERVICES", "foreign-kube-chains", None),
        (MARKS % "iifname eth0 meta mark set 0x4000", "foreign-mark", None),
    ],
)
def test_a_packet_shows_what_the_rules_change(
    tmp_path: Path, text: str, reason: str, met: tuple[str, str] | None
) -> None:
    _, found = run(tmp_path, text)
    (named,) = [each for each in found if each.id == reason]
    assert named.rules
    assert (named.witness is None) == (met is None)
    if named.witness is not None:
        traces = named.witness.traces
        assert tuple(trace.outcomes[0].verdict for trace in traces) == met
        assert sources_differ(*traces)


DROP = "-A FORWARD -d 10.0.0.7/32 -j DROP"
LOG = "-A FORWARD -j LOG"


@pytest.mark.parametrize(
    ("there", "expected"),
    [
        ("{0} | KUBE-PROXY-FIREWALL | KUBE-FORWARD | {1} | KUBE-SERVICES | KUBE-EXTERNAL-SERVICES", None),
        ("KUBE-PROXY-FIREWALL | KUBE-FORWARD | KUBE-SERVICES | KUBE-EXTERNAL-SERVICES | {0}", None),
        ("KUBE-EXTERNAL-SERVICES | {0} | KUBE-PROXY-FIREWALL | KUBE-FORWARD | KUBE-SERVICES", None),
        ("KUBE-PROXY-FIREWALL | KUBE-FORWARD | KUBE-SERVICES | {0} | KUBE-EXTERNAL-SERVICES | KUBE-FORWARD", None),
        # Missing: first.
        (
            "KUBE-PROXY-FIREWALL | {0} | KUBE-SERVICES | {1}",
            "KUBE-FORWARD | KUBE-EXTERNAL-SERVICES | KUBE-PROXY-FIREWALL | {0} | KUBE-SERVICES | {1}",
        ),
        ("{0} | {1}", "KUBE-PROXY-FIREWALL | KUBE-FORWARD | KUBE-SERVICES | KUBE-EXTERNAL-SERVICES | {0} | {1}"),
    ],
)
def test_jumps_stay_where_they_are(tmp_path: Path, there: str, expected: str | None) -> None:
    facts, _ = run(tmp_path)
    own = SideRules.of(saved_ruleset(RenderedTarget.of(facts.state, facts.iptables).restore_text, Family.IPV4))
    jumps = {
        rule.target.chain: rule.to_save("FORWARD")
        for rule in forward(own)
        if isinstance(rule.target, Jump)
    }  # fmt: skip
    lines = there.format(DROP, LOG).split(" | ")
    dump = FILTER % ("ACCEPT", "\n".join([f":{name} - [0:0]" for name in jumps] + [jumps.get(x, x) for x in lines]))
    foreign = ForeignRules.of(HostRules([read_rule_file(dump, "dump")]), Family.IPV4)
    found = [rule.to_save("FORWARD") for rule in forward(foreign.with_iptables(own))]
    assert found == [jumps.get(each, each) for each in (expected or there).format(DROP, LOG).split(" | ")]
    text = ForeignRules.of(HostRules([read_rule_file(others(dump), "dump")]), Family.IPV4).text
    assert (foreign.text == text) == (dump == others(dump))


def forward(side: SideRules) -> tuple[Rule, ...]:
    chain = side.rulesets[0].chain("filter", "FORWARD")
    assert chain is not None
    return chain.rules


def others(dump: str) -> str:
    """A dump without kube-proxy's jumps."""
    return "".join(line for line in dump.splitlines(keepends=True) if "-j KUBE-" not in line)


def test_a_kubelet_keeps_the_guard(tmp_path: Path) -> None:
    canary = "*mangle\n:PREROUTING ACCEPT [0:0]\n:KUBE-KUBELET-CANARY - [0:0]\nCOMMIT\n"
    with_kubelet = {each.id for each in run(tmp_path, canary + FILTER % ("ACCEPT", "-A INPUT -i lo"), quiet=False)[1]}
    without = {each.id for each in run(tmp_path, FILTER % ("ACCEPT", "-A INPUT -i lo"), quiet=False)[1]}
    assert without - with_kubelet == {"localnet-guard"}


def test_the_firewall_of_a_dump_is_the_node_s(tmp_path: Path) -> None:
    facts, found = run(tmp_path, FILTER % ("DROP", ""))
    report = build_report([Analysis(facts, TO_NFTABLES, tuple(found))], TO_NFTABLES)
    (firewall,) = [each for each in report.findings if each.reason == "host-firewall"]
    assert firewall.witness is not None
    assert "dump" in firewall.witness.setting


def test_what_the_dump_leaves_open_is_said(tmp_path: Path) -> None:
    """A set whose content is not given: whether the firewall refuses is not known, in one mode or in both."""
    rule = "-A FORWARD -m set --match-set bad src -j DROP"
    facts, found = run(tmp_path, FILTER % ("ACCEPT", "-A INPUT -i lo -j ACCEPT"))
    assert {each.id for each in found} == OURS
    rules = HostRules([read_rule_file(FILTER % ("ACCEPT", rule), "dump")])
    done = analyse(facts, TO_NFTABLES, foreign=ForeignRules.of(rules, Family.IPV4))
    assert done.undecided
    assert all(each.where.endswith("of the packets tried") for each in done.undecided)
    assert any("bad" in each.reason for each in done.undecided)
    report = build_report([done], TO_NFTABLES)
    assert report.undecided[0].where == "ipset bad"
    assert "host-firewall" in report.undecided[0].hides
    assert report.changes
    assert report.tried > len(done.undecided)
    text = "\n".join(report_lines(report))
    assert "What the model cannot decide" in text
    assert "Nothing else changes" not in text


def test_marks_that_may_differ_are_shown(tmp_path: Path) -> None:
    facts, found = run(tmp_path, KUBE % CNI_MARK)
    (order,) = [each for each in found if each.id == "foreign-hook-order"]
    assert order.rules == (f"nat PREROUTING 2: {CNI_MARK}",)
    assert order.witness is not None
    record = witness_record(facts, order, TO_NFTABLES)
    assert record is not None
    assert all(each.text.endswith(", mark 0x0") for each in record.today)
    assert all(each.text.endswith(", mark 0x0, or with 0x80 in it") for each in record.then)
