"""Wire structs to public values, with the API server's defaults.

Sources of the defaults: pkg/apis/core/v1/defaults.go, pkg/apis/discovery/v1/defaults.go and
pkg/registry/core/service of kubernetes/kubernetes. A default depends on the object alone and is filled in here. What
the API server *allocates* (cluster IPs, node ports, the families of a Service without an IP) depends on the cluster
and is left as it is. IP addresses become canonical text; an invalid one stays as it is for validation to
refuse. Equal leaf values are shared, so that 50,000 endpoints do not hold 50,000 copies of twenty node names.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from kproxy.api.addresses import canonical_cidr, canonical_ip, ip_family
from kproxy.api.types.core import (
    EndpointAddress,
    Endpoints,
    EndpointsPort,
    EndpointSubset,
    LoadBalancerIngress,
    Node,
    NodeAddress,
    Service,
    ServicePort,
    ServiceSpec,
)
from kproxy.api.types.discovery import Endpoint, EndpointConditions, EndpointHints, EndpointPort, EndpointSlice
from kproxy.api.types.meta import EMPTY, ObjectMeta
from kproxy.api.types.networking import ServiceCIDR
from kproxy.api.wire import structs

Shared = dict[str | None, str | None]
Object = Service | EndpointSlice | Endpoints | Node | ServiceCIDR

_NO_META: Final = structs.WireMeta()
_NO_SPEC: Final = structs.WireServiceSpec()
_NO_CONDITIONS: Final = EndpointConditions()
_CONDITIONS: Final = {
    (ready, serving, terminating): EndpointConditions(ready, serving, terminating)
    for ready in (None, False, True)
    for serving in (None, False, True)
    for terminating in (None, False, True)
}


def convert(spelled: structs.WireObject, shared: Shared | None = None) -> Object:
    """The public value of any wire object. `shared` keeps one copy of each node and zone name across calls."""
    match spelled:
        case structs.WireEndpointSlice():
            return convert_endpoint_slice(spelled, shared)
        case structs.WireService():
            return convert_service(spelled)
        case structs.WireEndpoints():
            return convert_endpoints(spelled)
        case structs.WireNode():
            return convert_node(spelled)
        case structs.WireServiceCIDR():
            return convert_service_cidr(spelled)


def string_map(pairs: structs.StringMap | None) -> Mapping[str, str]:
    """Labels, annotations, a selector. Go reads `key: null` as the empty string."""
    if not pairs:
        return EMPTY
    return MappingProxyType({key: value or "" for key, value in pairs.items()})


def _strings(values: list[str | None] | None) -> tuple[str, ...]:
    return tuple(value or "" for value in values) if values else ()


def _ips(values: list[str | None] | None) -> tuple[str, ...]:
    return tuple(canonical_ip(value or "") or value or "" for value in values) if values else ()


def _cidr(text: str) -> str:
    return canonical_cidr(text) or text


def convert_meta(spelled: structs.WireMeta | None, namespace: str) -> ObjectMeta:
    """metadata; `namespace` stands in for one that is left out, as kubectl's current namespace does."""
    meta = spelled or _NO_META
    return ObjectMeta(
        meta.name or "",
        meta.namespace or namespace,
        string_map(meta.labels),
        string_map(meta.annotations),
        meta.uid or "",
        meta.resource_version or "",
        meta.generation or 0,
        meta.creation_timestamp or "",
        meta.deletion_timestamp or "",
    )


