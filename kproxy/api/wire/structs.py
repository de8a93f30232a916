"""The objects as they are on the wire: msgspec structs with the API's camelCase names.

Every field may be absent or `null`, because Go clients and the API server write `null` for empty lists, maps and
pointers, and Go's decoder takes `null` for "not set" wherever it stands. Unknown fields are ignored. Required fields,
enumerations and ranges are validation, not decoding; here only types count. `None` therefore means "absent" in every
wire struct: `convert.py` replaces it by the default, and `validation/strict.py` looks at what was written.
"""

from __future__ import annotations

from typing import Final

import msgspec

_SPECIAL: Final = {
    "api_version": "apiVersion",
    "cluster_ip": "clusterIP",
    "cluster_ips": "clusterIPs",
    "external_ips": "externalIPs",
    "load_balancer_ip": "loadBalancerIP",
    "client_ip": "clientIP",
    "pod_cidr": "podCIDR",
    "pod_cidrs": "podCIDRs",
}


def api_name(name: str) -> str:
    """The API's spelling of a snake-case name: camelCase, initialisms in capitals."""
    head, *tail = name.split("_")
    return _SPECIAL.get(name) or head + "".join(part.capitalize() for part in tail)


class Wire(msgspec.Struct, rename=api_name, gc=False):
    """Base of all wire structs. gc=False: they hold strings, numbers and one another, never a cycle."""


StringMap = dict[str, str | None]


class WireMeta(Wire):
    name: str | None = None
    generate_name: str | None = None
    namespace: str | None = None
    labels: StringMap | None = None
    annotations: StringMap | None = None
    uid: str | None = None
    resource_version: str | None = None
    generation: int | None = None
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None


class WireServicePort(Wire):
    name: str | None = None
    protocol: str | None = None
    port: int | None = None
    target_port: int | str | None = None
    node_port: int | None = None
    app_protocol: str | None = None


class WireClientIP(Wire):
    timeout_seconds: int | None = None


class WireAffinityConfig(Wire):
    client_ip: WireClientIP | None = None


class WireServiceSpec(Wire):
    type: str | None = None
    cluster_ip: str | None = None
    cluster_ips: list[str | None] | None = None
    ip_families: list[str | None] | None = None
    ip_family_policy: str | None = None
    ports: list[WireServicePort] | None = None
    selector: StringMap | None = None
    external_ips: list[str | None] | None = None
    external_name: str | None = None
    session_affinity: str | None = None
    session_affinity_config: WireAffinityConfig | None = None
    internal_traffic_policy: str | None = None
    external_traffic_policy: str | None = None
    health_check_node_port: int | None = None
    load_balancer_ip: str | None = None
    load_balancer_source_ranges: list[str | None] | None = None
    load_balancer_class: str | None = None
    allocate_load_balancer_node_ports: bool | None = None
    publish_not_ready_addresses: bool | None = None
    traffic_distribution: str | None = None


class WireIngress(Wire):
    ip: str | None = None
    hostname: str | None = None
    ip_mode: str | None = None


class WireLoadBalancer(Wire):
    ingress: list[WireIngress] | None = None


class WireServiceStatus(Wire):
    load_balancer: WireLoadBalancer | None = None


class WireService(Wire, tag_field="kind", tag="Service"):
    api_version: str | None = None
    metadata: WireMeta | None = None
    spec: WireServiceSpec | None = None
    status: WireServiceStatus | None = None


class WireConditions(Wire):
    ready: bool | None = None
    serving: bool | None = None
    terminating: bool | None = None


class WireName(Wire):
    """discovery/v1 ForZone and ForNode."""

    name: str | None = None


class WireHints(Wire):
    for_zones: list[WireName] | None = None
    for_nodes: list[WireName] | None = None


class WireEndpoint(Wire):
    addresses: list[str | None] | None = None
    conditions: WireConditions | None = None
    hostname: str | None = None
    node_name: str | None = None
    zone: str | None = None
    hints: WireHints | None = None


class WireSlicePort(Wire):
    name: str | None = None
    protocol: str | None = None
    port: int | None = None
    app_protocol: str | None = None


class WireEndpointSlice(Wire, tag_field="kind", tag="EndpointSlice"):
    api_version: str | None = None
    metadata: WireMeta | None = None
    address_type: str | None = None
    endpoints: list[WireEndpoint] | None = None
    ports: list[WireSlicePort] | None = None


class WireEndpointAddress(Wire):
    ip: str | None = None
    hostname: str | None = None
    node_name: str | None = None


class WireSubset(Wire):
    addresses: list[WireEndpointAddress] | None = None
    not_ready_addresses: list[WireEndpointAddress] | None = None
    ports: list[WireSlicePort] | None = None


class WireEndpoints(Wire, tag_field="kind", tag="Endpoints"):
    api_version: str | None = None
    metadata: WireMeta | None = None
    subsets: list[WireSubset] | None = None


class WireTaint(Wire):
    key: str | None = None


class WireNodeSpec(Wire):
    pod_cidr: str | None = None
    pod_cidrs: list[str | None] | None = None
    unschedulable: bool | None = None
    taints: list[WireTaint] | None = None


class WireNodeAddress(Wire):
    type: str | None = None
    address: str | None = None


class WireNodeInfo(Wire):
    kernel_version: str | None = None


class WireNodeStatus(Wire):
    addresses: list[WireNodeAddress] | None = None
    node_info: WireNodeInfo | None = None


class WireNode(Wire, tag_field="kind", tag="Node"):
    api_version: str | None = None
    metadata: WireMeta | None = None
    spec: WireNodeSpec | None = None
    status: WireNodeStatus | None = None


class WireServiceCIDRSpec(Wire):
    cidrs: list[str | None] | None = None


class WireServiceCIDR(Wire, tag_field="kind", tag="ServiceCIDR"):
    api_version: str | None = None
    metadata: WireMeta | None = None
    spec: WireServiceCIDRSpec | None = None


WireObject = WireService | WireEndpointSlice | WireEndpoints | WireNode | WireServiceCIDR

KINDS: Final[dict[str, tuple[str, type[WireObject]]]] = {
    "Service": ("v1", WireService),
    "EndpointSlice": ("discovery.k8s.io/v1", WireEndpointSlice),
    "Endpoints": ("v1", WireEndpoints),
    "Node": ("v1", WireNode),
    "ServiceCIDR": ("networking.k8s.io/v1", WireServiceCIDR),
}
"""Kinds that are read: the one apiVersion of each that is supported, and how it is spelled on the wire."""

API_VERSIONS: Final[dict[type[WireObject], str]] = {struct: version for version, struct in KINDS.values()}
