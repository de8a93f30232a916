"""Where the nftables rules in the kernel send UDP and SCTP, by the table alone."""

from __future__ import annotations

import re
from typing import Final

from kproxy.cluster.stale_flows import Address, Addresses
from kproxy.family import join_host_port
from kproxy.linux.conntrack.flows import PROTOCOLS
from kproxy.linux.nftables.ownership import service_of, targets_of
from kproxy.linux.nftables.table import TableText

_PROTOCOL: Final = re.compile(r"\bmeta l4proto (udp|sctp) dnat ")
_ENDPOINTS: Final = re.compile(r" \d+ : (\S+) \. (\d+)")
_ENDPOINT: Final = re.compile(r" dnat to (\S+)")


def table_addresses(table: TableText | None) -> Addresses:
    """The addresses and endpoints that a table stands for; see `Addresses`."""
    if table is None:
        return Addresses({}, {}, frozenset())
    reach = _Reach(table)
    services: dict[Address, str] = {}
    leads_to: dict[Address, frozenset[str]] = {}
    for (name, key), value in table.elements.items():
        parts = key.split(" . ")
        protocol, port = parts[-2:] if len(parts) > 1 else ("", "")
        chain = value.value.removeprefix("goto ")
        if name not in ("service-ips", "service-nodeports") or protocol.upper() not in PROTOCOLS:
            continue
        address: Address = (protocol.upper(), parts[0] if name == "service-ips" else "", int(port))
        services[address] = service_of(chain)
        leads_to[address] = reach.endpoints(chain)
    endpoints = frozenset(
        found
        for rules in table.rules.values()
        for rule in rules
        if _PROTOCOL.search(rule) is not None
        for found in _endpoints(rule)
    )
    return Addresses(services, leads_to, endpoints)


def _endpoints(rule: str) -> list[str]:
    """The endpoints of a rule with a DNAT, as `ip:port`."""
    one = _ENDPOINT.search(rule)
    if one is not None:
        return [one[1]]
    return [join_host_port(ip, port) for ip, port in _ENDPOINTS.findall(rule)]


class _Reach:
    """Which endpoints a chain leads to, at once or through others."""

    def __init__(self, table: TableText) -> None:
        self._rules = table.rules
        self._known: dict[str, frozenset[str]] = {}

    def endpoints(self, chain: str) -> frozenset[str]:
        if chain not in self._known:
            self._known[chain] = frozenset()  # the kernel has no loops, but text may
            found: set[str] = set()
            for rule in self._rules.get(chain, ()):
                if " dnat " in rule:
                    found.update(_endpoints(rule))
                for target in targets_of(rule):
                    found |= self.endpoints(target)
            self._known[chain] = frozenset(found)
        return self._known[chain]
