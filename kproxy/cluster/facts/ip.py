"""A host's interfaces, addresses, bridge ports, routes and policy rules, from what `ip -json` of iproute2 prints."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from typing import Any, Final

from kproxy.dataplane.model.host import Interface, InterfaceAddress, Route, RoutingRule
from kproxy.dataplane.model.packet import parse_ip
from kproxy.netfilter.address import Network
from kproxy.netfilter.family import Family
from kproxy.netfilter.iptables.codec import UINT32, Masked

_KINDS: Final = ("unicast", "local", "broadcast", "blackhole", "unreachable", "prohibit")


def parse_interfaces(entries: Sequence[Mapping[str, Any]]) -> tuple[Interface, ...]:
    """Reads `ip -json -details address show`."""
    found = []
    for entry in entries:
        addresses = []
        for item in entry.get("addr_info") or ():
            if "local" not in item:
                continue
            family, value = parse_ip(str(item["local"]))
            broadcast = parse_ip(str(item["broadcast"]))[1] if "broadcast" in item else None
            addresses.append(InterfaceAddress(family, value, int(item.get("prefixlen", family.bits)), broadcast))
        slave = entry.get("linkinfo", {}).get("info_slave_kind") == "bridge"
        data = entry.get("linkinfo", {}).get("info_slave_data", {})
        hairpin = data.get("hairpin") if slave else None
        bridge = str(entry.get("master") or "") if slave else ""
        found.append(
            Interface(str(entry["ifname"]), tuple(addresses), bridge, None if hairpin is None else bool(hairpin))
        )
    return tuple(found)


def parse_routes(entries: Sequence[Mapping[str, Any]], family: Family) -> list[Route]:
    """Reads `ip -json route show table all`; the local table follows from the addresses and is left out."""
    routes = []
    for entry in entries:
        table, kind = str(entry.get("table", "main")), str(entry.get("type", "unicast"))
        if table == "local" or kind not in _KINDS:
            continue
        for hop in entry.get("nexthops") or (entry,):
            gateway = hop.get("gateway")
            source = entry.get("prefsrc")
            routes.append(
                Route(
                    _network(str(entry["dst"]), family),
                    hop.get("dev"),
                    parse_ip(str(gateway))[1] if gateway else None,
                    parse_ip(str(source))[1] if source else None,
                    kind,
                    int(entry.get("metric", 0)),
                    table,
                )
            )
    return routes


def _network(text: str, family: Family) -> Network:
    if text == "default":
        return Network(family, 0, 0)
    network = ipaddress.ip_network(text, strict=False)
    return Network(family, int(network.network_address), int(network.netmask))


def parse_rules(entries: Sequence[Mapping[str, Any]], family: Family) -> list[RoutingRule]:
    """Reads `ip -json rule show`; the rules that every host has (local, main, default) are left out."""
    rules = []
    for entry in entries:
        table = str(entry.get("table", "main"))
        plain = entry.get("src", "all") == "all" and not {"dst", "fwmark", "iif"} & entry.keys()
        if (plain and table in ("local", "main", "default")) or "table" not in entry:
            continue
        mark = None
        if "fwmark" in entry:
            mask = int(str(entry["fwmask"]), 0) if "fwmask" in entry else UINT32
            mark = Masked(int(str(entry["fwmark"]), 0), mask)
        rules.append(
            RoutingRule(
                table,
                int(entry.get("priority", 32765)),
                family,
                mark,
                _rule_network(entry, "src", "srclen", family),
                _rule_network(entry, "dst", "dstlen", family),
                entry.get("iif"),
            )
        )
    return rules


def _rule_network(entry: Mapping[str, Any], name: str, length: str, family: Family) -> Network | None:
    text = str(entry.get(name, "all"))
    if text == "all":
        return None
    return _network(f"{text}/{entry[length]}" if length in entry else text, family)
