"""Mirrors Endpoints that somebody else writes into EndpointSlices, for Services without a selector.

What the slices hold is `kproxy.api.load.mirror`'s; here they are written, and go with their Endpoints. Source:
kubernetes/kubernetes pkg/controller/endpointslicemirroring. Unlike that one it leaves out `targetRef`.
"""

from __future__ import annotations

import msgspec

from kproxy.api import EndpointSlice
from kproxy.api.load.mirror import MANAGED_BY_LABEL, MIRRORING_CONTROLLER, SERVICE_NAME_LABEL, mirror_endpoints
from kproxy.api.wire import structs
from kproxy.api.wire.convert import convert_endpoints, convert_service
from kproxy.apiserver.controllers.base import Worker, durable
from kproxy.apiserver.errors import Json
from kproxy.apiserver.registry.catalog import Catalog
from kproxy.apiserver.registry.registry import Registry
from kproxy.apiserver.registry.writes import SERVER_OPTIONS, DeleteOptions
from kproxy.apiserver.storage.store import Event


class MirroringController:
    """Follows Endpoints and Services; its worker's keys are theirs."""

    def __init__(self, registry: Registry, catalog: Catalog) -> None:
        self._registry = registry
        self._endpoints = registry.table(catalog.builtin("", "endpoints"))
        self._services = registry.table(catalog.builtin("", "services"))
        self._resource = catalog.builtin("discovery.k8s.io", "endpointslices")
        self._slices = registry.table(self._resource)
        self._worker: Worker[str] = Worker("mirrored Endpoints", self._sync)

    def start(self) -> None:
        """Follows the tables, and looks once at what is there."""
        self._endpoints.listeners.append(self._changed)
        self._services.listeners.append(self._service_changed)
        self._slices.listeners.append(self._slice_changed)
        for key in self._endpoints.entries:
            self._worker.add(key)
        self._worker.start()

    async def stop(self) -> None:
        await self._worker.stop()

    def _changed(self, event: Event) -> None:
        self._worker.add(event.entry.key)

    def _service_changed(self, event: Event) -> None:
        if event.entry.key in self._endpoints.entries:
            self._worker.add(event.entry.key)

    def _slice_changed(self, event: Event) -> None:
        labels = event.entry.labels
        if event.previous is not None and labels.get(MANAGED_BY_LABEL) == MIRRORING_CONTROLLER:
            self._worker.add(f"{event.entry.namespace}/{labels.get(SERVICE_NAME_LABEL, '')}")

    async def _sync(self, key: str) -> None:
        namespace, _, name = key.partition("/")
        wanted = {body["metadata"]["name"]: body for body in self._wanted(key)}
        mine = {SERVICE_NAME_LABEL: name, MANAGED_BY_LABEL: MIRRORING_CONTROLLER}.items()
        held = {each.name: each for each in self._slices.heads_in(namespace) if mine <= each.labels.items()}
        writes = [
            await self._registry.delete(self._resource, namespace, each, DeleteOptions(uid=held[each].uid))
            for each in held.keys() - wanted.keys()
        ]
        for each, body in wanted.items():
            if each not in held:
                writes.append(await self._registry.create(self._resource, namespace, body, SERVER_OPTIONS))
                continue
            old = held[each].value
            body["metadata"] = old["metadata"] | body["metadata"]
            writes.append(await self._registry.update(self._resource, namespace, each, body, SERVER_OPTIONS))
        await durable(writes)

    def _wanted(self, key: str) -> list[Json]:
        endpoints, service = self._endpoints.head(key), self._services.head(key)
        if endpoints is None or service is None or service.value["spec"].get("selector"):
            return []
        mirrored = mirror_endpoints(
            [convert_service(msgspec.convert({"kind": "Service", **service.value}, structs.WireService))],
            [],
            [convert_endpoints(msgspec.convert({"kind": "Endpoints", **endpoints.value}, structs.WireEndpoints))],
        )
        owner = {
            "apiVersion": "v1", "kind": "Endpoints", "name": endpoints.name, "uid": endpoints.uid, "controller": True,
            "blockOwnerDeletion": True,
        }  # fmt: skip
        return [_slice(each, owner) for each in mirrored]


def _slice(value: EndpointSlice, owner: Json) -> Json:
    """A slice as JSON."""
    meta = value.metadata
    metadata: Json = {"name": meta.name, "labels": dict(meta.labels), "ownerReferences": [owner]}
    if meta.annotations:
        metadata["annotations"] = dict(meta.annotations)
    endpoints = [
        {"addresses": list(each.addresses), "conditions": {"ready": each.conditions.ready}}
        | ({"hostname": each.hostname} if each.hostname else {})
        | ({"nodeName": each.node_name} if each.node_name else {})
        for each in value.endpoints
    ]
    ports = [
        {"name": each.name or "", "port": each.port, "protocol": each.protocol}
        | ({"appProtocol": each.app_protocol} if each.app_protocol else {})
        for each in value.ports
    ]
    return {"metadata": metadata, "addressType": value.address_type, "endpoints": endpoints, "ports": ports}
