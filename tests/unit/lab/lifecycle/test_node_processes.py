"""What the nodes' proxies are configured with: the user's file, and what a lab needs."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from kproxy.api.kubeproxyconfig.decode import decode_config
from kproxy.api.kubeproxyconfig.types import Conntrack, KubeProxyConfiguration
from kproxy.errors import InputError
from kproxy.lab.config.decode import load_lab_config
from kproxy.lab.lifecycle.node_processes import command_of, proxy_configuration
from kproxy.lab.spec import LabSpec, Mode
from kproxy.lab.state import LabDirectory, LabRecord

HEAD = "apiVersion: kproxy/v1\nkind: Lab\nproxy: {config: {"


def configuration(tmp_path: Path, text: str, mode: Mode | None = None) -> KubeProxyConfiguration:
    """What a node's proxy reads in a lab with this file, after lab.json was written and read again."""
    path = tmp_path / "config.yaml"
    path.write_text(f"{HEAD}{text}}}}}\n")
    options = {"name": "one"} if mode is None else {"name": "one", "proxy.mode": mode}
    config = load_lab_config(str(path), options)
    lab = LabDirectory("one", tmp_path)
    lab.write(LabRecord(config.spec, "up"))
    document = proxy_configuration(lab, lab.running().spec)
    return decode_config(yaml.safe_dump(document).encode()).config


def test_fields_of_the_file_count_and_a_lab_sets_its_own(tmp_path: Path) -> None:
    found = configuration(
        tmp_path,
        "mode: nftables, nodePortAddresses: [172.30.0.0/24], clusterCIDR: 192.0.2.0/24, "
        "clientConnection: {kubeconfig: /nowhere}, healthzBindAddress: '', "
        "nftables: {masqueradeAll: true}, conntrack: {tcpBeLiberal: true, maxPerCore: 9}",
    )
    assert found.mode == "nftables"
    assert found.node_port_addresses == ("172.30.0.0/24",)
    assert found.cluster_cidr == "10.244.0.0/16"
    assert found.client_connection.kubeconfig == str(tmp_path / "one" / "kubeconfig.node")
    assert found.healthz_bind_address == "0.0.0.0:10256"
    assert found.nftables.masquerade_all
    assert found.nftables.min_sync_period.seconds == 0.01
    assert found.conntrack.tcp_be_liberal
    assert found.conntrack.max_per_core == Conntrack(max_per_core=0).max_per_core


def test_mode_goes_before_the_file_and_iptables_is_the_default(tmp_path: Path) -> None:
    assert configuration(tmp_path, "mode: nftables", "iptables").mode == "iptables"
    assert configuration(tmp_path, "").mode == "iptables"


def test_a_mode_that_no_lab_has_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="mode"):
        configuration(tmp_path, "mode: ipvs")


def test_the_variant_is_for_iptables_only(tmp_path: Path) -> None:
    spec = LabSpec("one", variant="legacy", mode="nftables")
    lab = LabDirectory("one", tmp_path)
    plan = spec.node(1)
    assert "--variant" not in command_of("proxy", lab, spec, plan)
    overlay = command_of("overlay", lab, spec, plan)
    assert overlay[overlay.index("--variant") + 1] == "legacy"
