"""A lab's file: what it says, what the command line says over it, and what is wrong in it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from kproxy.api.document.yaml_text import read_yaml
from kproxy.errors import InputError
from kproxy.lab.config.decode import (
    LabConfigError,
    about_preset,
    decode_lab_config,
    load_lab_config,
    preset_file,
    preset_names,
)
from kproxy.lab.config.fields import lab_text
from kproxy.lab.config.types import Choices, HostCommand, LabConfig
from kproxy.lab.lifecycle.manifests import ManifestReader
from kproxy.lab.spec import LabSpec, NodeSettings

LAB = "apiVersion: kproxy/v1\nkind: Lab\n"
PROXY = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n"
ALL = f"""{LAB}name: shop
nodes:
- labels: {{topology.kubernetes.io/zone: east, disk: ssd}}
- taints: [{{key: gpu, value: "yes", effect: NoSchedule}}]
-
networking:
  ipFamily: dual
  podSubnet: 10.64.0.0/16,fd00:64::/48
  serviceSubnet: 10.65.0.0/20
  backend: host-gw
  mtu: 1400
proxy:
  mode: nftables
  variant: legacy
  config:
    nodePortAddresses: [172.30.0.0/24]
manifests: [web.yaml]
commands:
- {{host: node-2, run: ip link}}
timeout: 2m
---
apiVersion: v1
kind: ConfigMap
metadata: {{name: c}}
"""


def decode(text: str, **flags: Any) -> LabConfig:
    return decode_lab_config(text.encode(), "lab.yaml", Choices(**flags))


def problems(text: str, **flags: Any) -> list[str]:
    with pytest.raises(InputError) as raised:
        decode(text, **flags)
    assert raised.value.exit_code == 2
    return str(raised.value).splitlines()


def test_every_field(tmp_path: Path) -> None:
    path = tmp_path / "lab.yaml"
    path.write_text(ALL)
    (tmp_path / "web.yaml").write_text("")
    config = load_lab_config(str(path))
    assert config.spec == LabSpec(
        "shop",
        3,
        "dual",
        "legacy",
        "host-gw",
        "nftables",
        {"nodePortAddresses": ["172.30.0.0/24"]},
        1400,
        ("10.64.0.0/16", "fd00:64::/48"),
        ("10.65.0.0/20",),
        (
            NodeSettings({"topology.kubernetes.io/zone": "east", "disk": "ssd"}),
            NodeSettings({}, ({"key": "gpu", "value": "yes", "effect": "NoSchedule"},)),
            NodeSettings(),
        ),
    )
    assert config.timeout == 120
    assert config.manifests == (str(tmp_path / "web.yaml"),), "relative to the file, wherever one stands"
    assert config.commands == (HostCommand("node-2", "ip link"),)
    assert [(each.number, each.document.value["kind"]) for each in config.objects] == [(2, "ConfigMap")]
    plan = config.spec.node(2)
    assert (plan.pod_cidrs, plan.settings.taints[0]["key"]) == (("10.64.2.0/24", "fd00:64:0:2::/64"), "gpu")
    assert config.spec.service_cidrs == ("10.65.0.0/20", "fd00:10:96::/112"), "a family that is not said has the usual"


def test_the_command_line_goes_before_the_file() -> None:
    said = (
        "name: shop\nnodes: 5\nnetworking: {ipFamily: dual, backend: host-gw}\nproxy: {mode: nftables}\ntimeout: 90\n"
    )
    assert decode(LAB + said).spec == LabSpec("shop", 5, "dual", backend="host-gw", mode="nftables")
    config = decode(
        LAB + said, name="other", nodes=2, ip_family="ipv6", backend="vxlan", mode="iptables", variant="legacy",
        timeout=7,
    )  # fmt: skip
    assert config.spec == LabSpec("other", 2, "ipv6", "legacy", "vxlan", "iptables")
    assert config.timeout == 7
    assert decode(LAB).spec == LabSpec("lab"), "all fields have defaults"
    two = "networking: {ipFamily: dual, podSubnet: '10.64.0.0/16,fd00:64::/48'}\n"
    assert decode(LAB + two, ip_family="ipv4").spec.pod_cidrs == ("10.64.0.0/16",)


def test_the_configuration_of_the_proxies() -> None:
    fields = "{mode: nftables, nodePortAddresses: [172.30.0.0/24], masqerade: 1}"
    found = decode(f"{LAB}proxy:\n  config: {fields}\n")
    assert (found.spec.mode, found.spec.proxy["nodePortAddresses"]) == ("nftables", ["172.30.0.0/24"])
    (warning,) = found.warnings
    assert warning.startswith("lab.yaml: document 1: line 4: ")
    assert decode(f"{LAB}proxy: {{config: {fields}}}\n", mode="iptables").spec.mode == "iptables"


def test_everything_that_is_wrong_is_told_with_its_line() -> None:
    text = f"""{LAB}name: My-Lab
