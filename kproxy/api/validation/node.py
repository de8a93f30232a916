"""The API server's checks of the parts of a Node that a network dataplane reads."""

from __future__ import annotations

from kproxy.api.addresses import check_cidr, ip_family
from kproxy.api.fielderror import FieldError, duplicate, invalid, refused, repeats
from kproxy.api.types.core import Node
from kproxy.api.validation.meta import validate_meta
from kproxy.api.validation.names import check_dns_subdomain


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
