"""Service, Endpoints and Node of core/v1 as frozen typed values.

Defaults here are the API server's, so an object built by hand with the required fields only equals what the server
would return. IP addresses are canonical text (RFC 5952 for IPv6), CIDRs are text with surrounding blanks kept out.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from kproxy.api.types.meta import EMPTY, ObjectMeta


class ServicePort(msgspec.Struct, frozen=True, gc=False):
    """core/v1 ServicePort. `target_port` is a port number or the name of a container port."""

    port: int
    name: str = ""
    protocol: str = "TCP"
    target_port: int | str = 0
    node_port: int = 0
    app_protocol: str | None = None


class LoadBalancerIngress(msgspec.Struct, frozen=True, gc=False):
    """core/v1 LoadBalancerIngress. `ip_mode` is "VIP" or "Proxy", by default VIP where `ip` is set."""

    ip: str = ""
    hostname: str = ""
    ip_mode: str | None = None


class ServiceSpec(msgspec.Struct, frozen=True, gc=False):
    """core/v1 ServiceSpec.

    `cluster_ips` always holds `cluster_ip` first when that is set ("None" for headless). `session_affinity_timeout` is
    sessionAffinityConfig.clientIP.timeoutSeconds in seconds, None without ClientIP affinity.
    """

    type: str = "ClusterIP"
    cluster_ip: str = ""
    cluster_ips: tuple[str, ...] = ()
    ip_families: tuple[str, ...] = ()
    ip_family_policy: str | None = None
    ports: tuple[ServicePort, ...] = ()
    selector: Mapping[str, str] = EMPTY
    external_ips: tuple[str, ...] = ()
    external_name: str = ""
    session_affinity: str = "None"
    session_affinity_timeout: int | None = None
    internal_traffic_policy: str | None = None
    external_traffic_policy: str | None = None
    health_check_node_port: int = 0
    load_balancer_ip: str = ""
    load_balancer_source_ranges: tuple[str, ...] = ()
    load_balancer_class: str | None = None
    allocate_load_balancer_node_ports: bool | None = None
    publish_not_ready_addresses: bool = False
    traffic_distribution: str | None = None


class Service(msgspec.Struct, frozen=True, gc=False):
    """core/v1 Service; `ingress` is status.loadBalancer.ingress."""

    metadata: ObjectMeta
    spec: ServiceSpec = ServiceSpec()
    ingress: tuple[LoadBalancerIngress, ...] = ()


class EndpointAddress(msgspec.Struct, frozen=True, gc=False):
    """core/v1 EndpointAddress."""

    ip: str
    hostname: str = ""
    node_name: str | None = None


class EndpointsPort(msgspec.Struct, frozen=True, gc=False):
    """core/v1 EndpointPort (of an Endpoints object)."""

    port: int
    name: str = ""
    protocol: str = "TCP"
    app_protocol: str | None = None


class EndpointSubset(msgspec.Struct, frozen=True, gc=False):
    """core/v1 EndpointSubset."""

    addresses: tuple[EndpointAddress, ...] = ()
    not_ready_addresses: tuple[EndpointAddress, ...] = ()
    ports: tuple[EndpointsPort, ...] = ()


class Endpoints(msgspec.Struct, frozen=True, gc=False):
    """core/v1 Endpoints, the ancestor of EndpointSlice."""

    metadata: ObjectMeta
    subsets: tuple[EndpointSubset, ...] = ()


class NodeAddress(msgspec.Struct, frozen=True, gc=False):
    """core/v1 NodeAddress; `type` is InternalIP, ExternalIP, Hostname, InternalDNS or ExternalDNS."""

    type: str
    address: str


class Node(msgspec.Struct, frozen=True, gc=False):
    """core/v1 Node; `pod_cidrs`, as written, begin with spec.podCIDR if that is set; `taints` has keys of taints;
    `kernel_version` is status.nodeInfo's, "" if it is not told."""

    metadata: ObjectMeta
    pod_cidrs: tuple[str, ...] = ()
    addresses: tuple[NodeAddress, ...] = ()
    unschedulable: bool = False
    taints: tuple[str, ...] = ()
    kernel_version: str = ""
