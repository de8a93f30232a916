"""The API server's checks of one port: of a Service, an EndpointSlice or an Endpoints object."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kproxy.api.fielderror import FieldError, duplicate, not_supported, refused, required
from kproxy.api.types.core import EndpointsPort, ServicePort
from kproxy.api.types.discovery import EndpointPort
from kproxy.api.validation.names import check_dns_label, check_port_name, check_port_number, check_qualified_name

PROTOCOLS: Final = frozenset({"TCP", "UDP", "SCTP"})


def port_errors(
    port: ServicePort | EndpointPort | EndpointsPort, path: str, names: set[str] | None = None, need_name: bool = False
) -> Iterator[FieldError]:
    """Errors of a port, in the API server's order, which leaves the number of an EndpointSlice's port alone.

    `names` are those of the ports before it, which it must not repeat; its own is added.
    """
    if port.name:
        yield from refused(f"{path}.name", port.name, check_dns_label(port.name))
    elif need_name:
        yield required(f"{path}.name")
    if names is not None:
        if port.name in names and (port.name or not need_name):
            yield duplicate(f"{path}.name", port.name)
        names.add(port.name)
    if not isinstance(port, EndpointPort):
        yield from refused(f"{path}.port", port.port, check_port_number(port.port))
    if port.protocol not in PROTOCOLS:
        yield not_supported(f"{path}.protocol", port.protocol, PROTOCOLS)
    if isinstance(port, ServicePort):
        target = port.target_port
        texts = check_port_name(target) if isinstance(target, str) else check_port_number(target)
        yield from refused(f"{path}.targetPort", target, texts)
    if port.app_protocol is not None:
        yield from refused(f"{path}.appProtocol", port.app_protocol, check_qualified_name(port.app_protocol))
