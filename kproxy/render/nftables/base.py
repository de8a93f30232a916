"""The objects that are there whatever the cluster holds: base chains, the chains they jump to, sets, maps, their rules.

How a packet meets them, by hook and priority:

    prerouting, output  -110  filter-...-pre-dnat  firewall-check: load-balancer IPs that accept only some sources
    prerouting, output  -100  nat-...              services: by address, protocol and port to the chains of ServicePorts
    input                  0  filter-input         node ports and services without endpoints
    forward, output        0  filter-...           services without endpoints, and what is left for ClusterIPs
    postrouting          100  nat-postrouting      masquerading: what is marked, and connections of a pod to itself
"""

from __future__ import annotations

import ipaddress
from typing import Final

import msgspec

from kproxy.render.nftables.names import (
    CLUSTER_IPS,
    CLUSTER_IPS_CHECK,
    FILTER_FORWARD,
    FILTER_INPUT,
    FILTER_OUTPUT,
    FILTER_OUTPUT_PRE_DNAT,
    FILTER_PREROUTING_PRE_DNAT,
    FIREWALL_CHECK,
    FIREWALL_IPS,
    HAIRPIN_CONNECTIONS,
    MASQUERADING,
    NAT_OUTPUT,
    NAT_POSTROUTING,
    NAT_PREROUTING,
    NO_ENDPOINT_NODEPORTS,
    NO_ENDPOINT_SERVICES,
    NODEPORT_ENDPOINTS_CHECK,
    NODEPORT_IPS,
    REJECT_CHAIN,
    SERVICE_ENDPOINTS_CHECK,
    SERVICE_IPS,
    SERVICE_NODEPORTS,
    SERVICES,
    nft_family,
)
from kproxy.render.options import RenderOptions
from kproxy.render.origin import Origin
from kproxy.services.node import LocalTrafficDetector

BASE_CHAINS: Final = {
    FILTER_PREROUTING_PRE_DNAT: "type filter hook prerouting priority -110",
    FILTER_INPUT: "type filter hook input priority 0",
    FILTER_FORWARD: "type filter hook forward priority 0",
    FILTER_OUTPUT_PRE_DNAT: "type filter hook output priority -110",
    FILTER_OUTPUT: "type filter hook output priority 0",
    NAT_PREROUTING: "type nat hook prerouting priority -100",
    NAT_OUTPUT: "type nat hook output priority -100",
    NAT_POSTROUTING: "type nat hook postrouting priority 100",
}
"""The chains at hooks, and where. dstnat is -100, filter 0, srcnat 100."""

PLAIN_CHAINS: Final = (
    CLUSTER_IPS_CHECK,
    FIREWALL_CHECK,
    MASQUERADING,
    NODEPORT_ENDPOINTS_CHECK,
    REJECT_CHAIN,
    SERVICE_ENDPOINTS_CHECK,
    SERVICES,
)
"""The chains that base chains and maps lead to."""

_TABLE_COMMENT: Final = "rules for kube-proxy"
_CHAIN_COMMENTS: Final = {REJECT_CHAIN: "helper for @no-endpoint-services / @no-endpoint-nodeports"}

Definition = tuple[str, str]
"""What follows an object's name where it is added, "" for nothing; and what it is for."""


class Rule(msgspec.Struct, frozen=True):
    """A base rule and what it is for."""

    text: str
    reason: str

    @property
    def origin(self) -> Origin:
        """Its provenance."""
        return Origin(f"base rule: {self.reason}")


