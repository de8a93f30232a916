"""Which host a packet is traced on: from a host file, from a Node, or from a few addresses."""

from __future__ import annotations

from collections.abc import Sequence

from kproxy.api.kubeproxyconfig.types import KubeProxyConfiguration
from kproxy.api.types.core import Node
from kproxy.cluster.inputs import named_file, read_document
from kproxy.dataplane import Host, HostError
from kproxy.dataplane.model.hostfile import parse_host
from kproxy.errors import InputError
from kproxy.netfilter import Family
from kproxy.render import render_options


def read_host(path: str) -> Host:
    """Reads a host file (docs/host-file.md).

    Raises:
        InputError: it cannot be read, or a field is wrong.
    """
    document = read_document(named_file(path))
    try:
        return parse_host(document.value)
    except HostError as error:
        raise InputError(f"{path}: {error}") from error


def node_addresses(node: Node) -> tuple[str, ...]:
    """The addresses that a Node object gives its node."""
    return tuple(entry.address for entry in node.addresses if entry.type in ("InternalIP", "ExternalIP"))


def node_host(node: Node, config: KubeProxyConfiguration, family: Family, more: Sequence[str] = ()) -> Host:
    """A node as far as its Node object tells: it has these addresses and `more` but no others, it forwards, and
    `route_localnet` is on if kube-proxy with this configuration switches it on."""
    options = render_options(config, family, node.metadata.name, node)
    return Host.simple([*node_addresses(node), *more], route_localnet=options.localhost_node_ports)
