"""Endpoints to EndpointSlices, as the EndpointSliceMirroring controller writes them.

kube-proxy reads only EndpointSlices. In a cluster two controllers make them: one from the pods that a Service selects,
one from the Endpoints that a user wrote for a Service without selector. Manifests may hold Endpoints and no slices;
`mirror_endpoints` then does the second controller's work (kubernetes/kubernetes pkg/controller/endpointslicemirroring),
with three differences:

- It also mirrors for Services with a selector. The controller leaves those alone because the other one serves them, but
  no controller does that for a manifest: without slices the Service would seem to have no endpoints.
- It mirrors only for Services without any slice in the input. A cluster dump holds the mirrored slices already.
- Names do not end in random characters but in a hash of address family and ports, and endpoints keep their order.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from types import MappingProxyType
from typing import Final

from kproxy.api.addresses import ip_family
from kproxy.api.types.core import EndpointAddress, Endpoints, EndpointsPort, Service
from kproxy.api.types.discovery import Endpoint, EndpointConditions, EndpointPort, EndpointSlice
from kproxy.api.types.meta import ObjectMeta

SERVICE_NAME_LABEL: Final = "kubernetes.io/service-name"
MANAGED_BY_LABEL: Final = "endpointslice.kubernetes.io/managed-by"
MIRRORING_CONTROLLER: Final = "endpointslicemirroring-controller.k8s.io"
MAX_ENDPOINTS_PER_SUBSET: Final = 1000
"""kube-controller-manager's default of --mirroring-max-endpoints-per-subset; what is beyond is not mirrored."""

_SKIP_LABEL: Final = "endpointslice.kubernetes.io/skip-mirror"
_LEADER_ANNOTATION: Final = "control-plane.alpha.kubernetes.io/leader"
_NOT_COPIED: Final = frozenset(
    {"endpoints.kubernetes.io/last-change-trigger-time", "kubectl.kubernetes.io/last-applied-configuration"}
)
_READY: Final = EndpointConditions(ready=True)
_NOT_READY: Final = EndpointConditions(ready=False)

_Key = tuple[str, frozenset[EndpointsPort]]


def mirror_endpoints(
    services: Iterable[Service],
    endpoint_slices: Iterable[EndpointSlice],
    endpoints: Iterable[Endpoints],
    *,
    honour_skip_mirror: bool = True,
    max_per_subset: int | None = MAX_ENDPOINTS_PER_SUBSET,
) -> tuple[EndpointSlice, ...]:
    """The EndpointSlices that mirror those `endpoints` whose Service has none among `endpoint_slices`.

    Skipped, as by the controller: Endpoints without a Service of that name, with the label skip-mirror "true", with a
    leader-election annotation, or in deletion.

    Args:
        honour_skip_mirror: False for a reader of Endpoints instead of EndpointSlices. The label says that the writer
            makes slices of its own, as kube-apiserver does for `kubernetes`; a reader of Endpoints does not see those.
        max_per_subset: how many endpoints of a subset count. None for a reader of Endpoints instead of EndpointSlices:
            there every address counts.
    """
    owners = {service.metadata.key for service in services}
    served = {
        f"{item.metadata.namespace}/{item.metadata.labels.get(SERVICE_NAME_LABEL, '')}" for item in endpoint_slices
    }
    return tuple(
        mirrored
        for item in endpoints
        if item.metadata.key in owners
        and item.metadata.key not in served
        and not (honour_skip_mirror and item.metadata.labels.get(_SKIP_LABEL) == "true")
        and _LEADER_ANNOTATION not in item.metadata.annotations
        and not item.metadata.deletion_timestamp
        for mirrored in _mirror(item, max_per_subset)
    )


def _mirror(item: Endpoints, most: int | None) -> Iterator[EndpointSlice]:
    """One slice per address family and set of ports, in order of first appearance."""
    groups: dict[_Key, dict[tuple[str, str], Endpoint]] = {}
    ports: dict[_Key, tuple[EndpointsPort, ...]] = {}
    for subset in item.subsets:
        listed = [(address, True) for address in subset.addresses]
        listed += [(address, False) for address in subset.not_ready_addresses]
        for address, ready in listed[:most]:
            key = (ip_family(address.ip), frozenset(subset.ports))
            ports.setdefault(key, subset.ports)
            # An address that occurs twice counts once, the last time: one that is also not ready is not ready.
            groups.setdefault(key, {})[address.ip, address.hostname] = _endpoint(address, ready)
    meta = item.metadata
    labels = dict(meta.labels) | {SERVICE_NAME_LABEL: meta.name, MANAGED_BY_LABEL: MIRRORING_CONTROLLER}
    annotations = {key: value for key, value in meta.annotations.items() if key not in _NOT_COPIED}
    for key, members in groups.items():
        yield EndpointSlice(
            ObjectMeta(
                _slice_name(meta.name, key),
                meta.namespace,
                MappingProxyType(labels),
                MappingProxyType(annotations),
                creation_timestamp=meta.creation_timestamp,
            ),
            key[0],
            tuple(members.values())[:most],
            tuple(EndpointPort(port.port, port.name, port.protocol, port.app_protocol) for port in ports[key]),
        )


def _endpoint(address: EndpointAddress, ready: bool) -> Endpoint:
    return Endpoint((address.ip,), _READY if ready else _NOT_READY, address.hostname or None, address.node_name)


def _slice_name(name: str, key: _Key) -> str:
    family, ports = key
    listed = sorted(f"{port.name}/{port.protocol}/{port.port}/{port.app_protocol or ''}" for port in ports)
    digest = hashlib.sha256("\n".join([family, *listed]).encode()).hexdigest()
    return f"{name[:242].rstrip('.-')}-{digest[:10]}"