_FIREWALL: Final = Rule(f"ct state new jump {FIREWALL_CHECK}", "new connections: sources of load-balancer IPs")
_ENDPOINTS: Final = Rule(f"ct state new jump {SERVICE_ENDPOINTS_CHECK}", "new connections: services without endpoints")
_CLUSTER_IPS: Final = Rule(f"ct state new jump {CLUSTER_IPS_CHECK}", "new connections: what is left for ClusterIPs")
_SERVICES: Final = Rule(f"jump {SERVICES}", "destination NAT of services")
JUMPS: Final = {
    FILTER_PREROUTING_PRE_DNAT: (_FIREWALL,),
    FILTER_OUTPUT_PRE_DNAT: (_FIREWALL,),
    FILTER_INPUT: (
        Rule(f"ct state new jump {NODEPORT_ENDPOINTS_CHECK}", "new connections: node ports without them"),
        _ENDPOINTS,
    ),
    FILTER_FORWARD: (_ENDPOINTS, _CLUSTER_IPS),
    FILTER_OUTPUT: (_ENDPOINTS, _CLUSTER_IPS),
    NAT_PREROUTING: (_SERVICES,),
    NAT_OUTPUT: (_SERVICES,),
    NAT_POSTROUTING: (Rule(f"jump {MASQUERADING}", "source NAT of services"),),
}
"""The rules of the chains at hooks, the same for all nodes."""


class BaseObjects(msgspec.Struct, frozen=True):
    """The base objects of one family on one node.

    Attributes:
        table: the definition of the table.
        chains, sets, maps: definitions by name.
        rules: by chain.
        nodeport_ips: the elements of the set nodeport-ips; None where there is no such set.
    """

    table: str
    chains: dict[str, Definition]
    sets: dict[str, Definition]
    maps: dict[str, Definition]
    rules: dict[str, tuple[Rule, ...]]
    nodeport_ips: tuple[str, ...] | None


def render_base(options: RenderOptions) -> BaseObjects:
    """Renders the base objects."""
    comments = options.features.object_comments
    chains = {name: (f"{{ {where} ; }}", "at a hook") for name, where in BASE_CHAINS.items()}
    for name in PLAIN_CHAINS:
        comment = _CHAIN_COMMENTS.get(name, "")
        definition = f'{{ comment "{comment}" ; }}' if comment and comments else ""
        chains[name] = (definition, "hooks or maps lead to it")
    sets, maps = _sets_and_maps(options)
    return BaseObjects(
        table=f'{{ comment "{_TABLE_COMMENT}" ; }}' if comments else "",
        chains=chains,
        sets=sets,
        maps=maps,
        rules=_rules(options),
        nodeport_ips=None if options.node_port_addresses.match_all else _nodeport_ips(options),
    )


def if_local(detector: LocalTrafficDetector, family: str) -> str:
    """Rule text that matches traffic of local pods; "" if it cannot be recognized."""
    return _pods(detector, family, "")


def _pods(detector: LocalTrafficDetector, family: str, operator: str) -> str:
    if detector.source:
        return f"{family} saddr {operator}{detector.written}"
    return f"iifname {operator}{detector.interface}{'*' if detector.is_prefix else ''}" if detector.interface else ""


def _sets_and_maps(options: RenderOptions) -> tuple[dict[str, Definition], dict[str, Definition]]:
    address = f"ipv{options.family.version}_addr"
    service = f"{address} . inet_proto . inet_service"
    sets = {
        CLUSTER_IPS: (address, "Active ClusterIPs"),
        HAIRPIN_CONNECTIONS: (f"{address} . {service}", "service hairpin connections"),
    }
    if not options.node_port_addresses.match_all:
        sets[NODEPORT_IPS] = (address, "IPs that accept NodePort traffic")
    maps = {
        FIREWALL_IPS: (f"{service} : verdict", "destinations that are subject to LoadBalancerSourceRanges"),
        NO_ENDPOINT_NODEPORTS: (
            "inet_proto . inet_service : verdict",
            "vmap to drop or reject packets to service nodeports with no endpoints",
        ),
        NO_ENDPOINT_SERVICES: (
            f"{service} : verdict",
            "vmap to drop or reject packets to services with no endpoints",
        ),
        SERVICE_IPS: (f"{service} : verdict", "ClusterIP, ExternalIP and LoadBalancer IP traffic"),
        SERVICE_NODEPORTS: ("inet_proto . inet_service : verdict", "NodePort traffic"),
    }
    comments = options.features.object_comments
    return _defined(sets, comments), _defined(maps, comments)


def _defined(types: dict[str, tuple[str, str]], comments: bool) -> dict[str, Definition]:
    return {
        name: (f"{{ type {type_} ; " + (f'comment "{comment}" ; }}' if comments else "}"), comment)
        for name, (type_, comment) in types.items()
    }


