"""The fields of a Lab, and what is wrong with them.

    apiVersion: kproxy/v1
    kind: Lab
    nodes: 3

Unlike kube-proxy with its own configuration, a lab takes no field that it does not know: whoever misspells one would
look at another lab than they think. A field that is null is absent.
"""

from __future__ import annotations

import ipaddress
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, Final, Literal

import msgspec
import yaml

from kproxy.api.document.tree import path_steps
from kproxy.api.fielderror import FieldError, invalid, refused, required, unknown_field
from kproxy.api.kubeproxyconfig.duration import Duration
from kproxy.api.validation.meta import validate_labels
from kproxy.api.validation.names import check_label_value, check_qualified_name
from kproxy.api.validation.types import type_errors, unknown_fields, without_fields
from kproxy.lab.config.types import API_VERSION, KIND, Choices, HostCommand, LabConfig
from kproxy.lab.spec import (
    CLIENT,
    FABRIC,
    FIXED_RANGES,
    HOST_BITS,
    MAX_NODES,
    NAME_RULE,
    BackendName,
    IpFamily,
    LabSpec,
    Mode,
    NodeSettings,
    Variant,
    is_name,
    node_number,
)

PROXY_CONFIG: Final = ("proxy", "config")
"""The field that may hold a KubeProxyConfiguration."""
_LEAST_MTU: Final = 1280
"""Bytes: what the overlay takes."""
_MOST_MTU: Final = 65535
_LEAST_TIMEOUT: Final = 1.0
_POD_SUBNET: Final = "networking.podSubnet"
_SERVICE_SUBNET: Final = "networking.serviceSubnet"
_PREFIXES: Final = {
    _POD_SUBNET: {family: (8, bits - MAX_NODES.bit_length()) for family, bits in HOST_BITS.items()},
    _SERVICE_SUBNET: {4: (8, 28), 6: (64, 124)},
}
"""The largest range, and the smallest: a part for each of the most nodes, and some addresses for Services."""


class Seconds(float):
    """A duration, as Go writes them or a number of seconds, of at least one second."""

    @classmethod
    def of(cls, value: object) -> Seconds:
        """Raises ValueError: it is none."""
        if isinstance(value, str):
            found = cls(Duration.of(value).seconds)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            found = cls(value)
        else:
            raise ValueError('must be a duration such as "2m", or a number of seconds')
        if not _LEAST_TIMEOUT <= found < math.inf:
            raise ValueError(f"must be at least {_LEAST_TIMEOUT:g} s")
        return found


class _Fields(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A map of the file."""


class Taint(_Fields, frozen=True):
    """A node's taint, as the API has it."""

    key: str = ""
    value: str = ""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None


class NodeFields(_Fields, frozen=True):
    labels: dict[str, str] = {}
    taints: tuple[Taint, ...] = ()


class Networking(_Fields, frozen=True):
    ip_family: IpFamily | None = None
    backend: BackendName | None = None
    pod_subnet: str | None = None
    service_subnet: str | None = None
    mtu: int | None = None
    dns: bool | None = None


class Proxy(_Fields, frozen=True):
    mode: Mode | None = None
    variant: Variant | None = None
    config: dict[str, Any] = {}


class LabFields(_Fields, frozen=True):
    """The whole document."""

    api_version: Literal["kproxy/v1"] | None = None
    kind: Literal["Lab"] | None = None
    name: str | None = None
    nodes: int | tuple[NodeFields, ...] | None = None
    networking: Networking = Networking()
    proxy: Proxy = Proxy()
    manifests: tuple[str, ...] = ()
    commands: tuple[HostCommand, ...] = ()
    timeout: Seconds | None = None


def read_lab(document: Mapping[str, Any], config: LabConfig) -> tuple[LabConfig, bool, list[FieldError]]:
    """A lab with what the document says, where `config` does not say it already; whether the document holds a
    KubeProxyConfiguration, which is not looked at; and everything that is wrong."""
    given: dict[str, Any] = _without_nulls(document)
    proxy = given.get("proxy")
    inline = isinstance(proxy, dict) and "config" in proxy
    if inline:
        del given["proxy"]["config"]
    errors = type_errors(given, LabFields)
    wrong = {error.path for error in errors}
    dropped = ("manifests" if path.startswith("manifests[") else path for path in wrong)
    fitting = without_fields(given, sorted({path_steps(path) for path in dropped}, key=len, reverse=True))
    fields = msgspec.convert(fitting, LabFields, dec_hook=lambda kind, value: kind.of(value))
    errors += unknown_fields(given, LabFields, lambda prefix, name, known, _given: [unknown_field(prefix, name, known)])
    found, faults = _network(fields.networking, _config(fields, config), config.choices)
    faults += _faults(fields, found)
    # What is dropped is not missing.
    inside = tuple(f"{path}{sign}" for path in wrong for sign in ".[")
    errors += (each for each in faults if each.path not in wrong and not each.path.startswith(inside))
    return found, inline, errors


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nulls(each) for name, each in value.items() if each is not None}
    return [{} if each is None else _without_nulls(each) for each in value] if isinstance(value, list) else value


