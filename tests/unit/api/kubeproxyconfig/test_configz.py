"""Defaults and /configz against what kube-proxy v1.36.2 answered, and against a re-reading of what was printed."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from kproxy.api.kubeproxyconfig.configz import configz, configz_json
from kproxy.api.kubeproxyconfig.decode import ProxyConfigError, decode_config
from kproxy.api.kubeproxyconfig.types import KubeProxyConfiguration
from tests.support import paths

RESPONSES = paths.TESTS / "reference" / "kube-proxy-http" / "responses.txt"
HEAD = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n"


def recorded_body() -> str:
    """The body of GET /configz."""
    lines = RESPONSES.read_text().splitlines()
    start = lines.index("GET :10249/configz")
    return next(line for line in lines[start:] if line.startswith("{"))


def recorded() -> dict[str, Any]:
    body: dict[str, Any] = json.loads(recorded_body())["kubeproxy.config.k8s.io"]
    return body


def test_reading_the_recorded_answer_and_printing_it_gives_its_bytes() -> None:
    loaded = decode_config(json.dumps(recorded()).encode())
    assert loaded.warnings == ()
    assert configz_json(loaded.config) == recorded_body()


@pytest.mark.parametrize("end", ["", "\n", "\nHTTP 200\n"], ids=["as it is", "curl -w", "of a snapshot"])
def test_the_answer_itself_is_a_configuration(end: str) -> None:
    """A node's configz of a snapshot can be given as --config."""
    loaded = decode_config((recorded_body() + end).encode(), "configz")
    assert (loaded.config, loaded.warnings) == (decode_config(json.dumps(recorded()).encode()).config, ())


def test_what_is_wrong_in_an_answer_is_told_by_its_field() -> None:
    text = recorded_body().replace('"masqueradeBit":14', '"masqueradeBit":99')
    with pytest.raises(
        ProxyConfigError, match=r"^configz: line 1: kubeproxy\.config\.k8s\.io\.iptables\.masqueradeBit: "
    ):
        decode_config(text.encode(), "configz")


def test_a_refusal_is_no_configuration() -> None:
    with pytest.raises(
        ProxyConfigError, match=r"^configz: an answer with HTTP status 403, not a KubeProxyConfiguration$"
    ):
        decode_config(b"Forbidden\nHTTP 403\n", "configz")


def test_defaults_are_those_of_the_recorded_answer() -> None:
    """Except for what the recorded kube-proxy was told: client, log level, node name, pod network, conntrack."""
    ours, theirs = configz(KubeProxyConfiguration()), recorded()
    told: dict[str, dict[str, object]] = {
        "clientConnection": {"kubeconfig": "kubeconfig", "qps": 50, "burst": 100},
        "logging": {"verbosity": 2},
        "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
    }
    for section, values in told.items():
        for name, value in values.items():
            assert theirs[section].pop(name) == value
            ours[section].pop(name)
    for name in ("hostnameOverride", "clusterCIDR"):
        assert theirs.pop(name)
        assert ours.pop(name) == ""
    assert ours == theirs
    assert list(ours) == list(theirs)


def test_an_empty_file_is_the_default_configuration() -> None:
    assert decode_config(HEAD.encode()).config == KubeProxyConfiguration()


def test_configz_shows_the_periods_of_the_mode_in_use_only() -> None:
    text = """
    iptables: {masqueradeAll: true, syncPeriod: 7s}
    ipvs: {syncPeriod: 8s, minSyncPeriod: 2s}
    nftables: {masqueradeAll: true, syncPeriod: 9s}
    """
    shown = {
        mode: configz(decode_config(f"{HEAD}mode: {mode}{text.replace('    ', '')}".encode()).config)
        for mode in ("iptables", "ipvs", "nftables")
    }
    periods = {
        mode: [body[part]["syncPeriod"] for part in ("iptables", "ipvs", "nftables")] for mode, body in shown.items()
    }
    assert periods == {
        "iptables": ["7s", "0s", "0s"],
        "ipvs": ["0s", "8s", "0s"],
        "nftables": ["0s", "0s", "9s"],
    }
    everywhere = {
        mode: [body[part]["masqueradeAll"] for part in ("iptables", "nftables")] for mode, body in shown.items()
    }
    assert everywhere == {"iptables": [True, False], "ipvs": [True, False], "nftables": [False, True]}


@pytest.mark.parametrize(("given", "printed"), [("5.1", "5.1"), ("0.333333333333", "0.33333334"), ("50.0", "50")])
def test_qps_prints_as_a_float32(given: str, printed: str) -> None:
    config = decode_config(f"{HEAD}clientConnection: {{qps: {given}}}".encode()).config
    assert f'"qps":{printed},' in configz_json(config)


def test_optional_fields_appear_when_set() -> None:
    text = f"""{HEAD}featureGates: {{WatchListClient: false, AtomicFIFO: true, LoggingAlphaOptions: true}}
windowsRunAsService: true
nodePortAddresses: [10.0.0.0/8]
logging:
  vmodule: [{{filePattern: proxier, verbosity: 4}}]
  options: {{json: {{splitStream: true, infoBufferSize: 64Ki}}}}
"""
    loaded = decode_config(text.encode())
    body = configz(loaded.config)
    assert list(body)[2] == "featureGates"
    assert list(body["featureGates"]) == ["AtomicFIFO", "LoggingAlphaOptions", "WatchListClient"]
    assert body["windowsRunAsService"] is True
    assert body["nodePortAddresses"] == ["10.0.0.0/8"]
    assert body["logging"]["vmodule"] == [{"filePattern": "proxier", "verbosity": 4}]
    assert body["logging"]["options"]["json"] == {"splitStream": True, "infoBufferSize": "64Ki"}
    assert msgspec.structs.replace(loaded.config) == decode_config(json.dumps(body).encode()).config


def test_in_nftables_mode_node_ports_are_on_primary_addresses() -> None:
    assert configz(KubeProxyConfiguration(mode="nftables"))["nodePortAddresses"] == ["primary"]
    assert configz(KubeProxyConfiguration())["nodePortAddresses"] is None
