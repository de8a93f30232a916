"""Rules between objects: what the API server's allocators would never hand out twice.

Cluster IPs are unique in a cluster. So are node ports, which the health-check node ports share: kube-proxy listens on
those with TCP. (The API server's allocator does not even let two Services share a number over different protocols;
dumps assembled by hand do, harmlessly, so only the same number with the same protocol is an error here.)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from kproxy.api.fielderror import FieldError, invalid
from kproxy.api.types.core import Service, ServiceSpec

Claim = tuple[Service, FieldError]
_HEALTH_CHECK: Final = "spec.healthCheckNodePort"


def collisions(services: Iterable[Service], sources: Mapping[tuple[str, str], object]) -> Iterator[Claim]:
    """The Services that claim what an earlier one has, with the error; `sources` says where each key comes from."""
    owners: dict[object, Service] = {}
    for service in services:
        if service.spec.type == "ExternalName":
            continue
        for path, value, claimed, text in _claims(service.spec):
            known = claimed in owners
            owner = owners.setdefault(claimed, service)
            # Ports of one Service may share a number, which `validate_service` checks; its health check may not.
            if owner is not service or (known and path == _HEALTH_CHECK):
                name = f"{owner.metadata.key} ({sources.get(('Service', owner.metadata.key), 'unknown')})"
                yield service, invalid(path, value, f"{text} is already allocated to Service {name}")


def _claims(spec: ServiceSpec) -> Iterator[tuple[str, object, object, str]]:
    """Path, value, what nobody else may have, and how the message begins."""
    for ip in spec.cluster_ips:
        if ip != "None":
            yield "spec.clusterIPs", spec.cluster_ips, ip, f"failed to allocate IP {ip}: provided IP"
    for index, port in enumerate(spec.ports):
        if port.node_port:
            path = f"spec.ports[{index}].nodePort"
            yield path, port.node_port, (port.protocol, port.node_port), "provided port"
    if spec.health_check_node_port:
        yield _HEALTH_CHECK, spec.health_check_node_port, ("TCP", spec.health_check_node_port), "provided port"
