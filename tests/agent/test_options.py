"""kube-proxy's flags and file."""

from __future__ import annotations

from pathlib import Path

import pytest

from kproxy.agent.options import FLAGS, node_name, read_options
from kproxy.api import ConfigError, KubeProxyConfiguration
from kproxy.api.config_decode import decode_config
from kproxy.errors import InputError

VALUES = {"text": "", "integer": "7", "boolean": "true", "number": "2.5", "duration": "3s", "list": "10.0.0.0/8"}


def test_no_flags_are_kube_proxys_defaults() -> None:
    assert read_options(None, {}).config == KubeProxyConfiguration()


def test_flags_are_what_a_file_says() -> None:
    flags = {
        "iptables-min-sync-period": "1ms",
        "iptables-sync-period": "5s",
        "cluster-cidr": "10.244.0.0/16",
        "nodeport-addresses": "10.0.0.0/8, fd00::/8",
        "masquerade-all": "true",
        "iptables-localhost-nodeports": "F",
        "conntrack-max-per-core": "0",
        "healthz-bind-address": "127.0.0.1",
        "kubeconfig": "/etc/kubeconfig",
        "logging-format": "json",
        "v": "4",
    }
    text = b"""
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
clusterCIDR: 10.244.0.0/16
nodePortAddresses: [10.0.0.0/8, "fd00::/8"]
healthzBindAddress: 127.0.0.1
clientConnection: {kubeconfig: /etc/kubeconfig}
logging: {format: json, verbosity: 4}
conntrack: {maxPerCore: 0}
iptables: {minSyncPeriod: 1ms, syncPeriod: 5s, masqueradeAll: true, localhostNodePorts: false}
"""
    assert read_options(None, flags).config == decode_config(text).config


@pytest.mark.parametrize("flag", FLAGS, ids=lambda flag: flag.name)
def test_every_flag_reaches_a_field(flag: object) -> None:
    from kproxy.agent.options import Flag

    assert isinstance(flag, Flag)
    special = {
        "bind-address": "127.0.0.1",
        "cluster-cidr": "10.0.0.0/8",
        "detect-local-mode": "NodeCIDR",
        "feature-gates": "AllAlpha=true",
        "healthz-bind-address": "127.0.0.1:1",
        "iptables-localhost-nodeports": "false",
        "kube-api-content-type": "application/json",
        "kubeconfig": "/k",
        "logging-format": "json",
        "metrics-bind-address": "127.0.0.1:2",
        "pod-bridge-interface": "br0",
        "pod-interface-name-prefix": "veth",
        "proxy-port-range": "1000-2000",
        "show-hidden-metrics-for-version": "1.35",
        "proxy-mode": "iptables",
        "iptables-sync-period": "300s",
    }
    given = {flag.name: special.get(flag.name, VALUES.get(flag.kind, ""))}
    if flag.name == "proxy-mode":
        assert read_options(None, given).config == KubeProxyConfiguration()
    else:
        if flag.name == "pod-bridge-interface":
            given["detect-local-mode"] = "BridgeInterface"
        if flag.name == "pod-interface-name-prefix":
            given["detect-local-mode"] = "InterfaceNamePrefix"
        assert read_options(None, given).config != KubeProxyConfiguration()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"iptables-sync-period": "1x"}, "--iptables-sync-period: Invalid value"),
        ({"iptables-masquerade-bit": "77"}, "--iptables-masquerade-bit: Invalid value: 77"),
        ({"iptables-masquerade-bit": "many"}, "--iptables-masquerade-bit: 'many' is not an integer"),
        ({"masquerade-all": "maybe"}, "--masquerade-all: 'maybe' is neither true nor false"),
        ({"nodeport-addresses": "10.0.0.0/8,foo"}, "--nodeport-addresses: Invalid value"),
        ({"feature-gates": "X"}, "--feature-gates: 'X' is not NAME=true or NAME=false"),
        ({"kube-api-qps": "fast"}, "--kube-api-qps: 'fast' is not a number"),
    ],
)
def test_bad_flags_are_named(flags: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_options(None, flags)
    assert f"command line: {message}" in str(caught.value)


def test_another_mode_is_refused() -> None:
    with pytest.raises(InputError, match="ipvs"):
        read_options(None, {"proxy-mode": "ipvs"})


def test_a_file_overrides_flags_and_says_so(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(
        "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nclusterCIDR: 10.1.0.0/16\n"
    )
    found = read_options(str(file), {"cluster-cidr": "10.2.0.0/16", "v": "2"})
    assert found.config.cluster_cidr == "10.1.0.0/16"
    assert any("--cluster-cidr: ignored" in note for note in found.notes)
    assert not any("--v" in note for note in found.notes)


def test_the_nodes_name() -> None:
    config = KubeProxyConfiguration(hostname_override=" Worker-1 ")
    assert node_name(None, None, config) == "worker-1"
    assert node_name(None, "Other", config) == "other"
    assert node_name("Third", "Other", config) == "third"
    assert node_name(None, None, KubeProxyConfiguration())
    with pytest.raises(InputError):
        node_name("  ", None, config)
