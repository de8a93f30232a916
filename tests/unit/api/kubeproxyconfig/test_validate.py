"""Each refusal of kube-proxy's validation, with its exact text."""

from __future__ import annotations

import pytest

from kproxy.api.kubeproxyconfig.decode import ProxyConfigError, decode_config
from kproxy.api.kubeproxyconfig.types import KubeProxyConfiguration
from kproxy.api.kubeproxyconfig.validate import is_port_range, parse_ip, split_host_port, validate_config

HEAD = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n"


def problems(text: str) -> list[str]:
    """The faults that reading `text` reports, without file and line; [] when there is none."""
    try:
        decode_config((HEAD + text).encode())
    except ProxyConfigError as error:
        return [f"{problem.location.field}: {problem.message}" for problem in error.problems]
    return []


def test_the_defaults_are_valid() -> None:
    assert validate_config(KubeProxyConfiguration()) == ()


PAIR = "must be a either a single CIDR or dual-stack pair of CIDRs (e.g. [10.100.0.0/16, fde4:8dba:82e1::/48]"
ONE_CIDR = "must be a valid CIDR block (e.g. 10.100.0.0/16 or fde4:8dba:82e1::/48)"
NOT_NEGATIVE = "must be greater than or equal to 0"
ALPHA = "Forbidden: Feature LoggingAlphaOptions is disabled"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "iptables: {masqueradeBit: 32}",
            "iptables.masqueradeBit: Invalid value: 32: must be within the range [0, 31]",
        ),
        (
            "iptables: {masqueradeBit: -1}",
            "iptables.masqueradeBit: Invalid value: -1: must be within the range [0, 31]",
        ),
        (
            "{mode: nftables, nftables: {masqueradeBit: 32}}",
            "nftables.masqueradeBit: Invalid value: 32: must be within the range [0, 31]",
        ),
        (
            "iptables: {minSyncPeriod: -1ms}",
            f'iptables.minSyncPeriod: Invalid value: "-1ms": {NOT_NEGATIVE}',
        ),
        (
            "iptables: {syncPeriod: 5s, minSyncPeriod: 1m}",
            'iptables.syncPeriod: Invalid value: "1m0s": must be greater than or equal to '
            "KubeProxyConfiguration.iptables.minSyncPeriod",
        ),
        ("{mode: ipvs, ipvs: {tcpTimeout: -1s}}", f'ipvs.tcpTimeout: Invalid value: "-1s": {NOT_NEGATIVE}'),
        ("{mode: ipvs, ipvs: {tcpFinTimeout: -1s}}", f'ipvs.tcpFinTimeout: Invalid value: "-1s": {NOT_NEGATIVE}'),
        ("{mode: ipvs, ipvs: {udpTimeout: -1s}}", f'ipvs.udpTimeout: Invalid value: "-1s": {NOT_NEGATIVE}'),
        ("{mode: ipvs, ipvs: {minSyncPeriod: -1s}}", f'ipvs.minSyncPeriod: Invalid value: "-1s": {NOT_NEGATIVE}'),
        (
            "{mode: ipvs, ipvs: {excludeCIDRs: [10.0.0.0/8, 10.0.0.0]}}",
            'ipvs.excludeCIDRs[1]: Invalid value: "10.0.0.0": must be a valid CIDR',
        ),
        ("conntrack: {maxPerCore: -1}", f"conntrack.maxPerCore: Invalid value: -1: {NOT_NEGATIVE}"),
        ("conntrack: {min: -1}", f"conntrack.min: Invalid value: -1: {NOT_NEGATIVE}"),
        (
            "conntrack: {tcpEstablishedTimeout: -24h}",
            f'conntrack.tcpEstablishedTimeout: Invalid value: "-24h0m0s": {NOT_NEGATIVE}',
        ),
        (
            "conntrack: {tcpCloseWaitTimeout: -1h}",
            f'conntrack.tcpCloseWaitTimeout: Invalid value: "-1h0m0s": {NOT_NEGATIVE}',
        ),
        ("conntrack: {udpTimeout: -1ns}", f'conntrack.udpTimeout: Invalid value: "-1ns": {NOT_NEGATIVE}'),
        ("conntrack: {udpStreamTimeout: -1us}", f'conntrack.udpStreamTimeout: Invalid value: "-1µs": {NOT_NEGATIVE}'),
        (
            "mode: userspace",
            'mode: Invalid value: "userspace": must be iptables, ipvs, nftables or blank '
            "(blank means the best-available proxy [currently iptables])",
        ),
        ("clientConnection: {burst: -1}", f"clientConnection.burst: Invalid value: -1: {NOT_NEGATIVE}"),
        ("oomScoreAdj: 1001", "oomScoreAdj: Invalid value: 1001: must be within the range [-1000, 1000]"),
        ("oomScoreAdj: -1001", "oomScoreAdj: Invalid value: -1001: must be within the range [-1000, 1000]"),
        ("configSyncPeriod: -15m", 'configSyncPeriod: Invalid value: "-15m0s": must be greater than 0'),
        (
            "bindAddress: fd00::1%eth0",
            'bindAddress: Invalid value: "fd00::1%eth0": not a valid textual representation of an IP address',
        ),
        ("healthzBindAddress: nonsense", 'healthzBindAddress: Invalid value: "nonsense": must be IP:port'),
        ("healthzBindAddress: 'host:80'", 'healthzBindAddress: Invalid value: "host": must be a valid IP'),
        ("healthzBindAddress: '1.2.3.4:0'", 'healthzBindAddress: Invalid value: "0": must be a valid port'),
        ("metricsBindAddress: '1.2.3.4:65536'", 'metricsBindAddress: Invalid value: "65536": must be a valid port'),
        ("metricsBindAddress: '1.2.3.4:http'", 'metricsBindAddress: Invalid value: "http": must be a valid port'),
        ("metricsBindAddress: ':10249'", 'metricsBindAddress: Invalid value: "": must be a valid IP'),
        ("portRange: 9-", 'portRange: Invalid value: "9-": must be a valid port range (e.g. 300-2000)'),
        (
            "showHiddenMetricsForVersion: '1.36'",
            'showHiddenMetricsForVersion: Invalid value: "1.36": --show-hidden-metrics-for-version must be omitted or '
            "have the value '1.35'. Only the previous minor version is allowed",
        ),
        (
            "nodePortAddresses: [10.0.0.0/8, primary]",
            "nodePortAddresses[1]: Invalid value: \"primary\": can't use both 'primary' and CIDRs",
        ),
        ("nodePortAddresses: [10.0.0.1]", 'nodePortAddresses[0]: Invalid value: "10.0.0.1": must be a valid CIDR'),
        ("nodePortAddresses: ['']", 'nodePortAddresses[0]: Invalid value: "": must be a valid CIDR'),
        ("nodePortAddresses: [localhost]", 'nodePortAddresses[0]: Invalid value: "localhost": must be a valid CIDR'),
        (
            "detectLocalMode: Everywhere",
            'detectLocalMode: Unsupported value: "Everywhere": supported values: "ClusterCIDR", "NodeCIDR", '
            '"BridgeInterface", "InterfaceNamePrefix", ""',
        ),
        (
            "detectLocalMode: BridgeInterface",
            'detectLocal.bridgeInterface: Invalid value: "": must not be empty',
        ),
        (
            "detectLocalMode: InterfaceNamePrefix",
            'detectLocal.interfaceNamePrefix: Invalid value: "": must not be empty',
        ),
        ("clusterCIDR: 10.244.0.0", f'clusterCIDR: Invalid value: "10.244.0.0": {ONE_CIDR}'),
        ("clusterCIDR: 10.0.0.0/8, fd00::/64", f'clusterCIDR: Invalid value: " fd00::/64": {ONE_CIDR}'),
        (
            "clusterCIDR: 10.0.0.0/8,11.0.0.0/8",
            f'clusterCIDR: Invalid value: ["10.0.0.0/8","11.0.0.0/8"]: {PAIR}',
        ),
        (
            "clusterCIDR: 10.0.0.0/8,fd00::/64,fd01::/64",
            f'clusterCIDR: Invalid value: ["10.0.0.0/8","fd00::/64","fd01::/64"]: {PAIR}',
        ),
        (
            "featureGates: {Zz: true, AtomicFIFO: false}",
            'featureGates: Invalid value: {"AtomicFIFO":false,"Zz":true}: unrecognized feature gate: Zz',
        ),
        (
            "featureGates: {Zz: true, Aa: true}",
            'featureGates: Invalid value: {"Aa":true,"Zz":true}: '
            "[unrecognized feature gate: Aa, unrecognized feature gate: Zz]",
        ),
        ("logging: {format: xml}", 'logging.format: Invalid value: "xml": Unsupported log format'),
        ("logging: {verbosity: 2147483648}", "logging.verbosity: Invalid value: 2147483648: Must be <= 2147483647"),
        (
            "logging: {format: json, vmodule: [{filePattern: a, verbosity: 1}]}",
            "logging.vmodule: Forbidden: Only supported for text log format",
        ),
        (
            "logging: {vmodule: [{verbosity: 1}]}",
            "logging.vmodule[0]: Required value: File pattern must not be empty",
        ),
        (
            "logging: {vmodule: [{filePattern: 'a=b', verbosity: 1}]}",
            'logging.vmodule[0]: Invalid value: "a=b": File pattern must not contain equal sign or comma',
        ),
        (
            "logging: {vmodule: [{filePattern: a, verbosity: 4294967295}]}",
            "logging.vmodule[0]: Invalid value: 4294967295: Must be <= 2147483647",
        ),
        ("logging: {options: {text: {splitStream: true}}}", f"logging.options.text.splitStream: {ALPHA}"),
        ("logging: {options: {json: {splitStream: true}}}", f"logging.options.json.splitStream: {ALPHA}"),
        ("logging: {options: {text: {infoBufferSize: 64Ki}}}", f"logging.options.text.infoBufferSize: {ALPHA}"),
        ("logging: {options: {json: {infoBufferSize: 1}}}", f"logging.options.json.infoBufferSize: {ALPHA}"),
    ],
)
def test_refused_with_kube_proxys_words(text: str, expected: str) -> None:
    # A flow mapping as a whole cannot follow the head: its entries go on lines of their own.
    if text.startswith("{"):
        mode, _, rest = text[1:-1].partition(", ")
        text = f"{mode}\n{rest}"
    assert problems(text) == [f"KubeProxyConfiguration.{expected}"]