def convert_service(spelled: structs.WireService) -> Service:
    """core/v1 Service, defaulted."""
    spec = spelled.spec or _NO_SPEC
    ports = tuple(_service_port(port) for port in spec.ports) if spec.ports else ()
    kind = spec.type or "ClusterIP"
    headful = kind != "ExternalName"
    external_ips = _ips(spec.external_ips)
    cluster_ips = _ips(spec.cluster_ips)
    cluster_ip = canonical_ip(spec.cluster_ip or "") or spec.cluster_ip or (cluster_ips[0] if cluster_ips else "")
    if cluster_ip and not cluster_ips:
        cluster_ips = (cluster_ip,)
    families, policy = _families(spec, cluster_ips) if headful else (_strings(spec.ip_families), spec.ip_family_policy)
    external_policy = spec.external_traffic_policy or None
    if external_policy is None and externally_accessible(kind, external_ips):
        external_policy = "Cluster"
    allocate = spec.allocate_load_balancer_node_ports
    return Service(
        convert_meta(spelled.metadata, "default"),
        ServiceSpec(
            type=kind,
            cluster_ip=cluster_ip,
            cluster_ips=cluster_ips,
            ip_families=families,
            ip_family_policy=policy,
            ports=ports,
            selector=string_map(spec.selector),
            external_ips=external_ips,
            external_name=spec.external_name or "",
            session_affinity=spec.session_affinity or "None",
            session_affinity_timeout=_affinity_timeout(spec),
            internal_traffic_policy=spec.internal_traffic_policy or ("Cluster" if headful else None),
            external_traffic_policy=external_policy,
            health_check_node_port=spec.health_check_node_port or 0,
            load_balancer_ip=canonical_ip(spec.load_balancer_ip or "") or spec.load_balancer_ip or "",
            load_balancer_source_ranges=tuple(
                _cidr((text or "").strip()) for text in spec.load_balancer_source_ranges or ()
            ),
            load_balancer_class=spec.load_balancer_class,
            allocate_load_balancer_node_ports=True if allocate is None and kind == "LoadBalancer" else allocate,
            publish_not_ready_addresses=bool(spec.publish_not_ready_addresses),
            traffic_distribution=spec.traffic_distribution or None,
        ),
        _ingress(spelled.status, kind),
    )


def externally_accessible(kind: str, external_ips: tuple[str, ...]) -> bool:
    """Whether externalTrafficPolicy applies: NodePort, LoadBalancer, or a ClusterIP Service with external IPs."""
    return kind in ("NodePort", "LoadBalancer") or (kind == "ClusterIP" and bool(external_ips))


def _service_port(spelled: structs.WireServicePort) -> ServicePort:
    port = spelled.port or 0
    return ServicePort(
        port,
        spelled.name or "",
        spelled.protocol or "TCP",
        spelled.target_port or port,
        spelled.node_port or 0,
        spelled.app_protocol,
    )


def _families(spec: structs.WireServiceSpec, cluster_ips: tuple[str, ...]) -> tuple[tuple[str, ...], str | None]:
    """ipFamilies and ipFamilyPolicy of a Service that may have cluster IPs.

    Families follow the IPs. A policy that is left out is SingleStack, except that a headless Service without selector
    is RequireDualStack (kubernetes/kubernetes pkg/registry/core/service/storage/alloc.go) and that two given IPs say
    RequireDualStack, where the API server would ask for the policy to be written out.
    """
    families = _strings(spec.ip_families)
    headless = cluster_ips[:1] == ("None",)
    if not headless:
        families += tuple(ip_family(ip) for ip in cluster_ips[len(families) :] if canonical_ip(ip))
    policy = spec.ip_family_policy or None
    if policy is None:
        dual = len(cluster_ips) > 1 or len(families) > 1 or (headless and not spec.selector)
        policy = "RequireDualStack" if dual else "SingleStack"
    return families, policy


def _affinity_timeout(spec: structs.WireServiceSpec) -> int | None:
    """sessionAffinityConfig counts only with ClientIP: the API server drops it silently otherwise."""
    if spec.session_affinity != "ClientIP":
        return None
    config = spec.session_affinity_config
    if config is None or config.client_ip is None or config.client_ip.timeout_seconds is None:
        return 10800
    return config.client_ip.timeout_seconds


