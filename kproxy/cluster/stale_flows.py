"""Which connection tracking entries have gone stale.

An entry pins a flow to the endpoint that its first packet was sent to. TCP notices when an endpoint has gone; UDP
clients that keep their port, and some SCTP ones, would send into the void (kubernetes/kubernetes issues 126130 and
139628). An entry is judged by what is wanted now and the rules that the kernel held before, so right ones survive a
restart. kube-proxy v1.36 keeps those that lead to an endpoint that still serves, whatever the traffic policy; so do we.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from kproxy.cluster.facts.conntrack import Flow
from kproxy.family import join_host_port
from kproxy.services import Changes, Endpoint, ServicePort, ServicePortName, ServiceState
from kproxy.services.claims import doors_of

PROTOCOLS: Final = ("UDP", "SCTP")
"""Those whose entries are cleaned up."""

Address = tuple[str, str, int]
"""Protocol, IP ("" for a node port, which is any local address), port."""


class Addresses(msgspec.Struct, frozen=True):
    """Where Services are reached by UDP or SCTP, and where that traffic may go.

    Attributes:
        services: the name of the ServicePort at each address, the first one's where several claim it.
        endpoints: the endpoints that an entry of each address may lead to, as `ip:port`: those of all claimants.
        all_endpoints: every endpoint there is.
    """

    services: Mapping[Address, str]
    endpoints: Mapping[Address, frozenset[str]]
    all_endpoints: frozenset[str]


class StaleFlow(msgspec.Struct, frozen=True):
    """An entry that has to go, and why."""

    flow: Flow
    service: str
    reason: str


def desired_addresses(state: ServiceState) -> Addresses:
    """The addresses of the desired rules."""
    return _addresses(state.service_ports, state.endpoints)


def previous_addresses(changes: Changes) -> Addresses:
    """The addresses of the desired rules before a change."""
    return _addresses(changes.previous_service_ports, changes.previous_endpoints)


def _addresses(
    ports: Mapping[ServicePortName, ServicePort], known: Mapping[ServicePortName, tuple[Endpoint, ...]]
) -> Addresses:
    services: dict[Address, str] = {}
    endpoints: dict[Address, frozenset[str]] = {}
    for name in sorted(name for name in ports if name.protocol in PROTOCOLS):
        port = ports[name]
        own = frozenset(ep.address for ep in known.get(name, ()) if ep.serving)
        for door in doors_of(port):
            address = (name.protocol, door.address, door.port)
            services.setdefault(address, f"{name}/{name.protocol}")
            endpoints[address] = endpoints.get(address, frozenset()) | own
    return Addresses(services, endpoints, frozenset().union(*endpoints.values()))


def merge_addresses(one: Addresses, other: Addresses) -> Addresses:
    """The addresses of both; where both have one, it may lead to the endpoints of either."""
    endpoints = dict(one.endpoints)
    for address, found in other.endpoints.items():
        endpoints[address] = endpoints.get(address, frozenset()) | found
    return Addresses({**other.services, **one.services}, endpoints, one.all_endpoints | other.all_endpoints)


def stale_flows(
    flows: Iterable[Flow], desired: Addresses, before: Addresses, local_addresses: Iterable[str] = ()
) -> list[StaleFlow]:
    """The entries that lead where no desired rule leads.

    Args:
        before: what the kernel's rules stood for before the change.
        local_addresses: the node's own, to tell node-port traffic that was not sent to an endpoint.
    """
    local = frozenset(local_addresses)
    stale = []
    for flow in flows:
        service, reason = _judge(flow, desired, before, local)
        if reason:
            stale.append(StaleFlow(flow, service, reason))
    return stale


def _judge(flow: Flow, desired: Addresses, before: Addresses, local: frozenset[str]) -> tuple[str, str]:
    by_ip: Address = (flow.protocol, flow.destination, flow.destination_port)
    by_port: Address = (flow.protocol, "", flow.destination_port)
    address = by_ip
    if by_ip not in desired.services and (flow.is_translated or flow.destination in local):
        address = by_port
    if address in desired.services:
        service, endpoints = desired.services[address], desired.endpoints[address]
        if not flow.is_translated:
            return service, "it was made before there were endpoints, so it bypasses them" if endpoints else ""
        if flow.endpoint in endpoints:
            return service, ""
        if (
            by_ip not in desired.services
            and by_port not in before.services
            and flow.endpoint not in before.all_endpoints
        ):
            return service, ""  # translated by another program's rule at the same port
        return service, f"{flow.endpoint} is no endpoint any more" if endpoints else "there are no endpoints any more"
    if flow.is_translated and flow.endpoint in before.all_endpoints:
        if by_ip in before.services:
            what = join_host_port(flow.destination, flow.destination_port)
            return before.services[by_ip], f"no Service has {what} any more"
        if by_port in before.services:
            return before.services[by_port], f"no Service has node port {flow.destination_port} any more"
    return "", ""
