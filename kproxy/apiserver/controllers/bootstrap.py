"""What every server starts with: namespaces, the default RBAC, the `kubernetes` Service and its slice.

The RBAC objects are the part of kube-apiserver's defaults (plugin/pkg/auth/authorizer/rbac/bootstrappolicy) that the
clients of a network dataplane need.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final

from kproxy.apiserver.auth.openid import CONFIGURATION_PATH, JWKS_PATH
from kproxy.apiserver.errors import Json
from kproxy.apiserver.kinds.resources import Resource
from kproxy.apiserver.registry.catalog import Catalog
from kproxy.apiserver.registry.registry import Registry
from kproxy.apiserver.registry.writes import DeleteOptions, Options

_MANAGER: Final = Options(field_manager="kube-apiserver")

NAMESPACES: Final = ("default", "kube-node-lease", "kube-public", "kube-system")
_READ: Final = ["get", "list", "watch"]
_WRITE: Final = ["create", "delete", "deletecollection", "patch", "update"]
_CORE: Final = [
    "configmaps", "endpoints", "events", "persistentvolumeclaims", "pods", "replicationcontrollers",
    "replicationcontrollers/scale", "serviceaccounts", "services", "services/status",
]  # fmt: skip
_APPS: Final = [
    "daemonsets", "daemonsets/status", "deployments", "deployments/scale", "deployments/status", "replicasets",
    "replicasets/scale", "replicasets/status", "statefulsets", "statefulsets/scale", "statefulsets/status",
]  # fmt: skip
_BATCH: Final = ["cronjobs", "cronjobs/status", "jobs", "jobs/status"]
_LABEL: Final = {"kubernetes.io/bootstrapping": "rbac-defaults"}
_AGGREGATE: Final = "rbac.authorization.k8s.io/aggregate-to-"


def _rule(groups: list[str], resources: list[str], verbs: list[str]) -> Json:
    return {"verbs": verbs, "apiGroups": groups, "resources": resources}


def _role(name: str, rules: list[Json] | None, labels: Json | None = None, aggregate: str = "") -> Json:
    role: Json = {"metadata": {"name": name, "labels": {**_LABEL, **(labels or {})}}, "rules": rules}
    role["metadata"]["annotations"] = {"rbac.authorization.kubernetes.io/autoupdate": "true"}
    if aggregate:
        role["aggregationRule"] = {"clusterRoleSelectors": [{"matchLabels": {_AGGREGATE + aggregate: "true"}}]}
    return role


def cluster_roles() -> list[Json]:
    """The default ClusterRoles."""
    health = ["/healthz", "/livez", "/readyz", "/version", "/version/"]
    discovery = [*health, "/api", "/api/*", "/apis", "/apis/*", "/openapi", "/openapi/*"]
    issuer = [f"{path}{end}" for path in (CONFIGURATION_PATH, JWKS_PATH) for end in ("", "/")]
    return [
        _role("cluster-admin", [_rule(["*"], ["*"], ["*"]), {"verbs": ["*"], "nonResourceURLs": ["*"]}]),
        _role("system:discovery", [{"verbs": ["get"], "nonResourceURLs": discovery}]),
        _role("system:service-account-issuer-discovery", [{"verbs": ["get"], "nonResourceURLs": issuer}]),
        _role("system:public-info-viewer", [{"verbs": ["get"], "nonResourceURLs": health}]),
        _role(
            "system:monitoring",
            [
                {
                    "verbs": ["get"],
                    "nonResourceURLs": [
                        *health[:3],
                        "/livez/*",
                        "/readyz/*",
                        "/healthz/*",
                        "/metrics",
                        "/metrics/slis",
                    ],
                }
            ],
        ),
        _role(
            "system:basic-user",
            [
                _rule(["authorization.k8s.io"], ["selfsubjectaccessreviews", "selfsubjectrulesreviews"], ["create"]),
                _rule(["authentication.k8s.io"], ["selfsubjectreviews"], ["create"]),
            ],
        ),
        _role(
            "system:auth-delegator",
            [
                _rule(["authentication.k8s.io"], ["tokenreviews"], ["create"]),
                _rule(["authorization.k8s.io"], ["subjectaccessreviews"], ["create"]),
            ],
        ),
        _role(
            "system:node-proxier",
            [
                _rule([""], ["endpoints", "services"], ["list", "watch"]),
                _rule([""], ["nodes"], _READ),
                _rule(["", "events.k8s.io"], ["events"], ["create", "patch", "update"]),
                _rule(["discovery.k8s.io"], ["endpointslices"], ["list", "watch"]),
                _rule(["networking.k8s.io"], ["servicecidrs"], ["list", "watch"]),
            ],
        ),
        _role("system:node", _node_rules()),
        _role("system:aggregate-to-view", _view_rules(), {_AGGREGATE + "view": "true"}),
        _role("system:aggregate-to-edit", _edit_rules(), {_AGGREGATE + "edit": "true"}),
        _role("system:aggregate-to-admin", _admin_rules(), {_AGGREGATE + "admin": "true"}),
        _role("view", None, {_AGGREGATE + "edit": "true"}, "view"),
        _role("edit", None, {_AGGREGATE + "admin": "true"}, "edit"),
        _role("admin", None, None, "admin"),
    ]


def _node_rules() -> list[Json]:
    """What a kubelet may that is bound to `system:node`, on every node."""
    return [
        _rule(["authentication.k8s.io"], ["tokenreviews"], ["create"]),
        _rule(["authorization.k8s.io"], ["localsubjectaccessreviews", "subjectaccessreviews"], ["create"]),
        _rule([""], ["services"], _READ),
        _rule([""], ["nodes"], ["create", "get", "list", "watch"]),
        _rule([""], ["nodes/status"], ["patch", "update"]),
        _rule([""], ["nodes"], ["patch", "update"]),
        _rule([""], ["events"], ["create", "patch", "update"]),
        _rule(["events.k8s.io"], ["events"], ["create", "patch", "update"]),
        _rule([""], ["pods"], _READ),
        _rule([""], ["pods"], ["create", "delete"]),
        _rule([""], ["pods/status"], ["patch", "update"]),
        _rule([""], ["pods/eviction"], ["create"]),
        _rule([""], ["configmaps", "secrets"], _READ),
        _rule([""], ["persistentvolumeclaims", "persistentvolumes"], ["get"]),
        _rule([""], ["endpoints"], ["get"]),
        _rule(["certificates.k8s.io"], ["certificatesigningrequests"], ["create", "get", "list", "watch"]),
        _rule(["coordination.k8s.io"], ["leases"], ["create", "delete", "get", "patch", "update"]),
        _rule(["storage.k8s.io"], ["volumeattachments"], ["get"]),
        _rule([""], ["serviceaccounts/token"], ["create"]),
        _rule([""], ["serviceaccounts"], _READ),
        _rule([""], ["persistentvolumeclaims/status"], ["get", "patch", "update"]),
        _rule(["storage.k8s.io"], ["csidrivers"], _READ),
        _rule(["storage.k8s.io"], ["csinodes"], ["create", "delete", "get", "patch", "update"]),
        _rule(["node.k8s.io"], ["runtimeclasses"], _READ),
        _rule(["resource.k8s.io"], ["resourceclaims"], ["get"]),
        _rule(["resource.k8s.io"], ["resourceslices"], [*_READ, *_WRITE]),
    ]


def _view_rules() -> list[Json]:
    """What those may read who look after a namespace's workloads, and nothing that is secret."""
    return [
        _rule([""], [*_CORE, "namespaces"], _READ),
        _rule(["apps"], _APPS, _READ),
        _rule(["discovery.k8s.io"], ["endpointslices"], _READ),
        _rule([""], ["limitranges", "resourcequotas", "resourcequotas/status"], _READ),
        _rule(["apps"], ["controllerrevisions"], _READ),
        _rule(["autoscaling"], ["horizontalpodautoscalers", "horizontalpodautoscalers/status"], _READ),
        _rule(["batch"], _BATCH, _READ),
        _rule(["networking.k8s.io"], ["ingresses", "ingresses/status", "networkpolicies"], _READ),
        _rule(["policy"], ["poddisruptionbudgets"], _READ),
        _rule(["resource.k8s.io"], ["resourceclaims", "resourceclaimtemplates"], _READ),
    ]


