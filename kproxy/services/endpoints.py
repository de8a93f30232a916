"""Endpoints and the EndpointSlice cache: from slices to the endpoints of each ServicePort.

The cache holds, per Service, the slices as last applied and the updates not yet applied, as kube-proxy's
EndpointSliceCache does, so that a burst of updates costs one evaluation per Service, and an update that is taken back
costs nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from kproxy.api.types.discovery import Endpoint as SliceEndpoint
from kproxy.api.types.discovery import EndpointSlice
from kproxy.services.names import LABEL_SERVICE_NAME, IPFamily, ServicePortName, family_of, is_headless

NO_HINTS: frozenset[str] = frozenset()


class Endpoint(msgspec.Struct, frozen=True):
    """One endpoint of one ServicePort.

    Attributes:
        address: `ip:port`, or `[ip]:port` for IPv6; unique within a ServicePort.
        ip: canonical IP text.
        is_local: whether it runs on this node.
        ready, serving, terminating: the conditions; as in kube-proxy, unknown ones are true, true and false.
        zone_hints, node_hints: topology hints; empty means none.
        slice: `namespace/name` of the EndpointSlice it came from.
    """

    address: str
    ip: str
    is_local: bool = False
    ready: bool = True
    serving: bool = True
    terminating: bool = False
    zone_hints: frozenset[str] = NO_HINTS
    node_hints: frozenset[str] = NO_HINTS
    slice: str = ""


EndpointsMap = dict[ServicePortName, tuple[Endpoint, ...]]


def service_key_of(endpoint_slice: EndpointSlice, family: IPFamily) -> str:
    """`namespace/name` of the Service a slice belongs to, or "" when kube-proxy of that family ignores the slice."""
    labels = endpoint_slice.metadata.labels
    service = labels.get(LABEL_SERVICE_NAME, "")
    if not service or endpoint_slice.address_type != family.value or is_headless(labels):
        return ""
    return f"{endpoint_slice.metadata.namespace}/{service}"


def endpoints_of_service(
    service: str, slices: Mapping[str, EndpointSlice], family: IPFamily, node_name: str
) -> EndpointsMap:
    """The endpoints of each port of one Service, from all its slices.

    Args:
        service: `namespace/name`.
        slices: by `namespace/name`; walked in sorted order so that the result does not depend on how they arrived.

    An endpoint that is in several slices while it moves, or an IP that a new pod took over from a terminating one,
    counts once, and a non-terminating entry wins (kube-proxy since 1.35). Endpoints are sorted by their address text,
    as kube-proxy sorts them.
    """
    found: dict[ServicePortName, dict[str, Endpoint]] = {}
    namespace, _, name = service.partition("/")
    for key in sorted(slices):
        endpoint_slice = slices[key]
        for port in endpoint_slice.ports:
            if not port.port:  # "all ports" means nothing to kube-proxy
                continue
            port_name = ServicePortName(namespace, name, port.name, port.protocol)
            by_address = found.setdefault(port_name, {})
            for entry in endpoint_slice.endpoints:
                endpoint = _endpoint(entry, port.port, family, node_name, key)
                if endpoint and (not endpoint.terminating or endpoint.address not in by_address):
                    by_address[endpoint.address] = endpoint
    return {
        port_name: tuple(by_address[address] for address in sorted(by_address))
        for port_name, by_address in found.items()
        if by_address
    }


def _endpoint(entry: SliceEndpoint, port: int, family: IPFamily, node_name: str, key: str) -> Endpoint | None:
    if not entry.addresses:
        return None
    ip = entry.addresses[0]
    if family_of(ip) is not family:
        return None
    conditions, hints = entry.conditions, entry.hints
    return Endpoint(
        f"[{ip}]:{port}" if family.is_ipv6 else f"{ip}:{port}",
        ip,
        entry.node_name == node_name and node_name != "",
        conditions.ready is not False,
        conditions.serving is not False,
        conditions.terminating is True,
        frozenset(hints.for_zones) if hints and hints.for_zones else NO_HINTS,
        frozenset(hints.for_nodes) if hints and hints.for_nodes else NO_HINTS,
        key,
    )


class EndpointSliceCache:
    """The EndpointSlices of one family, applied and pending.

    Invariant: an entry of `_pending` differs from what `_applied` holds under the same key.
    """

    def __init__(self, family: IPFamily, node_name: str) -> None:
        self._family = family
        self._node_name = node_name
        self._applied: dict[str, dict[str, EndpointSlice]] = {}
        self._pending: dict[str, dict[str, EndpointSlice | None]] = {}
        self._evaluated: dict[str, EndpointsMap] = {}
        self._service_of: dict[str, str] = {}

    def update(self, endpoint_slice: EndpointSlice) -> bool:
        """Takes an added or changed slice. Returns whether anything is now pending for its Service.

        A slice whose label or address type changed away from a Service is removed from that Service; so is one whose
        labels now make kube-proxy ignore it (its filtered watch would say DELETED).
        """
        key = endpoint_slice.metadata.key
        service = service_key_of(endpoint_slice, self._family)
        previous = self._service_of.get(key)
        changed = False
        if previous is not None and previous != service:
            changed = self._stage(previous, key, None)
            del self._service_of[key]
        if not service:
            return changed
        self._service_of[key] = service
        return self._stage(service, key, endpoint_slice) or changed

    def delete(self, key: str) -> bool:
        """Takes the deletion of the slice `namespace/name`. Returns whether anything is now pending for its Service."""
        service = self._service_of.pop(key, None)
        return self._stage(service, key, None) if service is not None else False

    def replace(self, slices: Mapping[str, EndpointSlice]) -> None:
        """Takes a full list: slices not in it are deleted."""
        for key in [key for key in self._service_of if key not in slices]:
            self.delete(key)
        for endpoint_slice in slices.values():
            self.update(endpoint_slice)

    def checkout_changes(self) -> dict[str, tuple[EndpointsMap, EndpointsMap]]:
        """Applies what is pending; returns, for each Service touched, its endpoints before and after."""
        changes: dict[str, tuple[EndpointsMap, EndpointsMap]] = {}
        for service, pending in self._pending.items():
            slices = self._applied.setdefault(service, {})
            for key, endpoint_slice in pending.items():
                if endpoint_slice is None:
                    slices.pop(key, None)
                else:
                    slices[key] = endpoint_slice
            before = self._evaluated.pop(service, {})
            after = endpoints_of_service(service, slices, self._family, self._node_name)
            if slices:
                self._evaluated[service] = after
            else:
                del self._applied[service]
            changes[service] = (before, after)
        self._pending.clear()
        return changes

    def _stage(self, service: str, key: str, endpoint_slice: EndpointSlice | None) -> bool:
        pending = self._pending.setdefault(service, {})
        if self._applied.get(service, {}).get(key) == endpoint_slice:
            pending.pop(key, None)
        else:
            pending[key] = endpoint_slice
        if not pending:
            del self._pending[service]
        return service in self._pending
