"""The rules that are there against those that the objects ask for, where only rules tell kube-proxy's configuration."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kproxy.api.kubeproxyconfig.types import KubeProxyConfiguration
from kproxy.explorer.state import Explorer
from kproxy.render import render_table, select_target
from kproxy.services import IPFamily
from tests.support.cluster.snapshots import damaged_files, manifests, vxlan_cluster, write_files
from tests.support.explorer.client import Page, serving
from tests.support.explorer.sources import source_of

IPTABLES = "nodes/{}/iptables-save"
READ = "kube-proxy's configuration is not known; mode iptables, cluster CIDR 10.244.0.0/16, as"


def drift(root: Path, files: Mapping[str, bytes]) -> Any:
    with serving(Explorer(source_of(str(write_files(root, files))))) as page:
        return page.post("api/compare", {"kind": "drift"})


def test_what_rules_tell_of_the_configuration_is_no_difference(tmp_path: Path) -> None:
    found = drift(tmp_path / "snap", vxlan_cluster())
    assert (found["alike"], found["findings"]) == (True, [])
    assert found["notes"] == [f"n1, n2: {READ} their rules have it"]


def test_what_is_wrong_is_found_and_nothing_else(tmp_path: Path) -> None:
    found = drift(tmp_path / "snap", damaged_files())
    assert {each["cause"]["action"] for each in found["findings"]} == {"`-j DNAT --to-destination 10.244.2.5:8080`"}
    assert {node for each in found["findings"] for node in each["nodes"]} == {"n1"}
    assert {(each["assumed"], each["sourceOnly"]) for each in found["findings"]} == {(False, False)}
    assert {tuple(each["ends"]) for each in found["findings"]} == {("sent", "sent")}


def test_a_rule_of_others_before_kube_proxys_is_no_drift(tmp_path: Path) -> None:
    """kube-proxy leaves its jumps where they are: what another program puts before them is not for it to mend."""
    files = dict(vxlan_cluster())
    path = IPTABLES.format("n2")
    first = files[path].index(b"-A FORWARD")
    files[path] = files[path][:first] + b"-A FORWARD -d 10.244.2.5/32 -j DROP\n" + files[path][first:]
    found = drift(tmp_path / "snap", files)
    assert (found["alike"], found["findings"]) == (True, [])


def test_a_rule_and_a_node_that_say_something_else_are_found(tmp_path: Path) -> None:
    files = dict(vxlan_cluster())
    path = IPTABLES.format("n2")
    files[path] = files[path].replace(b"! -s 10.244.0.0/16", b"! -s 10.0.0.0/8")
    found = drift(tmp_path / "other", files)
    assert {tuple(each["nodes"]) for each in found["findings"]} == {("n2",)}
    assert {re.findall(r"! -s (\S+)", each["cause"]["text"])[0] for each in found["findings"]} == {"10.244.0.0/16"}
    assert {(each["assumed"], each["sourceOnly"]) for each in found["findings"]} == {(True, True)}
    config = {"kubeproxy.config.k8s.io": {"mode": "iptables", "clusterCIDR": "10.244.0.0/16"}}
    known = {**files, "nodes/n2/kube-proxy/configz": json.dumps(config).encode()}
    found = drift(tmp_path / "known", known)
    assert {each["assumed"] for each in found["findings"]} == {False}
    assert found["notes"] == ["n1: kube-proxy's configuration is not known; that of n2 counts"]
    files[path] = re.sub(rb"-A KUBE-SVC-\S+ .*! -s .*\n", b"", files[path])
    found = drift(tmp_path / "gone", files)
    assert {tuple(each["nodes"]) for each in found["findings"]} == {("n2",)}
    assert "jump to KUBE-MARK-MASQ" in found["findings"][0]["cause"]["action"]


def nftables_node(files: dict[str, bytes]) -> None:
    """n1 in nftables mode."""
    cluster = manifests(files)
    config = KubeProxyConfiguration(mode="nftables", cluster_cidr="10.244.0.0/16")
    target = select_target(cluster.nodes, config, "n1")
    table = render_table(target, IPFamily.IPV4, cluster.services, cluster.endpoint_slices, config)
    del files[IPTABLES.format("n1")]
    files["nodes/n1/nft"] = table.restore_text.encode()


def test_a_node_in_nftables_mode_is_compared_with_that_mode(tmp_path: Path) -> None:
    files = dict(vxlan_cluster())
    nftables_node(files)
    found = drift(tmp_path / "snap", files)
    assert (found["alike"], found["findings"]) == (True, [])
    assert found["notes"] == [
        f"n1: {READ.replace('iptables', 'nftables')} its rules have it", f"n2: {READ} its rules have it",
    ]  # fmt: skip


def test_other_answers_say_what_they_took_for_granted(tmp_path: Path) -> None:
    files = dict(vxlan_cluster())
    nftables_node(files)
    root = write_files(tmp_path / "snap", files)
    with serving(Explorer(source_of(root))) as page:
        notes = said(page, {"node": "n2"})
        assert all(f"n2: {READ} its rules have it" in each for each in notes.values()), notes
        service = page.post("api/services/shop/web", {"node": "n1"})
    assert "mode nftables" in service["explanation"]["notes"][0]
    assert {each["object"] for each in service["explanation"]["ports"][0]["objects"]} >= {"rule", "element"}


def said(page: Page, node: Mapping[str, str]) -> dict[str, list[str]]:
    edits = [{"do": "endpoint", "pod": "shop/web-1", "set": {"ready": False}}]
    return {
        "whatif": page.post("api/whatif", {"edits": edits})["notes"],
        "migrate": page.post("api/compare", {"kind": "migrate", "nodes": list(node.values())})["notes"],
        "service": page.post("api/services/shop/web", node)["explanation"]["notes"],
    }
