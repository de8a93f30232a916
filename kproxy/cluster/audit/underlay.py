"""Whether a node's packets for the pods of another arrive there: routes, tunnels' neighbours and FDB, MTU.

A route to a podCIDR goes by a gateway that is that node, or by a tunnel whose neighbour entry and FDB lead to it. What
is not in the snapshot is not judged; gateways that no Node has are routers.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Sequence
from typing import Final

from kproxy.api import Node
from kproxy.cluster.audit.node import AuditedNode
from kproxy.cluster.audit.observation import Observation
from kproxy.cluster.facts.links import GENEVE, VXLAN, Link
from kproxy.cluster.hosts import node_addresses
from kproxy.dataplane.concrete.routing import RouteResult
from kproxy.netfilter import Family
from kproxy.netfilter.address import format_address

_HEADERS: Final = {VXLAN: 50, GENEVE: 50, "ipip": 20, "sit": 20, "gre": 24, "ip6tnl": 40, "ip6gre": 44}
"""Octets that a tunnel adds over IPv4, or over IPv6 for those that go over nothing else."""
_LONGER: Final = 20
"""Octets by which IPv6's header is longer."""


def observe_wires(node: AuditedNode) -> Iterator[Observation]:
    """What is wrong with the ways to other nodes. Raises InputError: a file of the node cannot be read."""
    if node.host.links is None:
        return
    if node.host.routes is not None:
        for other in node.cluster.manifests.nodes:
            if other.metadata.name != node.name:
                for cidr in other.pod_cidrs:
                    yield from _to_pods(node, other, cidr)
    for link in node.host.links.values():
        yield from _mtu(node, link)


def _to_pods(node: AuditedNode, other: Node, cidr: str) -> Iterator[Observation]:
    network = ipaddress.ip_network(cidr, strict=False)
    route = node.route_to(str(network[min(1, network.num_addresses - 1)]))
    links, name = node.host.links or {}, other.metadata.name
    link = links.get(route.device or "") if route is not None else None
    if route is None or link is None:
        return
    family = Family.IPV6 if network.version == 6 else Family.IPV4
    gateway = "" if route.gateway is None else format_address(route.gateway, family)
    problem = ""
    if link.tunnel is not None and link.tunnel.kind in (VXLAN, GENEVE):
        problem = _through_tunnel(node, other, link, gateway or str(network[1]))
        kind = "tunnel-astray"
    elif gateway:
        owner = node.shared.owners.get(gateway, "")
        problem = f"the gateway {gateway} is node {owner}" if owner not in ("", name) else ""
        kind = "route-astray"
    if problem:
        services = node.services_in(family).get(cidr, ())
        detail = f"to {cidr} of {name}: {problem}"
        for service in services or ("",):
            yield Observation(kind, node.name, detail, detail, service)


def _through_tunnel(node: AuditedNode, other: Node, link: Link, hop: str) -> str:
    """Why a tunnel does not lead to a node; "" if it does, or if that is not known."""
    neighbours, fdb = node.host.neighbours, node.host.fdb
    if neighbours is None or fdb is None or link.tunnel is None or link.tunnel.by_route or link.tunnel.remote:
        return ""
    mac = neighbours.get((link.name, hop))
    if mac is None:
        return f"no neighbour entry for {hop} on {link.name}"
    remote = fdb.get(link.name, {}).get(mac)
    if remote is None:
        return f"no FDB entry for {mac} on {link.name}"
    addresses = node_addresses(other)
    if remote not in addresses:
        return f"the FDB of {link.name} leads {mac} to {remote}, and the node is {', '.join(addresses)}"
    theirs = node.cluster.hosts[other.metadata.name].links or {}
    macs = [each.mac for each in theirs.values() if each.tunnel is not None and each.tunnel.vni == link.tunnel.vni]
    if any(macs) and mac not in macs:
        return f"the neighbour {hop} on {link.name} has {mac}, and the node's tunnel {', '.join(macs)}"
    return ""


def _mtu(node: AuditedNode, link: Link) -> Iterator[Observation]:
    """A tunnel whose packets, once wrapped, do not fit the device under it."""
    if link.tunnel is None or not link.up or not link.mtu or link.tunnel.kind not in _HEADERS:
        return
    found = _under(node, link)
    if found is None:
        return
    device, family = found
    header = _HEADERS[link.tunnel.kind] + (_LONGER if family is Family.IPV6 and "6" not in link.tunnel.kind else 0)
    if device.mtu and link.mtu + header > device.mtu:
        detail = f"{link.name} {link.mtu}, and {device.name} of {device.mtu} leaves {device.mtu - header}"
        yield Observation("mtu", node.name, detail, detail)


def _under(node: AuditedNode, link: Link) -> tuple[Link, Family] | None:
    """The device that a tunnel's packets leave by, and their family."""
    ends = [link.tunnel.remote] if link.tunnel is not None and link.tunnel.remote else []
    others: Sequence[str] = [
        address
        for other in node.cluster.manifests.nodes
        if other.metadata.name != node.name
        for address in node_addresses(other)[:1]
    ]
    for end in (*ends, *others[:1]):
        try:
            family = Family.IPV6 if ipaddress.ip_address(end).version == 6 else Family.IPV4
        except ValueError:  # a name
            continue
        route: RouteResult | None = node.route_to(end)
        device = (node.host.links or {}).get(route.device or "") if route is not None else None
        if device is not None and device.name != link.name:
            return device, family
    return None
