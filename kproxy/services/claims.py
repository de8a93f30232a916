"""Where ServicePorts answer, and what more than one of them claims.

Two Services may name one external or load-balancer IP with one port and protocol; the API server lets them. kube-proxy
v1.36 writes both, in the order of a Go map: in iptables mode the first rule counts, in nftables mode the last element,
so which Service answers is random, anew at each start.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from kproxy.family import join_host_port
from kproxy.services.serviceport import ServicePort


class ServiceAddress(NamedTuple):
    """An address, protocol and port at which a ServicePort answers; `address` is "" for a node port."""

    address: str
    protocol: str
    port: int

    @classmethod
    def of(cls, address: str, port: ServicePort) -> ServiceAddress:
        """One of the addresses of a ServicePort, with its port."""
        return cls(address, port.protocol, port.port)

    def __str__(self) -> str:
        where = join_host_port(self.address, self.port) if self.address else f"node port {self.port}"
        return f"{where}/{self.protocol.upper()}"


def doors_of(port: ServicePort) -> tuple[ServiceAddress, ...]:
    """Where a ServicePort answers."""
    found = [ServiceAddress.of(each, port) for each in (port.cluster_ip, *port.external_ips, *port.load_balancer_vips)]
    if port.node_port:
        found.append(ServiceAddress("", port.protocol, port.node_port))
    return tuple(dict.fromkeys(found))


def claimed_twice(ports: Iterable[ServicePort]) -> Mapping[ServiceAddress, tuple[ServicePort, ...]]:
    """Where more than one ServicePort answers, and which do."""
    claims: dict[ServiceAddress, list[ServicePort]] = {}
    for port in ports:
        for door in doors_of(port):
            claims.setdefault(door, []).append(port)
    return {door: tuple(found) for door, found in claims.items() if len(found) > 1}


def claim_in_words(door: ServiceAddress, ports: Iterable[ServicePort]) -> str:
    """What follows of such a claim, as a sentence."""
    names = sorted(str(port.name) for port in ports)
    return (
        f"{door} is claimed by {len(names)} Services, {' and '.join(names)}: which of them gets the traffic is random, "
        "anew at each start of kube-proxy"
    )
