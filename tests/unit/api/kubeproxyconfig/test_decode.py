"""Files into configurations: formats, types, leniency, defaults that depend on others, and never another exception."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from kproxy.api.kubeproxyconfig.configz import configz, configz_json
from kproxy.api.kubeproxyconfig.decode import ProxyConfigError, decode_config, load_config
from kproxy.api.kubeproxyconfig.duration import Duration
from kproxy.api.kubeproxyconfig.types import Conntrack, IPTables, KubeProxyConfiguration, LoadedConfig
from kproxy.api.kubeproxyconfig.validate import validate_config
from tests.support import paths

REFERENCE = paths.TESTS / "reference"
RECORDED = sorted([*REFERENCE.glob("clusters/*/config.yaml"), *REFERENCE.glob("minikube/config.yaml")])
HEAD = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n"


FLOAT32 = "must be within the range [-3.4028234663852886e+38, 3.4028234663852886e+38]"


def read(text: str) -> LoadedConfig:
    return decode_config((HEAD + text).encode(), "c.yaml")


def refused(data: bytes | str, file: str = "c.yaml") -> list[str]:
    with pytest.raises(ProxyConfigError) as caught:
        decode_config(data.encode() if isinstance(data, str) else data, file)
    assert caught.value.exit_code == 2
    assert str(caught.value).splitlines() == [str(problem) for problem in caught.value.problems]
    return [str(problem) for problem in caught.value.problems]


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.parent.name)
def test_recorded_configurations_load_without_a_warning(path: Path) -> None:
    loaded = load_config(str(path))
    assert loaded.warnings == ()
    shown = configz(loaded.config)
    given_values = yaml.safe_load(path.read_text())
    for name, value in given_values.items():
        if isinstance(value, dict):
            assert {key: shown[name][key] for key in value} == value
        else:
            assert shown[name] == (value if value != [] else None)


def test_every_field() -> None:
    text = """
featureGates: {AtomicFIFO: false}
clientConnection: {kubeconfig: k, acceptContentTypes: a, contentType: c, qps: 2.5, burst: 3}
hostnameOverride: node-0
bindAddress: 10.0.0.1
bindAddressHardFail: true
enableProfiling: true
mode: iptables
iptables: {masqueradeBit: 0, masqueradeAll: true, localhostNodePorts: false, syncPeriod: 1m, minSyncPeriod: 250ms}
winkernel: {networkName: net, sourceVip: v, enableDSR: true, rootHnsEndpointName: r, forwardHealthCheckVip: true}
detectLocalMode: BridgeInterface
detectLocal: {bridgeInterface: cni0, interfaceNamePrefix: veth}
clusterCIDR: 10.244.0.0/16
nodePortAddresses: [10.0.0.0/8, 'fd00::/8']
oomScoreAdj: 0
conntrack:
  maxPerCore: 0
  min: 0
  tcpEstablishedTimeout: 0s
  tcpCloseWaitTimeout: 1s
  tcpBeLiberal: true
  udpTimeout: 2s
  udpStreamTimeout: 3s
