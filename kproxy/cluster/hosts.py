"""Which host a packet is traced on: from a host file, from a Node, or from a few addresses."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from kproxy.api.kubeproxyconfig.types import KubeProxyConfiguration
from kproxy.api.types.core import Node
from kproxy.cluster.inputs import named_file, read_document
from kproxy.dataplane import Host, HostError
from kproxy.dataplane.model.hostfile import parse_host
from kproxy.dataplane.query.assumptions import host_in_short
from kproxy.errors import InputError
from kproxy.netfilter import Family
from kproxy.render import render_options

_IP_ADDRESS: Final = re.compile(r"\d+: \S+: <")
_LONGEST: Final = 200


def read_host(path: str) -> Host:
    """Reads a host file (docs/host-file.md).

    Raises:
        InputError: it cannot be read, or a field is wrong.
    """
    try:
        document = read_document(named_file(path))
    except InputError as error:
        if _IP_ADDRESS.match(_first_line(path)):
            message = "a host file is YAML, and not what `ip address` prints (documentation: Host files)"
            raise InputError(f"{path}: line 1: {message}") from error
        raise
    try:
        return parse_host(document.value)
    except HostError as error:
        raise InputError(f"{path}: {error}") from error


def _first_line(path: str) -> str:
    """The first line of a file; "" if it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.readline(_LONGEST)
    except OSError:
        return ""


def node_addresses(node: Node) -> tuple[str, ...]:
    """The addresses that a Node object gives its node."""
    return tuple(entry.address for entry in node.addresses if entry.type in ("InternalIP", "ExternalIP"))


def node_host(node: Node, config: KubeProxyConfiguration, family: Family, more: Sequence[str] = ()) -> Host:
    """A node as far as its Node object tells: it has these addresses and `more` but no others, it forwards, and
    `route_localnet` is on if kube-proxy with this configuration switches it on."""
    options = render_options(config, family, node.metadata.name, node)
    return host_in_short([*node_addresses(node), *more], route_localnet=options.localhost_node_ports)
