"""The Services as each node's kube-proxy sees them: made once for a cluster, and anew only where a node has endpoints.

Between nodes only `Endpoint.is_local` differs.
"""

from __future__ import annotations

from kproxy.api import Manifests
from kproxy.api.types.discovery import EndpointSlice
from kproxy.netfilter import Family
from kproxy.services.endpoints import endpoints_of_service, service_key_of
from kproxy.services.tracker import ServiceState


class States:
    """The states of a cluster's nodes."""

    def __init__(self, manifests: Manifests) -> None:
        self._manifests = manifests
        self._shared = {family: _SharedState(manifests, family) for family in Family}

    def of(self, family: Family, node_name: str) -> ServiceState:
        """What `ServiceState.of` makes. It is not to be changed: nodes share its parts."""
        return self._shared[family].of(node_name)


class _SharedState:
    def __init__(self, manifests: Manifests, family: Family) -> None:
        self._family = family
        self._everywhere = ServiceState.of(family, "", manifests.services, manifests.endpoint_slices)
        self._slices: dict[str, dict[str, EndpointSlice]] = {}
        self._services_on: dict[str, set[str]] = {}
        for each in manifests.endpoint_slices:
            service = service_key_of(each, family)
            if service:
                self._slices.setdefault(service, {})[each.metadata.key] = each
                for endpoint in each.endpoints:
                    self._services_on.setdefault(endpoint.node_name or "", set()).add(service)

    def of(self, node_name: str) -> ServiceState:
        state = ServiceState(self._family, node_name)
        state.service_ports = self._everywhere.service_ports
        state.endpoints = dict(self._everywhere.endpoints)
        for service in self._services_on.get(node_name, ()) if node_name else ():
            state.endpoints |= endpoints_of_service(service, self._slices[service], self._family, node_name)
        return state