def _config(fields: LabFields, config: LabConfig) -> LabConfig:
    """The fields as values, those of the command line before them."""
    network, proxy = fields.networking, fields.proxy
    listed = fields.nodes if isinstance(fields.nodes, tuple) else ()
    count = fields.nodes if isinstance(fields.nodes, int | None) else len(listed)
    said = Choices(
        fields.name, count, network.ip_family, proxy.variant, network.backend, proxy.mode, fields.timeout, network.dns
    )
    directory = "" if config.file == "-" else os.path.dirname(config.file)
    return msgspec.structs.replace(
        config,
        choices=config.choices.over(said),
        settings=tuple(NodeSettings(each.labels, tuple(map(msgspec.to_builtins, each.taints))) for each in listed),
        mtu=network.mtu or 0,
        manifests=tuple(os.path.join(directory, each) for each in fields.manifests),
        commands=fields.commands,
    )


def _faults(fields: LabFields, config: LabConfig) -> Iterator[FieldError]:
    """What is wrong with fields of the right types, but for the network's."""
    if fields.api_version is None:
        yield required("apiVersion", f'must be "{API_VERSION}"')
    if fields.kind is None:
        yield required("kind", f'must be "{KIND}"')
    if fields.name is not None and not is_name(fields.name):
        yield invalid("name", fields.name, f"must be {NAME_RULE}")
    listed = fields.nodes if isinstance(fields.nodes, tuple) else None
    count = fields.nodes if isinstance(fields.nodes, int | None) else len(fields.nodes)
    if count is not None and not 1 <= count <= MAX_NODES:
        yield invalid("nodes", count, f"must be from 1 to {MAX_NODES}{'' if listed is None else ' nodes'}")
    for index, node in enumerate(listed or ()):
        yield from validate_labels(f"nodes[{index}].labels", node.labels)
        for position, taint in enumerate(node.taints):
            path = f"nodes[{index}].taints[{position}]"
            yield from (required(f"{path}.{name}") for name in ("key", "effect") if not getattr(taint, name))
            yield from refused(f"{path}.key", taint.key, check_qualified_name(taint.key) if taint.key else ())
            yield from refused(f"{path}.value", taint.value, check_label_value(taint.value))
    for index, (given, found) in enumerate(zip(fields.manifests, config.manifests, strict=True)):
        if not given:
            yield required(f"manifests[{index}]", "must be the name of a file or directory")
        elif not Path(found).exists():
            yield invalid(f"manifests[{index}]", given, f"no such file or directory: {found}")
    nodes = config.spec.nodes
    for index, command in enumerate(fields.commands):
        path, host = f"commands[{index}]", command.host
        yield from (required(f"{path}.{name}") for name in ("host", "run") if not getattr(command, name))
        if host and host not in (CLIENT, FABRIC) and not 1 <= (node_number(host) or 0) <= nodes:
            yield invalid(f"{path}.host", host, f"must be {CLIENT}, {FABRIC}, or node-1 to node-{nodes}")