def _edit_rules() -> list[Json]:
    """What those may do in a namespace who look after its workloads, beside reading."""
    return [
        _rule([""], [*_CORE[:-1], "secrets"], _WRITE),
        _rule([""], ["secrets"], _READ),
        _rule([""], ["serviceaccounts"], ["impersonate"]),
        _rule(["apps"], _APPS, _WRITE),
        _rule(["autoscaling"], ["horizontalpodautoscalers"], _WRITE),
        _rule(["batch"], ["cronjobs", "jobs"], _WRITE),
        _rule(["networking.k8s.io"], ["ingresses", "networkpolicies"], _WRITE),
        _rule(["policy"], ["poddisruptionbudgets"], _WRITE),
        _rule(["resource.k8s.io"], ["resourceclaims", "resourceclaimtemplates"], _WRITE),
        _rule(["coordination.k8s.io"], ["leases"], [*_READ, *_WRITE]),
    ]


def _admin_rules() -> list[Json]:
    """What the owner of a namespace may do, beside all that."""
    return [
        _rule(["rbac.authorization.k8s.io"], ["roles", "rolebindings"], [*_READ, *_WRITE]),
        _rule(["authorization.k8s.io"], ["localsubjectaccessreviews"], ["create"]),
        _rule([""], ["serviceaccounts/token"], ["create"]),
    ]


def _binding(role: str, *subjects: tuple[str, str]) -> Json:
    return {
        "metadata": {"name": role, "labels": dict(_LABEL)},
        "subjects": [{"kind": kind, "apiGroup": "rbac.authorization.k8s.io", "name": name} for kind, name in subjects]
        or None,
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
    }


def cluster_role_bindings() -> list[Json]:
    """The default ClusterRoleBindings."""
    everybody = (("Group", "system:authenticated"),)
    return [
        _binding("cluster-admin", ("Group", "system:masters")),
        _binding("system:discovery", *everybody),
        _binding("system:basic-user", *everybody),
        _binding("system:service-account-issuer-discovery", ("Group", "system:serviceaccounts")),
        _binding("system:public-info-viewer", *everybody, ("Group", "system:unauthenticated")),
        _binding("system:monitoring", ("Group", "system:monitoring")),
        _binding("system:node-proxier", ("User", "system:kube-proxy")),
        _binding("system:node"),
    ]


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
    roles, bindings = (
        catalog.builtin("rbac.authorization.k8s.io", plural) for plural in ("clusterroles", "clusterrolebindings")
    )
    objects = [(roles, role) for role in cluster_roles()] + [(bindings, each) for each in cluster_role_bindings()]
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
