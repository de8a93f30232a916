"""The fields of a Lab.

    apiVersion: kproxy/v1
    kind: Lab
    nodes: 3

Unlike kube-proxy with its own configuration, a lab takes no field that it does not know: whoever misspells one would
look at another lab than they think.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final, get_args

import msgspec

from kproxy.api.document.tree import Node
from kproxy.api.fielderror import invalid, required
from kproxy.api.kubeproxyconfig.types import MODE_IPTABLES, MODE_NFTABLES
from kproxy.api.validation.meta import validate_labels
from kproxy.api.validation.names import check_label_value, check_qualified_name
from kproxy.lab.config.networks import POD_SUBNET, SERVICE_SUBNET, overlaps, read_subnets
from kproxy.lab.config.reader import DocumentReader
from kproxy.lab.config.types import API_VERSION, KIND, Choices, HostCommand, LabConfig
from kproxy.lab.spec import (
    CLIENT,
    FABRIC,
    MAX_NODES,
    NAME_RULE,
    BackendName,
    IpFamily,
    NodeSettings,
    Variant,
    is_name,
    node_number,
)

FIELDS: Final = ("apiVersion", "kind", "name", "nodes", "networking", "proxy", "manifests", "commands", "timeout")
NODE_FIELDS: Final = ("labels", "taints")
TAINT_FIELDS: Final = ("key", "value", "effect")
NETWORKING_FIELDS: Final = ("ipFamily", "podSubnet", "serviceSubnet", "backend", "mtu", "dns")
PROXY_FIELDS: Final = ("mode", "variant", "config")
COMMAND_FIELDS: Final = ("host", "run")
PROXY_CONFIG: Final = ("proxy", "config")
"""The field that may hold a KubeProxyConfiguration."""
EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_LEAST_MTU: Final = 1280
"""Bytes: what the overlay takes."""
_MOST_MTU: Final = 65535
_LEAST_TIMEOUT: Final = 1.0


def read_lab(reader: DocumentReader, config: LabConfig) -> tuple[LabConfig, bool]:
    """A lab with what the document says, where `config` does not say it already; and whether the document holds a
    KubeProxyConfiguration. What is wrong is reported to `reader`."""
    flags = config.choices
    fields = reader.fields(reader.document.root, "", FIELDS)
    reader.choice(fields.get("apiVersion"), "apiVersion", (API_VERSION,))
    reader.choice(fields.get("kind"), "kind", (KIND,))
    for field, expected in (("apiVersion", API_VERSION), ("kind", KIND)):
        if field not in fields:
            reader.report(required(field, f'must be "{expected}"'))
    name = reader.text(fields.get("name"), "name")
    if name is not None and not is_name(name):
        reader.report(invalid("name", name, f"must be {NAME_RULE}"))
    count, settings = _nodes(reader, fields.get("nodes"))
    network = reader.fields(fields["networking"], "networking", NETWORKING_FIELDS) if "networking" in fields else {}
    proxy = reader.fields(fields["proxy"], "proxy", PROXY_FIELDS) if "proxy" in fields else {}
    said = Choices(
        name,
        count,
        reader.choice(network.get("ipFamily"), "networking.ipFamily", get_args(IpFamily)),  # type: ignore[arg-type]
        reader.choice(proxy.get("variant"), "proxy.variant", get_args(Variant)),  # type: ignore[arg-type]
        reader.choice(network.get("backend"), "networking.backend", get_args(BackendName)),  # type: ignore[arg-type]
        reader.choice(proxy.get("mode"), "proxy.mode", (MODE_IPTABLES, MODE_NFTABLES)),  # type: ignore[arg-type]
        reader.seconds(fields.get("timeout"), "timeout", _LEAST_TIMEOUT),
        reader.boolean(network.get("dns"), "networking.dns"),
    )
    config = msgspec.structs.replace(config, choices=flags.over(said), settings=settings)
    config = _networking(reader, network, config, flags)
    commands = tuple(_commands(reader, fields.get("commands"), config.spec.nodes))
    config = msgspec.structs.replace(
        config, manifests=tuple(_manifests(reader, fields.get("manifests"), config.file)), commands=commands
    )
    return config, "config" in proxy


def _nodes(reader: DocumentReader, node: Node | None) -> tuple[int | None, tuple[NodeSettings, ...]]:
    """How many nodes, and the settings of each: a number, or a list."""
    if node is None:
        return None, ()
    if not isinstance(node.value, list):
        return reader.integer(node, "nodes", 1, MAX_NODES), ()
    items = reader.items(node, "nodes")
    if not 1 <= len(items) <= MAX_NODES:
        reader.report(invalid("nodes", len(items), f"must be from 1 to {MAX_NODES} nodes"))
    return len(items), tuple(_node(reader, each, f"nodes[{index}]") for index, each in enumerate(items))


def _node(reader: DocumentReader, node: Node, path: str) -> NodeSettings:
    if node.value is None:
        return NodeSettings()
    fields = reader.fields(node, path, NODE_FIELDS)
    labels: dict[str, str] = {}
    if "labels" in fields:
        value = fields["labels"].value
        inside = reader.fields(fields["labels"], f"{path}.labels", value if isinstance(value, dict) else ())
        labels = {key: reader.text(each, f"{path}.labels[{key}]") or "" for key, each in inside.items()}
        for error in validate_labels(f"{path}.labels", labels):
            reader.report(error)
    taints = reader.items(fields["taints"], f"{path}.taints") if "taints" in fields else []
    found = tuple(_taint(reader, each, f"{path}.taints[{index}]") for index, each in enumerate(taints))
    return NodeSettings(labels, found)


def _taint(reader: DocumentReader, node: Node, path: str) -> dict[str, str]:
    fields = reader.fields(node, path, TAINT_FIELDS)
    key = reader.text(fields.get("key"), f"{path}.key")
    value = reader.text(fields.get("value"), f"{path}.value") or ""
    effect = reader.choice(fields.get("effect"), f"{path}.effect", EFFECTS)
    for name in ("key", "effect"):
        if name not in fields and isinstance(node.value, dict):
            reader.report(required(f"{path}.{name}"))
    for part, text, messages in (("key", key, check_qualified_name), ("value", value, check_label_value)):
        for message in messages(text) if text else ():
            reader.report(invalid(f"{path}.{part}", text, message))
    return {"key": key or "", **({"value": value} if value else {}), "effect": effect or ""}


def _networking(reader: DocumentReader, network: dict[str, Node], config: LabConfig, flags: Choices) -> LabConfig:
    """With the ranges and the MTU."""
    families = None if flags.ip_family else config.spec.families
    subnets: dict[str, tuple[str, ...]] = {}
    sound = True
    for name, path in (("podSubnet", POD_SUBNET), ("serviceSubnet", SERVICE_SUBNET)):
        text = reader.text(network.get(name), path)
        subnets[name], errors = read_subnets(path, text, families) if text is not None else ((), [])
        sound = sound and not errors
        for error in errors:
            reader.report(error)
    config = msgspec.structs.replace(config, pod_subnets=subnets["podSubnet"], service_subnets=subnets["serviceSubnet"])
    for error in overlaps(config.spec) if sound else ():
        reader.report(error)
    mtu = reader.integer(network.get("mtu"), "networking.mtu", _LEAST_MTU, _MOST_MTU)
    most = config.spec.most_mtu
    if mtu is not None and mtu > most:
        spec = config.spec
        reader.report(
            invalid("networking.mtu", mtu, f"must be at most {most} with {spec.backend} and {spec.ip_family}")
        )
    return msgspec.structs.replace(config, mtu=mtu or 0)


def _manifests(reader: DocumentReader, node: Node | None, file: str) -> Iterator[str]:
    """Files and directories, relative to that of the lab's file."""
    directory = "" if file == "-" else os.path.dirname(file)
    for index, each in enumerate(reader.items(node, "manifests") if node is not None else ()):
        path = f"manifests[{index}]"
        text = reader.text(each, path)
        if not text:
            reader.report(required(path, "must be the name of a file or directory"))
        elif not Path(directory, text).exists():
            reader.report(invalid(path, text, f"no such file or directory: {os.path.join(directory, text)}"))
        else:
            yield os.path.join(directory, text)


def _commands(reader: DocumentReader, node: Node | None, nodes: int) -> Iterator[HostCommand]:
    for index, each in enumerate(reader.items(node, "commands") if node is not None else ()):
        path = f"commands[{index}]"
        fields = reader.fields(each, path, COMMAND_FIELDS)
        host, run = (reader.text(fields.get(name), f"{path}.{name}") for name in COMMAND_FIELDS)
        for name in COMMAND_FIELDS:
            if name not in fields and isinstance(each.value, dict):
                reader.report(required(f"{path}.{name}"))
        if host is not None and host not in (CLIENT, FABRIC) and not 1 <= (node_number(host) or 0) <= nodes:
            reader.report(invalid(f"{path}.host", host, f"must be {CLIENT}, {FABRIC}, or node-1 to node-{nodes}"))
        if host and run:
            yield HostCommand(host, run)