def _nodeport_ips(options: RenderOptions) -> tuple[str, ...]:
    """kube-proxy leaves loopback addresses out, since node ports do not work on localhost in this mode."""
    own = options.node_port_addresses.matching(options.interface_addresses)
    return tuple(ip for ip in own if not ipaddress.ip_address(ip).is_loopback)


def _rules(options: RenderOptions) -> dict[str, tuple[Rule, ...]]:
    ip = nft_family(options.family)
    mark = options.mark
    by_service = f"{ip} daddr . meta l4proto . th dport vmap"
    no_localhost = "ip6 daddr != ::1" if options.family.is_ipv6 else "ip daddr != 127.0.0.0/8"
    by_port = "meta l4proto . th dport vmap"
    if options.node_port_addresses.match_all:
        # Whatever comes to the input hook is for a local address.
        on_services, on_input = f"fib daddr type local {no_localhost} {by_port}", f"{no_localhost} {by_port}"
    else:
        on_services = on_input = f"{ip} daddr @{NODEPORT_IPS} {by_port}"
    return {
        **JUMPS,
        FIREWALL_CHECK: (Rule(f"{by_service} @{FIREWALL_IPS}", "load-balancer IPs that accept only some sources"),),
        SERVICE_ENDPOINTS_CHECK: (Rule(f"{by_service} @{NO_ENDPOINT_SERVICES}", "services without endpoints"),),
        NODEPORT_ENDPOINTS_CHECK: (Rule(f"{on_input} @{NO_ENDPOINT_NODEPORTS}", "node ports without endpoints"),),
        REJECT_CHAIN: (Rule("reject", "reject, for maps, which cannot say it"),),
        CLUSTER_IPS_CHECK: _cluster_ips_check(options, ip),
        SERVICES: (
            *_masquerade_cluster_ips(options, ip),
            Rule(f"{by_service} @{SERVICE_IPS}", "ClusterIPs, external and load-balancer IPs"),
            Rule(f"{on_services} @{SERVICE_NODEPORTS}", "node ports"),
        ),
        MASQUERADING: (
            # Clearing the mark keeps a packet that traverses the stack again from being masqueraded again.
            Rule(
                f"mark and {mark} != 0 mark set mark xor {mark} masquerade fully-random",
                "masquerade marked packets",
            ),
            Rule(
                f"ct status dnat {ip} saddr . {ip} daddr . meta l4proto . th dport @{HAIRPIN_CONNECTIONS}"
                " masquerade fully-random",
                "masquerade what a pod sends to itself through a service",
            ),
        ),
    }


def _cluster_ips_check(options: RenderOptions, ip: str) -> tuple[Rule, ...]:
    """What came through destination NAT and still has a ClusterIP has no service, or no such port."""
    rejected = Rule(
        f'{ip} daddr @{CLUSTER_IPS} reject comment "Reject traffic to invalid ports of ClusterIPs"',
        "ports that a ClusterIP does not have",
    )
    if not options.service_cidrs:
        return (rejected,)
    dropped = Rule(
        f'{ip} daddr {{ {",".join(options.service_cidrs)} }} drop comment "Drop traffic to unallocated ClusterIPs"',
        "addresses of ServiceCIDRs that no Service has",
    )
    return rejected, dropped


def _masquerade_cluster_ips(options: RenderOptions, ip: str) -> tuple[Rule, ...]:
    """Traffic to a ClusterIP from outside the pod network cannot be answered by pods, so it is masqueraded."""
    to_cluster_ip, marked = f"{ip} daddr @{CLUSTER_IPS}", f"mark set mark or {options.mark}"
    if options.masquerade_all:
        text = f'{to_cluster_ip} {marked} comment "masquerade all clusterIP traffic"'
        return (Rule(text, "cluster IPs: masquerade all"),)
    if not options.local_traffic.is_implemented:
        return ()
    not_local = _pods(options.local_traffic, ip, "!= ")
    text = f'{to_cluster_ip} {not_local} {marked} comment "masquerade clusterIP traffic from outside cluster"'
    return (Rule(text, "cluster IPs: masquerade what is not from pods"),)
