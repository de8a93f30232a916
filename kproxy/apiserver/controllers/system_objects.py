"""Objects that every cluster starts with; most are restored when they are deleted or changed.

The default RBAC, which data/roles.json has, is written once. The `kubernetes` Service with its EndpointSlice and
Endpoints, its ServiceCIDR and the system's namespaces, kube-apiserver looks after every ten seconds
(pkg/controlplane/controller/kubernetesservice, systemnamespaces); the ServiceAccount `default` of every namespace and,
if it is wanted, the ConfigMap `kube-root-ca.crt`, kube-controller-manager follows (pkg/controller/serviceaccount,
pkg/controller/certificates/rootcacertpublisher). Here all of it follows the tables' events, and is looked at every ten
seconds besides.
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

from kproxy.apiserver.controllers.base import Worker
from kproxy.apiserver.errors import Json, StatusError
from kproxy.apiserver.kinds.resources import Resource
from kproxy.apiserver.registry.catalog import Catalog
from kproxy.apiserver.registry.registry import Registry
from kproxy.apiserver.registry.writes import SERVER_OPTIONS, DeleteOptions, Options
from kproxy.apiserver.storage.store import Event

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
        StatusError: another Service has the address.
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


ROOT_CA: Final = "kube-root-ca.crt"
_RESYNC: Final = 10.0
"""Seconds after which the cluster's objects are looked at anyway."""
_CLUSTER: Final = ""
"""The key of the objects that are of no namespace; the others are the namespaces' names."""
_CA_NOTE: Final = {
    "kubernetes.io/description": "Contains a CA bundle that can be used to verify the kube-apiserver when using "
    "internal endpoints such as the internal service IP or kubernetes.default.svc. No other usage is guaranteed across "
    "distributions of Kubernetes clusters."
}


class SystemObjects:
    """Keeps the system objects of one server.

    `cidrs`: ranges of cluster IPs, `port` the server's own, `address` where others reach it (None: nowhere), `root_ca`
    the CA certificate in PEM to publish in every namespace ("": nowhere, as with a kube-apiserver that has no
    controller manager beside it), `accounts` whether every namespace gets its ServiceAccount `default`.
    """

    def __init__(
        self, registry: Registry, catalog: Catalog, *, cidrs: tuple[str, ...], port: int, address: str | None,
        root_ca: str = "", accounts: bool = True,
    ) -> None:  # fmt: skip
        self._registry = registry
        self._catalog = catalog
        self._cidrs, self._port, self._address = cidrs, port, address
        self._root_ca, self._accounts = root_ca, accounts
        self._worker: Worker[str] = Worker("system objects", self._sync)

    async def start(self) -> None:
        """Writes what is not there, and follows the tables from then on.

        Raises:
            StatusError: it cannot be written.
        """
        await write_roles(self._registry, self._catalog)
        await self._cluster()
        for name in (*self._registry.table(self._catalog.builtin("", "namespaces")).entries, _CLUSTER):
            self._worker.add(name)
        for group, plural, concerns in (
            ("", "namespaces", self._any_namespace),
            ("", "serviceaccounts", self._named("default")),
            ("", "configmaps", self._named(ROOT_CA)),
            ("", "services", self._published),
            ("", "endpoints", self._published),
            ("discovery.k8s.io", "endpointslices", self._published),
            ("networking.k8s.io", "servicecidrs", self._published),
        ):  # fmt: skip
            self._registry.table(self._catalog.builtin(group, plural)).listeners.append(concerns)
        self._worker.start()

    async def stop(self) -> None:
        await self._worker.stop()

    # --- what has changed ---

    def _any_namespace(self, event: Event) -> None:
        if event.deleted:
            self._worker.add(_CLUSTER)
        elif event.previous is None:
            self._worker.add(event.entry.name)

    def _named(self, name: str) -> Callable[[Event], None]:
        def listen(event: Event) -> None:
            if event.previous is not None and event.entry.name == name:
                self._worker.add(event.entry.namespace)

        return listen

    def _published(self, event: Event) -> None:
        if event.entry.name == "kubernetes" and event.entry.namespace in ("", "default"):
            self._worker.add(_CLUSTER)

    # --- what is done about it ---

    async def _sync(self, key: str) -> None:
        """Looks after the cluster's objects or those of one namespace."""
        if key == _CLUSTER:
            self._worker.add_after(_CLUSTER, _RESYNC)
            await self._cluster()
        else:
            await self._in_namespace(key)

    async def _cluster(self) -> None:
        await write_cluster(self._registry, self._catalog, self._cidrs, self._port)
        if self._address is not None:
            await publish_address(self._registry, self._catalog, self._address, self._port)

    async def _in_namespace(self, name: str) -> None:
        """Writes what a namespace must have, without waiting until it is on disk."""
        data = {"ca.crt": self._root_ca}
        config: Json = {"metadata": {"name": ROOT_CA, "annotations": _CA_NOTE}, "data": data}
        accounts, maps = self._catalog.builtin("", "serviceaccounts"), self._catalog.builtin("", "configmaps")
        # The namespace may be gone, or on its way out: then nothing can be made in it.
        with contextlib.suppress(StatusError):
            if self._accounts:
                account = {"metadata": {"name": "default", "namespace": name}}
                await ensure(self._registry, accounts, name, account, SERVER_OPTIONS)
            if self._root_ca:
                await ensure(
                    self._registry, maps, name, config, SERVER_OPTIONS, differs=lambda held: held.get("data") != data
                )
