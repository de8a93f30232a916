"""Each reason is found where the cluster has it and only there, and nothing is found that no reason knows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from kproxy.cli.migrate.text import report_lines
from kproxy.cluster.inputs import read_cluster, read_config
from kproxy.cluster.migrate import analysis
from kproxy.cluster.migrate.analysis import Analysis, analyse
from kproxy.cluster.migrate.reasons import FOREIGN, REASONS, Reason
from kproxy.cluster.migrate.report import build_report
from kproxy.cluster.migrate.switch import Switch
from kproxy.cluster.node import NodeFacts
from kproxy.netfilter import Family
from kproxy.render import Features, select_target
from tests.support.migrate import QUIET, TO_IPTABLES, TO_NFTABLES, endpoints, node, service, service_cidr, write

CLUSTER_IP = {"cluster-ip-ports"}
NODE_PORT = CLUSTER_IP | {"node-port-addresses", "host-firewall"}


def quiet(**changes: Any) -> Mapping[str, Any]:
    return {**QUIET, **changes}


def run(
    directory: Path,
    objects: Sequence[Mapping[str, Any]],
    config: Mapping[str, Any] = QUIET,
    family: Family = Family.IPV4,
    *,
    features: Features | None = None,
    switch: Switch = TO_NFTABLES,
    addresses: Sequence[str] | None = None,
) -> Analysis:
    cluster_path, config_path = write(directory, objects, config)
    loaded = read_config(str(config_path), lambda _note: None)
    cluster = read_cluster([str(cluster_path)], lambda _note: None)
    target = select_target(cluster.nodes, loaded)
    facts = NodeFacts.of(cluster, loaded, target, family, features or Features(), addresses)
    return analyse(facts, switch)


def found(done: Analysis) -> set[str]:
    assert done.undecided == ()
    return {each.id for each in done.found}


CASES: Mapping[str, tuple[Sequence[Mapping[str, Any]], Mapping[str, Any], set[str]]] = {
    "nothing": ([], QUIET, set()),
    "default configuration": ([], {}, {"invalid-packets", "localnet-guard"}),
    "a ServiceCIDR": ([service_cidr("10.96.0.0/16")], QUIET, {"unallocated-cluster-ips"}),
    "a Service": ([service(), endpoints()], QUIET, CLUSTER_IP),
    "endpoints of another node": ([service(), endpoints(node_name="n2")], QUIET, CLUSTER_IP | {"remote-hairpin"}),
    "a node port": ([service(type="NodePort", port={"nodePort": 30080}), endpoints()], QUIET, NODE_PORT),
    "a node port on localhost": (
        [service(type="NodePort", port={"nodePort": 30080}), endpoints()],
        quiet(iptables={"localhostNodePorts": True}),
        NODE_PORT | {"localhost-node-ports", "localnet-guard"},
    ),
    "node ports at every address": (
        [service(type="NodePort", port={"nodePort": 30080}), endpoints()],
        quiet(nodePortAddresses=["0.0.0.0/0"]),
        NODE_PORT - {"node-port-addresses"},
    ),
    "node ports at the primary address": (
        [service(type="NodePort", port={"nodePort": 30080}), endpoints()],
        quiet(nodePortAddresses=["primary"]),
        NODE_PORT - {"node-port-addresses"},
    ),
    "affinity": (
        [service(sessionAffinity="ClientIP"), endpoints(addresses=("10.244.0.5", "10.244.0.6"))],
        QUIET,
        CLUSTER_IP | {"session-affinity"},
    ),
    "affinity to a single endpoint": ([service(sessionAffinity="ClientIP"), endpoints()], QUIET, CLUSTER_IP),
    "masqueradeAll of one mode": (
        [service(), endpoints()],
        quiet(nftables={"masqueradeAll": True}),
        CLUSTER_IP | {"masquerade-all"},
    ),
    "masqueradeBit of one mode": (
        [],
        quiet(iptables={"localhostNodePorts": False, "masqueradeBit": 20}),
        {"masquerade-mark"},
    ),
    "an external IP without endpoints": (
        [service(externalIPs=["198.51.100.9"])],
        QUIET,
        CLUSTER_IP | {"refused-hooks", "masquerade-mark"},
    ),
    "source ranges without endpoints": (
        [
            service(type="LoadBalancer", loadBalancerSourceRanges=["10.0.0.0/8"], allocateLoadBalancerNodePorts=False)
            | {"status": {"loadBalancer": {"ingress": [{"ip": "203.0.113.9"}]}}}
        ],
        QUIET,
        CLUSTER_IP | {"refused-hooks", "masquerade-mark", "source-ranges"},
    ),
    "one address for two Services": (
        [
            service("a", "10.96.0.1", externalIPs=["198.51.100.9"]),
            service("b", "10.96.0.2", externalIPs=["198.51.100.9"]),
            endpoints("a", ("10.244.0.5",)),
            endpoints("b", ("10.244.0.6",)),
        ],
        QUIET,
        CLUSTER_IP | {"host-firewall", "shared-address"},
    ),
    "affinity with the same endpoints behind several node ports and external IPs": (
        [
            item
            for number, name in enumerate("ab", 1)
            for item in (
                service(
                    name,
                    f"10.96.0.{number}",
                    type="NodePort",
                    port={"nodePort": 30080 + number},
                    externalIPs=[f"198.51.100.{number}"],
                    internalTrafficPolicy="Local",
                    sessionAffinity="ClientIP",
                ),
                endpoints(name, ("10.244.1.5", "10.244.1.6"), "n2"),
            )
        ],
        QUIET,
        NODE_PORT | {"session-affinity", "refused-hooks", "masquerade-mark"},
    ),
    "masqueradeAll of one mode, without endpoints": (
        [service()],
        quiet(iptables={"localhostNodePorts": False, "masqueradeAll": True}),
        CLUSTER_IP | {"masquerade-mark", "refused-hooks"},
    ),
    "masqueradeAll of one mode, and INVALID packets, with the node itself as endpoint": (
        [service(), endpoints(addresses=("192.168.0.2",))],
        quiet(nftables={"masqueradeAll": True}, conntrack={}),
        CLUSTER_IP | {"masquerade-all", "invalid-packets"},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_reasons_are_found_where_the_cluster_has_them(tmp_path: Path, name: str) -> None:
    objects, config, expected = CASES[name]
    assert found(run(tmp_path, [node(), *objects], config)) == expected


def test_a_host_whose_iptables_lacks_random_fully(tmp_path: Path) -> None:
    done = run(tmp_path, [node(), service(), endpoints()], features=Features(random_fully=False))
    assert found(done) == CLUSTER_IP | {"random-fully"}


def test_loopback_has_no_guard_in_ipv6(tmp_path: Path) -> None:
    assert found(run(tmp_path, [node()], {}, Family.IPV6)) == {"invalid-packets"}


def test_what_no_reason_knows_is_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reason that is not looked for is found by the comparison, with a packet."""
    for missing in ("cluster-ip-ports", "node-port-addresses"):
        monkeypatch.setattr(analysis, "REASONS", [reason for reason in REASONS if reason.id != missing])
        done = run(tmp_path, [node(), service(type="NodePort", port={"nodePort": 30080}), endpoints()])
        others = [each for each in done.found if each.id == "other"]
        assert others
        witnesses = [each.witness for each in others if each.witness is not None]
        assert len(witnesses) == len(others)
        assert all(first.outcomes != second.outcomes for _, (first, second) in witnesses)
        report = build_report([done], TO_NFTABLES)
        assert missing not in {each.reason for each in report.findings}
        assert report.findings[0].reason == "other"


