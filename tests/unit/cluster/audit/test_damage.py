"""What `kproxy audit` finds in a cluster that is damaged, and that it finds nothing else."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import NamedTuple

import pytest
from msgspec import UNSET

from kproxy.cluster.audit.audit import audit
from kproxy.cluster.audit.question_sampling import Alike
from kproxy.cluster.audit.report import AuditReport, Finding
from kproxy.cluster.snapshot.cluster import Cluster
from kproxy.cluster.snapshot.files import MemoryFiles
from kproxy.errors import InputError
from kproxy.netfilter import Family
from tests.support.cluster import audited
from tests.support.examples import spread

Files = dict[str, bytes]

WEB, DNS, EDGE = "shop/web:http", "shop/dns:dns", "shop/edge:tls"
ALL = (DNS, EDGE, WEB)


def judged(files: Files) -> AuditReport:
    return audit(Cluster(MemoryFiles("snap", files)))


@pytest.mark.parametrize("mode", ["iptables", "nftables"])
def test_a_healthy_cluster_has_no_findings(mode: str) -> None:
    report = judged(audited.cluster(mode))
    assert report.findings == ()
    assert report.undecided == report.missing == ()
    assert report.judged == ("n1", "n2", "n3")
    assert report.questions > 30


@pytest.mark.parametrize("mode", ["iptables", "nftables"])
def test_a_service_without_endpoints_is_named(mode: str) -> None:
    files = audited.cluster(mode)
    objects = json.loads(files["objects/EndpointSlice.json"])
    for each in next(item for item in objects["items"] if item["metadata"]["name"] == "dns-1")["endpoints"]:
        each["conditions"] = {"ready": False}
    files["objects/EndpointSlice.json"] = json.dumps(objects).encode()
    (finding,) = (each for each in judged(files).findings if each.kind == "no-endpoints")
    assert (finding.severity, finding.services, finding.nodes) == ("info", (DNS,), ("n1", "n2", "n3"))


@pytest.mark.parametrize("mode", ["iptables", "nftables"])
def test_an_address_that_two_services_claim(mode: str) -> None:
    files = audited.cluster(mode)
    objects = json.loads(files["objects/Service.json"])
    web, edge = (
        next(item for item in objects["items"] if item["metadata"]["name"] == name) for name in ("web", "edge")
    )
    number = next(each["port"] for each in edge["spec"]["ports"] if each["name"] == "tls")
    next(each for each in web["spec"]["ports"] if each["name"] == "http")["port"] = number
    for each in (web, edge):
        each["spec"]["externalIPs"] = ["198.51.100.77"]
    files["objects/Service.json"] = json.dumps(objects).encode()
    (finding,) = (each for each in judged(files).findings if each.kind == "claimed-twice")
    assert (finding.severity, finding.services, finding.nodes) == ("error", (EDGE, WEB), ("n1", "n2", "n3"))
    assert any(
        f"198.51.100.77:{number}/TCP is claimed by 2 Services, {EDGE} and {WEB}" in each for each in finding.details
    )


def change(pattern: str, text: str, file: str = "iptables-save", nodes: str = "1") -> Callable[[Files], None]:
    """Replaces the first match of a pattern in a file of some nodes."""

    def apply(files: Files) -> None:
        for number in nodes:
            path = f"nodes/n{number}/{file}"
            found, count = re.subn(pattern, text, files[path].decode(), count=1, flags=re.MULTILINE)
            assert count == 1, pattern
            files[path] = found.encode()

    return apply


def before(chain: str, rule: str, table: str = "filter", nodes: str = "1") -> Callable[[Files], None]:
    """A rule before all others of a chain."""
    return change(rf"(?s)^(\*{table}\n.*?)^-A {chain} ", rf"\g<1>-A {chain} {rule}\n-A {chain} ", nodes=nodes)


def put(file: str, data: bytes, nodes: str = "1") -> Callable[[Files], None]:
    def apply(files: Files) -> None:
        for number in nodes:
            files[f"nodes/n{number}/{file}"] = data

    return apply


def sysctl(name: str, value: int, nodes: str = "1") -> Callable[[Files], None]:
    return change(rf"^{re.escape(name)} = .*$", f"{name} = {value}", "sysctl", nodes)


def jumps_gone(files: Files) -> None:
    """Another program has flushed the built-in chains of the nat table, and no more."""
    path = "nodes/n1/iptables-save"
    files[path] = re.sub(r"^-A (PREROUTING|OUTPUT) .*-j KUBE-SERVICES\n", "", files[path].decode(), flags=re.M).encode()


def legacy_leftovers(files: Files) -> None:
    files["nodes/n1/iptables-legacy-save"] = files["nodes/n1/iptables-save"].replace(b"(nf_tables)", b"(legacy)")


def rendered_otherwise(files: Files) -> None:
    files |= audited.rules(files, 1, "iptables", "10.0.0.0/16")


class Damage(NamedTuple):
    """What is done to the files, and what must be found: kind, nodes, Services, and of the rule a piece. `also`: kinds
    that follow from it, too."""

    name: str
    apply: Callable[[Files], None]
    kind: str
    nodes: tuple[str, ...] = ("n1",)
    services: tuple[str, ...] = ()
    rule: str = ""
    mode: str = "iptables"
    also: tuple[str, ...] = ()


DAMAGE = [
    Damage(
        "stale endpoint", change(r"--to-destination 10.244.2.5:8080", "--to-destination 10.244.2.99:8080"),
        "endpoint-stale", services=(WEB,), rule="10.244.2.99:8080",
    ),
    Damage("Service gone", change(r"^-A KUBE-SERVICES -d 10.96.0.10/32 .*\n", ""), "service-missing", services=(DNS,)),
    Damage(
        "endpoint gone", change(r"^-A KUBE-SVC-.*shop/web:http -> 10.244.1.5:8080.*\n", ""), "endpoint-missing",
        services=(WEB,),
    ),
    Damage(
        "uneven shares", change(r"(shop/web:http .*--probability) 0.5\d*", r"\1 0.90000000000"), "share-uneven",
        services=(WEB,),
    ),
    Damage(
        "no masquerade of node ports", change(r"^-A KUBE-EXT-.*shop/web:http.*-j KUBE-MARK-MASQ\n", ""),
        "masquerade-missing", services=(WEB,),
    ),
    Damage("wrong clusterCIDR when it was rendered", rendered_otherwise, "masquerade-extra", services=ALL, rule="MASQ",
           also=("endpoint-missing",)),
    Damage(
        "refused", before("KUBE-FORWARD", "-d 10.244.1.5/32 -p tcp -j REJECT"), "refused", services=(WEB,),
        rule="-d 10.244.1.5/32 -p tcp -j REJECT",
    ),
    Damage("jumps flushed", jumps_gone, "jumps-lost"),
    Damage("jumps of FORWARD flushed", change(r"(?:^-A FORWARD .*\n)+", ""), "jumps-lost"),
    Damage("rules flushed", put("iptables-save", b""), "rules-missing"),
    Damage(
        "DROP in FORWARD", before("FORWARD", "-d 10.244.2.0/24 -p tcp -m tcp --dport 8080 -j DROP"), "foreign-drop",
        services=(WEB,), rule="-A FORWARD -d 10.244.2.0/24 -p tcp -m tcp --dport 8080 -j DROP",
    ),
    Damage(
        "DROP where the endpoint is", before("FORWARD", "-i vxlan1 -p udp -m udp --dport 53 -j DROP", nodes="2"),
        "foreign-drop", ("n2",), (DNS,), "-i vxlan1 -p udp",
    ),
    Damage(
        "one DROP on every node", before("FORWARD", "-p udp -m udp --dport 53 -j DROP", nodes="123"), "foreign-drop",
        ("n1", "n2", "n3"), (DNS,), "--dport 53 -j DROP",
    ),
    Damage(
        "DROP of clients outside",
        before("FORWARD", "-i eth0 -p tcp -m tcp --dport 8080 -j DROP"),
        "foreign-drop-outside", services=(WEB,), rule="-i eth0",
    ),
    Damage(
        "node port redirected",
        before("PREROUTING", "-p tcp -m tcp --dport 30080 -j REDIRECT --to-ports 22", "nat"),
        "node-port-shadowed", services=(WEB,), rule="REDIRECT",
    ),
    Damage(
        "cluster IP sent elsewhere", before("PREROUTING", "-d 10.96.0.7/32 -j DNAT --to-destination 192.0.2.1", "nat"),
        "foreign-redirect", services=(WEB,), rule="192.0.2.1",
    ),
    Damage(
        "accepted before kube-proxy", before("PREROUTING", "-d 10.96.0.0/12 -j ACCEPT", "nat"), "foreign-bypass",
        services=ALL, rule="-d 10.96.0.0/12 -j ACCEPT",
    ),
    Damage(
        "pods hidden from pods", before("POSTROUTING", "-s 10.244.0.0/16 -d 10.244.0.0/16 -j MASQUERADE", "nat"),
        "foreign-masquerade", services=ALL, rule="MASQUERADE",
    ),
    Damage("rules of the other variant", legacy_leftovers, "leftover-rules"),
    Damage(
        "DROP by nft", put("nft", b"table inet wall { chain f { type filter hook forward priority 0; policy accept; "
        b"udp dport 53 drop; } }"), "foreign-drop", services=(DNS,), rule="udp dport 53 drop",
    ),
    Damage("no forwarding", sysctl("net.ipv4.ip_forward", 0), "ip-forward"),
    Damage("route_localnet", sysctl("net.ipv4.conf.all.route_localnet", 0), "route-localnet"),
    Damage("bridge-nf", sysctl("net.bridge.bridge-nf-call-iptables", 0, "2"), "bridge-nf", ("n2",)),
    Damage("full table", sysctl("net.netfilter.nf_conntrack_count", 950), "conntrack-full"),
    Damage(
        "another way back",
        change(r'("dst": "default", "gateway": "172.30.0.1", "dev": )"eth0"', r'\1"eth1"', "ip-route.json"),
        "rp-filter",
    ),
    Damage(
        "route withdrawn", change(r', \{"dst": "10.244.2.0/24".*?\}', "", "ip-route.json", "3"),
        "no-route", ("n3",), ALL,
    ),
    Damage(
        "blackhole", change(r'"dst": "10.244.2.0/24"', '"type": "blackhole", "dst": "10.244.2.0/24"', "ip-route.json"),
        "no-route", services=ALL,
    ),
    Damage(
        "FDB entry wrong", change(r'"dst": "172.30.0.12"', '"dst": "172.30.0.13"', "bridge-fdb.json"),
        "tunnel-astray", services=ALL,
    ),
    Damage(
        "FDB entry gone", change(r'(\{"mac": "02:00:0a:f4:02:00".*?\}, )', "", "bridge-fdb.json"), "tunnel-astray",
        services=ALL,
    ),
    Damage(
        "neighbour gone", change(r'"PERMANENT"', '"FAILED"', "ip-neigh.json", "3"), "tunnel-astray", ("n3",),
        (EDGE, WEB),
    ),
    Damage(
        "neighbour with an old MAC", change("0a:f4:02:00", "0a:f4:09:00", "ip-neigh.json") , "tunnel-astray",
        services=ALL,
    ),
    Damage(
        "route to the wrong node",
        change(r'"gateway": "10.244.2.0", "dev": "vxlan1"', '"gateway": "172.30.0.13", "dev": "eth0"', "ip-route.json"),
        "route-astray", services=ALL,
    ),
    Damage("MTU", change(r'"mtu": 1450', '"mtu": 1500', "ip-addr.json"), "mtu"),
    Damage(
        "behind by its metrics",
        put("kube-proxy/metrics", b"kubeproxy_sync_proxy_rules_last_timestamp_seconds 1.79e9\n"
        b"kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds 1.7900001e9\n"
        b"kubeproxy_sync_proxy_rules_iptables_restore_failures_total 3\n"), "proxy-behind",
    ),
    Damage(
        "flow past the endpoints",
        change("src=10.244.2.6 dst=10.244.1.9", r"[UNREPLIED] src=10.96.0.10 dst=10.244.1.9", "conntrack"),
        "stale-flow", services=(DNS,),
    ),
    Damage("dead flow", change("src=10.244.2.6", "src=10.244.2.66", "conntrack"), "stale-flow", services=(DNS,)),
    Damage("unhealthy", change("HTTP 200", "HTTP 503", "kube-proxy/healthz"), "proxy-unhealthy"),
    Damage(
        "behind", change('"lastUpdated": "2026-11-22T10:00', '"lastUpdated": "2026-11-22T09:58', "kube-proxy/healthz"),
        "proxy-behind",
    ),
    Damage("old version", put("kube-proxy/version", b"Kubernetes v1.34.1\n", "3"), "versions-mixed", ("n3",)),
    Damage(
        "pods outside of clusterCIDR",
        lambda files: files.update(
            {f"nodes/n{n}/kube-proxy/configz": audited.configz("iptables", "10.9.0.0/16") for n in (1, 2, 3)}
            | {k: v for n in (1, 2, 3) for k, v in audited.rules(files, n, "iptables", "10.9.0.0/16").items()}
        ),
        "cluster-cidr", ("n1", "n2", "n3"),
    ),
    Damage("nftables: stale endpoint", change(r"10\.244\.2\.5 \. 8080", "10.244.2.99 . 8080", "nft"),
           "endpoint-stale", services=(WEB,), rule="10.244.2.99 . 8080", mode="nftables"),
    Damage("nftables: Service gone", change(r"(?<=[ \t{])10\.96\.0\.10 \. udp \. 53 : goto [^,}\s]+,?", "", "nft"),
           "service-missing", services=(DNS,), mode="nftables"),
    Damage(
        "nftables: iptables mode's rules left",
        lambda files: files.update(
            {"nodes/n2/iptables-save": audited.rules(files, 2, "iptables")["nodes/n2/iptables-save"]}
        ),
        "leftover-rules", ("n2",), mode="nftables",
    ),
    Damage(
        "nftables: an address gone from the map",
        change(r"10\.96\.0\.7 \. tcp \. 80 : goto [^,\s]+,\s*", "", "nft"), "service-missing", services=(WEB,),
        mode="nftables",
    ),
    Damage("nftables: table gone", put("nft", b""), "rules-missing", mode="nftables"),
]  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGE, ids=lambda each: each.name)
def test_damage_is_named(damage: Damage) -> None:
    files = audited.cluster(damage.mode)
    damage.apply(files)
    report = judged(files)
    found = [each for each in report.findings if each.kind == damage.kind]
    assert len(found) == 1, [(each.kind, each.nodes, each.services, each.details) for each in report.findings]
    finding: Finding = found[0]
    assert (finding.nodes, finding.services) == (damage.nodes, damage.services)
    assert len(report.findings) == 1 + len(damage.also), [
        (each.kind, each.nodes, each.services, each.details) for each in report.findings
    ]
    assert {each.kind for each in report.findings} == {damage.kind, *damage.also}
    assert not report.is_well
    if damage.rule:
        assert any(damage.rule in rule.text for rule in finding.rules), finding.rules
        for rule in finding.rules:
            if rule.line:
                assert files[rule.file].decode().splitlines()[rule.line - 1].strip() == rule.text


@pytest.mark.parametrize("kind", ["EndpointSlice", "Node", "Service"])
def test_without_objects_nothing_is_made_up(kind: str) -> None:
    files = audited.cluster()
    del files[f"objects/{kind}.json"]
    report = judged(files)
    assert (report.findings, report.judged) == ((), ())
    assert [gap.what for gap in report.undecided] == [f"no {kind}s"]


def test_a_mode_that_is_not_known_is_not_judged() -> None:
    files = audited.cluster()
    put("kube-proxy/configz", audited.configz("kernelspace"), "3")(files)
    report = judged(files)
    assert report.judged == ("n1", "n2")
    assert [(gap.what, gap.nodes) for gap in report.undecided] == [("mode kernelspace", ("n3",))]
    assert [each.kind for each in report.findings] == ["modes-mixed"]


def test_what_the_files_do_not_tell_is_not_found() -> None:
    files = {
        path: data
        for path, data in audited.cluster().items()
        if path.endswith(("/iptables-save", "/configz")) or path.startswith("objects/")
    }
    report = judged(files)
    assert report.findings == ()
    assert report.judged == ("n1", "n2", "n3")
    assert {gap.what for gap in report.missing} >= {"ip-route.json", "sysctl", "conntrack"}


@pytest.mark.parametrize("damage", spread(DAMAGE, 0, 9), ids=lambda each: each.name)
def test_what_is_asked_once_is_found_as_if_everything_was_asked(
    damage: Damage, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = audited.cluster(damage.mode)
    damage.apply(files)
    once = judged(files)
    monkeypatch.setattr(Alike, "kind", lambda *_: object())
    every = judged(files)
    assert once.questions <= every.questions
    for field in ("kind", "nodes", "services", "clients", "addresses", "rules"):
        assert [getattr(each, field) for each in once.findings] == [getattr(each, field) for each in every.findings]


def test_since_when_is_told_as_far_as_it_is_known() -> None:
    files = audited.cluster()
    change(r"--to-destination 10.244.2.5:8080", "--to-destination 10.244.2.99:8080")(files)
    assert judged(files).findings[0].since == ("kube-proxy wrote rules last at 2026-11-22T10:00:00Z",)
    put("kube-proxy/metrics", b"kubeproxy_sync_proxy_rules_last_timestamp_seconds 1.7900000e9\n")(files)
    assert judged(files).findings[0].since == ("kube-proxy wrote rules last at 2026-09-21T14:13:20Z",)
    slices = json.loads(files["objects/EndpointSlice.json"])
    changed = {"endpoints.kubernetes.io/last-change-trigger-time": "2026-11-22T09:59:00Z"}
    slices["items"][0]["metadata"]["annotations"] = changed
    files["objects/EndpointSlice.json"] = json.dumps(slices).encode()
    assert judged(files).findings[0].since == ("the endpoints changed last at 2026-11-22T09:59:00Z",)


def test_network_policies_are_named_as_not_evaluated() -> None:
    files = audited.cluster()
    policy = {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "p"}, "spec": {}}
    files["objects/NetworkPolicy.json"] = json.dumps(policy).encode()
    assert [gap.what for gap in judged(files).undecided] == ["1 NetworkPolicy"]


def test_lines_of_nft_are_found() -> None:
    files = audited.cluster("nftables")
    text = files["nodes/n1/nft"].decode() + "table inet wall {\n\tchain f {\n\t\ttype filter hook forward priority 0; "
    text += "policy accept;\n\t\tct state established accept\n\t\tudp dport 53 drop\n\t}\n}\n"
    files["nodes/n1/nft"] = text.encode()
    (rule,) = judged(files).findings[0].rules
    assert text.splitlines()[rule.line - 1].strip() == rule.text == "udp dport 53 drop"


@pytest.mark.parametrize(
    ("pattern", "text", "told"),
    [
        ("^-A KUBE-SEP-", "-A KUBE-SEP-X -j DROP\n-A KUBE-SEP-", "line [0-9]+: .*KUBE-SEP-X"),
        ("^(-A KUBE-SEP-\\S+) ", r"\1 --nonsense -j DROP\n\1 ", "line [0-9]+: "),
        ("^COMMIT$", "", "nodes/n1/iptables-save: line [0-9]+: "),
    ],
)
def test_lines_that_cannot_be_read_are_named(pattern: str, text: str, told: str) -> None:
    files = audited.cluster()
    change(pattern, text)(files)
    with pytest.raises(InputError, match=told):
        judged(files)


def test_dumps_are_read_however_they_were_printed() -> None:
    """With counters, with CRLF, and with the rules of a chain in several places."""
    files = audited.cluster()
    for number, (old, new) in enumerate(((b"\n-A", b"\n[1:2] -A"), (b"\n", b"\r\n")), 1):
        files[f"nodes/n{number}/iptables-save"] = files[f"nodes/n{number}/iptables-save"].replace(old, new)
    report = judged(files)
    assert (report.findings, report.judged) == ((), ("n1", "n2", "n3"))


def test_advice_names_the_thing() -> None:
    files = audited.cluster("iptables")
    sysctl("net.ipv4.ip_forward", 0)(files)
    (finding,) = judged(files).findings
    assert finding.hint == "sysctl -w net.ipv4.ip_forward=1, and the same in /etc/sysctl.d."


def test_endpoints_instead_of_slices_are_known() -> None:
    files = audited.cluster("iptables")
    del files["objects/EndpointSlice.json"]
    subsets = [{"addresses": [{"ip": "10.244.2.6"}], "ports": [{"name": "dns", "port": 53, "protocol": "UDP"}]}]
    objects = [
        {"apiVersion": "v1", "kind": "Endpoints", "metadata": {"name": "dns", "namespace": "shop"}, "subsets": subsets}
    ]
    files["objects/Endpoints.json"] = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}).encode()
    report = judged(files)
    assert report.judged == ("n1", "n2", "n3")
    assert not any("EndpointSlice" in each.what for each in (*report.undecided, *report.missing))


def test_changes_while_the_snapshot_was_read_are_marked() -> None:
    files = audited.cluster("iptables")
    nodes = {"n1": {"started": "2026-01-31T12:00:05Z", "seconds": 1.5, "via": "exec"}}
    info = {"version": 1, "created": "2026-01-31T12:00:00Z", "nodes": nodes}
    files["snapshot.json"] = json.dumps(info).encode()
    for time, young in (("2026-01-31T12:00:02Z", True), ("2026-01-31T11:00:00Z", False)):
        objects = json.loads(files["objects/EndpointSlice.json"])
        for each in objects["items"]:
            each["metadata"].setdefault("annotations", {})["endpoints.kubernetes.io/last-change-trigger-time"] = time
        files["objects/EndpointSlice.json"] = json.dumps(objects).encode()
        damaged = dict(files)
        change(r"--to-destination 10\.244\.2\.6:53", "--to-destination 10.244.2.99:53")(damaged)
        report = judged(damaged)
        assert report.apart == 6.5
        assert [each.young for each in report.findings if each.kind == "endpoint-stale"] == [young or UNSET]


def test_a_file_of_rules_that_is_not_there_is_not_one_without_rules() -> None:
    """kube-proxy's mode is known, and nft's file is there with nothing: the other variant's rules were not seen."""
    files = audited.cluster("iptables")
    del files["nodes/n1/iptables-save"]
    report = judged(files)
    assert not report.findings
    assert [(each.host, each.what) for each in report.unseen if each.suspected] == [("n1", "nft iptables")]
    rules = Cluster(MemoryFiles("S", files)).hosts["n1"].rules(Family.IPV4)
    assert rules is not None
    assert rules.ruleset.has_effect


def test_policy_rules_that_were_not_seen_are_those_of_one_node() -> None:
    files = audited.cluster("iptables")
    files["nodes/n1/ip-rule.json"] = b"[]"
    undecided = judged(files).undecided
    assert undecided
    assert {node for each in undecided for node in each.nodes} == {"n1"}
