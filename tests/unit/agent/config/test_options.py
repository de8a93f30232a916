"""kube-proxy's flags and file."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from kproxy.agent.config.flags import BY_NAME, FLAGS, Flag
from kproxy.agent.config.options import node_name, read_options
from kproxy.api import KubeProxyConfiguration, ProxyConfigError
from kproxy.api.kubeproxyconfig.decode import decode_config
from kproxy.cli.run.command import command
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


SPECIAL = {
    "bind-address": "127.0.0.1",
    "cluster-cidr": "10.0.0.0/8",
    "detect-local-mode": "NodeCIDR",
    "feature-gates": "AllAlpha=true",
    "healthz-bind-address": "127.0.0.1:1",
    "iptables-localhost-nodeports": "false",
    "ipvs-scheduler": "rr",
    "kube-api-content-type": "application/json",
    "kubeconfig": "/k",
    "logging-format": "json",
    "metrics-bind-address": "127.0.0.1:2",
    "pod-bridge-interface": "br0",
    "pod-interface-name-prefix": "veth",
    "proxy-port-range": "1000-2000",
    "show-hidden-metrics-for-version": "1.35",
    "iptables-sync-period": "300s",
    "vmodule": "proxier*=4",
}
GATED = {name for name in BY_NAME if name.startswith("log-") and name != "log-flush-frequency"}


def value_of(flag: Flag) -> str:
    """A value of the flag that is not its default."""
    if "buffer-size" in flag.name:
        return "64Ki"
    return SPECIAL.get(flag.name, VALUES.get(flag.kind, ""))


@pytest.mark.parametrize(
    "flag", [flag for flag in FLAGS if flag.field and flag.name != "proxy-mode"], ids=lambda flag: flag.name
)
def test_every_flag_reaches_its_field(flag: Flag) -> None:
    given = {flag.name: value_of(flag)}
    if flag.name == "pod-bridge-interface":
        given["detect-local-mode"] = "BridgeInterface"
    if flag.name == "pod-interface-name-prefix":
        given["detect-local-mode"] = "InterfaceNamePrefix"
    if flag.name in GATED:
        given["feature-gates"] = "LoggingAlphaOptions=true"
    part: object = read_options(None, given).config
    default: object = KubeProxyConfiguration()
    for name in flag.field.split("."):
        found = {each.encode_name: each.name for each in msgspec.structs.fields(part)}  # type: ignore[arg-type]
        part, default = getattr(part, found[name]), getattr(default, found[name])
    assert part != default


# `kube-proxy --help` of v1.36: AddFlags of cmd/kube-proxy/app/options.go, and of component-base's logs/api/v1.
KUBE_PROXY_FLAGS = """
bind-address bind-address-hard-fail boot-id-file cleanup cluster-cidr config config-sync-period conntrack-max-per-core
conntrack-min conntrack-tcp-be-liberal conntrack-tcp-timeout-close-wait conntrack-tcp-timeout-established
conntrack-udp-timeout conntrack-udp-timeout-stream detect-local-mode feature-gates healthz-bind-address healthz-port
hostname-override init-only iptables-localhost-nodeports iptables-masquerade-bit iptables-min-sync-period
iptables-sync-period ipvs-exclude-cidrs ipvs-min-sync-period ipvs-scheduler ipvs-strict-arp ipvs-sync-period
ipvs-tcp-timeout ipvs-tcpfin-timeout ipvs-udp-timeout kube-api-burst kube-api-content-type kube-api-qps kubeconfig
log-flush-frequency log-json-info-buffer-size log-json-split-stream log-text-info-buffer-size log-text-split-stream
logging-format machine-id-file masquerade-all master metrics-bind-address metrics-port nodeport-addresses oom-score-adj
pod-bridge-interface pod-interface-name-prefix profiling proxy-mode show-hidden-metrics-for-version v version vmodule
write-config-to
"""


def test_every_flag_of_kube_proxy_is_there() -> None:
    own = {name.removeprefix("--") for option in command.params for name in option.opts if name.startswith("--")}
    assert set(KUBE_PROXY_FLAGS.split()) <= own


def test_flags_without_effect_say_why() -> None:
    given = {flag.name: value_of(flag) for flag in FLAGS if flag.no_effect} | {"feature-gates": "AllAlpha=true"}
    notes = read_options(None, {**given, "boot-id-file": "/x"}).notes
    for flag in FLAGS:
        if flag.no_effect:
            assert f"--{flag.name}: has no effect: {flag.no_effect}" in notes
    assert "ipvs mode" in BY_NAME["ipvs-scheduler"].no_effect


def test_a_flags_zero_is_no_default() -> None:
    """Flags change kube-proxy's configuration after defaulting; in a file 0s and "" are the default."""
    config = read_options(None, {"iptables-min-sync-period": "0", "metrics-bind-address": ""}).config
    assert config.iptables.min_sync_period == 0
    assert config.metrics_bind_address == ""
    assert config.healthz_bind_address == KubeProxyConfiguration().healthz_bind_address
    assert read_options(None, {"healthz-bind-address": "", "kube-api-qps": "0"}).config.healthz_bind_address == ""
    assert read_options(None, {"proxy-mode": "", "detect-local-mode": ""}).config == KubeProxyConfiguration()


