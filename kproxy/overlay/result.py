"""The result of ADD, as each CNI version spells it, and the attachment that a prevResult tells.

0.3.1 and 0.4.0 have `version` in an address; from 1.0.0 on it is gone; 1.1.0 adds the MTU of interfaces and what a
route has beside destination and gateway.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import Any

from kproxy.overlay.attach import PodPlan
from kproxy.overlay.errors import CniError, Code
from kproxy.overlay.ipam import Lease


def render_result(
    version: str, plan: PodPlan, leases: tuple[Lease, ...], netns: str, previous: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The result. What a plugin before this one said is kept before what this one adds."""
    before = previous or {}
    interfaces: list[dict[str, Any]] = [
        *before.get("interfaces", []),
        {"name": plan.bridge.name, "mac": plan.bridge.mac},
        {"name": plan.link, "mac": plan.link_mac},
        {"name": plan.ifname, "mac": plan.mac, "sandbox": netns},
    ]
    if version == "1.1.0" and plan.mtu:
        for interface in interfaces[-3:]:
            interface["mtu"] = plan.mtu
    ips = list(before.get("ips", []))
    for lease in leases:
        ip: dict[str, Any] = {"version": str(lease.range.version)} if version < "1" else {}
        ip |= {"interface": len(interfaces) - 1, "address": lease.interface, "gateway": str(lease.range.gateway)}
        ips.append(ip)
    routes = list(before.get("routes", []))
    for route in plan.routes:
        told: dict[str, Any] = {"dst": str(route.destination)}
        if route.gateway is not None:
            told["gw"] = str(route.gateway)
        if version == "1.1.0":
            extras = {"mtu": route.mtu, "advmss": route.advmss, "priority": route.priority, "table": route.table}
            told |= {name: value for name, value in extras.items() if value}
            if route.scope is not None:
                told["scope"] = route.scope
        routes.append(told)
    result: dict[str, Any] = {"cniVersion": version, "interfaces": interfaces, "ips": ips}
    if routes:
        result["routes"] = routes
    result["dns"] = before.get("dns", {})
    return result


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