@pytest.mark.parametrize(
    "text",
    [
        "iptables: {masqueradeBit: 0}",
        "iptables: {masqueradeBit: 31}",
        "nftables: {masqueradeBit: 99, syncPeriod: -1s}",  # not looked at in iptables mode
        "ipvs: {syncPeriod: -1s, tcpTimeout: -1s, excludeCIDRs: [x], scheduler: anything}",
        "mode: ipvs\niptables: {syncPeriod: -1s}",
        "detectLocalMode: NodeCIDR\nclusterCIDR: nonsense",  # only ClusterCIDR mode reads it
        "clusterCIDR: ''",
        "clusterCIDR: fd00:10:244::/56,010.244.0.0/16",
        "detectLocalMode: ''\ndetectLocal: {bridgeInterface: cni0, interfaceNamePrefix: veth}",
        "nodePortAddresses: [primary]",
        "nodePortAddresses: []",
        "nodePortAddresses: [192.168.1.7/16, '::ffff:10.0.0.0/104']",
        "bindAddress: 010.1.2.3",
        "healthzBindAddress: '[::1]:+80'",
        "metricsBindAddress: '[::ffff:1.2.3.4]:00080'",
        "showHiddenMetricsForVersion: '1.35'",
        "portRange: 80+8",
        "logging: {options: {json: {splitStream: false, infoBufferSize: 0Ki}}}",
        "logging: {options: {json: {splitStream: true, infoBufferSize: 1.5Mi}}}\nfeatureGates: {AllAlpha: true}",
        "conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}",
    ],
)
def test_accepted_as_kube_proxy_accepts_it(text: str) -> None:
    assert problems(text) == []


