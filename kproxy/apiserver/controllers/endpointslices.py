"""The EndpointSlice controller: Services with selectors and Pods with IPs become slices of at most 100 endpoints.

It runs on kproxy.informer's shared informers and work queue, driven in process: a table's events take the place of the
HTTP watch, so it sees each change right after it is on disk and costs no connection. What a Service should have is
`desired_endpoints`, a plain function; `reconcile` turns it and the slices that exist into the fewest writes.

Source: k8s.io/endpointslice (reconciler.go, utils.go) and pkg/controller/endpointslice. Unlike the controller of
kube-controller-manager, it makes no empty slice for a Service that has never had a Pod.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from typing import Any, Final

import msgspec

from kproxy.api.types.meta import ObjectMeta
from kproxy.apiserver.controllers.base import Worker
from kproxy.apiserver.errors import Json
from kproxy.apiserver.registry.catalog import Catalog
from kproxy.apiserver.registry.registry import Registry
from kproxy.apiserver.registry.writes import SERVER_OPTIONS, DeleteOptions
from kproxy.apiserver.storage.store import Entry, Event
from kproxy.informer import NAMESPACE_INDEX, SharedInformer, Unstructured, matching

MAX_ENDPOINTS: Final = 100
MANAGER: Final = "endpointslice-controller.k8s.io"
MANAGED_BY: Final = "endpointslice.kubernetes.io/managed-by"
SERVICE_NAME: Final = "kubernetes.io/service-name"
HEADLESS: Final = "service.kubernetes.io/headless"
_ZONE: Final = "topology.kubernetes.io/zone"


def zone_hints(distribution: str, endpoint: Json) -> Json | None:
    """Hints of a ready endpoint for a trafficDistribution (KEP-2433, KEP-3015); None without any."""
    zone, node = endpoint.get("zone"), endpoint.get("nodeName")
    if distribution in ("PreferClose", "PreferSameZone"):
        return {"forZones": [{"name": zone}]} if zone else None
    if distribution == "PreferSameNode" and node:
        hints: Json = {"forNodes": [{"name": node}]}
        if zone:
            hints["forZones"] = [{"name": zone}]
        return hints
    return None


def _resolve_ports(service: Json, pod: Json) -> list[Json]:
    """The slice ports of a Service for one Pod: named target ports are looked up in its containers."""
    found: list[Json] = []
    for port in service["spec"].get("ports") or ():
        target, protocol = port.get("targetPort", port.get("port")), port.get("protocol", "TCP")
        number = target if isinstance(target, int) else _named_port(pod, target, protocol)
        if number is None:
            continue
        entry: Json = {"name": port.get("name", ""), "port": number, "protocol": protocol}
        if port.get("appProtocol"):
            entry["appProtocol"] = port["appProtocol"]
        found.append(entry)
    return found


def _named_port(pod: Json, name: str, protocol: str) -> int | None:
    spec = pod["spec"]
    sidecars = [each for each in spec.get("initContainers") or () if each.get("restartPolicy") == "Always"]
    for container in [*(spec.get("containers") or ()), *sidecars]:
        for port in container.get("ports") or ():
            if port.get("name") == name and port.get("protocol", "TCP") == protocol:
                number: int = port["containerPort"]
                return number
    return None


def _endpoint(service: Json, pod: Json, address: str, zone: str | None) -> Json:
    meta, spec, status = pod["metadata"], pod["spec"], pod.get("status") or {}
    serving = any(c.get("type") == "Ready" and c.get("status") == "True" for c in status.get("conditions") or ())
    terminating = bool(meta.get("deletionTimestamp"))
    published = bool(service["spec"].get("publishNotReadyAddresses"))
    ready = published or (serving and not terminating)
    endpoint: Json = {
        "addresses": [address],
        "conditions": {"ready": ready, "serving": serving, "terminating": terminating},
        "targetRef": {"kind": "Pod", "namespace": meta["namespace"], "name": meta["name"], "uid": meta["uid"]},
    }
    if spec.get("hostname") and spec.get("subdomain") == service["metadata"]["name"]:
        endpoint["hostname"] = spec["hostname"]
    if spec.get("nodeName"):
        endpoint["nodeName"] = spec["nodeName"]
    if zone:
        endpoint["zone"] = zone
    if ready:
        hints = zone_hints(service["spec"].get("trafficDistribution", ""), endpoint)
        if hints:
            endpoint["hints"] = hints
    return endpoint


def desired_endpoints(
    service: Json, pods: Iterable[Json], zone_of: Callable[[str], str | None]
) -> dict[tuple[str, bytes], list[Json]]:
    """Endpoints by address type and ports (as JSON): what the slices of a Service should hold together."""
    found: dict[tuple[str, bytes], list[Json]] = {}
    families = service["spec"].get("ipFamilies") or ["IPv4"]
    for pod in pods:
        status = pod.get("status") or {}
        if status.get("phase") in ("Succeeded", "Failed"):
            continue
        addresses = [each.get("ip", "") for each in status.get("podIPs") or ()] or [status.get("podIP", "")]
        ports = _resolve_ports(service, pod)
        for family in families:
            address = next((ip for ip in addresses if ip and (":" in ip) == (family == "IPv6")), None)
            if address is not None:
                zone = zone_of(pod["spec"].get("nodeName", ""))
                key = (family, _ports_key(ports))
                found.setdefault(key, []).append(_endpoint(service, pod, address, zone))
    return found


def _ports_key(ports: list[Json]) -> bytes:
    """Ports as text that is the same for the same ports, whatever the order of their fields or their own."""
    return b"[" + b",".join(sorted(msgspec.json.encode(port, order="sorted") for port in ports)) + b"]"


def slice_labels(service: Json) -> dict[str, str]:
    """The labels of a Service's slices."""
    labels = {
        key: value
        for key, value in (service["metadata"].get("labels") or {}).items()
        if key not in (SERVICE_NAME, MANAGED_BY, HEADLESS)
    }
    labels |= {SERVICE_NAME: service["metadata"]["name"], MANAGED_BY: MANAGER}
    if service["spec"].get("clusterIP") == "None":
        labels[HEADLESS] = ""
    return labels


