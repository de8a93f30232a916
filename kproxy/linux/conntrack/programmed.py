"""Where the rules in the kernel send UDP and SCTP, by the rules alone, of both modes."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from kproxy.cluster.stale_flows import Address, Addresses
from kproxy.family import join_host_port
from kproxy.linux.conntrack.flows import PROTOCOLS
from kproxy.linux.iptables.ownership import is_service_chain
from kproxy.linux.nftables.ownership import service_of as owner_of
from kproxy.linux.nftables.ownership import targets_of
from kproxy.linux.nftables.table import TableText
from kproxy.netfilter.text import SaveText, destination_of, endpoint_of, reachable, service_of, target_of
from kproxy.render.iptables.chains import NAT, NODEPORTS, SERVICES

_IPTABLES: Final = tuple(f"-p {protocol.lower()} " for protocol in PROTOCOLS)
_NFTABLES: Final = re.compile(r"\bmeta l4proto (udp|sctp) dnat ")
_ENDPOINTS: Final = re.compile(r" \d+ : (\S+) \. (\d+)")
_ENDPOINT: Final = re.compile(r" dnat to (\S+)")


def programmed_addresses(dump: SaveText) -> Addresses:
    """The addresses and endpoints that rules of iptables stand for; see `Addresses`."""
    services: dict[Address, str] = {}
    leads_to: dict[Address, frozenset[str]] = {}
    nat = dump.tables.get(NAT, {})

    def endpoints_of(chain: str) -> frozenset[str]:
        chains = reachable(
            [chain], lambda name: [t for rule in rules_of(name) if is_service_chain(t := target_of(rule))]
        )
        return frozenset(found for name in chains for rule in rules_of(name) if (found := endpoint_of(rule)))

    def rules_of(chain: str) -> Iterable[str]:
        return nat[chain].rules if chain in nat else ()

    for chain in (SERVICES, NODEPORTS):
        for rule in rules_of(chain):
            to = destination_of(rule)
            if to is None or to.protocol.upper() not in PROTOCOLS or not is_service_chain(target_of(rule)):
                continue
            address = (to.protocol.upper(), to.address if chain == SERVICES else "", to.port)
            services.setdefault(address, service_of(rule))
            leads_to[address] = leads_to.get(address, frozenset()) | endpoints_of(target_of(rule))
    endpoints = frozenset(
        found
        for name, held in nat.items()
        if is_service_chain(name)
        for rule in held.rules
        if (found := endpoint_of(rule)) and any(words in rule for words in _IPTABLES)
    )
    return Addresses(services, leads_to, endpoints)


def table_addresses(table: TableText | None) -> Addresses:
    """The addresses and endpoints that a table of nftables mode stands for; see `Addresses`."""
    if table is None:
        return Addresses({}, {}, frozenset())
    services: dict[Address, str] = {}
    leads_to: dict[Address, frozenset[str]] = {}
    for (name, key), value in table.elements.items():
        parts = key.split(" . ")
        protocol, port = parts[-2:] if len(parts) > 1 else ("", "")
        chain = value.value.removeprefix("goto ")
        if name not in ("service-ips", "service-nodeports") or protocol.upper() not in PROTOCOLS:
            continue
        address: Address = (protocol.upper(), parts[0] if name == "service-ips" else "", int(port))
        services[address] = owner_of(chain)
        chains = reachable([chain], lambda name: [to for rule in table.rules.get(name, ()) for to in targets_of(rule)])
        leads_to[address] = frozenset(
            one for name in chains for rule in table.rules.get(name, ()) for one in _endpoints(rule)
        )
    rules = (rule for rules in table.rules.values() for rule in rules if _NFTABLES.search(rule) is not None)
    return Addresses(services, leads_to, frozenset(found for rule in rules for found in _endpoints(rule)))


def _endpoints(rule: str) -> Iterable[str]:
    """The endpoints of a rule of nftables, as `ip:port`; none if it translates nothing."""
    if " dnat " not in rule:
        return ()
    one = _ENDPOINT.search(rule)
    return [one[1]] if one is not None else [join_host_port(*each) for each in _ENDPOINTS.findall(rule)]
