"""The connection tracking entries of a namespace that have gone stale (`cluster.stale_flows` judges), and their end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kproxy.cluster.stale_flows import Address, Addresses, StaleFlow, stale_flows
from kproxy.linux.conntrack.barrier import wait_for_packets
from kproxy.linux.conntrack.flows import delete_flows, read_flows
from kproxy.linux.host.addresses import interface_addresses
from kproxy.linux.iptables.ownership import is_service_chain
from kproxy.linux.namespace import Namespace
from kproxy.netfilter.text import ChainText, SaveText, destination_of, endpoint_of, service_of, target_of
from kproxy.render.iptables.chains import NAT, NODEPORTS, SERVICES
from kproxy.services.names import IPFamily

PASSES: Final = 3
"""Reading the table gives no snapshot, and where entries come and go one can be missed: so it is read again after
entries were deleted."""
_PROTOCOLS: Final = ("udp", "sctp")


def programmed_addresses(dump: SaveText) -> Addresses:
    """The addresses and endpoints that rules in the kernel stand for, by the rules alone."""
    services: dict[Address, str] = {}
    leads_to: dict[Address, frozenset[str]] = {}
    nat = dump.tables.get(NAT, {})
    reach = _Reach(nat)
    for chain in (SERVICES, NODEPORTS):
        for rule in nat[chain].rules if chain in nat else ():
            to = destination_of(rule)
            if to is None or to.protocol not in _PROTOCOLS or not is_service_chain(target_of(rule)):
                continue
            address = (to.protocol.upper(), to.address if chain == SERVICES else "", to.port)
            services.setdefault(address, service_of(rule))
            leads_to[address] = leads_to.get(address, frozenset()) | reach.endpoints(target_of(rule))
    endpoints = frozenset(
        found
        for name, held in nat.items()
        if is_service_chain(name)
        for rule in held.rules
        if (found := endpoint_of(rule)) and any(f"-p {protocol} " in rule for protocol in _PROTOCOLS)
    )
    return Addresses(services, leads_to, endpoints)


class _Reach:
    """Which endpoints a chain leads to, at once or through others."""

    def __init__(self, nat: Mapping[str, ChainText]) -> None:
        self._nat = nat
        self._known: dict[str, frozenset[str]] = {}

    def endpoints(self, chain: str) -> frozenset[str]:
        if chain not in self._known:
            self._known[chain] = frozenset()  # the kernel has no loops, but text may
            held = self._nat.get(chain)
            found: set[str] = set()
            for rule in held.rules if held is not None else ():
                dnat, target = endpoint_of(rule), target_of(rule)
                if dnat:
                    found.add(dnat)
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
    protocols = sorted({protocol for protocol, _, _ in (*desired.services, *before.services)})
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
