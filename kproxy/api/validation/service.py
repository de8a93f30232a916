"""The API server's checks of a Service: ValidateServiceCreate of kubernetes/kubernetes pkg/apis/core/validation.

Errors come in the API server's order and wording, so that what it would answer to a POST can be compared text by text.
Two things are left out because they belong to a cluster and not to the object: allocation (a missing cluster IP, node
port or health-check node port is no error here) and the configured ranges of cluster IPs and node ports.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kproxy.api.addresses import check_cidr, check_ip, check_special_ip, ip_family
from kproxy.api.fielderror import FieldError, duplicate, forbidden, invalid, not_supported, refused, required
from kproxy.api.types.core import LoadBalancerIngress, Service, ServicePort, ServiceSpec
from kproxy.api.validation.meta import validate_labels, validate_meta
from kproxy.api.validation.names import (
    check_dns_label,
    check_dns_subdomain,
    check_port_number,
    check_qualified_name,
)
from kproxy.api.validation.ports import PROTOCOLS, port_errors
from kproxy.api.wire.convert import externally_accessible

SOURCE_RANGES_ANNOTATION: Final = "service.beta.kubernetes.io/load-balancer-source-ranges"

_TYPES: Final = frozenset({"ClusterIP", "NodePort", "LoadBalancer", "ExternalName"})
_AFFINITIES: Final = frozenset({"ClientIP", "None"})
_FAMILIES: Final = frozenset({"IPv4", "IPv6"})
_FAMILY_POLICIES: Final = frozenset({"SingleStack", "PreferDualStack", "RequireDualStack"})
_POLICIES: Final = frozenset({"Cluster", "Local"})
# PreferSameZone and PreferSameNode: KEP-3015, enabled by default since v1.34.
_DISTRIBUTIONS: Final = frozenset({"PreferClose", "PreferSameZone", "PreferSameNode"})
_IP_MODES: Final = frozenset({"VIP", "Proxy"})
_KUBELET_PORT: Final = 10250
_ONLY_LB: Final = "may only be used when `type` is 'LoadBalancer'"


def validate_service(service: Service, *, metadata: bool = True) -> list[FieldError]:
    """Every error of one Service, [] when the API server would accept it; of its metadata only if `metadata`."""
    spec = service.spec
    errors = list(validate_meta(service.metadata, check_dns_label)) if metadata else []
    errors += _validate_type(spec)
    names: set[str] = set()
    for index, port in enumerate(spec.ports):
        if not _usual(port, names, len(spec.ports)):
            errors += port_errors(port, f"spec.ports[{index}]", names, len(spec.ports) > 1)
    if spec.selector:
        errors += validate_labels("spec.selector", spec.selector)
    errors += _validate_affinity(spec)
    if spec.type != "ExternalName":
        errors += _validate_cluster_ips(spec)
    for index, ip in enumerate(spec.external_ips):
        path = f"spec.externalIPs[{index}]"
        errors += refused(path, ip, check_ip(ip, False) or check_special_ip(ip))
    if spec.type not in _TYPES:
        errors.append(not_supported("spec.type", spec.type, _TYPES))
    errors += _validate_port_sets(spec)
    errors += _validate_load_balancer(service)
    errors += _validate_policies(spec)
    for index, item in enumerate(service.ingress):
        errors += _validate_ingress(item, spec.type, f"status.loadBalancer.ingress[{index}]")
    return errors


def _validate_type(spec: ServiceSpec) -> Iterator[FieldError]:
    """What each type demands and forbids."""
    headless = spec.cluster_ips == ("None",)
    if not spec.ports and not headless and spec.type != "ExternalName":
        yield required("spec.ports")
    if spec.type == "LoadBalancer":
        for index, port in enumerate(spec.ports):
            if port.port == _KUBELET_PORT:
                text = f"may not expose port {_KUBELET_PORT} externally since it is used by kubelet"
                yield invalid(f"spec.ports[{index}]", port.port, text)
    if headless and spec.type in ("LoadBalancer", "NodePort"):
        yield invalid("spec.clusterIPs[0]", "None", f"may not be set to 'None' for {spec.type} services")
    if spec.type == "ExternalName":
        # clusterIP: "" is how an ExternalName Service may spell "none"; clusterIP: "None" is refused like an address.
        if spec.cluster_ips:
            yield forbidden("spec.clusterIPs", "may not be set for ExternalName services")
        if spec.ip_families:
            yield forbidden("spec.ipFamilies", "may not be set for ExternalName services")
        if spec.ip_family_policy is not None:
            yield forbidden("spec.ipFamilyPolicy", "may not be set for ExternalName services")
        # A trailing dot marks the name as fully qualified.
        name = spec.external_name.removesuffix(".")
        if not name:
            yield required("spec.externalName")
        else:
            yield from refused("spec.externalName", name, check_dns_subdomain(name))


def _usual(port: ServicePort, names: set[str], count: int) -> bool:
    """Whether a port is plainly legal: most are, and a check of 5000 of them should cost little."""
    if (
        port.name in names
        or not (1 <= port.port <= 65535)
        or port.protocol not in PROTOCOLS
        or not isinstance(port.target_port, int)
        or not (1 <= port.target_port <= 65535)
        or port.app_protocol is not None
    ):
        return False
    if port.name:
        if check_dns_label(port.name):
            return False
        names.add(port.name)
        return True
    return count == 1


def _validate_affinity(spec: ServiceSpec) -> Iterator[FieldError]:
    if spec.session_affinity not in _AFFINITIES:
        yield not_supported("spec.sessionAffinity", spec.session_affinity, _AFFINITIES)
    timeout = spec.session_affinity_timeout
    if spec.session_affinity == "ClientIP" and timeout is not None and not 1 <= timeout <= 86400:
        path = "spec.sessionAffinityConfig.clientIP.timeoutSeconds"
        yield invalid(path, timeout, "must be greater than 0 and less than 86400")


def _validate_cluster_ips(spec: ServiceSpec) -> list[FieldError]:
    """clusterIP, clusterIPs, ipFamilies and ipFamilyPolicy: each alone, then against one another."""
    ips, families = spec.cluster_ips, spec.ip_families
    errors = []
    if spec.cluster_ip and ips[:1] != (spec.cluster_ip,):
        errors.append(invalid("spec.clusterIPs", ips, "first value must match `clusterIP`"))
    for index, family in enumerate(families):
        if family not in _FAMILIES:
            errors.append(not_supported(f"spec.ipFamilies[{index}]", family, _FAMILIES))
        if family in families[:index]:
            errors.append(duplicate(f"spec.ipFamilies[{index}]", family))
    if spec.ip_family_policy is not None and spec.ip_family_policy not in _FAMILY_POLICIES:
        errors.append(not_supported("spec.ipFamilyPolicy", spec.ip_family_policy, _FAMILY_POLICIES))
    broken = False
    for index, ip in enumerate(ips):
        if index == 0 and ip == "None":
            if len(ips) > 1:
                broken = True
                errors.append(invalid("spec.clusterIPs", ips, "'None' must be the first and only value"))
            continue
        for text in check_ip(ip, False):
            broken = True
            errors.append(invalid(f"spec.clusterIPs[{index}]", ip, text))
    if len(ips) > 2:
        errors.append(invalid("spec.clusterIPs", ips, "may only hold up to 2 values"))
    if broken:
        return errors
    if len(ips) > 1 and (len(ips) > 2 or ip_family(ips[0]) == ip_family(ips[1])):
        errors.append(invalid("spec.clusterIPs", ips, "may specify no more than one IP for each IP family"))
    if ips != ("None",):
        for index, (ip, family) in enumerate(zip(ips, families, strict=False)):
            if family in _FAMILIES and ip_family(ip) != family:
                text = f"expected an {family} value as indicated by `ipFamilies[{index}]`"
                errors.append(invalid(f"spec.clusterIPs[{index}]", ip, text))
    if spec.ip_family_policy == "SingleStack":
        wants = "must be 'RequireDualStack' or 'PreferDualStack' when multiple"
        if len(ips) == 2:
            errors.append(invalid("spec.ipFamilyPolicy", "SingleStack", f"{wants} cluster IPs are specified"))
        if len(families) == 2:
            errors.append(invalid("spec.ipFamilyPolicy", "SingleStack", f"{wants} IP families are specified"))
    return errors


def _validate_port_sets(spec: ServiceSpec) -> Iterator[FieldError]:
    """Uniqueness among the ports of one Service."""
    if spec.type == "ClusterIP":
        for index, port in enumerate(spec.ports):
            if port.node_port:
                yield forbidden(f"spec.ports[{index}].nodePort", "may not be used when `type` is 'ClusterIP'")
    node_ports: set[tuple[str, int]] = set()
    for index, port in enumerate(spec.ports):
        if not port.node_port:
            continue
        path = f"spec.ports[{index}].nodePort"
        yield from refused(path, port.node_port, check_port_number(port.node_port))
        if (port.protocol, port.node_port) in node_ports:
            yield duplicate(path, port.node_port)
        node_ports.add((port.protocol, port.node_port))
    numbers: set[tuple[str, int]] = set()
    for index, port in enumerate(spec.ports):
        if (port.protocol, port.port) in numbers:
            # The API server prints its internal struct here, with everything but the compared fields empty.
            shown = {"Name": "", "Protocol": port.protocol, "AppProtocol": None, "Port": port.port}
            yield duplicate(f"spec.ports[{index}]", shown | {"TargetPort": 0, "NodePort": 0})
        numbers.add((port.protocol, port.port))


def _validate_load_balancer(service: Service) -> Iterator[FieldError]:
    """Fields that only a LoadBalancer may have. The capital in the first path is the API server's own."""
    spec = service.spec
    other = spec.type != "LoadBalancer"
    if spec.load_balancer_source_ranges:
        path = "spec.LoadBalancerSourceRanges"
        if other:
            yield forbidden(path, _ONLY_LB)
        for index, text in enumerate(spec.load_balancer_source_ranges):
            yield from refused(f"{path}[{index}]", text, check_cidr(text, False))
    elif SOURCE_RANGES_ANNOTATION in service.metadata.annotations:
        path = f"metadata.annotations[{SOURCE_RANGES_ANNOTATION}]"
        if other:
            yield forbidden(path, _ONLY_LB)
        if listed := service.metadata.annotations[SOURCE_RANGES_ANNOTATION].strip():
            for text in listed.split(","):
                yield from refused(path, text.strip(), check_cidr(text.strip(), False))
    if other and spec.allocate_load_balancer_node_ports is not None:
        yield forbidden("spec.allocateLoadBalancerNodePorts", _ONLY_LB)
    if spec.load_balancer_class is not None:
        if other:
            yield forbidden("spec.loadBalancerClass", _ONLY_LB)
        else:
            yield from refused(
                "spec.loadBalancerClass", spec.load_balancer_class, check_qualified_name(spec.load_balancer_class)
            )


