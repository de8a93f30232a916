"""Which connection tracking entries have gone stale.

An entry pins a flow to the endpoint that its first packet was sent to. TCP notices when an endpoint has gone; UDP
clients that keep their port, and some SCTP ones, would send into the void for as long as they send
(kubernetes/kubernetes issues 126130 and 139628). Whether an entry is right is decided from the entry, what is wanted
now, and the rules that the kernel held before: no memory of earlier runs is needed, so entries that are still right
survive a restart.

kube-proxy v1.36 keeps entries that lead to an endpoint that still serves, whatever the traffic policy; so do we.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from kproxy.cluster.facts.conntrack import Flow
from kproxy.family import join_host_port
from kproxy.linux.conntrack.barrier import wait_for_packets
from kproxy.linux.conntrack.flows import PROTOCOLS, delete_flows, read_flows
from kproxy.linux.host.addresses import interface_addresses
from kproxy.linux.iptables.dump import ChainDump, Dump
from kproxy.linux.iptables.ownership import is_service_chain, service_of_rule, target_of
from kproxy.linux.namespace import Namespace
from kproxy.render.iptables.chains import NAT, NODEPORTS, SERVICES
from kproxy.services import Changes, Endpoint, ServicePort, ServicePortName, ServiceState
from kproxy.services.names import IPFamily

PASSES: Final = 3
"""Reading the table gives no snapshot, and where entries come and go one can be missed: so it is read again after
entries were deleted."""

Address = tuple[str, str, int]
"""Protocol, IP ("" for a node port, which is any local address), port."""

_DESTINATION: Final = re.compile(r"(?:^| )-d (\S+?)/(?:32|128) ")
_PROTOCOL: Final = re.compile(r"(?:^| )-p (udp|sctp) ")
_PORT: Final = re.compile(r" --dport (\d+)(?: |$)")
_DNAT: Final = re.compile(r" --to-destination (\S+)")


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

    @property
    def protocols(self) -> set[str]:
        return {protocol for protocol, _, _ in self.services}


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
        addresses = [(ip, port.port) for ip in (port.cluster_ip, *port.external_ips, *port.load_balancer_vips)]
        if port.node_port:
            addresses.append(("", port.node_port))
        for ip, number in addresses:
            address = (name.protocol, ip, number)
            services.setdefault(address, f"{name}/{name.protocol}")
            endpoints[address] = endpoints.get(address, frozenset()) | own
    return Addresses(services, endpoints, frozenset().union(*endpoints.values()))


def merge_addresses(one: Addresses, other: Addresses) -> Addresses:
    """The addresses of both; where both have one, it may lead to the endpoints of either."""
    endpoints = dict(one.endpoints)
    for address, found in other.endpoints.items():
        endpoints[address] = endpoints.get(address, frozenset()) | found
    return Addresses({**other.services, **one.services}, endpoints, one.all_endpoints | other.all_endpoints)


def programmed_addresses(dump: Dump) -> Addresses:
    """The addresses and endpoints that rules in the kernel stand for, by the rules alone."""
    services: dict[Address, str] = {}
    leads_to: dict[Address, frozenset[str]] = {}
    nat = dump.tables.get(NAT, {})
    reach = _Reach(nat)
    for chain in (SERVICES, NODEPORTS):
        for rule in nat[chain].rules if chain in nat else ():
            protocol, port = _PROTOCOL.search(rule), _PORT.search(rule)
            destination = _DESTINATION.search(rule)
            if protocol is None or port is None or not is_service_chain(target_of(rule)):
                continue
            ip = destination[1] if destination is not None and chain == SERVICES else ""
            address = (protocol[1].upper(), ip, int(port[1]))
            services.setdefault(address, service_of_rule(rule))
            leads_to[address] = leads_to.get(address, frozenset()) | reach.endpoints(target_of(rule))
    endpoints = frozenset(
        found[1]
        for name, held in nat.items()
        if is_service_chain(name)
        for rule in held.rules
        if (found := _DNAT.search(rule)) is not None and _PROTOCOL.search(rule) is not None
    )
    return Addresses(services, leads_to, endpoints)


class _Reach:
    """Which endpoints a chain leads to, at once or through others."""

    def __init__(self, nat: Mapping[str, ChainDump]) -> None:
        self._nat = nat
        self._known: dict[str, frozenset[str]] = {}

    def endpoints(self, chain: str) -> frozenset[str]:
        if chain not in self._known:
            self._known[chain] = frozenset()  # the kernel has no loops, but text may
            held = self._nat.get(chain)
            found: set[str] = set()
            for rule in held.rules if held is not None else ():
                dnat = _DNAT.search(rule)
                target = target_of(rule)
                if dnat is not None:
                    found.add(dnat[1])
                elif is_service_chain(target):
                    found |= self.endpoints(target)
            self._known[chain] = frozenset(found)
        return self._known[chain]


def clean_flows(
    namespace: Namespace,
    family: IPFamily,
    desired: Addresses,
    before: Addresses,
    *,
    dry_run: bool = False,
    endpoints: frozenset[str] | None = None,
) -> list[StaleFlow]:
    """Deletes the stale entries of a namespace, and returns them.

    Args:
        endpoints: only entries that lead to one of these.

    Raises:
        LinuxError: entries cannot be read or deleted.
    """
    protocols = sorted(desired.protocols | before.protocols)
    found: list[StaleFlow] = []
    if protocols and not dry_run:
        wait_for_packets()
    for _ in range(1 if dry_run else PASSES):
        flows = read_flows(namespace, family, protocols) if protocols else []
        if endpoints is not None:
            flows = [flow for flow in flows if flow.endpoint in endpoints]
        stale = stale_flows(flows, desired, before, interface_addresses(namespace, family)) if flows else []
        if not stale:
            break
        found += stale
        if not dry_run:
            delete_flows(namespace, family, [each.flow for each in stale])
    return found


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
