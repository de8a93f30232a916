"""EndpointSlice of discovery.k8s.io/v1 as frozen typed values."""

from __future__ import annotations

import msgspec

from kproxy.api.types.meta import ObjectMeta


class EndpointConditions(msgspec.Struct, frozen=True, gc=False):
    """discovery/v1 EndpointConditions; None is "unknown", whose reading is the consumer's business."""

    ready: bool | None = None
    serving: bool | None = None
    terminating: bool | None = None


class EndpointHints(msgspec.Struct, frozen=True, gc=False):
    """discovery/v1 EndpointHints: names of zones and of nodes that should consume the endpoint."""

    for_zones: tuple[str, ...] = ()
    for_nodes: tuple[str, ...] = ()


class Endpoint(msgspec.Struct, frozen=True, gc=False):
    """discovery/v1 Endpoint. kube-proxy only ever uses `addresses[0]`."""

    addresses: tuple[str, ...]
    conditions: EndpointConditions = EndpointConditions()
    hostname: str | None = None
    node_name: str | None = None
    zone: str | None = None
    hints: EndpointHints | None = None


class EndpointPort(msgspec.Struct, frozen=True, gc=False):
    """discovery/v1 EndpointPort; `port` None means "all ports", which kube-proxy ignores."""

    port: int | None = None
    name: str = ""
    protocol: str = "TCP"
    app_protocol: str | None = None


class EndpointSlice(msgspec.Struct, frozen=True, gc=False):
    """discovery/v1 EndpointSlice; `address_type` is IPv4, IPv6 or FQDN."""

    metadata: ObjectMeta
    address_type: str
    endpoints: tuple[Endpoint, ...] = ()
    ports: tuple[EndpointPort, ...] = ()