def _network(fields: Networking, config: LabConfig, flags: Choices) -> tuple[LabConfig, list[FieldError]]:
    """The lab with its ranges, and what is wrong with the network."""
    families = None if flags.ip_family else config.spec.families
    pods, errors = _read_subnets(_POD_SUBNET, fields.pod_subnet, families)
    services, more = _read_subnets(_SERVICE_SUBNET, fields.service_subnet, families)
    config = msgspec.structs.replace(config, pod_subnets=pods, service_subnets=services)
    spec, mtu = config.spec, fields.mtu
    errors += more or ([] if errors else _overlaps(spec))
    if mtu is not None and not _LEAST_MTU <= mtu <= _MOST_MTU:
        errors.append(invalid("networking.mtu", mtu, f"must be from {_LEAST_MTU} to {_MOST_MTU}"))
    elif mtu is not None and mtu > spec.most_mtu:
        most = f"must be at most {spec.most_mtu} with {spec.backend} and {spec.ip_family}"
        errors.append(invalid("networking.mtu", mtu, most))
    return config, errors


def lab_text(config: LabConfig) -> str:
    """A file, as YAML, that asks for the same lab without the command line's options, with the manifests of the one
    that was read behind it."""
    spec, said = config.spec, {"dns": config.spec.dns} if config.choices.dns is not None else {}
    settings = [spec.node(number).settings for number in range(1, spec.nodes + 1)]
    network = Networking(
        spec.ip_family,
        spec.backend,
        ",".join(spec.pod_subnets) or None,
        ",".join(spec.service_subnets) or None,
        spec.mtu or None,
        **said,
    )
    lab = LabFields(
        "kproxy/v1",
        "Lab",
        spec.name,
        tuple(NodeFields(each.labels, msgspec.convert(each.taints, tuple[Taint, ...])) for each in settings)
        if any(each != NodeSettings() for each in settings)
        else spec.nodes,
        network,
        Proxy(spec.mode, spec.variant, {**config.proxy, "mode": spec.mode} if config.proxy else {}),
        config.manifests,
        config.commands,
    )
    document = {**msgspec.to_builtins(lab), "timeout": f"{config.timeout:g}s"}
    documents = [document, *(each.document.value for each in config.objects)]
    return "---\n".join(yaml.safe_dump(each, sort_keys=False, allow_unicode=True) for each in documents)


# --- ranges: which are possible, and that none is in another ---


def _read_subnets(
    path: str, text: str | None, families: Sequence[int] | None
) -> tuple[tuple[str, ...], list[FieldError]]:
    """The ranges of a field, one a family, with a comma between; and what is wrong.

    Args:
        families: those that the lab has; None if the command line has decided that, which may be fewer.
    """
    found: dict[int, str] = {}
    errors: list[FieldError] = []
    for part in text.split(",") if text is not None else ():
        try:
            network = ipaddress.ip_network(part.strip())
        except ValueError:
            errors.append(invalid(path, part.strip(), "must be a range such as 10.244.0.0/16 or fd00:10:244::/48"))
            continue
        low, high = _PREFIXES[path][network.version]
        if not low <= network.prefixlen <= high:
            errors.append(invalid(path, part.strip(), f"must have a prefix length from {low} to {high}"))
        elif network.version in found:
            errors.append(invalid(path, text, f"has two ranges of IPv{network.version}"))
        elif families is not None and network.version not in families:
            errors.append(invalid(path, part.strip(), f"is IPv{network.version}, which networking.ipFamily leaves out"))
        else:
            found[network.version] = str(network)
    return tuple(found.values()), errors


def _overlaps(spec: LabSpec) -> Iterator[FieldError]:
    """The ranges of a lab that are in one another."""
    for family in spec.families:
        ranges: list[tuple[str, ipaddress.IPv4Network | ipaddress.IPv6Network]] = [
            (path, network)
            for path, cidrs in ((_POD_SUBNET, spec.pod_cidrs), (_SERVICE_SUBNET, spec.service_cidrs))
            for network in map(ipaddress.ip_network, cidrs)
            if network.version == family
        ]
        ranges += [("", network) for network in FIXED_RANGES[family]]
        for (path, one), (other_path, other) in combinations(ranges, 2):
            if path and one.version == other.version and one.overlaps(other):
                what = other_path or "a range of every lab"
                yield invalid(path, str(one), f"overlaps {other}, {what}")
