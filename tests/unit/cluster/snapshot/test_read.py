"""Reading snapshots: whole ones, hand-made ones, what is missing, what is wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kproxy.cluster.evidence.unseen import Assumed, suspected
from kproxy.cluster.facts.kubeproxy import metric
from kproxy.cluster.snapshot.cluster import Cluster, read_snapshot
from kproxy.cluster.snapshot.files import MemoryFiles
from kproxy.dataplane.concrete.routing import Query, possible_routes
from kproxy.dataplane.model.packet import parse_ip
from kproxy.errors import InputError
from kproxy.netfilter import Family
from tests.support.cluster import audited
from tests.support.cluster.snapshots import PLAIN_RULES, vxlan_cluster, write_files


def read(files: dict[str, bytes]) -> Cluster:
    return Cluster(MemoryFiles("S", files))


def test_all_parts_of_a_whole_snapshot() -> None:
    files = vxlan_cluster()
    files["nodes/n1/conntrack"] = (
        b"udp      17 29 src=10.244.1.9 dst=10.96.0.10 sport=4000 dport=53 "
        b"src=10.244.1.7 dst=10.244.1.9 sport=53 dport=4000 [ASSURED] mark=0 use=1\n"
    )
    files["nodes/n1/ipset-save"] = b"create bad hash:ip family inet\nadd bad 192.0.2.1\n"
    files["nodes/n1/xt-recent"] = (
        b"now at 400000000000 nsecs\njiffies: 10000\n== KUBE-SEP-A\n"
        b"src=10.244.1.9 ttl: 64 last_seen: 9000 oldest_pkt: 1 9000\n"
    )
    files["nodes/n1/kube-proxy/configz"] = b'{"kubeproxy.config.k8s.io":{"kind":"KubeProxyConfiguration",' + (
        b'"apiVersion":"kubeproxy.config.k8s.io/v1alpha1","mode":"nftables","clusterCIDR":"10.244.0.0/16"}}\nHTTP 200\n'
    )
    files["nodes/n1/kube-proxy/healthz"] = b'{"lastUpdated":"2026-01-01T00:00:00Z","nodeEligible":true}\nHTTP 503\n'
    files["nodes/n1/kube-proxy/metrics"] = b'# HELP x y\nsyncs_total{ip_family="IPv4"} 3\nplain 1e+03\n'
    files["nodes/n1/kube-proxy/version"] = b"Kubernetes v1.36.2\n"
    found = read(files)
    host = found.hosts["n1"]
    assert sorted(found.pods) == ["shop/cart-0", "shop/web-0", "shop/web-1"]
    assert (found.pods["shop/web-1"].phase, found.pods["shop/web-1"].ready) == ("Running", True)
    rules = host.rules(Family.IPV4)
    assert rules is not None
    assert "KUBE-SERVICES" in str(rules.ruleset.tables)
    model = host.model
    assert model.interfaces is not None
    assert str(model.interfaces["cni0"].addresses[0]) == "10.244.1.1/24"
    assert host.links is not None
    assert host.links["vxlan1"].tunnel is not None
    assert host.links["vxlan1"].tunnel.vni == 1
    assert host.fdb == {"vxlan1": {"0a:00:00:00:00:02": "172.30.0.12"}}
    assert host.neighbours == {("vxlan1", "10.244.2.0"): "0a:00:00:00:00:02"}
    assert model.sets["bad"].contains is not None
    assert model.recent == {"KUBE-SEP-A": {0x0AF40109: (10,)}}
    assert [str(flow) for flow in host.flows or ()] == ["UDP 10.244.1.9:4000 to 10.96.0.10:53 via 10.244.1.7:53"]
    assert host.proxy_config is not None
    assert host.proxy_config.mode == "nftables"
    assert host.health is not None
    assert (host.health.healthy, host.health.eligible) == (False, True)
    assert metric(host.metrics or {}, "syncs_total", ip_family="IPv4") == 3
    assert host.proxy_version == "v1.36.2"
    assert not host.missing


def test_three_files_made_by_hand_and_what_is_missing(tmp_path: Path) -> None:
    whole = vxlan_cluster()
    items = [item for path in sorted(whole) if path.startswith("objects/") for item in json.loads(whole[path])["items"]]
    files = {
        "objects/all.json": json.dumps({"apiVersion": "v1", "kind": "List", "items": items}).encode(),
        "nodes/n1/iptables-save": whole["nodes/n1/iptables-save"],
        "nodes/n1/ip-addr.json": whole["nodes/n1/ip-addr.json"],
    }
    found = read_snapshot(write_files(tmp_path, files))
    assert found.hosts["n1"].rules(Family.IPV4) is not None
    assert found.hosts["n1"].rules(Family.IPV6) is None
    assert found.hosts["n1"].routes is None
    assert found.hosts["n1"].model.sysctls["net.ipv4.ip_forward"] == 1
    named = [each.what for each in found.missing]
    assert "nodes/n1/ip-route.json" in named
    assert "nodes/n1/ip6tables-save" in named
    assert "nodes/n2" in named
    assert not any(each.startswith("objects/") for each in named)


def test_ipvs() -> None:
    files = vxlan_cluster()
    files["nodes/n1/kube-proxy/configz"] = audited.configz("ipvs")
    files["nodes/n1/errors"] = b"ipvs: not done after 20 s\n"
    (lost,) = (each.why for each in read(files).hosts["n1"].unseen if each.what == "ipvs" and each.suspected)
    assert lost == ("its kube-proxy's mode is ipvs, and there is no file of its virtual servers; not done after 20 s")
    del files["nodes/n1/errors"]
    files["nodes/n1/ipvs"] = b"-A -t 10.96.0.1:443 -s rr\n-a -t 10.96.0.1:443 -r 172.30.0.9:6443 -m -w 1\n"
    files["nodes/n1/ipvs-connections"] = b"Pro FromIP   FPrt ToIP     TPrt DestIP   DPrt State       Expires\n"
    host = read(files).hosts["n1"]
    assert host.ipvs is not None
    assert [server.name for server in host.ipvs.servers] == ["-t 10.96.0.1:443"]
    assert host.ipvs_connections == []
    rules = host.host_rules
    assert rules is not None
    assert rules.ipvs(Family.IPV4) is not None
    assert not any(each.what == "ipvs" for each in rules.unseen_by_packet)
    files["nodes/n1/ipvs"] = b"nonsense\n"
    with pytest.raises(InputError, match="nodes/n1/ipvs:1: a line of ipvsadm expected"):
        read(files).hosts["n1"].ipvs  # noqa: B018


def test_a_failed_part_says_why() -> None:
    files = vxlan_cluster()
    del files["nodes/n2/ip-route.json"]
    files["nodes/n2/errors"] = b"ip-route.json: ip: not found\n"
    files["snapshot.json"] = json.dumps(
        {
            "version": 1,
            "failed": [{"what": "objects/Pod.json", "message": "forbidden"}],
            "nodes": {"n1": {"via": "exec"}},
        }
    ).encode()
    del files["objects/Pod.json"]
    found = [str(each) for each in read(files).missing if "route" in each.what or "Pod" in each.what]
    assert found == [
        "objects/Pod.json: missing (forbidden): Pods are known from endpoints only",
        "nodes/n2/ip-route.json: missing (ip: not found): packets are taken to go where the objects say",
    ]


def test_files_of_rules_of_one_variant_count_once() -> None:
    files = vxlan_cluster()
    legacy = files["nodes/n1/iptables-save"].replace(b"v1.8.9 (nf_tables)", b"v1.8.9")
    files["nodes/n1/iptables-save"] = files["nodes/n1/iptables-legacy-save"] = legacy
    files["nodes/n2/iptables-legacy-save"] = b"# by iptables-save v1.8.9\n*filter\n:INPUT ACCEPT [0:0]\nCOMMIT\n"
    found = read(files)
    for host in found.hosts.values():
        assert host.host_rules is not None
        assert len(host.host_rules.rulesets) == 1


def test_a_host_without_rules_has_none_and_one_without_files_is_unknown() -> None:
    files = vxlan_cluster()
    files["nodes/n1/iptables-save"] = b""
    del files["nodes/n2/iptables-save"]
    found = read(files)
    empty = found.hosts["n1"].rules(Family.IPV4)
    assert empty is not None
    assert not empty.ruleset.has_effect
    assert found.hosts["n2"].rules(Family.IPV4) is None


def test_both_families_in_files_of_two_arrays() -> None:
    files = vxlan_cluster()
    files["nodes/n1/ip-route.json"] += b'\n[{"dst":"default","dev":"eth0"},{"dst":"fe80::/64","dev":"eth0"}]\n'
    files["nodes/n1/ip-rule.json"] = b'[{"priority":0,"src":"all","table":"local"}]\n' + (
        b'[{"priority":9,"src":"all","fwmark":"0x1","table":"7"}]'
    )
    host = read(files).hosts["n1"]
    assert [(str(each.network), each.family) for each in (host.routes or ())[-2:]] == [
        ("::/0", Family.IPV6), ("fe80::/64", Family.IPV6),
    ]  # fmt: skip
    assert [each.family for each in host.routing_rules or ()] == [Family.IPV6]


@pytest.mark.parametrize(
    ("file", "text", "what"),
    [
        ("ip-rule.json", "", "policy routing"),
        ("ip-rule.json", "[]\n[]\n", "policy routing"),
        ("ip-route.json", "[]", "routes"),
        ("ip-rule.json", json.dumps([*PLAIN_RULES, {"priority": 9, "src": "all", "table": "7"}]), "routes"),
    ],
)
def test_routing_that_a_kernel_has_and_a_file_does_not(file: str, text: str, what: str) -> None:
    """What it may change is open: where a packet goes on."""
    files = vxlan_cluster()
    files[f"nodes/n1/{file}"] = text.encode()
    host = read(files).hosts["n1"]
    assert what in [each.what for each in suspected(host.unseen)]
    query = Query(*parse_ip("192.0.2.1"))
    assert len(possible_routes(host.model, query)) > (1 if file == "ip-rule.json" else 0)
    assumed = Cluster(MemoryFiles("S", files), assumed=Assumed(complete=True)).hosts["n1"]
    assert not suspected(assumed.unseen)
    assert not suspected(read(vxlan_cluster()).hosts["n1"].unseen)


@pytest.mark.parametrize(
    ("path", "data", "message"),
    [
        ("nodes/n1/ip-addr.json", b"[{}, {}, {}]", None),
        ("nodes/n1/ip-addr.json", b'[{"ifname":"a"},\n{"ifname":"b"},{"mtu":7}]', "[2]: field 'ifname' expected"),
        ("nodes/n1/ip-addr.json", b'[{"ifname":"a","addr_info":[{"local":"1.2.3"}]}]', "[0]: "),
        ("nodes/n1/ip-addr.json", b'[\n{"ifname":', "line 2: what `ip -json -details address show` prints expected"),
        ("nodes/n1/ip-addr.json", b'{"a": 1}', "line 1: a list of objects expected"),
        ("nodes/n1/ip-addr.json", b"1: lo: <LOOPBACK,UP,LOWER_UP>", "as `ip -json -details address show` prints it"),
        ("nodes/n1/ip-addr.json", b"[" * 100_000, "address show` prints expected"),
        ("nodes/n1/ip-route.json", b'[{"dst":"10.0.0.0/99","dev":"a"}]', "[0]: "),
        ("nodes/n1/ip-route.json", b'[{"dst":"10.0.0.0/8","nexthops":[7]}]', "[0]: "),
        ("nodes/n1/ip-neigh.json", b'[{"dst":"10.0.0.1","lladdr":"a","state":["STALE"]}]', "field 'dev' expected"),
        ("nodes/n1/sysctl", b"net.ipv4.ip_forward = 1\nhello\n", "line 2: NAME = VALUE expected"),
        ("nodes/n1/ipset-save", b"create a hash:ip\nnonsense\n", "line 2: what ipset save prints expected"),
        ("nodes/n1/iptables-save", b"*nat\n-A NOWHERE -j ACCEPT\nCOMMIT\n", "line 2"),
        ("nodes/n1/kube-proxy/configz", b"<html>", "KubeProxyConfiguration: Invalid value"),
        ("nodes/n1/kube-proxy/configz", b'{"a":{}}', "kind"),
    ],
)
def test_a_wrong_file_is_named(path: str, data: bytes, message: str | None) -> None:
    host = read({**vxlan_cluster(), path: data}).hosts["n1"]

    def look() -> None:
        host.rules(Family.IPV4)
        assert host.model is not None
        _ = (host.links, host.neighbours, host.fdb, host.proxy_config)

    if message is None:
        look()
        return
    with pytest.raises(InputError) as caught:
        look()
    assert f"S: {path}: " in str(caught.value)
    assert message in str(caught.value)


def test_wrong_objects_and_a_newer_format_are_named() -> None:
    with pytest.raises(InputError, match=r"S: objects/Service.json.*items\[0\].spec.ports\[0\].port"):
        read({"objects/Service.json": b'{"apiVersion":"v1","kind":"List","items":[{"apiVersion":"v1","kind":"Service",'
              b'"metadata":{"name":"a"},"spec":{"clusterIP":"10.96.0.1","ports":[{"port":0}]}}]}'})  # fmt: skip
    with pytest.raises(InputError, match=r"S: snapshot.json: version: 2 is of a newer kproxy"):
        read({**vxlan_cluster(), "snapshot.json": b'{"version": 2}'})
    with pytest.raises(InputError, match=r"S: not a snapshot"):
        read({"readme.txt": b"hello"})


def test_kube_proxys_config_map_is_read_and_a_secret_is_not() -> None:
    text = "kind: KubeProxyConfiguration\napiVersion: kubeproxy.config.k8s.io/v1alpha1\nclusterCIDR: 10.1.0.0/16\n"
    config = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "kube-proxy"},
        "data": {"config.conf": text},
    }
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "data": {"token": "c2VjcmV0"}}
    told: list[str] = []
    items = json.dumps({"apiVersion": "v1", "kind": "List", "items": [config, secret]}).encode()
    found = Cluster(MemoryFiles("S", {"objects/x.json": items}), tell=told.append)
    assert found.proxy_config is not None
    assert found.proxy_config.cluster_cidr == "10.1.0.0/16"
    assert told == ["there are Secrets in the snapshot: they are not read, and should not be in it"]
