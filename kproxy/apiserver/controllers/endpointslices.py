"""The EndpointSlice controller: Services with selectors and Pods with IPs become slices of at most 100 endpoints.

It follows the tables' events, so it sees each change right after it is on disk. What a Service should have is
`desired_endpoints`, a plain function; `reconcile` turns it and the slices that exist into the fewest writes.

Source: k8s.io/endpointslice (reconciler.go, utils.go) and pkg/controller/endpointslice. Unlike the controller of
kube-controller-manager, it makes no empty slice for a Service that has never had a Pod.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from typing import Any, Final

import msgspec

from kproxy.apiserver.controllers.base import Worker, durable
from kproxy.apiserver.errors import Json
from kproxy.apiserver.registry.catalog import Catalog
from kproxy.apiserver.registry.registry import Registry
from kproxy.apiserver.registry.writes import SERVER_OPTIONS, DeleteOptions
from kproxy.apiserver.storage.store import Entry, Event
from kproxy.informer import matching

MAX_ENDPOINTS: Final = 100
MANAGER: Final = "endpointslice-controller.k8s.io"
MANAGED_BY: Final = "endpointslice.kubernetes.io/managed-by"
SERVICE_NAME: Final = "kubernetes.io/service-name"
HEADLESS: Final = "service.kubernetes.io/headless"
_KEPT: Final = 4096
"""Pods that stay decoded, since each change of one is looked at beside all others of its Services."""
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


class EndpointSliceController:
    """Keeps the slices of every Service with a selector. `start` inside the event loop, once the tables are there."""

    def __init__(self, registry: Registry, catalog: Catalog) -> None:
        self._registry = registry
        self._resource = catalog.builtin("discovery.k8s.io", "endpointslices")
        self._slices = registry.table(self._resource)
        self._services, self._pods, self._nodes = (
            registry.table(catalog.builtin("", plural)) for plural in ("services", "pods", "nodes")
        )
        self._worker: Worker[str] = Worker("EndpointSlices", self._sync)
        self._pod = functools.lru_cache(_KEPT)(lambda entry: entry.value)
        self._selectors: dict[str, dict[str, Callable[[Mapping[str, str]], bool]]] = {}
        """By namespace, what each Service selects that selects Pods, by its key."""
        self._mine: dict[str, set[str]] = {}
        """Keys of slices by Service."""
        self._service_of: dict[str, str] = {}

    def start(self) -> None:
        """Follows the tables, and looks once at what is there."""
        for entry in self._slices.entries.values():
            self._note_slice(entry, deleted=False)
        for entry in self._services.entries.values():
            self._note_service(entry, deleted=False)
        self._slices.listeners.append(self._slice_event)
        self._services.listeners.append(lambda event: self._note_service(event.entry, deleted=event.deleted))
        self._pods.listeners.append(self._pod_event)
        self._nodes.listeners.append(self._node_event)
        self._worker.start()

    async def stop(self) -> None:
        await self._worker.stop()

    # --- changes ---

    def _note_service(self, entry: Entry, *, deleted: bool) -> None:
        selectors, spec = self._selectors.setdefault(entry.namespace, {}), entry.value["spec"]
        if deleted or not spec.get("selector") or spec.get("type") == "ExternalName":
            selectors.pop(entry.key, None)
        else:
            selectors[entry.key] = matching(spec["selector"])
        if entry.key in self._mine or self._pods.entries:
            self._worker.add(entry.key)

    def _pod_event(self, event: Event) -> None:
        for entry in (event.previous, event.entry):
            if entry is not None:
                self._pod_changed(entry)

    def _pod_changed(self, pod: Entry) -> None:
        for service, selects in self._selectors.get(pod.namespace, {}).items():
            if selects(pod.labels):
                self._worker.add(service)

    def _node_event(self, event: Event) -> None:
        before = event.previous.labels if event.previous is not None else {}
        if event.deleted or before.get(_ZONE) != event.entry.labels.get(_ZONE):
            for pod in self._pods.entries.values():
                if pod.fields.get("spec.nodeName") == event.entry.name:
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
        found = self._nodes.entries.get(node)
        return found.labels.get(_ZONE) if found is not None else None

    async def _sync(self, key: str) -> None:
        """Makes the slices of one Service right."""
        namespace = key.partition("/")[0]
        found, selects = self._services.entries.get(key), self._selectors.get(namespace, {}).get(key)
        if found is None or selects is None:
            return  # the slices of a Service that has gone are collected by their owner reference
        service = found.value
        pods = [self._pod(pod) for pod in self._pods.in_namespace(namespace) if selects(pod.labels)]
        heads = [self._slices.head(each) for each in sorted(self._mine.get(key, ()))]
        existing = [head.value for head in heads if head is not None]
        if not pods and not existing:
            return
        changes = reconcile(service, desired_endpoints(service, pods, self._zone_of), existing)
        resource = self._resource
        writes = [await self._registry.create(resource, namespace, body, SERVER_OPTIONS) for body in changes.create]
        for body in changes.update:
            name = body["metadata"]["name"]
            writes.append(await self._registry.update(resource, namespace, name, body, SERVER_OPTIONS))
        for body in changes.delete:
            options = DeleteOptions(uid=body["metadata"]["uid"])
            writes.append(await self._registry.delete(resource, namespace, body["metadata"]["name"], options))
        await durable(writes)
