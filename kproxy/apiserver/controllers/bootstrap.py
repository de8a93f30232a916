"""What every server starts with: namespaces, the default RBAC, the `kubernetes` Service and its slice.

The RBAC objects are those of data/roles.json.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
from collections.abc import Awaitable, Callable, Iterable
from importlib import resources
from typing import Any, Final

import msgspec

from kproxy.apiserver.errors import Json
from kproxy.apiserver.kinds.resources import Resource
from kproxy.apiserver.registry.catalog import Catalog
from kproxy.apiserver.registry.registry import Registry
from kproxy.apiserver.registry.writes import DeleteOptions, Options

_MANAGER: Final = Options(field_manager="kube-apiserver")

NAMESPACES: Final = ("default", "kube-node-lease", "kube-public", "kube-system")
_GROUP: Final = "rbac.authorization.k8s.io"
_LABELS: Final = {"kubernetes.io/bootstrapping": "rbac-defaults"}
_AGGREGATE: Final = f"{_GROUP}/aggregate-to-"


def _role(row: Json) -> Json:
    labels = _LABELS | ({_AGGREGATE + row["into"]: "true"} if "into" in row else {})
    annotations = {"rbac.authorization.kubernetes.io/autoupdate": "true"}
    role: Json = {"metadata": {"name": row["name"], "labels": labels, "annotations": annotations}}
    role["rules"] = row.get("rules")
    if "collects" in row:
        role["aggregationRule"] = {"clusterRoleSelectors": [{"matchLabels": {_AGGREGATE + row["collects"]: "true"}}]}
    return role


def _binding(role: str, subjects: list[Json]) -> Json:
    return {
        "metadata": {"name": role, "labels": dict(_LABELS)},
        "subjects": [{"apiGroup": _GROUP, **each} for each in subjects] or None,
        "roleRef": {"apiGroup": _GROUP, "kind": "ClusterRole", "name": role},
    }


def default_roles() -> tuple[list[Json], list[Json]]:
    """The default ClusterRoles and ClusterRoleBindings, from data/roles.json: a role with `into` is labelled to go into
    those that have `collects` of the same name."""
    text = (resources.files("kproxy.apiserver") / "data" / "roles.json").read_bytes()
    found: Json = msgspec.json.decode(text)
    return [_role(row) for row in found["roles"]], [_binding(*each) for each in found["bindings"].items()]


def kubernetes_service(cluster_ip: str, port: int) -> Json:
    """The `kubernetes` Service in default."""
    return {
        "metadata": {"name": "kubernetes", "labels": {"component": "apiserver", "provider": "kubernetes"}},
        "spec": {
            "type": "ClusterIP",
            "clusterIP": cluster_ip,
            "ipFamilyPolicy": "SingleStack",
            "sessionAffinity": "None",
            "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": port}],
        },
    }


def kubernetes_slice(address: str, port: int) -> Json:
    """Its EndpointSlice: this server."""
    ports: list[Any] = [{"name": "https", "port": port, "protocol": "TCP"}]
    return {
        "metadata": {"name": "kubernetes", "labels": {"kubernetes.io/service-name": "kubernetes"}},
        "addressType": "IPv6" if ":" in address else "IPv4",
        "endpoints": [{"addresses": [address], "conditions": {"ready": True}}],
        "ports": ports,
    }


def kubernetes_endpoints(address: str, port: int) -> Json:
    return {
        "metadata": {"name": "kubernetes", "labels": {"endpointslice.kubernetes.io/skip-mirror": "true"}},
        "subsets": [{"addresses": [{"ip": address}], "ports": [{"name": "https", "port": port, "protocol": "TCP"}]}],
    }


async def ensure(
    registry: Registry,
    resource: Resource,
    namespace: str,
    body: Json,
    options: Options = _MANAGER,
    *,
    differs: Callable[[Json], bool] = lambda _held: False,
) -> list[asyncio.Future[None]]:
    """Creates an object that is not there, and replaces one of which `differs` holds; what ends once it is on disk."""
    name = body["metadata"]["name"]
    held = registry.table(resource).head(registry.key(resource, namespace, name))
    if held is None:
        result = await registry.create(resource, namespace, body, options)
    elif differs(held.value):
        result = await registry.update(resource, namespace, name, body, options)
    else:
        return []
    return [result.done] if result.done is not None else []


async def _on_disk(writes: Iterable[Awaitable[list[asyncio.Future[None]]]]) -> None:
    """Makes writes, and waits for them once all are made: they reach the disk together."""
    for done in [future for each in writes for future in await each]:
        await done


async def write_roles(registry: Registry, catalog: Catalog) -> None:
    """Creates the default roles and bindings that are not there yet."""
    kinds = [catalog.builtin(_GROUP, plural) for plural in ("clusterroles", "clusterrolebindings")]
    objects = [(kind, body) for kind, bodies in zip(kinds, default_roles(), strict=True) for body in bodies]
    await _on_disk(ensure(registry, resource, "", body) for resource, body in objects)


async def write_cluster(registry: Registry, catalog: Catalog, cidrs: tuple[str, ...], port: int) -> None:
    """Creates the system's namespaces, the ServiceCIDR and the `kubernetes` Service, unless they
    are there, and puts the Service's ports right; `cidrs` are the ranges of cluster IPs, `port` the server's own.

    Raises:
        ApiError: another Service has the address.
    """
    services = catalog.builtin("", "services")
    service = kubernetes_service(next(iter(registry.allocators.addresses.values())).first, port)
    ports = service["spec"]["ports"]
    writes = [
        ensure(registry, catalog.builtin("", "namespaces"), "", {"metadata": {"name": name}}) for name in NAMESPACES
    ]
    service_cidr = {"metadata": {"name": "kubernetes"}, "spec": {"cidrs": list(cidrs)}}
    writes.append(ensure(registry, catalog.builtin("networking.k8s.io", "servicecidrs"), "", service_cidr))
    held = registry.table(services).head("default/kubernetes")
    if held is not None:
        service = {"kind": "Service", "apiVersion": "v1", **held.value}
        service["spec"] = {**service["spec"], "ports": ports}
    writes.append(
        ensure(registry, services, "default", service, differs=lambda value: value["spec"].get("ports") != ports)
    )
    await _on_disk(writes)


async def publish_address(registry: Registry, catalog: Catalog, address: str, port: int) -> None:
    """Writes the endpoints of the `kubernetes` Service: where this server is reached."""
    for group, plural, body in (
        ("discovery.k8s.io", "endpointslices", kubernetes_slice(address, port)),
        ("", "endpoints", kubernetes_endpoints(address, port)),
    ):
        resource = catalog.builtin(group, plural)
        entry = registry.table(resource).head("default/kubernetes")
        if entry is not None and entry.value.get("addressType", body.get("addressType")) != body.get("addressType"):
            await registry.delete(resource, "default", "kubernetes", DeleteOptions())
        await _on_disk([ensure(registry, resource, "default", body, differs=lambda _held: True)])


def advertised_address(host: str) -> str | None:
    """The address that others reach this server by: `host`, or for a loopback or wildcard one the address of the
    default route's interface, as kube-apiserver's --advertise-address; None without such a route."""
    address = ipaddress.ip_address(host) if _is_address(host) else None
    if address is not None and not address.is_loopback and not address.is_unspecified:
        return str(address)
    six = address is not None and address.version == 6
    with (
        contextlib.suppress(OSError),
        socket.socket(socket.AF_INET6 if six else socket.AF_INET, socket.SOCK_DGRAM) as probe,
    ):
        probe.connect(("2001:db8::1" if six else "192.0.2.1", 9))  # sends nothing: only looks up the route
        found = ipaddress.ip_address(probe.getsockname()[0])
        if not found.is_loopback and not found.is_unspecified and not found.is_link_local:
            return str(found)
    return None


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
