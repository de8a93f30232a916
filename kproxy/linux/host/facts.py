"""What a namespace tells of its host: interfaces, addresses, bridge ports, routes, policy rules and sysctls, as the
`Host` of the data-plane model.

The facts come from `ip -json` of iproute2, whose fields mean what netlink's do, so that the part that interprets them
is a function of text. Sysctls come from /proc/sys.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import msgspec

from kproxy.dataplane.model.host import (
    SHORT_SYSCTLS,
    Host,
    Interface,
    InterfaceAddress,
    Route,
    RoutingRule,
    local_addresses_of,
)
from kproxy.dataplane.model.packet import parse_ip
from kproxy.linux.errors import LinuxError, ToolFailedError
from kproxy.linux.namespace import Namespace
from kproxy.linux.process import run
from kproxy.linux.sysctl import read_sysctl
from kproxy.netfilter.address import Network
from kproxy.netfilter.family import Family
from kproxy.netfilter.iptables.codec import UINT32, Masked

_TIMEOUT: Final = 30.0
_PER_INTERFACE: Final = ("rp_filter", "route_localnet", "accept_local", "forwarding")
_KINDS: Final = ("unicast", "local", "broadcast", "blackhole", "unreachable", "prohibit")
_OPTIONS: Final = {Family.IPV4: "-4", Family.IPV6: "-6"}


def read_host(namespace: Namespace) -> Host:
    """Reads all of it.

    Raises:
        LinuxError: something cannot be read.
    """
    interfaces = parse_interfaces(_ip(namespace, "-details", "address", "show"))
    routes: list[Route] = []
    rules: list[RoutingRule] = []
    for family, option in _OPTIONS.items():
        routes += parse_routes(_ip(namespace, option, "route", "show", "table", "all"), family)
        rules += parse_rules(_ip(namespace, option, "rule", "show"), family)
    return Host(
        local_addresses=local_addresses_of(interfaces),
        interfaces=MappingProxyType({item.name: item for item in interfaces}),
        routes=tuple(routes),
        rules=tuple(rules),
        sysctls=MappingProxyType(read_sysctls(namespace, [item.name for item in interfaces])),
    )


def read_sysctls(namespace: Namespace, interfaces: Iterable[str]) -> dict[str, int]:
    """The sysctls that the model asks for; those that this kernel does not have are left out."""
    names = list(SHORT_SYSCTLS.values())
    found: dict[str, int] = {}
    for name in names:
        _read_one(namespace, name, name, found)
    for interface in interfaces:
        for setting in _PER_INTERFACE:
            _read_one(namespace, f"net/ipv4/conf/{interface}/{setting}", f"net.ipv4.conf.{interface}.{setting}", found)
    return found


def _read_one(namespace: Namespace, path: str, name: str, found: dict[str, int]) -> None:
    try:
        found[name] = int(read_sysctl(namespace, path))
    except (LinuxError, ValueError):
        # Without br_netfilter bridged frames do not come to iptables.
        if name.startswith("net.bridge."):
            found[name] = 0


def _ip(namespace: Namespace, *arguments: str) -> list[Mapping[str, Any]]:
    done = run(namespace, ["ip", "-json", *arguments], timeout=_TIMEOUT)
    if done.code:
        raise ToolFailedError(f"ip {' '.join(arguments)} failed in {namespace.label}: {done.stderr.strip()}")
    try:
        found = msgspec.json.decode(done.stdout or "[]", type=list[dict[str, Any]])
    except msgspec.DecodeError as error:
        raise ToolFailedError(f"ip {' '.join(arguments)} printed something else than JSON: {error}") from error
    return [item for item in found if item]


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