def _ingress(status: structs.WireServiceStatus | None, kind: str) -> tuple[LoadBalancerIngress, ...]:
    if status is None or status.load_balancer is None or not status.load_balancer.ingress:
        return ()
    default = "VIP" if kind == "LoadBalancer" else None
    return tuple(
        LoadBalancerIngress(
            canonical_ip(item.ip or "") or item.ip or "",
            item.hostname or "",
            item.ip_mode or (default if item.ip else None),
        )
        for item in status.load_balancer.ingress
    )


def convert_endpoint_slice(spelled: structs.WireEndpointSlice, shared: Shared | None = None) -> EndpointSlice:
    """discovery/v1 EndpointSlice, defaulted. `shared` keeps one copy of each node and zone name across calls."""
    pool: Shared = {} if shared is None else shared
    once = pool.setdefault
    endpoints = []
    for item in spelled.endpoints or ():
        addresses = item.addresses
        if addresses is not None and len(addresses) == 1 and addresses[0]:
            address = addresses[0]
            texts: tuple[str, ...] = (canonical_ip(address) or address,)
        else:
            texts = _ips(addresses)
        stated = item.conditions
        hints = item.hints
        endpoints.append(
            Endpoint(
                texts,
                _NO_CONDITIONS if stated is None else _CONDITIONS[stated.ready, stated.serving, stated.terminating],
                item.hostname,
                once(item.node_name, item.node_name),
                once(item.zone, item.zone),
                None if hints is None else EndpointHints(_hint_names(hints.for_zones), _hint_names(hints.for_nodes)),
            )
        )
    return EndpointSlice(
        convert_meta(spelled.metadata, "default"),
        spelled.address_type or "",
        tuple(endpoints),
        tuple(
            EndpointPort(port.port, port.name or "", port.protocol or "TCP", port.app_protocol)
            for port in spelled.ports or ()
        ),
    )


def _hint_names(items: list[structs.WireName] | None) -> tuple[str, ...]:
    return tuple(item.name or "" for item in items) if items else ()


def convert_endpoints(spelled: structs.WireEndpoints) -> Endpoints:
    """core/v1 Endpoints, defaulted."""
    return Endpoints(
        convert_meta(spelled.metadata, "default"),
        tuple(
            EndpointSubset(
                _endpoint_addresses(subset.addresses),
                _endpoint_addresses(subset.not_ready_addresses),
                tuple(
                    EndpointsPort(port.port or 0, port.name or "", port.protocol or "TCP", port.app_protocol)
                    for port in subset.ports or ()
                ),
            )
            for subset in spelled.subsets or ()
        ),
    )


def _endpoint_addresses(items: list[structs.WireEndpointAddress] | None) -> tuple[EndpointAddress, ...]:
    return tuple(
        EndpointAddress(canonical_ip(item.ip or "") or item.ip or "", item.hostname or "", item.node_name)
        for item in items or ()
    )


def convert_node(spelled: structs.WireNode) -> Node:
    """core/v1 Node. spec.podCIDR alone stands for podCIDRs, as in the API server's conversion.

    The CIDRs stay as they are written, since kube-proxy in nftables mode writes them so.
    """
    spec = spelled.spec or structs.WireNodeSpec()
    status = spelled.status or structs.WireNodeStatus()
    cidrs = _strings(spec.pod_cidrs) or ((spec.pod_cidr,) if spec.pod_cidr else ())
    return Node(
        convert_meta(spelled.metadata, ""),
        cidrs,
        tuple(
            NodeAddress(item.type or "", canonical_ip(item.address or "") or item.address or "")
            for item in status.addresses or ()
        ),
        bool(spec.unschedulable),
        tuple(taint.key or "" for taint in spec.taints or ()),
        (status.node_info.kernel_version if status.node_info else "") or "",
    )


def convert_service_cidr(spelled: structs.WireServiceCIDR) -> ServiceCIDR:
    """networking/v1 ServiceCIDR."""
    spec = spelled.spec or structs.WireServiceCIDRSpec()
    return ServiceCIDR(convert_meta(spelled.metadata, ""), tuple(_cidr(text) for text in _strings(spec.cidrs)))
