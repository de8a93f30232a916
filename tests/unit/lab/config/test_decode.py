"""A lab's file: what it says, what the command line says over it, and what is wrong in it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
import yaml

from kproxy.api.document.yaml_text import read_yaml
from kproxy.errors import InputError
from kproxy.lab.config.decode import (
    PRESETS,
    HostCommand,
    LabConfig,
    LabConfigError,
    about_preset,
    decode_lab_config,
    lab_of_options,
    load_lab_config,
)
from kproxy.lab.lifecycle.manifests import ManifestReader
from kproxy.lab.spec import LabSpec

LAB = "apiVersion: kproxy/v1\nkind: Lab\n"
PROXY = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n"
ALL = f"""{LAB}name: shop
nodes:
- labels: {{topology.kubernetes.io/zone: east, disk: ssd}}
- {{}}
-
networking:
  ipFamily: dual
  backend: host-gw
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


def decode(text: str, options: Mapping[str, Any] = MappingProxyType({})) -> LabConfig:
    return decode_lab_config(text.encode(), "lab.yaml", options)


def problems(text: str) -> list[str]:
    with pytest.raises(InputError) as raised:
        decode(text)
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
        (
            {"topology.kubernetes.io/zone": "east", "disk": "ssd"},
            {},
            {},
        ),
    )
    assert config.fields.timeout == 120.0
    assert config.manifests == (str(tmp_path / "web.yaml"),), "relative to the file, wherever one stands"
    assert config.fields.commands == (HostCommand("node-2", "ip link"),)
    assert [(number, document.value["kind"]) for number, document in config.objects] == [(2, "ConfigMap")]


def test_the_command_line_goes_before_the_file() -> None:
    said = (
        "name: shop\nnodes: 5\nnetworking: {ipFamily: dual, backend: host-gw}\nproxy: {mode: nftables}\ntimeout: 90\n"
    )
    assert decode(LAB + said).spec == LabSpec("shop", 5, "dual", backend="host-gw", mode="nftables")
    options = {
        "name": "other", "nodes": 2, "networking.ipFamily": "ipv6", "networking.backend": "vxlan",
        "proxy.mode": "iptables", "proxy.variant": "legacy", "timeout": 7.0,
    }  # fmt: skip
    config = decode(LAB + said, options)
    assert config.spec == LabSpec("other", 2, "ipv6", "legacy", "vxlan", "iptables")
    assert config.fields.timeout == 7.0
    assert decode(LAB, options).spec == lab_of_options(options).spec == config.spec
    assert decode(LAB).spec == LabSpec("lab"), "all fields have defaults"


def test_the_configuration_of_the_proxies() -> None:
    fields = "{mode: nftables, nodePortAddresses: [172.30.0.0/24], masqerade: 1}"
    found = decode(f"{LAB}proxy:\n  config: {fields}\n")
    assert (found.spec.mode, found.spec.proxy["nodePortAddresses"]) == ("nftables", ["172.30.0.0/24"])
    (warning,) = found.warnings
    assert warning.startswith("lab.yaml: document 1: line 4: ")
    assert decode(f"{LAB}proxy: {{config: {fields}}}\n", {"proxy.mode": "iptables"}).spec.mode == "iptables"


def test_everything_that_is_wrong_is_told_with_its_line() -> None:
    text = f"""{LAB}name: My-Lab
nodes:
- labels: {{"a b": c, zone: 1}}
- label: {{}}
networkng: {{}}
networking:
  ipFamily: dualstack
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
        (6, "nodes[1].label", 'is "nodes[1].labels" meant?'),
        (7, "networkng", 'is "networking" meant?'),
        (9, "networking.ipFamily", '"dualstack"'),
        (11, "proxy.mode", '"ipvs"'),
        (12, "proxy.config.iptables.masqueradeBit", "99"),
        (13, "manifests[0]", "no such file or directory: nowhere.yaml"),
        (14, "commands[0].host", "node-1 to node-2"),
        (14, "commands[1].run", "Required value"),
        (15, "timeout", "5x"),
    ]
    for line, path, words in expected:
        start = f"lab.yaml: document 1: line {line}: {path}: "
        assert any(each.startswith(start) and words in each for each in found), (path, found)
    assert 'lab.yaml: document 1: line 16: key "name" already set in map' in found
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
    listed = f"{LAB}nodes: [{{labels: {{a: b}}}}]\n"
    for count, labels in ((2, [{"a": "b"}, {}]), (1, [{"a": "b"}])):
        plans = decode(listed, {"nodes": count}).spec.node_plans()
        assert [plan.labels for plan in plans] == labels


@pytest.mark.parametrize("name", PRESETS)
def test_presets_are_labs_with_one_sentence(name: str) -> None:
    config = load_lab_config(PRESETS[name])
    assert config.spec.name == "lab"
    assert config.warnings == ()
    assert 20 < len(about_preset(name)) < 66
    reader = ManifestReader()
    for number, document in config.objects:
        reader.add(config.file, number, document)
    assert reader.problems == []
    assert {item.kind for item in reader.found} == {"Deployment", "Service"}


@pytest.mark.parametrize("text", [*(Path(file).read_text() for file in PRESETS.values()), ALL])
def test_what_is_shown_asks_for_the_same_lab(text: str) -> None:
    config = decode(text.replace("web.yaml", __file__))
    again = decode(config.text())
    assert (again.spec.mode, again.spec.proxy.get("nodePortAddresses")) == (
        config.spec.mode, config.spec.proxy.get("nodePortAddresses"),
    )  # fmt: skip
    assert again.fields.commands == config.fields.commands
    assert again.manifests == config.manifests
    assert again.text() == config.text()
    assert len(list(read_yaml(config.text()))) == 1 + len(config.objects)
    assert yaml.safe_load(config.text().partition("---\n")[0])["kind"] == "Lab"


def test_all_problems_are_one_error() -> None:
    with pytest.raises(LabConfigError) as raised:
        decode(f"{LAB}nodes: x\ntimeout: y\n")
    assert len(raised.value.problems) == 2