def _validate_policies(spec: ServiceSpec) -> Iterator[FieldError]:
    external = spec.external_traffic_policy
    if external is not None:
        path = "spec.externalTrafficPolicy"
        if not externally_accessible(spec.type, spec.external_ips):
            yield invalid(path, external, "may only be set for externally-accessible services")
        elif external not in _POLICIES:
            yield not_supported(path, external, _POLICIES)
    if port := spec.health_check_node_port:
        path = "spec.healthCheckNodePort"
        if spec.type == "LoadBalancer" and external == "Local":
            yield from refused(path, port, check_port_number(port))
        else:
            text = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'"
            yield invalid(path, port, text)
    internal = spec.internal_traffic_policy
    if internal is not None and internal not in _POLICIES:
        yield not_supported("spec.internalTrafficPolicy", internal, _POLICIES)
    if spec.traffic_distribution is not None and spec.traffic_distribution not in _DISTRIBUTIONS:
        yield not_supported("spec.trafficDistribution", spec.traffic_distribution, _DISTRIBUTIONS)


def _validate_ingress(item: LoadBalancerIngress, kind: str, path: str) -> Iterator[FieldError]:
    """status.loadBalancer.ingress, which the API server checks when the status is written."""
    if item.ip:
        yield from refused(f"{path}.ip", item.ip, check_ip(item.ip, False))
    if item.ip_mode is not None:
        if not item.ip:
            yield forbidden(f"{path}.ipMode", "may not be specified when `ip` is not set")
        elif item.ip_mode not in _IP_MODES:
            yield not_supported(f"{path}.ipMode", item.ip_mode, _IP_MODES)
    elif item.ip and kind == "LoadBalancer":
        yield required(f"{path}.ipMode", "must be specified when `ip` is set")
    if item.hostname:
        yield from refused(f"{path}.hostname", item.hostname, check_dns_subdomain(item.hostname))
        if not check_ip(item.hostname, False):
            yield invalid(f"{path}.hostname", item.hostname, "must be a DNS name, not an IP address")
