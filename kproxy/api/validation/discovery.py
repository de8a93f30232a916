"""The API server's checks of EndpointSlices and Endpoints.

Sources: kubernetes/kubernetes pkg/apis/discovery/validation and pkg/apis/core/validation (ValidateEndpointsCreate).
Order and wording are the API server's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from kproxy.api.addresses import check_ip, check_special_ip, ip_family
from kproxy.api.fielderror import FieldError, duplicate, invalid, not_supported, refused, required, too_many
from kproxy.api.types.core import EndpointAddress, Endpoints
from kproxy.api.types.discovery import Endpoint, EndpointPort, EndpointSlice
from kproxy.api.validation.meta import NameCheck, validate_meta
from kproxy.api.validation.names import (
    check_dns_label,
    check_dns_subdomain,
    check_fqdn,
    check_label_value,
    check_port_number,
)
from kproxy.api.validation.ports import port_errors

MAX_ENDPOINTS: Final = 1000
MAX_ADDRESSES: Final = 100
MAX_PORTS: Final = 20000
MAX_HINTS: Final = 8
_ADDRESS_TYPES: Final = frozenset({"IPv4", "IPv6", "FQDN"})
_SPECIAL_V4: Final = ("0.", "127.", "169.254.", "224.0.0.")


def validate_endpoint_slice(item: EndpointSlice, *, metadata: bool = True) -> list[FieldError]:
    """Every error of one EndpointSlice, [] when the API server would accept it; of its metadata only if `metadata`."""
    errors = list(validate_meta(item.metadata, check_dns_subdomain)) if metadata else []
    if not item.address_type:
        errors.append(required("addressType"))
    elif item.address_type not in _ADDRESS_TYPES:
        errors.append(not_supported("addressType", item.address_type, _ADDRESS_TYPES))
    errors += _validate_slice_ports(item.ports)
    if len(item.endpoints) > MAX_ENDPOINTS:
        errors.append(too_many("endpoints", len(item.endpoints), MAX_ENDPOINTS))
        return errors
    v4 = item.address_type == "IPv4"
    for index, endpoint in enumerate(item.endpoints):
        addresses = endpoint.addresses
        if (
            v4
            and len(addresses) == 1
            and endpoint.hints is None
            and endpoint.hostname is None
            and (endpoint.node_name is None or not check_dns_subdomain(endpoint.node_name))
            and not addresses[0].startswith(_SPECIAL_V4)
            and ":" not in addresses[0]
            and not check_ip(addresses[0], False)
        ):
            continue  # the common shape, plainly legal
        errors += _validate_endpoint(endpoint, item.address_type, f"endpoints[{index}]")
    return errors


def _validate_endpoint(endpoint: Endpoint, address_type: str, path: str) -> Iterator[FieldError]:
    where = f"{path}.addresses"
    if not endpoint.addresses:
        yield required(where, "must contain at least 1 address")
    elif len(endpoint.addresses) > MAX_ADDRESSES:
        yield too_many(where, len(endpoint.addresses), MAX_ADDRESSES)
    for index, address in enumerate(endpoint.addresses):
        at = f"{where}[{index}]"
        if address_type in ("IPv4", "IPv6"):
            if messages := check_ip(address, False):
                yield from refused(at, address, messages)
                continue
            if ip_family(address) != address_type:
                yield invalid(where, address, f"must be an {address_type} address")
            yield from refused(at, address, check_special_ip(address))
        elif address_type == "FQDN":
            if not address:
                yield required(at)
            else:
                yield from refused(at, address, check_fqdn(address))
    if endpoint.node_name is not None:
        yield from refused(f"{path}.nodeName", endpoint.node_name, check_dns_subdomain(endpoint.node_name))
    if endpoint.hostname is not None:
        yield from refused(f"{path}.hostname", endpoint.hostname, check_dns_label(endpoint.hostname))
    if endpoint.hints is not None:
        yield from _validate_hints(endpoint.hints.for_zones, f"{path}.hints.forZones", check_label_value)
        yield from _validate_hints(endpoint.hints.for_nodes, f"{path}.hints.forNodes", check_dns_subdomain)


def _validate_hints(names: tuple[str, ...], path: str, check: NameCheck) -> Iterator[FieldError]:
    if len(names) > MAX_HINTS:
        yield too_many(path, len(names), MAX_HINTS)
        return
    for index, name in enumerate(names):
        where = f"{path}[{index}].name"
        if name in names[:index]:
            yield duplicate(where, name)
        yield from refused(where, name, check(name))


def _validate_slice_ports(ports: tuple[EndpointPort, ...]) -> Iterator[FieldError]:
    if len(ports) > MAX_PORTS:
        yield too_many("ports", len(ports), MAX_PORTS)
        return
    names: set[str] = set()
    for index, port in enumerate(ports):
        yield from port_errors(port, f"ports[{index}]", names)


def unusable_ports(item: EndpointSlice) -> list[FieldError]:
    """Port numbers that no packet can carry.

    The API server does not look at them in an EndpointSlice, but kube-proxy would write them into a rule that
    iptables-restore refuses, and with it the whole restore; so the loader refuses them.
    """
    ports = [(index, port.port) for index, port in enumerate(item.ports) if port.port is not None]
    return [error for index, port in ports for error in refused(f"ports[{index}].port", port, check_port_number(port))]


def validate_endpoints(item: Endpoints, *, metadata: bool = True) -> list[FieldError]:
    """Every error of one Endpoints object, [] when the API server would accept it; of metadata only if `metadata`."""
    errors = list(validate_meta(item.metadata, check_dns_subdomain)) if metadata else []
    for index, subset in enumerate(item.subsets):
        path = f"subsets[{index}]"
        if not subset.addresses and not subset.not_ready_addresses:
            errors.append(required(path, "must specify `addresses` or `notReadyAddresses`"))
        for field, addresses in (("addresses", subset.addresses), ("notReadyAddresses", subset.not_ready_addresses)):
            for position, address in enumerate(addresses):
                errors += _validate_address(address, f"{path}.{field}[{position}]")
        for position, port in enumerate(subset.ports):
            errors += port_errors(port, f"{path}.ports[{position}]", need_name=len(subset.ports) > 1)
    return errors


def _validate_address(address: EndpointAddress, path: str) -> Iterable[FieldError]:
    errors = list(refused(f"{path}.ip", address.ip, check_ip(address.ip, False)))
    if address.hostname:
        errors += refused(f"{path}.hostname", address.hostname, check_dns_label(address.hostname))
    if address.node_name is not None:
        errors += refused(f"{path}.nodeName", address.node_name, check_dns_subdomain(address.node_name))
    return errors or refused(f"{path}.ip", address.ip, check_special_ip(address.ip))
