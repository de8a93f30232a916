"""Small clusters to switch the mode of, as manifests."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kproxy.api.kubeproxyconfig.types import MODE_IPTABLES, MODE_NFTABLES
from kproxy.cluster.migrate.switch import Switch

NODE = "n1"
TO_NFTABLES = Switch(MODE_IPTABLES, MODE_NFTABLES)
TO_IPTABLES = Switch(MODE_NFTABLES, MODE_IPTABLES)
QUIET: Mapping[str, Any] = {
    "clusterCIDR": "10.244.0.0/16,fd00:10:244::/56",
    "conntrack": {"tcpBeLiberal": True},
    "iptables": {"localhostNodePorts": False},
}
"""A configuration with which the modes treat every packet of an empty cluster alike."""


def node(name: str = NODE, address: str = "192.168.0.2") -> dict[str, Any]:
    """A Node with one internal address."""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name},
        "status": {"addresses": [{"type": "InternalIP", "address": address}]},
    }


def service(name: str = "web", ip: str = "10.96.0.9", **spec: Any) -> dict[str, Any]:
    """A Service with one port, 80."""
    port = {"name": "p", "port": 80, **spec.pop("port", {})}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": "shop"},
        "spec": {"clusterIP": ip, "ports": [port], **spec},
    }


def endpoints(name: str = "web", addresses: Sequence[str] = ("10.244.0.5",), node_name: str = NODE) -> dict[str, Any]:
    """The slice of a Service, on one node."""
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": name, "namespace": "shop", "labels": {"kubernetes.io/service-name": name}},
        "addressType": "IPv4",
        "ports": [{"name": "p", "port": 8080}],
        "endpoints": [{"addresses": [address], "nodeName": node_name} for address in addresses],
    }


def service_cidr(*cidrs: str) -> dict[str, Any]:
    """A ServiceCIDR."""
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "ServiceCIDR",
        "metadata": {"name": "kubernetes"},
        "spec": {"cidrs": list(cidrs)},
    }


def write(
    directory: Path, objects: Sequence[Mapping[str, Any]], config: Mapping[str, Any] = QUIET
) -> tuple[Path, Path]:
    """Writes a cluster and a configuration; their paths."""
    cluster, configuration = directory / "cluster.json", directory / "config.json"
    cluster.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)}))
    head = {"apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration"}
    configuration.write_text(json.dumps(head | dict(config)))
    return cluster, configuration