def test_the_way_back_turns_today_and_then(tmp_path: Path) -> None:
    objects = [node(), service(sessionAffinity="ClientIP"), endpoints(addresses=("10.244.0.5", "10.244.0.6"))]
    there = build_report([run(tmp_path, objects)], TO_NFTABLES)
    back = build_report([run(tmp_path, objects, switch=TO_IPTABLES)], TO_IPTABLES)
    assert (back.from_, back.to) == (there.to, there.from_)
    assert [each.reason for each in back.findings] == [each.reason for each in there.findings]
    assert [(each.then, each.today) for each in back.findings] == [(each.today, each.then) for each in there.findings]
    for report in (there, back):  # who has an endpoint today may get another one
        (memory,) = [each.witness for each in report.findings if each.reason == "session-affinity"]
        assert memory is not None
        assert [fate.chance for fate in memory.today] == ["1"]
        assert [fate.chance for fate in memory.then] == ["1/2", "1/2"]


@pytest.mark.parametrize("reason", [*FOREIGN, *REASONS], ids=lambda reason: reason.id)
@pytest.mark.parametrize("to_nftables", [True, False])
def test_the_effort_is_that_of_the_advice(reason: Reason, to_nftables: bool) -> None:
    advice = reason.advice(to_nftables=to_nftables)
    assert (advice.effort == "none") == (advice.sentence or str(advice.do)).startswith("Nothing to do")
    if isinstance(advice.do, str):
        assert (advice.effort == "none") == advice.do.startswith("Nothing to do")
        assert len(advice.do) <= 72, "it is read at a glance"


