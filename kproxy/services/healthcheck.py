"""Health-check node ports: which there are, and how many local ready endpoints each has."""

from __future__ import annotations

from collections.abc import Mapping

from kproxy.services.endpoints import Endpoint
from kproxy.services.names import ServicePortName
from kproxy.services.serviceport import ServicePort


def health_check_node_ports(service_ports: Mapping[ServicePortName, ServicePort]) -> dict[str, int]:
    """The health-check node port of each Service that has one, by `namespace/name`."""
    return {name.service: sp.health_check_node_port for name, sp in service_ports.items() if sp.health_check_node_port}


def local_ready_endpoints(endpoints: Mapping[ServicePortName, tuple[Endpoint, ...]]) -> dict[str, int]:
    """For each Service with any, the number of distinct IPs among its ready endpoints on this node."""
    ips: dict[str, set[str]] = {}
    for name, entries in endpoints.items():
        for endpoint in entries:
            if endpoint.is_local and endpoint.ready:
                ips.setdefault(name.service, set()).add(endpoint.ip)
    return {service: len(found) for service, found in ips.items()}
