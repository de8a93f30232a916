"""Which endpoints a ServicePort uses on this node: readiness, topology hints and traffic policies; and its health
checks.

Follows kube-proxy v1.36's CategorizeEndpoints. Cluster and Local are decided separately, each with its own fall-back to
endpoints that still serve while they terminate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

import msgspec

from kproxy.services.endpoints import Endpoint
from kproxy.services.names import ServicePortName
from kproxy.services.serviceport import ServicePort

SAME_NODE = "PreferSameNode"
SAME_ZONE = "PreferSameZone"


class SelectedEndpoints(msgspec.Struct, frozen=True, dict=True):
    """The endpoints of one ServicePort on one node.

    Attributes:
        cluster: used under policy Cluster.
        local: used under policy Local.
        reachable: all that get an endpoint chain: the union, sorted by address.
        has_any: whether any node has a usable endpoint. False means REJECT rather than DROP.
        topology: PreferSameNode, PreferSameZone or "", by which hints `cluster` was narrowed.
    """

    cluster: tuple[Endpoint, ...] = ()
    local: tuple[Endpoint, ...] = ()
    reachable: tuple[Endpoint, ...] = ()
    has_any: bool = False
    topology: str = ""

    @cached_property
    def used_for(self) -> Mapping[str, tuple[str, ...]]:
        """The policies that use each endpoint, by its address: "cluster", "local" or both."""
        found: dict[str, tuple[str, ...]] = {}
        for policy, chosen in (("cluster", self.cluster), ("local", self.local)):
            for ep in chosen:
                found[ep.address] = (*found.get(ep.address, ()), policy)
        return found


def select_endpoints(
    service_port: ServicePort, endpoints: Sequence[Endpoint], node_name: str, zone: str
) -> SelectedEndpoints:
    """Decides which endpoints the ServicePort uses on a node; `zone` is "" if the Node has no zone label."""
    cluster: tuple[Endpoint, ...] = ()
    local: tuple[Endpoint, ...] = ()
    topology = ""
    has_any = False
    if service_port.uses_cluster_endpoints:
        topology = topology_from_hints(endpoints, node_name, zone)
        cluster = tuple(ep for ep in endpoints if ep.ready and _is_near(ep, topology, node_name, zone))
        if not cluster:
            cluster = tuple(ep for ep in endpoints if ep.serving and ep.terminating)
        has_any = bool(cluster)
    if service_port.uses_local_endpoints:
        has_any = has_any or any(ep.ready or (ep.serving and ep.terminating) for ep in endpoints)
        local = tuple(ep for ep in endpoints if ep.is_local and ep.ready)
        if not local:
            local = tuple(ep for ep in endpoints if ep.is_local and ep.serving and ep.terminating)
    if not local or local == cluster:
        reachable = cluster
    elif not cluster:
        reachable = local
    else:
        union = {ep.address: ep for ep in cluster + local}
        reachable = tuple(union[address] for address in sorted(union))
    return SelectedEndpoints(cluster, local, reachable, has_any, topology)


def topology_from_hints(endpoints: Sequence[Endpoint], node_name: str, zone: str) -> str:
    """Whether hints narrow the endpoints to this node, to this zone, or not at all ("").

    Hints count only if every ready endpoint has them and at least one names this node (or zone); nodes are tried first.
    """
    ready = [ep for ep in endpoints if ep.ready]
    if not ready:
        return ""
    if all(ep.node_hints for ep in ready) and any(node_name in ep.node_hints for ep in ready):
        return SAME_NODE
    if zone and all(ep.zone_hints for ep in ready) and any(zone in ep.zone_hints for ep in ready):
        return SAME_ZONE
    return ""


def why_unused(endpoint: Endpoint, service_port: ServicePort, selected: SelectedEndpoints) -> str:
    """Why an endpoint gets no traffic on this node, in words; "" when it gets some."""
    if endpoint.address in selected.used_for:
        return ""
    if not endpoint.ready:
        if endpoint.serving and endpoint.terminating:
            return "terminating, and there are ready endpoints"
        return "not ready" if not endpoint.terminating else "terminating and no longer serving"
    if not service_port.uses_cluster_endpoints:
        return "on another node, and the traffic policy is Local"
    if selected.topology == SAME_NODE:
        return "its hints name other nodes"
    if selected.topology == SAME_ZONE:
        return "its hints name other zones"
    return "not selected"


def _is_near(endpoint: Endpoint, topology: str, node_name: str, zone: str) -> bool:
    if topology == SAME_NODE:
        return node_name in endpoint.node_hints
    if topology == SAME_ZONE:
        return zone in endpoint.zone_hints
    return True


def health_check_node_ports(service_ports: Mapping[ServicePortName, ServicePort]) -> dict[str, int]:
    """The health-check node port of each Service that has one, by `namespace/name`."""
    return {name.service: sp.health_check_node_port for name, sp in service_ports.items() if sp.health_check_node_port}


def local_ready_endpoints(endpoints: Mapping[ServicePortName, tuple[Endpoint, ...]]) -> dict[str, int]:
    """For each Service with any, the number of distinct IPs among its ready endpoints on this node."""
    ips: dict[str, set[str]] = {}
    for name, entries in endpoints.items():
        for endpoint in entries:
            if endpoint.is_local and endpoint.ready:
                ips.setdefault(name.service, set()).add(endpoint.ip)
    return {service: len(found) for service, found in ips.items()}