nodes:
- labels: {{"a b": c, zone: 1}}
  taints: [{{key: gpu, effect: Never}}, {{effect: NoExecute}}]
- label: {{}}
networkng: {{}}
networking:
  ipFamily: dualstack
  podSubnet: 10.0.0.0/24
  serviceSubnet: 10.96.0.0
  mtu: 9000
proxy:
  mode: ipvs
  config: {{iptables: {{masqueradeBit: 99}}}}
manifests: [nowhere.yaml]
commands: [{{host: node-9, run: ip link}}, {{host: client}}]
timeout: 5x
name: no_name
"""
    found = problems(text)
    expected = [
        (5, "nodes[0].labels", '"a b"'),
        (5, "nodes[0].labels[zone]", "must be a string"),
        (6, "nodes[0].taints[0].effect", 'supported values: "NoExecute", "NoSchedule", "PreferNoSchedule"'),
        (6, "nodes[0].taints[1].key", "Required value"),
        (7, "nodes[1].label", 'is "nodes[1].labels" meant?'),
        (8, "networkng", 'is "networking" meant?'),
        (10, "networking.ipFamily", '"dualstack"'),
        (11, "networking.podSubnet", "prefix length from 8 to 17"),
        (12, "networking.serviceSubnet", "prefix length from 8 to 28"),
        (13, "networking.mtu", "must be at most 1450 with vxlan and ipv4"),
        (15, "proxy.mode", '"ipvs"'),
        (16, "proxy.config.iptables.masqueradeBit", "99"),
        (17, "manifests[0]", "no such file or directory: nowhere.yaml"),
        (18, "commands[0].host", "node-1 to node-2"),
        (18, "commands[1].run", "Required value"),
        (19, "timeout", "5x"),
    ]
    for line, path, words in expected:
        start = f"lab.yaml: document 1: line {line}: {path}: "
        assert any(each.startswith(start) and words in each for each in found), (path, found)
    assert 'lab.yaml: document 1: line 20: key "name" already set in map' in found
    assert any(": name: " in each and "lower-case" in each for each in found)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "lab.yaml: holds no Lab: it is empty"),
        ("- a\n", "lab.yaml: document 1: line 1: [\"a\"]: an object with apiVersion and kind expected"),
        ("nodes: 3\n", 'lab.yaml: document 1: line 1: kind: Required value: must be "Lab"'),
        ("kind: Lba\nnodes: 3\n", 'lab.yaml: document 1: line 1: kind: unknown kind "Lba"; is "Lab" meant?'),
        ("kind: Lab\n", 'lab.yaml: document 1: line 1: apiVersion: Required value: must be "kproxy/v1"'),
        (
            "apiVersion: kproxy/v2\nkind: Lab\n",
            'lab.yaml: document 1: line 1: apiVersion: Unsupported value: "kproxy/v2": supported values: "kproxy/v1"',
        ),
        (
            "apiVersion: kproxy/v1\nkind: Cluster\n",
            'lab.yaml: document 1: line 2: kind: Unsupported value: "Cluster": supported values: "Lab"',
        ),
        (
            "kind: Deployment\napiVersion: apps/v1\n",
            'lab.yaml: document 1: line 1: kind: "Deployment": "Lab" expected; '
            "manifests go to -f, or beside a Lab",
        ),
        (f"{LAB}---\n{LAB}", "lab.yaml: document 2: line 4: a second Lab: a file has one"),
        (PROXY, '"KubeProxyConfiguration": its fields go to proxy.config of a Lab'),
        (f"{LAB}---\n{PROXY}", 'document 2: line 5: kind: "KubeProxyConfiguration": its fields go to proxy.config'),
        (
            f"{LAB}proxy: {{mode: iptables, config: {{mode: nftables}}}}\n",
            'line 3: proxy.config.mode: "nftables" here, and "iptables" in proxy.mode',
        ),
        (f"{LAB}proxy: {{config: {{mode: ipvs}}}}\n", "proxy.config.mode: mode ipvs: a lab has iptables or nftables"),
        (f"{LAB}nodes: 0\n", "lab.yaml: document 1: line 3: nodes: Invalid value: 0: must be from 1 to 100"),
        (f"{LAB}nodes: []\n", "lab.yaml: document 1: line 3: nodes: Invalid value: 0: must be from 1 to 100 nodes"),
        (f"{LAB}nodes: [{{labels: 3}}]\n", "nodes[0].labels: Invalid value: 3: must be a map, not an integer"),
        (f"{LAB}timeout: 0\n", "timeout: Invalid value: 0: must be at least 1 s"),
        (f"{LAB}timeout: true\n", "timeout: Invalid value: true: must be a duration such as"),
        (
            f"{LAB}networking: {{podSubnet: 172.30.0.0/16}}\n",
            "podSubnet: Invalid value: \"172.30.0.0/16\": overlaps 172.30.0.0/24, a range of every lab",
        ),
        (
            f"{LAB}networking: {{podSubnet: 10.0.0.0/8}}\n",
            'podSubnet: Invalid value: "10.0.0.0/8": overlaps 10.96.0.0/16, networking.serviceSubnet',
        ),
        (f"{LAB}networking: {{podSubnet: 'fd00:1::/48'}}\n", "is IPv6, which networking.ipFamily leaves out"),
        (f"{LAB}networking: {{podSubnet: '10.1.0.0/16,10.2.0.0/16'}}\n", "has two ranges of IPv4"),
        (f"{LAB}networking: {{podSubnet: 10.1.0.1/16}}\n", "must be a range such as 10.244.0.0/16"),
        ("a: [", "lab.yaml: line 2: neither YAML nor JSON: column 1:"),
    ],
)  # fmt: skip
def test_what_cannot_be_a_lab(text: str, message: str) -> None:
    (found,) = problems(text)
    assert message in found


def test_json_has_lines_too() -> None:
    lab = {"apiVersion": "kproxy/v1", "kind": "Lab", "nodes": "3", "proxy": {"config": {"mode": 3}}}
    assert problems(json.dumps(lab, indent=1)) == [
        'lab.yaml: document 1: line 4: nodes: Invalid value: "3": must be an integer or a list, not a string',
        "lab.yaml: document 1: line 7: proxy.config.mode: Invalid value: 3: must be a string, not an integer",
    ]


def test_more_nodes_than_the_file_has_are_plain_ones() -> None:
    config = decode(f"{LAB}nodes: [{{labels: {{a: b}}}}]\n", nodes=2)
    assert [plan.settings.labels for plan in config.spec.node_plans()] == [{"a": "b"}, {}]


@pytest.mark.parametrize("name", preset_names())
def test_presets_are_labs_with_one_sentence(name: str) -> None:
    config = load_lab_config(preset_file(name))
    assert config.spec.name == "lab"
    assert config.warnings == ()
    assert 20 < len(about_preset(name)) < 66
    reader = ManifestReader()
    for each in config.objects:
        reader.add(config.file, each.number, each.document)
    assert reader.problems == []
    assert {item.kind for item in reader.found} == {"Deployment", "Service"}


@pytest.mark.parametrize("text", [*(Path(preset_file(name)).read_text() for name in preset_names()), ALL])
def test_what_is_shown_asks_for_the_same_lab(text: str) -> None:
    config = decode(text.replace("web.yaml", __file__))
    again = decode(lab_text(config))
    assert (again.spec.mode, again.spec.proxy.get("nodePortAddresses")) == (
        config.spec.mode, config.spec.proxy.get("nodePortAddresses"),
    )  # fmt: skip
    assert again.commands == config.commands
    assert again.manifests == config.manifests
    assert lab_text(again) == lab_text(config)
    assert len(list(read_yaml(lab_text(config)))) == 1 + len(config.objects)
    assert yaml.safe_load(lab_text(config).partition("---\n")[0])["kind"] == "Lab"


def test_all_problems_are_one_error() -> None:
    with pytest.raises(LabConfigError) as raised:
        decode(f"{LAB}nodes: x\ntimeout: y\n")
    assert len(raised.value.problems) == 2