def test_what_is_to_be_done_first_comes_first(tmp_path: Path) -> None:
    objects = [
        node(),
        service(type="NodePort", port={"nodePort": 30080}),
        endpoints(),
        endpoints("far", node_name="n2"),
    ]
    found = build_report([run(tmp_path, objects, {"clusterCIDR": "10.244.0.0/16"})], TO_NFTABLES).findings
    efforts = [each.effort for each in found]
    assert efforts == sorted(efforts, key=["act", "look", "after", "none"].index)
    assert set(efforts) == {"act", "look", "after", "none"}
    assert [each.config for each in found if each.reason == "localnet-guard"] == [
        "sysctl -w net.ipv4.conf.all.route_localnet=0"
    ]


@pytest.mark.parametrize(
    ("version", "kernels"),
    [
        ("", []),
        ("weird", []),
        ("6.1.0-13-amd64", [("n1", "6.1.0", True)]),
        ("5.13", [("n1", "5.13", True)]),
        ("5.4.17-2136.el8uek", [("n1", "5.4.17", False)]),
    ],
)
def test_nodes_whose_kernel_is_too_old_are_named(
    tmp_path: Path, version: str, kernels: Sequence[tuple[str, str, bool]]
) -> None:
    one = node("n1")
    one["status"]["nodeInfo"] = {"kernelVersion": version, "architecture": "amd64"}
    done = run(tmp_path, [one, service(), endpoints()])
    report = build_report([done], TO_NFTABLES, needs=("Linux 5.13 or later",), least_kernel=(5, 13))
    assert [(each.node, each.version, each.fits) for each in report.kernels] == kernels
    text = "\n".join(report_lines(report))
    assert ("is too old" in text) == any(not fits for *_, fits in kernels)
    assert ("All nodes have such a kernel" in text) == any(fits for *_, fits in kernels)


@pytest.mark.parametrize(("mine", "other"), [("iptables", "nftables"), ("nftables", "iptables")])
def test_configuration_to_copy_gives_a_mode_what_the_other_one_has(tmp_path: Path, mine: str, other: str) -> None:
    """What it says is taken over, and then nothing is left to say."""
    objects = [node(), service(), endpoints()]
    own = {"masqueradeAll": True, "masqueradeBit": 7}
    switch = TO_NFTABLES if mine == "iptables" else TO_IPTABLES

    def reasons(*modes: str) -> Mapping[str, str]:
        config = quiet(**{mode: {**QUIET.get(mode, {}), **own} for mode in modes})
        done = build_report([run(tmp_path, objects, config, switch=switch)], switch)
        return {each.reason: each.config for each in done.findings}

    said = reasons(mine)
    assert said["masquerade-all"] == f"{other}: {{masqueradeAll: true}}"
    assert said["masquerade-mark"] == f"{other}: {{masqueradeBit: 7}}"
    assert reasons(mine, other).keys() == said.keys() - {"masquerade-all", "masquerade-mark"}


