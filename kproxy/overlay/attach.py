"""What the kernel must hold for one attachment: the bridge, the veth pair, the pod's addresses and routes, sysctls.

    node's namespace:  bridge (gateway addresses) ── veth1a2b3c4d    pod's namespace:  eth0 (addresses, routes)

The name of the node's end and all MAC addresses follow from what identifies the attachment, so an ADD that was killed
can be found and taken down by any process. A pod's MAC follows from its first IP: when the IP is given to another pod,
the neighbour entries that others hold stay true.
"""

from __future__ import annotations

import hashlib
import ipaddress
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from kproxy.overlay.ipam import Lease
from kproxy.overlay.netconf import NetConf, Route
from kproxy.overlay.request import Attachment


class BridgePlan(NamedTuple):
    """The node's bridge; `addresses` have prefix lengths. MTU 0 is the kernel's."""

    name: str
    mac: str
    mtu: int
    addresses: tuple[str, ...]


class PodPlan(NamedTuple):
    """One attachment.

    Attributes:
        link, link_mac: the node's end of the veth pair.
        ifname, mac, mtu, addresses, routes: the pod's end; every route has its gateway or is on the link.
        sysctls: of the node's namespace, by path below /proc/sys; None for a value that is there already is not needed.
        optional: those of them that this kernel may not have.
    """

    bridge: BridgePlan
    link: str
    link_mac: str
    hairpin: bool
    ifname: str
    mac: str
    mtu: int
    addresses: tuple[str, ...]
    routes: tuple[Route, ...]
    sysctls: Mapping[str, str]
    optional: frozenset[str]


def link_name(network: str, attachment: Attachment) -> str:
    """The node's end of an attachment's veth pair: `veth` and 10 hex digits."""
    return "veth" + _digest("link", network, attachment.key).hex()[:10]


def address_mac(address: str) -> str:
    """A locally administered MAC for an IP address; IPv4's four bytes are in it, of IPv6 a digest is."""
    ip = ipaddress.ip_address(address)
    last = ip.packed if ip.version == 4 else _digest("mac", str(ip))[:4]
    return ":".join(f"{byte:02x}" for byte in b"\x0a\x58" + last)


def _digest(*words: str) -> bytes:
    return hashlib.sha256("\0".join(words).encode()).digest()


def plan_attachment(conf: NetConf, attachment: Attachment, leases: Sequence[Lease]) -> PodPlan:
    """Plans an attachment that has these leases, of which there is at least one."""
    gateways = dict.fromkeys(
        f"{lease.range.gateway}/{lease.range.subnet.prefixlen}" for lease in leases if conf.is_gateway
    )
    sysctls = _sysctls(conf, leases)
    link = link_name(conf.name, attachment)
    mac = conf.mac or address_mac(str(leases[0].address))
    return PodPlan(
        bridge=BridgePlan(conf.bridge, address_mac(str(leases[0].range.gateway)), conf.mtu, tuple(gateways)),
        link=link,
        link_mac=":".join(f"{byte:02x}" for byte in b"\x0a\x59" + _digest("veth", link)[:4]),
        hairpin=conf.hairpin,
        ifname=attachment.ifname,
        mac=mac,
        mtu=conf.mtu,
        addresses=tuple(lease.interface for lease in leases),
        routes=pod_routes(conf.routes, leases),
        sysctls=sysctls,
        optional=frozenset(name for name in sysctls if name.startswith("net/bridge/")),
    )


def pod_routes(routes: Sequence[Route], leases: Sequence[Lease]) -> tuple[Route, ...]:
    """The routes of the families that the pod has addresses of, each by its own gateway or the range's.

    A route of scope link has no gateway.
    """
    gateways = {lease.range.version: lease.range.gateway for lease in reversed(leases)}
    planned = []
    for route in routes:
        gateway = gateways.get(route.destination.version)
        if gateway is not None:
            via = route.gateway or (None if route.scope == 253 else gateway)
            planned.append(
                Route(route.destination, via, route.mtu, route.advmss, route.priority, route.table, route.scope)
            )
    return tuple(planned)


def _sysctls(conf: NetConf, leases: Sequence[Lease]) -> dict[str, str]:
    desired: dict[str, str] = {}
    if not conf.is_gateway:
        return desired
    for version in dict.fromkeys(lease.range.version for lease in leases):
        family = "ip" if version == 4 else "ip6"
        desired["net/ipv4/ip_forward" if version == 4 else "net/ipv6/conf/all/forwarding"] = "1"
        # A pod reaches a pod of its own node through a ClusterIP only if bridged packets pass through iptables.
        desired[f"net/bridge/bridge-nf-call-{family}tables"] = "1"
        if version == 4 and conf.ports:
            desired[f"net/ipv4/conf/{conf.bridge}/route_localnet"] = "1"
    return desired
