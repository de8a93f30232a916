"""kube-proxy's configuration where nothing but the nodes' rules tells it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from kproxy.api import Manifests
from kproxy.api.kubeproxyconfig.decode import decode_config
from kproxy.api.kubeproxyconfig.types import MODE_IPTABLES, MODE_NFTABLES, KubeProxyConfiguration
from kproxy.api.load.manifests import parse_manifests
from kproxy.cluster.snapshot.cluster import Cluster
from kproxy.cluster.snapshot.files import MemoryFiles
from kproxy.cluster.snapshot.host import HostFacts
from kproxy.cluster.snapshot.inferred import Inferred, InferredConfigs
from kproxy.netfilter import Family, print_save
from kproxy.render import RenderOptions, render_options, render_target, select_target
from kproxy.render.iptables.save import saved_ruleset
from tests.support.cluster.snapshots import manifests, vxlan_cluster
from tests.support.paths import ROOT

CASES = sorted((ROOT / "tests" / "reference" / "clusters").iterdir())


def files_of(files: Mapping[str, bytes]) -> MemoryFiles:
    found = MemoryFiles("snap")
    for path, data in files.items():
        found.put(path, data)
    return found


def inferred(files: Mapping[str, bytes], cluster: Manifests, node: str) -> Inferred:
    names = dict.fromkeys(path.split("/")[1] for path in files)
    held = files_of(files)
    found = InferredConfigs({name: HostFacts(held, name) for name in names}, cluster.nodes).of(node)
    assert found is not None
    return found


def recorded(case: Path, mode: str) -> dict[str, bytes]:
    """What a node with the recorded rules has."""
    if mode == MODE_NFTABLES:
        text = "".join((case / f"kube-proxy.v{version}.nft").read_text() for version in (4, 6))
        return {"nodes/node-0/nft": text.encode()}
    return {
        f"nodes/node-0/{tool}-save": print_save(
            saved_ruleset((case / f"kube-proxy.v{family.version}.restore").read_text(), family)
        ).encode()
        for tool, family in (("iptables", Family.IPV4), ("ip6tables", Family.IPV6))
    }


def shown(options: RenderOptions) -> Mapping[str, object]:
    """What rules can tell of options."""
    return {
        "pods": options.local_traffic.if_local,
        "masquerade_all": options.masquerade_all,
        "mark": options.masquerade_mark,
        "localhost": options.localhost_node_ports,
        "drop_invalid": options.drop_invalid,
    }


@pytest.mark.parametrize("mode", [MODE_IPTABLES, MODE_NFTABLES])
def test_recorded_rules_tell_their_configuration(mode: str) -> None:
    """What no rule says is kube-proxy's default."""
    told: Counter[str] = Counter()
    for case in CASES:
        name = "config.yaml" if mode == MODE_IPTABLES else "config.nftables.yaml"
        config = decode_config((case / name).read_bytes(), name).config
        cluster = parse_manifests((case / "cluster.yaml").read_text())
        node = next(each for each in cluster.nodes if each.metadata.name == "node-0")
        files = recorded(case, mode)
        found = inferred(files, cluster, "node-0")
        assert (found.config.mode, found.whose) == (mode, "its")
        for family in Family:
            defaults, actual, expected = (
                shown(render_options(each, family, "node-0", node))
                for each in (KubeProxyConfiguration(mode=mode), found.config, config)
            )
            text = (case / f"kube-proxy.v{family.version}.{'nft' if mode == MODE_NFTABLES else 'restore'}").read_text()
            for key, value in expected.items():
                if actual[key] == value:
                    told[key] += value != defaults[key]
                    continue
                assert actual[key] == defaults[key], (case.name, family, key, found.words)
                silent = {
                    "pods": str(value).split()[-1].removesuffix("+") not in text,
                    "drop_invalid": mode == MODE_NFTABLES,
                }
                assert silent.get(key), (case.name, family, key, value, found.words)
    assert told["pods"] > 90
    assert told["mark"] == 88
    assert told["masquerade_all"] == 26
    assert (told["drop_invalid"], told["localhost"]) == ((20, 29) if mode == MODE_IPTABLES else (0, 0))


