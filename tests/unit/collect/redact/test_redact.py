"""Redacted snapshots: nothing of the old names and addresses is left, and the answers are the same."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from kproxy.cluster.journey.known import KnownNetwork
from kproxy.cluster.journey.path import journeys
from kproxy.cluster.journey.question import read_question
from kproxy.cluster.snapshot.cluster import Cluster
from kproxy.cluster.snapshot.files import MemoryFiles
from kproxy.collect.redact.hostfiles import redact_file
from kproxy.collect.redact.redact import Redacted, redact_snapshot
from kproxy.collect.redact.words import Words
from kproxy.errors import InputError
from kproxy.netfilter.ipvs.read import read_connections, read_servers
from kproxy.render.golden import golden_texts
from tests.support.cluster.snapshots import vxlan_cluster
from tests.support.paths import GOLDEN

KEY = bytes(range(32))
SCENARIOS = (
    "both-policies-local", "dual-stack", "external-ips-local", "headless-and-externalname", "hints-node", "hints-zone",
    "large-cluster", "loadbalancer-source-ranges", "nodeport-addresses-cidr", "same-port-tcp-and-udp", "service-cidrs",
    "session-affinity-nodeport", "terminating-local", "udp-and-sctp",
)  # fmt: skip


def redact(files: Mapping[str, bytes]) -> tuple[Redacted, list[str]]:
    told: list[str] = []
    return redact_snapshot(MemoryFiles("S", files), KEY, told.append), told


def content(found: Redacted) -> dict[str, str]:
    return {path: (found.files.read(path) or b"").decode() for path in found.files.paths()}


def one_file(name: str, text: str, files: Mapping[str, bytes] | None = None) -> tuple[str | None, list[str]]:
    """What becomes of a file of node n1."""
    found, told = redact({**(files or vxlan_cluster()), f"nodes/n1/{name}": text.encode()})
    return content(found).get(f"nodes/node-1/{name}"), told


def test_a_configuration_file_in_place_of_an_answer_is_redacted_as_one() -> None:
    """A snapshot made by hand has the file, not what /configz answers."""
    text = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nclusterCIDR: 10.244.0.0/16\n"
    found, told = one_file("kube-proxy/configz", text)
    assert (told, found is not None and "clusterCIDR" in found, found is not None and "10.244" in found) == (
        [], True, False,
    )  # fmt: skip


# --- the rules are kube-proxy's for the new names ---


def texts(cluster: Cluster, mode: str) -> dict[str, str]:
    manifests, config = cluster.manifests, cluster.proxy_config
    assert config is not None
    chosen = msgspec.structs.replace(config, mode=mode)
    cidrs = manifests.service_cidrs
    return golden_texts(manifests.nodes, manifests.services, manifests.endpoint_slices, chosen, service_cidrs=cidrs)


def in_any_order(text: str) -> Counter[str]:
    """Lines of a dump, or words of nftables, whatever the order of endpoints: they are sorted by their addresses."""
    if text.startswith("table "):
        return Counter(re.split(r"[\s,]+", text))
    return Counter(re.sub(r" -m statistic --mode random --probability [\d.]+", "", text).splitlines())


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_rules_are_what_kube_proxy_writes_for_the_new_objects(scenario: str) -> None:
    folder = GOLDEN / scenario
    config = {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "kube-proxy", "namespace": "kube-system"}}
    files = {
        "objects/all.yaml": (folder / "cluster.yaml").read_bytes(),
        "objects/config.json": json.dumps(
            {**config, "data": {"config.conf": (folder / "config.yaml").read_text()}}
        ).encode(),
    }
    old = Cluster(MemoryFiles("S", files))
    written = texts(old, "iptables") | texts(old, "nftables")
    for name, text in written.items():
        node, version, kind = name.rsplit(".", 2)
        file = "nft" if kind == "nft" else "iptables-save" if version == "v4" else "ip6tables-save"
        if file != "nft" or version == "v4":
            files[f"nodes/{node}/{file}"] = text.encode()
        else:
            files[f"nodes/{node}/nft"] += text.encode()
    found, told = redact(files)
    assert told == []
    assert "text" not in found.replaced  # all of kube-proxy's comments are known
    new = content(found)
    expected = texts(Cluster(found.files), "iptables") | texts(Cluster(found.files), "nftables")
    for name, text in expected.items():
        node, version, kind = name.rsplit(".", 2)
        if kind == "nft":
            if version == "v4":
                both = text + expected[name.replace(".v4.", ".v6.")]
                assert in_any_order(new[f"nodes/{node}/nft"]) == in_any_order(both)
        else:
            file = "iptables-save" if version == "v4" else "ip6tables-save"
            assert in_any_order(new[f"nodes/{node}/{file}"]) == in_any_order(text)


def test_chains_of_endpoints_that_are_gone_and_without_comments_are_named_for_them() -> None:
    files = vxlan_cluster()
    stale = files["nodes/n1/iptables-save"].decode()
    objects = json.loads(files["objects/EndpointSlice.json"])
    objects["items"][0]["endpoints"].pop()
    files["objects/EndpointSlice.json"] = json.dumps(objects).encode()
    files["nodes/n1/iptables-save"] = re.sub(r' -m comment --comment (?:"[^"]*"|\S+)', "", stale).encode()
    whole = content(redact({**vxlan_cluster()})[0])["nodes/node-1/iptables-save"]
    expected = set(re.findall(r"KUBE-SEP-\w+", whole))
    assert set(re.findall(r"KUBE-SEP-\w+", content(redact(files)[0])["nodes/node-1/iptables-save"])) == expected
    # Of a chain that nothing explains the name tells nothing either.
    orphan = "*nat\n:KUBE-SEP-AAAAAAAAAAAAAAAA - [0:0]\nCOMMIT\n"
    text, _ = one_file("iptables-save", orphan)
    assert text is not None
    assert re.search(r":KUBE-SEP-(?!AAAA)[A-Z2-7]{16} ", text)


# --- the answers ---


def answers(files: Any, sender: str, receiver: str) -> list[tuple[object, ...]]:
    network = KnownNetwork(Cluster(files))
    question = read_question(network, sender, receiver, None)
    found = journeys(
        network, question.client, question.destination, question.protocol, source=question.source, source_port=40000
    )
    rows: list[tuple[object, ...]] = []
    for item in found:
        hops = tuple((hop.host, str(hop.left.source), str(hop.left.destination)) for hop in (*item.there, *item.back))
        rows.append((item.probability, item.end, item.at, item.target, item.source, hops))
    return rows


def renamed(value: object, words: Mapping[str, str]) -> object:
    if isinstance(value, tuple):
        return tuple(renamed(item, words) for item in value)
    if isinstance(value, str):
        return re.sub(r"[\w.-]+", lambda match: words.get(match[0], match[0]), value)
    return value


@pytest.mark.parametrize("sender", ["pod/shop/cart-0", "pod/shop/web-1", "node/n2"])
@pytest.mark.parametrize("receiver", ["svc/shop/web:http", "10.244.2.5:8080", "172.30.0.12:30080", "10.96.0.7:81"])
def test_the_ways_of_packets_are_the_same(sender: str, receiver: str) -> None:
    files = vxlan_cluster()
    foreign = b"-A FORWARD -m iprange --src-range 10.244.1.3-10.244.1.6 -j DROP\nCOMMIT\n*nat\n"
    files["nodes/n1/iptables-save"] = files["nodes/n1/iptables-save"].replace(b"COMMIT\n*nat\n", foreign)
    found, _ = redact(files)
    words = {old: new for kind in found.replaced.values() for old, new in kind.items()}
    pods, names = found.replaced["pod"], found.replaced["svc"]
    new_sender = sender.replace("shop", words["shop"])
    for old, new in (*pods.items(), *found.replaced["node"].items()):
        new_sender = re.sub(rf"/{old}\Z", f"/{new}", new_sender)
    new_receiver = receiver.replace("shop/web:http", f"{words['shop']}/{names['web']}:{words['http']}")
    new_receiver = str(renamed(new_receiver, found.replaced["addresses"]))
    told = {**found.replaced["addresses"], **found.replaced["node"], **pods}
    before = [
        renamed(row, {**told, "shop": words["shop"]}) for row in answers(MemoryFiles("S", files), sender, receiver)
    ]
    assert sorted(map(str, before)) == sorted(map(str, answers(found.files, new_sender, new_receiver)))


# --- nothing is left ---

NAMES = ("shop", "web", "cart", "n1", "n2", "acme", "bob", "172.30", "10.244.1.9", "0a:00:00:00:00:0", "192.0.2.")


def private_cluster() -> dict[str, bytes]:
    """A cluster with names and addresses in every place that may hold one."""
    files = vxlan_cluster()
    node = json.loads(files["objects/Node.json"])
    node["items"][0]["metadata"] |= {
        "uid": "7b0f3d0e-acme", "labels": {"acme.example/team": "bob", "kubernetes.io/hostname": "n1"},
        "annotations": {"flannel.alpha.coreos.com/public-ip": "172.30.0.11", "acme.example/owner": "bob"},
    }  # fmt: skip
    node["items"][0]["spec"] |= {"providerID": "aws:///acme/i-1", "taints": [{"key": "acme", "effect": "NoSchedule"}]}
    node["items"][0]["status"] |= {
        "addresses": [
            {"type": "Hostname", "address": "n1"}, {"type": "InternalDNS", "address": "n1.acme.example"},
            {"type": "InternalIP", "address": "172.30.0.11"},
        ],
        "nodeInfo": {"machineID": "acme", "osImage": "Acme Linux", "kubeletVersion": "v1.36.1"},
        "conditions": [{"type": "Ready", "status": "True", "message": "acme is well", "reason": "KubeletReady"}],
    }  # fmt: skip
    files["objects/Node.json"] = json.dumps(node).encode()
    service = json.loads(files["objects/Service.json"])
    service["items"][0]["metadata"] |= {"labels": {"owner": "bob"}, "annotations": {"acme.example/x": "bob"}}
    service["items"][0]["spec"] |= {
        "type": "LoadBalancer",
        "loadBalancerClass": "acme.example/lb",
        "externalIPs": ["192.0.2.7"],
    }
    service["items"][0]["status"] = {"loadBalancer": {"ingress": [{"hostname": "lb.acme.example"}]}}
    files["objects/Service.json"] = json.dumps(service).encode()
    files["objects/secret.json"] = b'{"kind":"Secret","apiVersion":"v1","metadata":{"name":"acme"},"data":{"x":"Ym9i"}}'
    config = (
        "kind: KubeProxyConfiguration\napiVersion: kubeproxy.config.k8s.io/v1alpha1\nclusterCIDR: 10.244.0.0/16\n"
        "clientConnection: {kubeconfig: /acme/bob}\nhostnameOverride: n1\n"
    )
    files["objects/ConfigMap.json"] = json.dumps({
        "kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "kube-proxy", "namespace": "kube-system"},
        "data": {"config.conf": config, "kubeconfig.conf": "acme"},
    }).encode()  # fmt: skip
    rules = files["nodes/n1/iptables-save"].decode()
    files["nodes/n1/iptables-save"] = rules.replace(
        "*filter\n:INPUT", "# by bob of acme\n*filter\n:INPUT"
    ).replace(
        "-A INPUT -j KUBE-FIREWALL\n",
        "-A INPUT -j KUBE-FIREWALL\n"
        '-A INPUT -s 192.0.2.9/32 -m comment --comment "bob\'s VPN" -j LOG --log-prefix "acme: "\n'
        "-A INPUT -i cali12d4a061371 -m mac --mac-source 0a:00:00:00:00:01 -m comment --comment acme -j ACCEPT\n",
        1,
    ).encode()  # fmt: skip
    files["nodes/n1/nft"] = (
        b'table ip x {\n\tcomment "of acme"\n\tset s {\n\t\ttype ipv4_addr\n\t\tflags interval\n'
        b"\t\telements = { 192.0.2.0/24, 172.30.0.1-172.30.0.9, 198.51.100.3 }\n\t}\n\n\tchain c {\n"
        b'\t\tlog prefix "acme" drop comment "bob"\n\t}\n}\n'
    )
    files["nodes/n1/ipset-save"] = (
        b'create s hash:ip family inet hashsize 1024 maxelem 65536 comment\nadd s 192.0.2.4 comment "bob"\n'
    )
    files["nodes/n1/conntrack"] = (
        b"tcp      6 29 ESTABLISHED src=10.244.1.9 dst=192.0.2.10 sport=4000 dport=53 src=192.0.2.10 dst=10.244.1.9 "
        b"sport=53 dport=4000 [ASSURED] mark=0 secctx=acme_u use=1\n"
    )
    files["nodes/n1/sysctl"] += b"kernel.hostname = n1\nnet.ipv6.conf.eth0.stable_secret = 192.0.2.1\n"
    files["nodes/n1/kube-proxy/configz"] = (
        json.dumps(
            {"kubeproxy.config.k8s.io": {"clientConnection": {"kubeconfig": "/acme"}, "hostnameOverride": "n1"}}
        ).encode()
        + b"\nHTTP 200\n"
    )
    files["nodes/n1/kube-proxy/metrics"] = (
        b'rest_client_requests_total{host="api.acme.example"} 3\nkubeproxy_x_total 3\nHTTP 200\n'
    )
    files["nodes/n1/kube-proxy/healthz"] = b'{"lastUpdated":"2026-01-01T00:00:00Z","by":"bob"}\nHTTP 200\n'
    files["nodes/n1/kube-proxy/version"] = b"Kubernetes v1.36.2 of acme\n"
    files["nodes/n1/errors"] = b"ip-rule.json: bob may not\nnft: nft: not found\nacme: x\n"
    files["nodes/n1/acme"] = b"bob"
    files["nodes/acme-router/ip-addr.json"] = b'[{"ifindex":1,"ifname":"lo","ifalias":"acme","addr_info":[]}]'
    files["snapshot.json"] = json.dumps({
        "version": 1, "source": "acme-prod", "nodes": {"n1": {"via": "exec"}},
        "failed": [{"what": "nodes/n2", "message": 'pods "acme" not found'}, {"what": "objects/x", "message": "bob"}],
    }).encode()  # fmt: skip
    return files


def test_servers_of_ipvs_keep_their_form() -> None:
    words = Words(bytes(32))
    words.settle()
    texts = {
        "ipvs": "-A -t 192.0.2.9:443 -s rr -p 10800\n-a -t 192.0.2.9:443 -r 172.30.0.9:80 -m -w 1\n",
        "ipvs-connections": "Pro FromIP   FPrt ToIP     TPrt DestIP   DPrt State       Expires PEName PEData\n"
        "TCP C000020A AA5E C0000209 01BB AC1E0009 0050 ESTABLISHED     897\n",
    }
    proc = (
        "IP Virtual Server version 1.2.1 (size=4096)\n  -> RemoteAddress:Port Forward Weight ActiveConn InActConn\n"
        "TCP  C0000209:01BB rr persistent 10800 FFFFFFFF\n  -> AC1E0009:0050      Masq    1      0          0\n"
    )
    (server, real), *_ = read_servers(redact_file("ipvs", texts["ipvs"], words), "x").servers.items()
    (other, same), *_ = read_servers(redact_file("ipvs", proc, words), "x").servers.items()
    (entry,) = read_connections(redact_file("ipvs-connections", texts["ipvs-connections"], words), "x")
    assert server.address == other.address == entry.virtual[0] == words.text("192.0.2.9") != "192.0.2.9"
    assert real[0].address == same[0].address == entry.real[0] == words.text("172.30.0.9")
    assert entry.client == (words.text("192.0.2.10"), 0xAA5E)
    comment = '-A A -m comment --comment "Kubernetes service cluster ip + port for masquerade purpose" -j B\n'
    assert redact_file("iptables-save", comment, words) == comment


def test_nothing_tells_whose_cluster_it_is() -> None:
    found, told = redact(private_cluster())
    for path, text in content(found).items():
        kept = re.sub(r"Generated by.*", "", text)
        assert [
            name for name in NAMES if re.search(rf"(?<![A-Za-z0-9]){re.escape(name)}", f"{path}\n{kept}", re.I)
        ] == []
        assert "cali12d4a061371" not in text
    assert sorted(told) == [
        "nodes/n1/acme: left out: no file of a snapshot", "objects: left out objects of other kinds: 1",
    ]  # fmt: skip
    new = Cluster(found.files)
    assert new.info.redacted
    assert sorted(new.hosts) == ["host-1", "node-1", "node-2"]
    host = new.hosts["node-1"]
    assert host.host_rules is not None
    assert host.proxy_version == "v1.36.2"
    assert host.metrics == {"kubeproxy_x_total": {"": 3.0}}
    assert host.ipsets is not None
    assert [str(flow) for flow in host.flows or ()] != []
    assert new.proxy_config is not None
    assert new.proxy_config.hostname_override == "node-1"
    assert [(each.what, each.message) for each in new.info.failed] == [
        ("nodes/node-2", "failed"),
        ("objects", "failed"),
    ]


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("iptables-save", "*filter\n-A INPUT -s 10.0.5.0/255.0.255.0 -j DROP\nCOMMIT\n", "line 2: mask 255.0.255.0"),
        ("iptables-save", "*filter\n-A INPUT -m u32 --u32 0x0=0x1 -j DROP\nCOMMIT\n", "line 2: '-m u32' looks"),
        ("nft", "table ip x {\n\tchain c {\n\t\tip saddr & 0.0.0.255 == 0.0.0.1 drop\n\t}\n}\n", "line 3: "),
        ("nft.json", '{"nftables": []}', "collect the node again"),
        ("ip-addr.json", "{}", "cannot be read"),
        ("kube-proxy/configz", "404 of acme", "cannot be read"),
    ],
)  # fmt: skip
def test_what_cannot_be_redacted_is_left_out_and_named(name: str, text: str, why: str) -> None:
    kept, told = one_file(name, text)
    assert kept is None
    assert len(told) == 1
    assert told[0].startswith(f"nodes/n1/{name}: left out: ")
    assert why in told[0]
    files = vxlan_cluster() | {f"nodes/n1/{name}": text.encode()}
    host = Cluster(redact(files)[0].files).hosts["node-1"]
    assert ("nodes/node-1/" + name, "not redacted") in [(each.what, each.message) for each in host.errors]


def test_what_is_no_snapshot_is_refused() -> None:
    with pytest.raises(InputError, match="S: not a snapshot"):
        redact({"notes.txt": b"x"})