def _identity(endpoint: Json) -> tuple[str, str]:
    """What makes an endpoint the same: its address and Pod, since Pods in a node's network share an address."""
    return endpoint["addresses"][0], (endpoint.get("targetRef") or {}).get("name", "")


class Changes:
    """What reconciling found to do: slices to create, to update and to delete."""

    def __init__(self) -> None:
        self.create: list[Json] = []
        self.update: list[Json] = []
        self.delete: list[Json] = []


def reconcile(service: Json, desired: Mapping[tuple[str, bytes], list[Json]], existing: list[Json]) -> Changes:
    """The writes that make the existing slices hold the desired endpoints.

    An endpoint stays in the slice it is in; new ones fill slices that change anyway, then others, then new slices.
    """
    changes = Changes()
    labels = slice_labels(service)
    groups: dict[tuple[str, bytes], list[Json]] = {}
    for each in existing:
        key = (each.get("addressType", ""), _ports_key(each.get("ports") or []))
        groups.setdefault(key, []).append(each)
    kept = 0
    for key in sorted(groups.keys() | desired.keys()):
        left = {_identity(endpoint): endpoint for endpoint in desired.get(key, ())}
        plans: list[tuple[Json, list[Json]]] = []
        for current in groups.get(key, ()):
            stay = [left.pop(i) for e in current.get("endpoints") or () if (i := _identity(e)) in left]
            plans.append((current, stay))
        plans.sort(key=lambda plan: (plan[1] == (plan[0].get("endpoints") or []), -len(plan[1])))
        rest = list(left.values())
        for current, stay in plans:
            room = MAX_ENDPOINTS - len(stay)
            stay += rest[:room]
            rest = rest[room:]
            if not stay:
                changes.delete.append(current)
                continue
            kept += 1
            meta = current["metadata"]
            if stay != (current.get("endpoints") or []) or (meta.get("labels") or {}) != labels:
                changed = deepcopy(current)
                changed["endpoints"] = stay
                changed["metadata"]["labels"] = labels
                changes.update.append(changed)
        for start in range(0, len(rest), MAX_ENDPOINTS):
            kept += 1
            changes.create.append(_new_slice(service, key, rest[start : start + MAX_ENDPOINTS], labels))
    if not kept and changes.delete:
        # A Service that has lost its last endpoint keeps one empty slice.
        last = deepcopy(changes.delete.pop(0))
        if last.get("endpoints") or (last["metadata"].get("labels") or {}) != labels:
            last["endpoints"] = []
            last["metadata"]["labels"] = labels
            changes.update.append(last)
    return changes


