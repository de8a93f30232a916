"""Short ways to write objects in tests; what a test does not say takes the API server's defaults."""

from __future__ import annotations

from kproxy.api.types.core import LoadBalancerIngress, Node, NodeAddress, Service, ServicePort, ServiceSpec
from kproxy.api.types.discovery import Endpoint, EndpointConditions, EndpointHints, EndpointPort, EndpointSlice
from kproxy.api.types.meta import ObjectMeta
from kproxy.services.names import LABEL_SERVICE_NAME, family_of


def make_service(
    name: str = "web",
    namespace: str = "shop",
    *,
    ports: tuple[ServicePort, ...] = (ServicePort(port=80),),
    cluster_ips: tuple[str, ...] = ("10.96.0.1",),
    labels: dict[str, str] | None = None,
    ingress: tuple[LoadBalancerIngress, ...] = (),
    type: str = "ClusterIP",
    external_ips: tuple[str, ...] = (),
    source_ranges: tuple[str, ...] = (),
    affinity_seconds: int = 0,
    internal_policy: str = "Cluster",
    external_policy: str | None = None,
    health_check_node_port: int = 0,
) -> Service:
    return Service(
        ObjectMeta(name, namespace, labels or {}),
        ServiceSpec(
            type=type,
            cluster_ip=cluster_ips[0] if cluster_ips else "",
            cluster_ips=cluster_ips,
            ports=ports,
            external_ips=external_ips,
            session_affinity="ClientIP" if affinity_seconds else "None",
            session_affinity_timeout=affinity_seconds or None,
            internal_traffic_policy=internal_policy,
            external_traffic_policy=external_policy,
            health_check_node_port=health_check_node_port,
            load_balancer_source_ranges=source_ranges,
        ),
        ingress,
    )


def make_endpoint(
    ip: str = "10.244.0.5",
    *,
    node: str | None = "node-0",
    ready: bool | None = True,
    serving: bool | None = None,
    terminating: bool | None = None,
    zones: tuple[str, ...] = (),
    nodes: tuple[str, ...] = (),
) -> Endpoint:
    return Endpoint(
        (ip,),
        EndpointConditions(ready, serving, terminating),
        node_name=node,
        hints=EndpointHints(zones, nodes) if zones or nodes else None,
    )


def make_slice(
    *endpoints: Endpoint,
    service: str = "web",
    namespace: str = "shop",
    name: str = "web-1",
    ports: tuple[EndpointPort, ...] = (EndpointPort(8080),),
    address_type: str | None = None,
    labels: dict[str, str] | None = None,
) -> EndpointSlice:
    if address_type is None:
        address_type = family_of(endpoints[0].addresses[0]).value if endpoints else "IPv4"
    return EndpointSlice(
        ObjectMeta(name, namespace, {LABEL_SERVICE_NAME: service, **(labels or {})}),
        address_type,
        endpoints,
        ports,
    )


def make_node(name: str = "node-0", *, zone: str = "", ips: tuple[str, ...] = ("192.168.0.2",)) -> Node:
    labels = {"topology.kubernetes.io/zone": zone} if zone else {}
    return Node(
        ObjectMeta(name, labels=labels),
        ("10.244.0.0/24",),
        tuple(NodeAddress("InternalIP", ip) for ip in ips),
    )
