"""Cluster IPs and node ports for Services that have none: manifests that no API server has seen yet, such as Helm's
output.

They follow from the Service's namespace and name alone, and a node port from its port's, so that they stay when other
Services come and go. Only where two Services would get the same one, or one that is taken, the later in the order of
names gets the next that is free. (kube-apiserver's own choice is random.)
"""

from __future__ import annotations

import hashlib
import ipaddress
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

import msgspec

from kproxy.api import Manifests, Service, ServicePort
from kproxy.errors import InputError

T = TypeVar("T")
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_RESERVED = 10
"""The first addresses of a range are left to what clusters give fixed addresses: `kubernetes`, and DNS at .10."""
NODE_PORTS = range(30000, 32768)
"""kube-apiserver's --service-node-port-range, by default."""


def read_networks(text: str) -> tuple[Network, ...]:
    """`CIDR[,CIDR]`, at most one of each family, as kube-apiserver's --service-cluster-ip-range. Raises InputError: it
    is something else."""
    networks: list[Network] = []
    for part in text.split(","):
        try:
            networks.append(ipaddress.ip_network(part.strip()))
        except ValueError as error:
            raise InputError(f"{part.strip()!r} is not a CIDR: {error}") from error
    if len({network.version for network in networks}) != len(networks):
        raise InputError(f"{text}: one CIDR of each family at most")
    small = next((network for network in networks if network.num_addresses < 4 * _RESERVED), None)
    if small is not None:
        raise InputError(f"{small} is too small: {4 * _RESERVED} addresses at least")
    return tuple(networks)


def is_unallocated(service: Service) -> bool:
    """Whether it needs a cluster IP and has none."""
    return not service.spec.cluster_ip and service.spec.type != "ExternalName"


def lacks_node_port(service: Service) -> bool:
    """Whether it needs a node port for one of its ports and has none."""
    spec = service.spec
    wants = spec.type == "NodePort" or (
        spec.type == "LoadBalancer" and spec.allocate_load_balancer_node_ports is not False
    )
    return wants and any(not port.node_port for port in spec.ports)


def allocate_addresses(cluster: Manifests, networks: Sequence[Network]) -> Manifests:
    """The cluster with addresses from `networks`, and node ports, for the Services that have none. Raises InputError: a
    Service wants a family that no network has, or a network is full."""
    taken = {ip for service in cluster.services for ip in service.spec.cluster_ips}
    held = {port.node_port for service in cluster.services for port in service.spec.ports}
    given = {service.metadata.key: service for service in cluster.services}
    for key, service in sorted(given.items()):
        if is_unallocated(service):
            chosen = _networks_for(service, networks)
            addresses = tuple(_free(_addresses(network, key), taken, f"{network} is full") for network in chosen)
            families = tuple(f"IPv{network.version}" for network in chosen)
            spec = msgspec.structs.replace(
                service.spec, cluster_ip=addresses[0], cluster_ips=addresses, ip_families=families
            )
            given[key] = msgspec.structs.replace(service, spec=spec)
    for key, service in sorted(given.items()):
        if lacks_node_port(service):
            ports = tuple(_with_node_port(port, key, held) for port in service.spec.ports)
            given[key] = msgspec.structs.replace(service, spec=msgspec.structs.replace(service.spec, ports=ports))
    return replace(cluster, services=tuple(given[each.metadata.key] for each in cluster.services))


def _networks_for(service: Service, networks: Sequence[Network]) -> list[Network]:
    spec = service.spec
    by_family = {f"IPv{network.version}": network for network in networks}
    wanted: Iterable[str] = spec.ip_families or list(by_family)[:1]
    if spec.ip_family_policy in ("PreferDualStack", "RequireDualStack"):
        wanted = dict.fromkeys((*wanted, *by_family))
    missing = [family for family in wanted if family not in by_family]
    if missing:
        raise InputError(f"--allocate: Service {service.metadata.key} wants {missing[0]}, of which no CIDR is given")
    return [by_family[family] for family in wanted]


def places(key: str, room: int) -> Iterator[int]:
    """All places below `room`, from the one that follows from a name."""
    start = int.from_bytes(hashlib.sha256(key.encode()).digest()[:8])
    return ((start + step) % room for step in range(room))


def _free(wanted: Iterable[T], taken: set[T], full: str) -> T:
    found = next((each for each in wanted if each not in taken), None)
    if found is None:
        raise InputError(f"--allocate: {full}")
    taken.add(found)
    return found


def _addresses(network: Network, key: str) -> Iterator[str]:
    room = min(network.num_addresses, 1 << 64) - _RESERVED - 2
    return (str(network[_RESERVED + 1 + place]) for place in places(key, room))


def _with_node_port(port: ServicePort, key: str, held: set[int]) -> ServicePort:
    if port.node_port:
        return port
    free = (NODE_PORTS[place] for place in places(f"{key}:{port.name}", len(NODE_PORTS)))
    return msgspec.structs.replace(port, node_port=_free(free, held, "all node ports are taken"))