@pytest.mark.parametrize(
    ("flags", "healthz", "metrics"),
    [
        ({"healthz-port": "0", "metrics-port": "0"}, "", ""),
        ({"healthz-port": "7"}, "0.0.0.0:10256", "127.0.0.1:10249"),
        ({"healthz-port": "7", "healthz-bind-address": "::1"}, "[::1]:7", "127.0.0.1:10249"),
        ({"metrics-port": "8", "metrics-bind-address": "10.0.0.1"}, "0.0.0.0:10256", "10.0.0.1:8"),
        ({"metrics-port": "8", "metrics-bind-address": "10.0.0.1:9"}, "0.0.0.0:10256", "10.0.0.1:9"),
    ],
)
def test_deprecated_ports(flags: dict[str, str], healthz: str, metrics: str) -> None:
    config = read_options(None, flags).config
    assert (config.healthz_bind_address, config.metrics_bind_address) == (healthz, metrics)


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
        ({"iptables-sync-period": "0"}, "--iptables-sync-period: Invalid value"),
        ({"config-sync-period": "0s"}, "--config-sync-period: Invalid value"),
        ({"v": "-1"}, "--v: Invalid value: -1"),
        ({"vmodule": "proxier"}, "--vmodule: 'proxier' does not have the pattern=N format"),
        ({"logging-format": "xml"}, "--logging-format: Invalid value"),
        ({"log-text-split-stream": "true"}, "--log-text-split-stream: Forbidden"),
    ],
)
def test_bad_flags_are_named(flags: dict[str, str], message: str) -> None:
    with pytest.raises(ProxyConfigError) as caught:
        read_options(None, flags)
    assert f"command line: {message}" in str(caught.value)


def test_another_mode_is_refused() -> None:
    with pytest.raises(InputError, match="ipvs"):
        read_options(None, {"proxy-mode": "ipvs"})


def test_a_mode_of_its_own_goes_before_file_and_flags(tmp_path: Path) -> None:
    assert read_options(None, {"proxy-mode": "ipvs"}, mode="iptables").config.mode == "iptables"
    file = tmp_path / "config.yaml"
    file.write_text(f"{HEAD}mode: ipvs\n")
    found = read_options(str(file), {}, mode="iptables")
    assert (found.config.mode, found.notes) == ("iptables", ())


HEAD = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n"


def test_a_flag_goes_before_the_file_and_says_so(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(f"{HEAD}clusterCIDR: 10.1.0.0/16\nclientConnection: {{kubeconfig: /b}}\nconfigSyncPeriod: 7s\n")
    given = {"cluster-cidr": "10.2.0.0/16", "v": "2", "healthz-port": "0", "kubeconfig": "/a"}
    found = read_options(str(file), given)
    assert found.config.cluster_cidr == "10.2.0.0/16"
    assert found.config.client_connection.kubeconfig == "/a", "a node is never programmed from another cluster"
    assert found.config.healthz_bind_address == ""
    assert found.config.config_sync_period.seconds == 7, "what no flag says is the file's"
    assert any("--cluster-cidr, --healthz-port, --kubeconfig: before what" in note for note in found.notes)
    with pytest.raises(ProxyConfigError, match="--cluster-cidr"):
        read_options(str(file), {"cluster-cidr": "nonsense"})
    assert not any("--v:" in note for note in found.notes)
    assert read_options("", {"cluster-cidr": "10.2.0.0/16"}).config.cluster_cidr == "10.2.0.0/16", "no file"


def test_logging_flags_win_over_a_file(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(
        f"{HEAD}logging: {{verbosity: 1, flushFrequency: 7s, vmodule: [{{filePattern: a, verbosity: 3}}]}}\n"
    )
    given = {"v": "5", "vmodule": "b=4,c=2", "cluster-cidr": "10.0.0.0/8"}
    logging = read_options(str(file), given).config.logging
    assert logging.verbosity == 5
    assert logging.flush_frequency.seconds == 7
    assert [(item.file_pattern, item.verbosity) for item in logging.vmodule] == [("b", 4), ("c", 2), ("a", 3)]
    assert read_options(str(file), {"v": "0"}).config.logging.verbosity == 0
    assert read_options(str(file), {}).config.logging.verbosity == 1
    with pytest.raises(ProxyConfigError, match="Only supported for text log format"):
        read_options(str(file), {"logging-format": "json"})
    file.write_text(f"{HEAD}featureGates: {{LoggingAlphaOptions: true}}\n")
    split = read_options(str(file), {"logging-format": "json", "log-json-split-stream": "true"}).config.logging
    assert (split.format, split.options.json.split_stream) == ("json", True)


def test_a_flag_that_does_not_count_must_be_right_all_the_same(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(HEAD)
    with pytest.raises(ProxyConfigError, match="--masquerade-all: 'maybe'"):
        read_options(str(file), {"masquerade-all": "maybe"})


def test_the_hostname_override_goes_before_a_file(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(f"{HEAD}hostnameOverride: a\n")
    assert read_options(str(file), {}, " B ").config.hostname_override == "b"
    assert read_options(str(file), {}, "").config.hostname_override == "a"
    with pytest.raises(InputError, match="--hostname-override: an empty name"):
        read_options(str(file), {}, " ")


def test_the_nodes_name() -> None:
    config = KubeProxyConfiguration(hostname_override=" Worker-1 ")
    assert node_name(None, None, config) == "worker-1"
    assert node_name(None, "Other", config) == "other"
    assert node_name("Third", "Other", config) == "third"
    assert node_name(None, None, KubeProxyConfiguration())
    with pytest.raises(InputError):
        node_name("  ", None, config)


def test_the_table() -> None:
    assert len({flag.name for flag in FLAGS}) == len(FLAGS)
    assert [flag.name for flag in FLAGS] == sorted(flag.name for flag in FLAGS)
    fields = [flag.field for flag in FLAGS if flag.field]
    assert len(set(fields)) == len(fields)
    assert all(bool(flag.help) != bool(flag.no_effect) for flag in FLAGS), "either it counts, or it says why not"
