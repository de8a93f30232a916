"""A host's interfaces, addresses, bridge ports, routes and policy rules, from what `ip -json` of iproute2 prints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from kproxy.dataplane.model.host import Interface, InterfaceAddress, Route, RoutingRule
from kproxy.dataplane.model.packet import parse_ip
from kproxy.netfilter.address import Network
from kproxy.netfilter.family import Family
from kproxy.netfilter.iptables.codec import UINT32, Masked, Range, parse_protocol

_KINDS: Final = ("unicast", "local", "broadcast", "blackhole", "unreachable", "prohibit", "throw")
_ACTIONS: Final = ("unreachable", "prohibit", "blackhole")
_MODELLED: Final = frozenset({
    "priority", "not", "src", "srclen", "dst", "dstlen", "fwmark", "fwmask", "iif", "iif_detached", "tos", "dsfield",
    "ipproto", "sport", "sport_start", "sport_end", "dport", "dport_start", "dport_end", "table", "action", "goto",
    "nop", "suppress_prefixlen", "protocol", "flow_from", "flow_to", "family",
})  # fmt: skip
"""What `ip -json rule show` prints of a rule that is modelled, or that decides nothing (iproute2, ip/iprule.c)."""
_OWN: Final = frozenset({"oif", "oif_detached", "uid_start", "uid_end"})
"""What a forwarded packet has not: a device that its socket is bound to. Its user is root's."""


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


def with_family(entries: Sequence[Mapping[str, Any]], default: Family) -> list[Mapping[str, Any]]:
    """The entries of an array with the `family` of each, which its addresses tell, else those of others."""
    of_all = next(filter(None, map(_family_of, entries)), default)
    return [{**entry, "family": _family_of(entry) or of_all} for entry in entries]


def _family_of(entry: Mapping[str, Any]) -> Family | None:
    hops = (hop for hop in entry.get("nexthops") or () if isinstance(hop, Mapping))
    said = (str(each.get(name) or "") for each in (entry, *hops) for name in ("dst", "gateway", "prefsrc", "src"))
    address = next((text for text in said if text not in ("", "default", "all")), "")
    return Family.IPV6 if ":" in address else Family.IPV4 if address else None


def parse_routes(entries: Sequence[Mapping[str, Any]]) -> tuple[Route, ...]:
    """Reads `ip -json route show table all`, without the local table, which follows from the addresses."""
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
                    _network(str(entry["dst"]), entry),
                    hop.get("dev"),
                    parse_ip(str(gateway))[1] if gateway else None,
                    parse_ip(str(source))[1] if source else None,
                    kind,
                    int(entry.get("metric", 0)),
                    table,
                )
            )
    return tuple(routes)


def _network(text: str, entry: Mapping[str, Any]) -> Network:
    family: Family = entry["family"]
    return Network(family, 0, 0) if text == "default" else Network.parse(text, family)


_MAIN: Final = 32766
"""The priority at which every host asks the main table."""


def parse_rules(entries: Sequence[Mapping[str, Any]]) -> tuple[RoutingRule, ...]:
    """Reads `ip -json rule show`, without the rules that every host has (local, main, default). What is not modelled of
    a rule makes it open whether the rule applies."""
    return tuple(_rule(entry) for entry in entries if not _is_usual(entry))


def _is_usual(entry: Mapping[str, Any]) -> bool:
    table, priority = entry.get("table"), int(entry.get("priority", _MAIN))
    usual = table in ("local", "default") or (table == "main" and priority >= _MAIN)  # before others it ends the search
    usual = usual and entry.get("src", "all") == "all"
    return usual and entry.keys() <= {"priority", "src", "table", "protocol", "family"}


def _rule(entry: Mapping[str, Any]) -> RoutingRule:
    mark = None
    if "fwmark" in entry:
        mask = int(str(entry["fwmask"]), 0) if "fwmask" in entry else UINT32
        mark = Masked(int(str(entry["fwmark"]), 0), mask)
    action = str(entry.get("action", "goto" if "goto" in entry else "nop" if "nop" in entry else "lookup"))
    others = sorted(entry.keys() - _MODELLED)
    root = int(entry.get("uid_start", 0)) == 0
    known = action in _ACTIONS or action in ("goto", "nop") or "table" in entry
    target = str(entry.get("goto", ""))
    tos = entry.get("tos", entry.get("dsfield"))
    return RoutingRule(
        str(entry.get("table", "")),
        int(entry.get("priority", 32765)),
        entry["family"],
        mark,
        _rule_network(entry, "src"),
        _rule_network(entry, "dst"),
        entry.get("iif"),
        "not" in entry,
        parse_protocol(str(entry["ipproto"])) if "ipproto" in entry else None,
        _ports(entry, "sport"),
        _ports(entry, "dport"),
        None if tos is None else int(str(tos), 0),
        action,
        int(target) if target.isdigit() else None,
        int(entry["suppress_prefixlen"]) if "suppress_prefixlen" in entry else None,
        ", ".join(others) if others or known else "an action that is not modelled",
        bool(others) and set(others) <= _OWN and not ("uid_start" in entry and root),
    )


def _ports(entry: Mapping[str, Any], name: str) -> Range | None:
    if name in entry:
        return Range(int(entry[name]), int(entry[name]))
    if f"{name}_start" in entry:
        return Range(int(entry[f"{name}_start"]), int(entry[f"{name}_end"]))
    return None


def _rule_network(entry: Mapping[str, Any], name: str) -> Network | None:
    text, length = str(entry.get(name, "all")), entry.get(f"{name}len")
    if text == "all":
        return None
    return _network(text if length is None else f"{text}/{length}", entry)