def two_nodes(**config: Any) -> dict[str, bytes]:
    """The rules of n1 and n2 by a configuration, which is not there."""
    cluster = manifests(vxlan_cluster())
    files = {}
    for name in ("n1", "n2"):
        target = select_target(cluster.nodes, KubeProxyConfiguration(), name)
        rendered = render_target(
            target, Family.IPV4, cluster.services, cluster.endpoint_slices, KubeProxyConfiguration(**config)
        )
        files[f"nodes/{name}/iptables-save"] = rendered.save_text.encode()
    return files


def of_both(files: Mapping[str, bytes]) -> list[Inferred]:
    return [inferred(files, manifests(vxlan_cluster()), name) for name in ("n1", "n2")]


def test_a_podcidr_of_each_node_is_node_cidr() -> None:
    found = of_both(two_nodes(detect_local_mode="NodeCIDR"))
    assert {each.config.detect_local_mode for each in found} == {"NodeCIDR"}
    assert found[0].words == "mode iptables, detectLocalMode NodeCIDR"
    found = of_both(two_nodes(cluster_cidr="10.244.0.0/16"))
    assert {(each.config.detect_local_mode, each.config.cluster_cidr) for each in found} == {
        ("ClusterCIDR", "10.244.0.0/16")
    }


def test_what_most_rules_say_counts() -> None:
    """Of one node whose rules say something else, and of one rule of a node."""
    files = two_nodes(cluster_cidr="10.244.0.0/16")
    files["nodes/n3/iptables-save"] = files["nodes/n2/iptables-save"]
    files["nodes/n1/iptables-save"] = files["nodes/n1/iptables-save"].replace(b"! -s 10.244.0.0/16", b"! -s 10.0.0.0/8")
    files["nodes/n2/iptables-save"] = files["nodes/n2/iptables-save"].replace(b"0x4000/0x0", b"0x8000/0x0")
    assert {each.words for each in of_both(files)} == {"mode iptables, cluster CIDR 10.244.0.0/16"}


def test_a_rule_that_is_gone_is_no_configuration() -> None:
    gone = b"-A KUBE-FORWARD -m conntrack --ctstate INVALID -j DROP\n"
    files = two_nodes()
    files["nodes/n1/iptables-save"] = files["nodes/n1/iptables-save"].replace(gone, b"")
    assert not of_both(files)[0].config.conntrack.tcp_be_liberal
    files["nodes/n2/iptables-save"] = files["nodes/n2/iptables-save"].replace(gone, b"")
    assert of_both(files)[0].config.conntrack.tcp_be_liberal
    assert of_both(files)[0].words == "mode iptables, no cluster CIDR, tcpBeLiberal"


def test_what_is_inferred_is_said() -> None:
    files = vxlan_cluster()
    cluster = Cluster(files_of(files))
    own = cluster.config_of(cluster.hosts["n1"])
    assert own is not None
    assert own.cluster_cidr == "10.244.0.0/16"
    read = "kube-proxy's configuration is not known; mode iptables, cluster CIDR 10.244.0.0/16, as"
    assert cluster.config_notes(["n1", "n2"]) == [f"n1, n2: {read} their rules have it"]
    # Of a node without rules what the others' say, and nothing where there are none.
    del files["nodes/n2/iptables-save"]
    cluster = Cluster(files_of(files))
    assert cluster.config_notes(["n2"]) == [f"n2: {read} other nodes' rules have it"]
    del files["nodes/n1/iptables-save"]
    cluster = Cluster(files_of(files))
    assert (cluster.config_of(cluster.hosts["n1"]), cluster.config_notes(["n1", "n2"])) == (None, [])
    # Another node's configuration is better than rules.
    files = {
        **vxlan_cluster(),
        "nodes/n1/kube-proxy/configz": json.dumps({"kubeproxy.config.k8s.io": CONFIGZ}).encode(),
    }
    cluster = Cluster(files_of(files))
    assert cluster.config_notes(["n1", "n2"]) == ["n2: kube-proxy's configuration is not known; that of n1 counts"]
    other = cluster.config_of(cluster.hosts["n2"])
    assert other is not None
    assert (other.cluster_cidr, other.hostname_override) == ("10.0.0.0/8", "")


CONFIGZ = {"mode": "iptables", "clusterCIDR": "10.0.0.0/8", "hostnameOverride": "n1"}