@pytest.mark.parametrize(
    ("addresses", "destination", "setting", "hypothetical"),
    [
        (None, "192.0.2.99:30080", "if the node has 192.0.2.99", False),
        (("192.168.0.2",), "192.0.2.99:30080", "only on a node that has 192.0.2.99", True),
        (("192.168.0.2", "172.16.0.9"), "172.16.0.9:30080", "", False),
        (("192.168.0.2", "10.244.0.0", "10.244.0.1"), "10.244.0.1:30080", "", False),
    ],
)
def test_addresses_that_a_node_is_known_to_have_come_first(
    tmp_path: Path, addresses: Sequence[str] | None, destination: str, setting: str, hypothetical: bool
) -> None:
    objects = [node(), service(type="NodePort", port={"nodePort": 30080}), endpoints()]
    done = run(tmp_path, objects, quiet(clusterCIDR="10.244.0.0/16"), addresses=addresses)
    (witness,) = [
        each.witness for each in build_report([done], TO_NFTABLES).findings if each.reason == "node-port-addresses"
    ]
    assert witness is not None
    assert (witness.dst, witness.setting, witness.hypothetical) == (destination, setting, hypothetical)
    assert (witness.in_ == "eth0") == (not destination.startswith("10.244."))
    assert (witness.service, witness.address_kind) == ("shop/web", "node port")


def test_what_one_node_can_meet_is_not_hypothetical(tmp_path: Path) -> None:
    """The same finding of two nodes, of which only the second one has a second address."""
    objects = [node(), service(type="NodePort", port={"nodePort": 30080}), endpoints()]
    config = quiet(clusterCIDR="10.244.0.0/16")
    done = [run(tmp_path, objects, config, addresses=own) for own in (("192.168.0.2",), ("192.168.0.2", "172.16.0.9"))]
    for analyses in (done, done[::-1]):
        found = build_report(analyses, TO_NFTABLES).findings
        (witness,) = [each.witness for each in found if each.reason == "node-port-addresses"]
        assert witness is not None
        assert (witness.dst, witness.hypothetical) == ("172.16.0.9:30080", False)


def test_packets_of_findings_are_as_they_are_met(tmp_path: Path) -> None:
    here, there = endpoints("b", ("10.244.0.6",)), endpoints("a", ("10.244.1.5",), "n2")
    services = [
        service("a", "10.96.0.1", type="NodePort", port={"nodePort": 30080}, externalTrafficPolicy="Local"),
        service("b", "10.96.0.2"),
    ]
    config = {"clusterCIDR": "10.244.0.0/16"}
    report = build_report([run(tmp_path, [node(), *services, there, here], config)], TO_NFTABLES)
    found = {each.reason: each.witness for each in report.findings}
    hairpin, unplaced = found["remote-hairpin"], found["invalid-packets"]
    assert hairpin is not None
    assert (hairpin.src, hairpin.dst) == ("10.244.1.5:40000", "192.168.0.2:30080"), "a ClusterIP is its own node's"
    assert [(fate.src, fate.dst) for fate in hairpin.today] == [("192.168.0.2", "10.244.1.5:8080")]
    assert [(fate.src, fate.dst) for fate in hairpin.then] == [("10.244.1.5:40000", "10.244.1.5:8080")]
    assert unplaced is not None
    assert unplaced.src == "10.244.0.6:8080", "it comes from a pod of this node"
    assert [(fate.verdict, fate.src, fate.dst, fate.local) for fate in unplaced.today] == [("DROP", "", "", False)]
    guard = found["localnet-guard"]
    assert guard is not None
    assert [fate.local for fate in guard.then] == [True]


def test_a_pod_that_reaches_itself_is_shown_by_the_service_with_the_fewest_endpoints(tmp_path: Path) -> None:
    """More endpoints than packets are tried with do not hide the Services after theirs."""
    many = tuple(f"10.244.1.{host}" for host in range(100, 180))
    services = [
        service("a", "10.96.0.1"),
        service("b", "10.96.0.2", type="NodePort", port={"nodePort": 30080}, externalTrafficPolicy="Local"),
    ]
    slices = [endpoints("a", many, "n2"), endpoints("b", ("10.244.1.5", "10.244.2.5"), "n2")]
    done = run(tmp_path, [node(), *services, *slices], {"clusterCIDR": "10.244.0.0/16"})
    (hairpin,) = [
        each.witness for each in build_report([done], TO_NFTABLES).findings if each.reason == "remote-hairpin"
    ]
    assert hairpin is not None
    assert (hairpin.src, hairpin.dst) == ("10.244.1.5:40000", "192.168.0.2:30080")