configSyncPeriod: 1h
portRange: 1-2
windowsRunAsService: true
"""
    loaded = read(text)
    config = loaded.config
    assert loaded.warnings == ()
    assert config.feature_gates == {"AtomicFIFO": False}
    assert config.client_connection.qps == 2.5
    assert config.iptables == IPTables(0, True, False, Duration.of("1m"), Duration.of("250ms"))
    assert config.winkernel.enable_dsr
    assert config.detect_local.bridge_interface == "cni0"
    assert config.node_port_addresses == ("10.0.0.0/8", "fd00::/8")
    assert config.oom_score_adj == 0
    assert config.conntrack == Conntrack(
        0, 0, Duration(), Duration.of("1s"), True, Duration.of("2s"), Duration.of("3s")
    )
    assert config.config_sync_period == Duration.of("1h")
    assert decode_config(json.dumps(yaml.safe_load(HEAD + text)).encode()).config == config


@pytest.mark.parametrize(
    ("text", "healthz", "metrics"),
    [
        ("", "0.0.0.0:10256", "127.0.0.1:10249"),
        ("bindAddress: 10.0.0.1", "0.0.0.0:10256", "127.0.0.1:10249"),
        ("bindAddress: '::'", "[::]:10256", "[::1]:10249"),
        ("bindAddress: '::ffff:10.0.0.1'", "0.0.0.0:10256", "127.0.0.1:10249"),
        ("bindAddress: '::'\nhealthzBindAddress: 0.0.0.0:10256", "0.0.0.0:10256", "[::1]:10249"),
        ("healthzBindAddress: 10.0.0.1\nmetricsBindAddress: 'fd00::1'", "10.0.0.1:10256", "[fd00::1]:10249"),
        ("healthzBindAddress: ''\nmetricsBindAddress: null", "0.0.0.0:10256", "127.0.0.1:10249"),
        ("metricsBindAddress: '[::]:9'", "0.0.0.0:10256", "[::]:9"),
    ],
)
def test_addresses_follow_the_bind_address(text: str, healthz: str, metrics: str) -> None:
    config = read(text).config
    assert (config.healthz_bind_address, config.metrics_bind_address) == (healthz, metrics)


@pytest.mark.parametrize(
    "text",
    [
        "mode: ''\ndetectLocalMode: ''\nbindAddress: ''\nconfigSyncPeriod: 0s\n",
        "iptables: {syncPeriod: 0s, minSyncPeriod: 0s, masqueradeBit: null, localhostNodePorts: null}",
        "clientConnection: {qps: 0, burst: 0, contentType: ''}\nlogging: {format: '', flushFrequency: 0}",
        "iptables: null\nipvs:\nnodePortAddresses:\nfeatureGates:\nlogging: ~\noomScoreAdj: ~\n",
        "conntrack: {tcpEstablishedTimeout: null, tcpCloseWaitTimeout: null, min: null, tcpBeLiberal: null}",
        "nodePortAddresses: []\nipvs: {excludeCIDRs: []}\nlogging: {vmodule: [], options: {json: {}}}",
    ],
)
def test_zero_and_null_are_the_default(text: str) -> None:
    assert read(text).config == KubeProxyConfiguration()


def test_zero_is_a_value_where_go_can_tell() -> None:
    config = read("iptables: {masqueradeBit: 0, localhostNodePorts: false}\noomScoreAdj: 0\n").config
    assert config.iptables.masquerade_bit == 0
    assert not config.iptables.localhost_node_ports
    assert config.oom_score_adj == 0


def test_unknown_fields_and_repeated_keys_are_warnings() -> None:
    loaded = read(
        "mode: nftables\nudpIdleTimeout: 250ms\niptables:\n  masqueradebit: 3\n  masqueradeBit: 3\n  masqueradeBit: 4\n"
        "mode: iptables\nlinux: {}\n"
    )
    assert loaded.config.iptables.masquerade_bit == 4
    assert loaded.warnings == (
        'c.yaml: line 4: unknown field "udpIdleTimeout"',
        'c.yaml: line 6: unknown field "iptables.masqueradebit"; is "iptables.masqueradeBit" meant?',
        'c.yaml: line 10: unknown field "linux"',
        'c.yaml: line 8: key "masqueradeBit" already set in map: the last one counts',
        'c.yaml: line 9: key "mode" already set in map: the last one counts',
    )


def test_warnings_of_json() -> None:
    body = '{"apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration", "x": 1, "x": 2}'
    assert decode_config(body.encode(), "c.json").warnings == (
        'c.json: line 1: unknown field "x"',
        'c.json: line 1: key "x" already set in map: the last one counts',
    )


@pytest.mark.parametrize("field", ["iptables.syncPeriod", "ipvs.tcpTimeout", "conntrack.udpTimeout"])
def test_a_duration_that_is_no_pointer_refuses_null(field: str) -> None:
    part, _, name = field.rpartition(".")
    text = f"{part}: {{{name}: null}}"
    message = 'Invalid value: null: must be a duration such as "30s"'
    assert refused(HEAD + text) == [f"c.yaml: line 3: KubeProxyConfiguration.{field}: {message}"]


def test_whole_floats_are_integers_in_yaml_but_not_in_json() -> None:
    assert read("oomScoreAdj: 14.0\niptables: {masqueradeBit: 1e1}").config.oom_score_adj == 14
    body = '{"apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration", "oomScoreAdj": 14.0}'
    with pytest.raises(ProxyConfigError, match=r"oomScoreAdj: Invalid value: 14.0: must be an integer"):
        decode_config(body.encode(), "c.json")


def test_the_mode_of_windows_loads_with_a_warning() -> None:
    loaded = read("mode: kernelspace\n")
    assert loaded.config.mode == "kernelspace"
    told = 'c.yaml: line 3: mode "kernelspace": kproxy knows iptables, nftables and ipvs mode only'
    assert loaded.warnings == (told,)
    assert read("mode: ipvs\n").warnings == ()


def test_nftables_mode_reads_its_own_section() -> None:
    loaded = read("mode: nftables\nnftables: {masqueradeBit: 3, masqueradeAll: true}\niptables: {masqueradeBit: 7}\n")
    assert loaded.warnings == ()
    assert loaded.config.masquerade_mark == 8
    assert loaded.config.proxier.masquerade_all
    assert read("iptables: {masqueradeBit: 7}\nnftables: {masqueradeBit: 3}\n").config.masquerade_mark == 128


def test_a_mode_from_elsewhere_goes_before_the_file_and_is_validated() -> None:
    text = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nmode: ipvs\n"
    text += "nftables: {masqueradeBit: 40}\n"
    loaded = decode_config(text.encode(), "c.yaml", "iptables")
    assert (loaded.config.mode, loaded.warnings) == ("iptables", ())
    with pytest.raises(ProxyConfigError, match=r"c.yaml: line 4: .*nftables.masqueradeBit: Invalid value: 40"):
        decode_config(text.encode(), "c.yaml", "nftables")


def test_node_ports_are_on_primary_addresses_by_default_in_nftables_mode() -> None:
    assert read("mode: nftables\n").config.node_ports_on == ("primary",)
    assert read("mode: nftables\n").config.node_port_addresses == ()
    assert read("mode: nftables\nnodePortAddresses: [10.0.0.0/8]\n").config.node_ports_on == ("10.0.0.0/8",)
    assert read("mode: iptables\n").config.node_ports_on == ()


def test_feature_gates_that_have_graduated_are_a_warning() -> None:
    loaded = read("featureGates:\n  NFTablesProxyMode: true\n  KMSv1: false\n  WatchListClient: false\n")
    assert loaded.warnings == (
        "c.yaml: line 5: Setting deprecated feature gate KMSv1=false. It will be removed in a future release.",
        "c.yaml: line 4: Setting GA feature gate NFTablesProxyMode=true. It will be removed in a future release.",
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "mode: off",
            "mode: Invalid value: false: must be a string, not a boolean",
        ),
        (
            "hostnameOverride: 0x10",
            "hostnameOverride: Invalid value: 16: must be a string, not an integer",
        ),
        ("mode: [a]", 'mode: Invalid value: ["a"]: must be a string, not a list'),
        ("enableProfiling: 'true'", 'enableProfiling: Invalid value: "true": must be a boolean, not a string'),
        ("oomScoreAdj: '5'", 'oomScoreAdj: Invalid value: "5": must be an integer, not a string'),
        (
            "oomScoreAdj: 5.5",
            "oomScoreAdj: Invalid value: 5.5: must be an integer, not a number with a fraction or an exponent",
        ),
        ("oomScoreAdj: true", "oomScoreAdj: Invalid value: true: must be an integer, not a boolean"),
        (
            "oomScoreAdj: 2147483648",
            "oomScoreAdj: Invalid value: 2147483648: must be within the range [-2147483648, 2147483647]",
        ),
        ("logging: {verbosity: -1}", "logging.verbosity: Invalid value: -1: must be within the range [0, 4294967295]"),
        (
            "clientConnection: {qps: many}",
            'clientConnection.qps: Invalid value: "many": must be a number, not a string',
        ),
        (
            "clientConnection: {qps: 1e39}",
            f"clientConnection.qps: Invalid value: 1e+39: {FLOAT32}",
        ),
        (
            "clientConnection: {qps: .inf}",
            f"clientConnection.qps: Invalid value: Infinity: {FLOAT32}",
        ),
        (
            "clientConnection: {qps: .nan}",
            f"clientConnection.qps: Invalid value: NaN: {FLOAT32}",
        ),
        ("configSyncPeriod: 30", 'configSyncPeriod: Invalid value: 30: must be a duration such as "30s"'),
        ("configSyncPeriod: 1d", 'configSyncPeriod: Invalid value: "1d": time: unknown unit "d" in duration "1d"'),
        ("configSyncPeriod: ''", 'configSyncPeriod: Invalid value: "": time: invalid duration ""'),
        (
            "logging: {flushFrequency: 9223372036854775808}",
            "logging.flushFrequency: Invalid value: 9223372036854775808: must be nanoseconds in 64 bits",
        ),
        ("iptables: 5", "iptables: Invalid value: 5: must be a map, not an integer"),
        ("nodePortAddresses: primary", 'nodePortAddresses: Invalid value: "primary": must be a list, not a string'),
        (
            "nodePortAddresses: [1.5]",
            "nodePortAddresses[0]: Invalid value: 1.5: must be a string, not a number with a fraction or an exponent",
        ),
        ("featureGates: [AllAlpha]", 'featureGates: Invalid value: ["AllAlpha"]: must be a map, not a list'),
        (
            "featureGates: {AllAlpha: 'yes'}",
            'featureGates[AllAlpha]: Invalid value: "yes": must be a boolean, not a string',
        ),
        (
            "logging: {options: {json: {infoBufferSize: big}}}",
            'logging.options.json.infoBufferSize: Invalid value: "big": must be a quantity such as "64Ki"',
        ),
    ],
)
def test_values_of_the_wrong_type(text: str, expected: str) -> None:
    assert refused(HEAD + text) == [f"c.yaml: line 3: KubeProxyConfiguration.{expected}"]


def test_wrong_types_and_wrong_values_are_reported_together() -> None:
    assert refused(f"{HEAD}iptables:\n  syncPeriod: soon\n  masqueradeBit: 32\nmode: 7\noomScoreAdj: 10000\n") == [
        'c.yaml: line 4: KubeProxyConfiguration.iptables.syncPeriod: Invalid value: "soon": '
        'time: invalid duration "soon"',
        "c.yaml: line 5: KubeProxyConfiguration.iptables.masqueradeBit: Invalid value: 32: "
        "must be within the range [0, 31]",
        "c.yaml: line 6: KubeProxyConfiguration.mode: Invalid value: 7: must be a string, not an integer",
        "c.yaml: line 7: KubeProxyConfiguration.oomScoreAdj: Invalid value: 10000: "
        "must be within the range [-1000, 1000]",
    ]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ("", ["c.yaml: holds no KubeProxyConfiguration: it is empty"]),
        ("# only a comment\n---\n", ["c.yaml: holds no KubeProxyConfiguration: it is empty"]),
        (HEAD + "---\n" + HEAD, ["c.yaml: line 4: holds 2 documents where one KubeProxyConfiguration belongs"]),
        ("[]", ["c.yaml: line 1: KubeProxyConfiguration: Invalid value: []: must be a map, not a list"]),
        (
            "nonsense",
            ['c.yaml: line 1: KubeProxyConfiguration: Invalid value: "nonsense": must be a map, not a string'],
        ),
        (
            "a: 1",
            [
                "c.yaml: line 1: KubeProxyConfiguration.apiVersion: Required value: "
                'must be "kubeproxy.config.k8s.io/v1alpha1"',
                'c.yaml: line 1: KubeProxyConfiguration.kind: Required value: must be "KubeProxyConfiguration"',
            ],
        ),
        (
            "apiVersion: kubeproxy.config.k8s.io/v1beta1\nkind: KubeProxyConfiguration\nmode: [wrong]\n",
            [
                "c.yaml: line 1: KubeProxyConfiguration.apiVersion: Unsupported value: "
                '"kubeproxy.config.k8s.io/v1beta1": supported values: "kubeproxy.config.k8s.io/v1alpha1"'
            ],
        ),
        (
            "apiVersion: 1\nkind: KubeProxy\n",
            [
                "c.yaml: line 1: KubeProxyConfiguration.apiVersion: Unsupported value: 1: supported values: "
                '"kubeproxy.config.k8s.io/v1alpha1"',
                'c.yaml: line 2: KubeProxyConfiguration.kind: Unsupported value: "KubeProxy": supported values: '
                '"KubeProxyConfiguration"',
            ],
        ),
        (
            "apiVersion: v1\nkind: ConfigMap\ndata: {kubeconfig.conf: x}\n",
            ["c.yaml: line 1: a ConfigMap without a KubeProxyConfiguration: none under config.conf or config"],
        ),
        (
            "a: b: c",
            ["c.yaml: line 1: neither YAML nor JSON: column 5: mapping values are not allowed in this context"],
        ),
        (
            '{"a": ]',
            [
                "c.yaml: line 1: neither YAML nor JSON: column 7: did not find expected node content, "
                "while parsing a flow node"
            ],
        ),
        (b"a: 1\n\xff", ["c.yaml: line 2: not UTF-8 text: invalid start byte"]),
    ],
)
def test_text_that_is_no_configuration(data: bytes | str, expected: list[str]) -> None:
    assert refused(data) == expected


def test_yaml_in_flow_style_is_not_taken_for_json() -> None:
    text = "{apiVersion: kubeproxy.config.k8s.io/v1alpha1, kind: KubeProxyConfiguration, oomScoreAdj: 7}"
    assert decode_config(text.encode()).config.oom_score_adj == 7


def test_a_byte_order_mark_is_skipped() -> None:
    assert decode_config(b"\xef\xbb\xbf" + HEAD.encode()).config == KubeProxyConfiguration()


@pytest.mark.parametrize("key", ["config", "config.conf"])
def test_a_list_of_config_maps(key: str) -> None:
    other = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"config": "theirs"}}
    own = {**other, "metadata": {"name": "kube-proxy"}, "data": {key: HEAD + "oomScoreAdj: 7"}}
    for items in ([own, other], [other, own]):
        listed = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
        assert decode_config(listed.encode()).config.oom_score_adj == 7


def test_load_config_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(HEAD + "oomScoreAdj: 5000\n")
    with pytest.raises(ProxyConfigError) as caught:
        load_config(str(path))
    assert str(caught.value).startswith(f"{path}: line 3: KubeProxyConfiguration.oomScoreAdj: Invalid value: 5000: ")


@pytest.mark.parametrize(
    ("name", "reason"),
    [("missing", "No such file or directory"), (".", "Is a directory"), ("a\0b", "")],
)
def test_files_that_cannot_be_read(tmp_path: Path, name: str, reason: str) -> None:
    path = f"{tmp_path}/{name}"
    with pytest.raises(ProxyConfigError) as caught:
        load_config(path)
    assert str(caught.value).startswith(f"{path}: cannot be read: ")
    assert reason in str(caught.value)  # for a name with a NUL, Python's words, which are its version's


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(f"{HEAD}oomScoreAdj: 7\nx: 1\n".encode())))
    loaded = load_config("-")
    assert loaded.config.oom_score_adj == 7
    assert loaded.warnings == ('-: line 4: unknown field "x"',)


# Whatever comes in, there is a value or a ProxyConfigError.

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=12),
    st.sampled_from(["30s", "-1m", "0", "10.0.0.0/8", "fd00::/64,10.0.0.0/8", "primary", "[::]:1", "ipvs", "NodeCIDR"]),
)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
)


def settle(data: bytes) -> None:
    """Read `data`; when it is a configuration, it must be valid and survive being printed and read again."""
    try:
        config = decode_config(data).config
    except ProxyConfigError as error:
        problems = error.problems
    else:
        assert validate_config(config) == ()
        assert configz(decode_config(json.dumps(configz(config)).encode()).config) == configz(config)
        assert json.loads(configz_json(config))["kubeproxy.config.k8s.io"] == configz(config)
        return
    assert problems


def _paths(value: Any, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """The path of every field, and of every object that holds fields."""
    children = value.items() if isinstance(value, dict) else ()
    below = [found for key, child in children for found in _paths(child, (*path, key))]
    return [path, *below] if path else below


DEFAULT = configz(KubeProxyConfiguration())


@given(st.lists(st.tuples(st.sampled_from(_paths(DEFAULT)), values), min_size=1, max_size=4), st.booleans())
def test_a_valid_configuration_with_values_replaced(changes: list[tuple[tuple[str, ...], Any]], as_yaml: bool) -> None:
    body = json.loads(json.dumps(DEFAULT))
    for path, value in changes:
        parent = body
        for key in path[:-1]:
            parent = parent.get(key) if isinstance(parent, dict) else None
        if isinstance(parent, dict):
            parent[path[-1]] = value
    settle((yaml.safe_dump(body) if as_yaml else json.dumps(body)).encode())