def _new_slice(service: Json, key: tuple[str, bytes], endpoints: list[Json], labels: dict[str, str]) -> Json:
    meta = service["metadata"]
    owner = {
        "apiVersion": "v1", "kind": "Service", "name": meta["name"], "uid": meta["uid"], "controller": True,
        "blockOwnerDeletion": True,
    }  # fmt: skip
    metadata: Json = {"generateName": f"{meta['name']}-", "labels": labels, "ownerReferences": [owner]}
    ports: Any = msgspec.json.decode(key[1])
    return {"metadata": metadata, "addressType": key[0], "endpoints": endpoints, "ports": ports}


def _object_of(value: Json) -> Unstructured:
    meta = value["metadata"]
    return Unstructured(
        ObjectMeta(
            meta.get("name", ""), meta.get("namespace", ""), meta.get("labels") or {}, {}, meta.get("uid", ""),
            meta.get("resourceVersion", ""),
        ),
        value,
    )  # fmt: skip


def _lean(item: Unstructured) -> Unstructured:
    """A copy without what this controller does not read: managedFields and annotations."""
    metadata = {k: v for k, v in item.raw["metadata"].items() if k not in ("managedFields", "annotations")}
    return Unstructured(item.metadata, {**item.raw, "metadata": metadata})


class _Handler:
    """Calls a function with each object that is added, changed (before and after) or deleted."""

    def __init__(self, changed: Callable[[Unstructured], None]) -> None:
        self._changed = changed

    def on_add(self, item: Unstructured, is_in_initial_list: bool) -> None:
        self._changed(item)

    def on_update(self, old: Unstructured, new: Unstructured) -> None:
        self._changed(old)
        self._changed(new)

    def on_delete(self, item: Any) -> None:
        if isinstance(item, Unstructured):
            self._changed(item)


