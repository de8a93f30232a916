"""Rules between objects: what the API server's allocators would never hand out twice.

Cluster IPs are unique in a cluster. So are node ports, which the health-check node ports share: kube-proxy listens on
those with TCP. (The API server's allocator does not even let two Services share a number over different protocols;
dumps assembled by hand do, harmlessly, so only the same number with the same protocol is an error here.)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from kproxy.api.fielderror import FieldError, invalid
from kproxy.api.types.core import Service

Claim = tuple[Service, FieldError]


def collisions(services: Iterable[Service], sources: Mapping[tuple[str, str], object]) -> Iterator[Claim]:
    """The Services that claim what an earlier one has, with the error; `sources` says where each key comes from."""
    ips: dict[str, Service] = {}
    ports: dict[tuple[str, int], Service] = {}
    for service in services:
        spec = service.spec
        if spec.type == "ExternalName":
            continue
        for ip in spec.cluster_ips:
            if ip == "None":
                continue
            owner = ips.setdefault(ip, service)
            if owner is not service:
                text = f"provided IP is already allocated to Service {_name(owner, sources)}"
                yield service, invalid("spec.clusterIPs", spec.cluster_ips, f"failed to allocate IP {ip}: {text}")
        for index, port in enumerate(spec.ports):
            if port.node_port:
                owner = ports.setdefault((port.protocol, port.node_port), service)
                if owner is not service:
                    text = f"provided port is already allocated to Service {_name(owner, sources)}"
                    yield service, invalid(f"spec.ports[{index}].nodePort", port.node_port, text)
        if spec.health_check_node_port:
            holder = ports.get(("TCP", spec.health_check_node_port))
            ports.setdefault(("TCP", spec.health_check_node_port), service)
            if holder is not None:
                text = f"provided port is already allocated to Service {_name(holder, sources)}"
                yield service, invalid("spec.healthCheckNodePort", spec.health_check_node_port, text)


def _name(service: Service, sources: Mapping[tuple[str, str], object]) -> str:
    return f"{service.metadata.key} ({sources.get(('Service', service.metadata.key), 'unknown')})"
