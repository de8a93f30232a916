"""The API server's checks of Nodes, as far as a network dataplane reads them, of ServiceCIDRs, and between Services.

Cluster IPs are unique in a cluster. So are node ports, which the health-check node ports share: kube-proxy listens on
those with TCP. (The API server's allocator does not even let two Services share a number over different protocols;
dumps assembled by hand do, harmlessly, so only the same number with the same protocol is an error here.)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from kproxy.api.addresses import check_cidr, ip_family
from kproxy.api.fielderror import FieldError, duplicate, invalid, refused, repeats, required
from kproxy.api.types.core import Node, Service, ServiceSpec
from kproxy.api.types.networking import ServiceCIDR
from kproxy.api.validation.meta import validate_meta
from kproxy.api.validation.names import check_dns_subdomain

Claim = tuple[Service, FieldError]
_HEALTH_CHECK: Final = "spec.healthCheckNodePort"


def validate_node(node: Node, *, metadata: bool = True) -> list[FieldError]:
    """Every error of one Node, [] when the API server would accept it; of its metadata only if `metadata`.

    Like the API server's, this leaves status.addresses alone but for duplicates: a type of its own or an address that
    is not an IP is legal, and kube-proxy skips what it does not understand.
    """
    errors = list(validate_meta(node.metadata, check_dns_subdomain, namespaced=False)) if metadata else []
    cidrs = node.pod_cidrs
    for index, text in enumerate(cidrs):
        errors += refused(f"spec.podCIDRs[{index}]", text, check_cidr(text, False))
    if len(cidrs) > 1:
        if len(cidrs) > 2 or ip_family(cidrs[0]) == ip_family(cidrs[1]):
            errors.append(invalid("spec.podCIDRs", cidrs, "may specify no more than one CIDR for each IP family"))
        errors += (duplicate(f"spec.podCIDRs[{index}]", cidrs[index]) for index in repeats(cidrs))
    for index in repeats(node.addresses):
        address = node.addresses[index]
        shown = {"Type": address.type, "Address": address.address}
        errors.append(duplicate(f"status.addresses[{index}]", shown))
    return errors


def validate_service_cidr(service_cidr: ServiceCIDR) -> list[FieldError]:
    """Every error of one ServiceCIDR, [] when the API server would accept it."""
    errors = list(validate_meta(service_cidr.metadata, check_dns_subdomain, namespaced=False))
    cidrs = service_cidr.cidrs
    if not cidrs:
        errors.append(required("spec.cidrs", "at least one CIDR required"))
    for index, text in enumerate(cidrs):
        errors += refused(f"spec.cidrs[{index}]", text, check_cidr(text, False))
    if len(cidrs) > 2:
        errors.append(invalid("spec.cidrs", cidrs, "may only hold up to 2 values"))
    elif len(cidrs) == 2 and ip_family(cidrs[0]) == ip_family(cidrs[1]):
        errors.append(invalid("spec.cidrs", cidrs, "may specify no more than one IP for each IP family"))
    return errors


def collisions(services: Iterable[Service], sources: Mapping[tuple[str, str], object]) -> Iterator[Claim]:
    """The Services that claim what an earlier one has, with the error; `sources` says where each key comes from."""
    owners: dict[object, Service] = {}
    for service in services:
        if service.spec.type == "ExternalName":
            continue
        for path, value, claimed, text in _claims(service.spec):
            known = claimed in owners
            owner = owners.setdefault(claimed, service)
            # Ports of one Service may share a number, which `validate_service` checks; its health check may not.
            if owner is not service or (known and path == _HEALTH_CHECK):
                name = f"{owner.metadata.key} ({sources.get(('Service', owner.metadata.key), 'unknown')})"
                yield service, invalid(path, value, f"{text} is already allocated to Service {name}")


def _claims(spec: ServiceSpec) -> Iterator[tuple[str, object, object, str]]:
    """Path, value, what nobody else may have, and how the message begins."""
    for ip in spec.cluster_ips:
        if ip != "None":
            yield "spec.clusterIPs", spec.cluster_ips, ip, f"failed to allocate IP {ip}: provided IP"
    for index, port in enumerate(spec.ports):
        if port.node_port:
            path = f"spec.ports[{index}].nodePort"
            yield path, port.node_port, (port.protocol, port.node_port), "provided port"
    if spec.health_check_node_port:
        yield _HEALTH_CHECK, spec.health_check_node_port, ("TCP", spec.health_check_node_port), "provided port"