class EndpointSliceController:
    """Keeps the slices of every Service with a selector. `start` inside the event loop, once the tables are there."""

    def __init__(self, registry: Registry, catalog: Catalog) -> None:
        self._registry = registry
        self._catalog = catalog
        self._worker: Worker[str] = Worker("EndpointSlices", self._sync)
        self._informers: dict[str, SharedInformer[Unstructured]] = {}
        self._mine: dict[str, set[str]] = {}
        """Keys of slices by Service."""
        self._service_of: dict[str, str] = {}

    def start(self) -> None:
        """Starts the informers and the worker."""
        for plural, changed in (
            ("services", self._service_changed), ("pods", self._pod_changed), ("nodes", self._node_changed),
        ):  # fmt: skip
            self._inform(plural, changed)
        slices = self._registry.table(self._catalog.builtin("discovery.k8s.io", "endpointslices"))
        for entry in slices.entries.values():
            self._note_slice(entry, deleted=False)
        slices.listeners.append(self._slice_event)
        self._worker.start()

    async def stop(self) -> None:
        await self._worker.stop()

    def _inform(self, plural: str, changed: Callable[[Unstructured], None]) -> None:
        """An informer over a table, and a handler on it: the driver of the informer's state machine."""
        informer: SharedInformer[Unstructured] = SharedInformer(random.random, transform=_lean)
        self._informers[plural] = informer
        table = self._registry.table(self._catalog.builtin("", plural))
        informer.replace([_object_of(entry.value) for entry in table.entries.values()])
        listener = informer.add_listener(_Handler(changed), asyncio.get_running_loop().time())

        def deliver() -> None:
            while (notification := listener.next()) is not None:
                notification.deliver(listener.handler)
                listener.done(notification)

        def follow(event: Event) -> None:
            item = _object_of(event.entry.value)
            if event.deleted:
                informer.delete(item)
            elif event.previous is None:
                informer.add(item)
            else:
                informer.update(item)
            deliver()

        table.listeners.append(follow)
        deliver()

    # --- changes ---

    def _service_changed(self, service: Unstructured) -> None:
        key = service.metadata.key
        namespace = service.metadata.namespace
        if key in self._mine or self._informers_pods(namespace):
            self._worker.add(key)

    def _informers_pods(self, namespace: str) -> list[str]:
        informer = self._informers.get("pods")
        return informer.indexer.index_keys(NAMESPACE_INDEX, namespace) if informer is not None else []

    def _pod_changed(self, pod: Unstructured) -> None:
        services = self._informers["services"].indexer
        for service in services.by_index(NAMESPACE_INDEX, pod.metadata.namespace):
            selector = (service.raw.get("spec") or {}).get("selector")
            if selector and matching(selector)(pod.metadata.labels):
                self._worker.add(service.metadata.key)

    def _node_changed(self, node: Unstructured) -> None:
        for pod in self._informers["pods"].indexer.list():
            if pod.raw["spec"].get("nodeName") == node.metadata.name:
                self._pod_changed(pod)

    def _slice_event(self, event: Event) -> None:
        for service in self._note_slice(event.entry, deleted=event.deleted):
            self._worker.add(service)

    def _note_slice(self, entry: Entry, *, deleted: bool) -> list[str]:
        """Keeps the index of slices by Service; the keys of the Services that have it or had it before.

        A slice that is given to another Service by its label is missing to the one and new to the other.
        """
        name = "" if deleted or entry.labels.get(MANAGED_BY) != MANAGER else entry.labels.get(SERVICE_NAME, "")
        new = f"{entry.namespace}/{name}" if name else ""
        old = self._service_of.pop(entry.key, "")
        if old != new and old in self._mine:
            self._mine[old].discard(entry.key)
            if not self._mine[old]:
                del self._mine[old]
        if new:
            self._service_of[entry.key] = new
            self._mine.setdefault(new, set()).add(entry.key)
        return [service for service in dict.fromkeys((old, new)) if service]

    # --- work ---

    def _zone_of(self, node: str) -> str | None:
        found = self._informers["nodes"].indexer.get_by_key(node)
        return found.metadata.labels.get(_ZONE) if found is not None else None

    async def _sync(self, key: str) -> None:
        """Makes the slices of one Service right."""
        found = self._informers["services"].indexer.get_by_key(key)
        if found is None or not (found.raw["spec"].get("selector")) or found.raw["spec"].get("type") == "ExternalName":
            return  # the slices of a Service that has gone are collected by their owner reference
        service: Json = dict(found.raw)
        selects = matching(service["spec"]["selector"])
        pods = [
            dict(pod.raw)
            for pod in self._informers["pods"].indexer.by_index(NAMESPACE_INDEX, found.metadata.namespace)
            if selects(pod.metadata.labels)
        ]
        pods.sort(key=lambda pod: pod["metadata"]["name"])
        resource = self._catalog.builtin("discovery.k8s.io", "endpointslices")
        table = self._registry.table(resource)
        heads = [table.head(each) for each in sorted(self._mine.get(key, ()))]
        existing = [head.value for head in heads if head is not None]
        if not pods and not existing:
            return
        changes = reconcile(service, desired_endpoints(service, pods, self._zone_of), existing)
        namespace = found.metadata.namespace
        futures = [
            (await self._registry.create(resource, namespace, body, SERVER_OPTIONS)).done for body in changes.create
        ]
        for body in changes.update:
            name = body["metadata"]["name"]
            futures.append((await self._registry.update(resource, namespace, name, body, SERVER_OPTIONS)).done)
        for body in changes.delete:
            options = DeleteOptions(uid=body["metadata"]["uid"])
            futures.append((await self._registry.delete(resource, namespace, body["metadata"]["name"], options)).done)
        for future in futures:
            if future is not None:
                await future
