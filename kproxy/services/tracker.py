"""Change trackers: what a stream of watched objects changed, per ServicePort.

`ServiceState` is what one proxy (one family, one node) knows. Objects go in through `update_` and `delete_` methods;
nothing becomes visible in `service_ports` and `endpoints` before `apply`, which says what changed since the last one.
However the updates were ordered, split, squashed or repeated, the state after `apply` depends only on the last value
of each object.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import msgspec

from kproxy.api.types.core import Service
from kproxy.api.types.discovery import EndpointSlice
from kproxy.services.endpoints import Endpoint, EndpointSliceCache, EndpointsMap
from kproxy.services.names import IPFamily, ServicePortName
from kproxy.services.serviceport import ServicePort, service_ports

ServicePortMap = dict[ServicePortName, ServicePort]


class Changes(msgspec.Struct, frozen=True):
    """What one `apply` changed.

    Attributes:
        touched: the ServicePorts whose meaning or endpoints changed, including those that came or went.
        previous_service_ports: what each touched ServicePort was before; absent for new ones.
        previous_endpoints: the endpoints each touched ServicePort had before; absent for none.

    The previous values are for the clean-up after them: connection tracking entries of endpoints that went.
    """

    touched: frozenset[ServicePortName] = frozenset()
    previous_service_ports: Mapping[ServicePortName, ServicePort] = {}
    previous_endpoints: Mapping[ServicePortName, tuple[Endpoint, ...]] = {}

    def __bool__(self) -> bool:
        return bool(self.touched)


class ServiceChangeTracker:
    """Collects changes of Services until they are taken.

    Invariant: `_pending` holds a Service's key only if its ServicePorts differ from those applied.
    """

    def __init__(self, family: IPFamily) -> None:
        self._family = family
        self._applied: dict[str, ServicePortMap] = {}
        self._pending: dict[str, ServicePortMap] = {}

    def update(self, service: Service) -> bool:
        """Takes an added or changed Service. Returns whether its ServicePorts now differ from those applied."""
        return self._stage(service.metadata.key, service_ports(service, self._family))

    def delete(self, key: str) -> bool:
        """Takes the deletion of the Service `namespace/name`."""
        return self._stage(key, {})

    def replace(self, services: Mapping[str, Service]) -> None:
        """Takes a full list: Services not in it are deleted."""
        for key in [*self._applied, *self._pending]:
            if key not in services:
                self.delete(key)
        for service in services.values():
            self.update(service)

    def checkout_changes(self) -> dict[str, tuple[ServicePortMap, ServicePortMap]]:
        """Applies what is pending; returns, for each Service touched, its ServicePorts before and after."""
        changes = {key: (self._applied.get(key, {}), ports) for key, ports in self._pending.items()}
        for key, ports in self._pending.items():
            if ports:
                self._applied[key] = ports
            else:
                self._applied.pop(key, None)
        self._pending.clear()
        return changes

    def _stage(self, key: str, ports: ServicePortMap) -> bool:
        if self._applied.get(key, {}) == ports:
            self._pending.pop(key, None)
            return False
        self._pending[key] = ports
        return True


class ServiceState:
    """All ServicePorts and endpoints that the proxy of one family on one node knows.

    Attributes:
        service_ports: the applied ServicePorts.
        endpoints: the applied endpoints by ServicePortName, also of ports that no Service has (yet).
    """

    def __init__(self, family: IPFamily, node_name: str) -> None:
        self.family = family
        self.node_name = node_name
        self.service_ports: ServicePortMap = {}
        self.endpoints: EndpointsMap = {}
        self._services = ServiceChangeTracker(family)
        self._slices = EndpointSliceCache(family, node_name)

    @classmethod
    def of(
        cls, family: IPFamily, node_name: str, services: Iterable[Service], slices: Iterable[EndpointSlice]
    ) -> ServiceState:
        """The applied state of a whole cluster."""
        state = cls(family, node_name)
        for service in services:
            state.update_service(service)
        for endpoint_slice in slices:
            state.update_endpoint_slice(endpoint_slice)
        state.apply()
        return state

    def update_service(self, service: Service) -> bool:
        """Takes an added or changed Service. Returns whether `apply` would change something."""
        return self._services.update(service)

    def delete_service(self, key: str) -> bool:
        """Takes the deletion of the Service `namespace/name`."""
        return self._services.delete(key)

    def update_endpoint_slice(self, endpoint_slice: EndpointSlice) -> bool:
        """Takes an added or changed EndpointSlice. Returns whether `apply` might change something."""
        return self._slices.update(endpoint_slice)

    def delete_endpoint_slice(self, key: str) -> bool:
        """Takes the deletion of the EndpointSlice `namespace/name`."""
        return self._slices.delete(key)

    def replace(self, services: Mapping[str, Service], slices: Mapping[str, EndpointSlice]) -> None:
        """Takes full lists, as after a relist: what is not in them is deleted. Keys are `namespace/name`."""
        self._services.replace(services)
        self._slices.replace(slices)

    def apply(self) -> Changes:
        """Makes everything taken so far visible, and says which ServicePorts that touched."""
        service_changes = self._services.checkout_changes().values()
        endpoint_changes = self._slices.checkout_changes().values()
        touched = frozenset(_differing(service_changes) | _differing(endpoint_changes))
        changes = Changes(
            touched,
            {name: self.service_ports[name] for name in touched if name in self.service_ports},
            {name: self.endpoints[name] for name in touched if name in self.endpoints},
        )
        for old_ports, new_ports in service_changes:
            for name in old_ports.keys() - new_ports.keys():
                del self.service_ports[name]
            self.service_ports.update(new_ports)
        for old_endpoints, new_endpoints in endpoint_changes:
            for name in old_endpoints.keys() - new_endpoints.keys():
                del self.endpoints[name]
            self.endpoints.update(new_endpoints)
        return changes


def _differing(
    changes: Collection[tuple[Mapping[ServicePortName, object], Mapping[ServicePortName, object]]],
) -> set[ServicePortName]:
    return {name for old, new in changes for name in old.keys() | new.keys() if old.get(name) != new.get(name)}
