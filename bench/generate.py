"""Clusters of a given size as JSON lines: N Services with M endpoints each."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def cluster_lines(services: int, endpoints: int) -> Iterator[str]:
    """One Node, then for each Service the Service and its EndpointSlices, one JSON document a line.

    Args:
        services: how many Services, all ClusterIP with one TCP port.
        endpoints: how many endpoints each has, spread over 10 nodes.
    """
    yield json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": "node-0"},
            "spec": {"podCIDR": "10.0.0.0/24", "podCIDRs": ["10.0.0.0/24"]},
            "status": {"addresses": [{"type": "InternalIP", "address": "192.168.0.2"}]},
        }
    )
    for number in range(services):
        yield json.dumps(service(number))
        yield json.dumps(endpoint_slice(number, [endpoint_ip(number, index) for index in range(endpoints)]))


def write_cluster(services: int, endpoints: int, directory: Path, nodes: int = 1) -> Path:
    """Writes a cluster into a file SERVICESxENDPOINTS.jsonl, with Nodes node-0 and so on; returns its path."""
    lines = list(cluster_lines(services, endpoints))
    node = json.loads(lines[0])
    for number in range(1, nodes):
        status = {"addresses": [{"type": "InternalIP", "address": f"192.168.0.{number + 2}"}]}
        spec = {"podCIDRs": [f"10.0.{number}.0/24"]}
        lines.append(json.dumps({**node, "metadata": {"name": f"node-{number}"}, "spec": spec, "status": status}))
    path = directory / f"{services}x{endpoints}.jsonl"
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def endpoint_ip(number: int, index: int) -> str:
    """An IP of its own for endpoint `index` of Service `number`."""
    value = number * 64 + index
    return f"10.{1 + (value >> 16)}.{(value >> 8) & 255}.{value & 255}"


def service(number: int) -> dict[str, Any]:
    """The Service `bench/svc-NUMBER`."""
    cluster_ip = f"172.{16 + (number >> 16)}.{(number >> 8) & 255}.{number & 255}"
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": f"svc-{number}", "namespace": "bench", "labels": {"app": f"svc-{number}"}},
        "spec": {
            "type": "ClusterIP",
            "clusterIP": cluster_ip,
            "clusterIPs": [cluster_ip],
            "ipFamilies": ["IPv4"],
            "ipFamilyPolicy": "SingleStack",
            "internalTrafficPolicy": "Cluster",
            "sessionAffinity": "None",
            "selector": {"app": f"svc-{number}"},
            "ports": [{"name": "http", "port": 80, "protocol": "TCP", "targetPort": 8080}],
        },
    }


def endpoint_slice(number: int, ips: list[str]) -> dict[str, Any]:
    """The EndpointSlice of Service `svc-NUMBER` with the given endpoints."""
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": f"svc-{number}-x",
            "namespace": "bench",
            "labels": {"kubernetes.io/service-name": f"svc-{number}"},
        },
        "addressType": "IPv4",
        "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
        "endpoints": [
            {
                "addresses": [ip],
                "conditions": {"ready": True, "serving": True, "terminating": False},
                "nodeName": f"node-{index % 10}",
            }
            for index, ip in enumerate(ips)
        ],
    }
