"""The API server's checks of a ServiceCIDR."""

from __future__ import annotations

from kproxy.api.addresses import check_cidr, ip_family
from kproxy.api.fielderror import FieldError, invalid, refused, required
from kproxy.api.types.networking import ServiceCIDR
from kproxy.api.validation.meta import validate_meta
from kproxy.api.validation.names import check_dns_subdomain


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