@pytest.mark.parametrize("part", ["iptables", "ipvs", "nftables"])
def test_a_negative_sync_period_is_also_below_the_minimum(part: str) -> None:
    path = f"KubeProxyConfiguration.{part}"
    assert problems(f"mode: {part}\n{part}: {{syncPeriod: -5s, minSyncPeriod: 2s}}") == [
        f'{path}.syncPeriod: Invalid value: "-5s": must be greater than 0',
        f'{path}.syncPeriod: Invalid value: "2s": must be greater than or equal to {path}.minSyncPeriod',
    ]


def test_every_fault_is_reported_in_the_order_of_the_file() -> None:
    text = "oomScoreAdj: 5000\nconntrack:\n  min: -1\n  maxPerCore: -1\nmode: none\niptables: {masqueradeBit: 77}\n"
    assert [line.partition(":")[0].partition(".")[2] for line in problems(text)] == [
        "oomScoreAdj",
        "conntrack.min",
        "conntrack.maxPerCore",
        "mode",
        "iptables.masqueradeBit",
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", True),
        ("  ", True),
        ("80", True),
        ("65535", True),
        ("65536", False),
        ("1-65535", True),
        ("2-1", False),
        ("1-65536", False),
        ("-5-10", False),
        ("5--3", False),
        ("65530+5", True),
        ("65530+6", False),
        ("80-90+3", False),
        ("a-b", False),
        ("9" * 5000, False),
    ],
)
def test_port_ranges(text: str, expected: bool) -> None:
    assert is_port_range(text) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1.2.3.4:80", ("1.2.3.4", "80")),
        ("[::1]:80", ("::1", "80")),
        (":80", ("", "80")),
        ("a:", ("a", "")),
        ("::1", None),
        ("::1:80", None),
        ("[::1]", None),
        ("[::1]80", None),
        ("[::1]:80:90", None),
        ("[[::1]]:80", None),
        ("a]:80", None),
        ("1.2.3.4", None),
        ("", None),
    ],
)
def test_split_host_port(text: str, expected: tuple[str, str] | None) -> None:
    assert split_host_port(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1.2.3.4", "1.2.3.4"),
        ("001.002.003.004", "1.2.3.4"),
        ("FD00::1", "fd00::1"),
        ("::ffff:1.2.3.4", "1.2.3.4"),
        ("1.2.3", None),
        ("1.2.3.256", None),
        ("1.2.3.4/32", None),
        ("fe80::1%eth0", None),
        ("", None),
        ("::1 ", None),
    ],
)
def test_parse_ip(text: str, expected: str | None) -> None:
    address = parse_ip(text)
    assert (None if address is None else str(address)) == expected
