"""The result of ADD, as each CNI version spells it, and the attachment that a prevResult tells.

0.3.0 to 0.4.0 have `version` in an address; from 1.0.0 on it is gone; 1.1.0 adds what an interface has beside name, MAC
and namespace, and what a route has beside destination and gateway. A prevResult may be of another version than the
result that is asked for, so what is passed on of it is converted, as CNI's own library does.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import Any, Final

from kproxy.overlay.attach import PodPlan
from kproxy.overlay.errors import CniError, Code
from kproxy.overlay.ipam import Lease

_INTERFACE: Final = ("name", "mac", "sandbox")
_INTERFACE_1_1: Final = ("name", "mac", "mtu", "sandbox", "socketPath", "pciID")
_IP: Final = ("interface", "address", "gateway")
_ROUTE: Final = ("dst", "gw")
_ROUTE_1_1: Final = ("dst", "gw", "mtu", "advmss", "priority", "table", "scope")


def render_result(
    version: str, plan: PodPlan, leases: tuple[Lease, ...], netns: str, previous: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The result. What a plugin before this one said is kept before what this one adds."""
    before = previous or {}
    size = {"mtu": plan.mtu} if plan.mtu else {}
    interfaces: list[dict[str, Any]] = [
        *before.get("interfaces", []),
        {"name": plan.bridge.name, "mac": plan.bridge.mac, **size},
        {"name": plan.link, "mac": plan.link_mac, **size},
        {"name": plan.ifname, "mac": plan.mac, **size, "sandbox": netns},
    ]
    mine = len(interfaces) - 1
    ips = [
        *before.get("ips", []),
        *({"interface": mine, "address": lease.interface, "gateway": str(lease.range.gateway)} for lease in leases),
    ]
    routes = list(before.get("routes", []))
    for route in plan.routes:
        entry: dict[str, Any] = {"dst": str(route.destination)}
        if route.gateway is not None:
            entry["gw"] = str(route.gateway)
        extras = {"mtu": route.mtu, "advmss": route.advmss, "priority": route.priority, "table": route.table}
        entry |= {name: value for name, value in extras.items() if value}
        if route.scope is not None:
            entry["scope"] = route.scope
        routes.append(entry)
    newest = version == "1.1.0"
    result: dict[str, Any] = {
        "cniVersion": version,
        "interfaces": [_only(item, _INTERFACE_1_1 if newest else _INTERFACE) for item in interfaces],
        "ips": [_family(item) | _only(item, _IP) if version < "1" else _only(item, _IP) for item in ips],
    }
    if routes:
        result["routes"] = [_only(item, _ROUTE_1_1 if newest else _ROUTE) for item in routes]
    result["dns"] = before.get("dns", {})
    return result


def _only(item: Mapping[str, Any], fields: tuple[str, ...]) -> dict[str, Any]:
    return {name: item[name] for name in fields if item.get(name) is not None}


def _family(ip: Mapping[str, Any]) -> dict[str, str]:
    """`version` of an address, which versions before 1.0.0 demand."""
    return {"version": "6" if ":" in str(ip.get("address")) else "4"}


def previous_addresses(previous: Mapping[str, Any], ifname: str, netns: str) -> tuple[str, ...]:
    """The addresses that a prevResult gives the pod's interface, with prefix lengths.

    Raises:
        CniError: INVALID_CONFIG if it is not a result, or does not tell of the interface.
    """
    interfaces = previous.get("interfaces", [])
    ips = previous.get("ips", [])
    try:
        mine = [index for index, item in enumerate(interfaces) if item["name"] == ifname and item.get("sandbox")]
        found = tuple(str(ipaddress.ip_interface(ip["address"])) for ip in ips if ip.get("interface") in mine)
    except (TypeError, KeyError, ValueError, AttributeError) as error:
        raise CniError(Code.INVALID_CONFIG, "prevResult is no result of ADD", f"{error!r}") from error
    if not mine or not found:
        raise CniError(Code.INVALID_CONFIG, "prevResult does not tell of the interface", f"{ifname} in {netns}")
    return found


def previous_routes(previous: Mapping[str, Any]) -> frozenset[tuple[str, str]]:
    """The routes that a prevResult tells, as (destination, gateway); the gateway is "" if there is none.

    Raises:
        CniError: INVALID_CONFIG if it is not a result.
    """
    try:
        return frozenset(
            (
                str(ipaddress.ip_network(item["dst"], strict=False)),
                str(ipaddress.ip_address(item["gw"])) if item.get("gw") else "",
            )
            for item in previous.get("routes", [])
        )
    except (KeyError, ValueError) as error:
        raise CniError(Code.INVALID_CONFIG, "prevResult is no result of ADD", f"routes: {error!r}") from error
