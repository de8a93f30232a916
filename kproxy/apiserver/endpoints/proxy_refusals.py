"""What kube-apiserver passes on to nodes, Pods and Services, and this server does not: why it is refused.

`proxy`, `attach` and `portforward` check what is asked as kube-apiserver does, so that each mistake has its answer;
what is left says that nothing is reached from here. Sources: kubernetes/kubernetes pkg/registry/core/service/storage
and pkg/registry/core/pod/strategy.go (ResourceLocation).
"""

from __future__ import annotations

from typing import Any, Final

from kproxy.api.load.mirror import SERVICE_NAME_LABEL
from kproxy.apiserver.endpoints.request import Request
from kproxy.apiserver.errors import ApiError, bad_request, unavailable
from kproxy.apiserver.kinds.resources import Resource
from kproxy.apiserver.registry.registry import Registry

UNREACHED: Final = frozenset({"attach", "portforward", "proxy"})
"""Subresources."""
_SLICES: Final = "endpointslices.discovery.k8s.io"


def refusal(registry: Registry, request: Request, resource: Resource) -> ApiError:
    """Why a request is not passed on.

    Raises:
        ApiError: 404, there is no such object.
    """
    target = request.target
    name, port = target.name, ""
    if target.subresource == "proxy":  # [scheme:]name[:port]
        parts = name.split(":")
        name, port = (parts[0], parts[1] if len(parts) == 2 else "") if len(parts) < 3 else (parts[1], parts[2])
    value = registry.head(resource, target.namespace, name).value
    spec, status = value.get("spec") or {}, value.get("status") or {}
    if resource.plural == "services":
        if port and not any(port in (each.get("name"), str(each["port"])) for each in spec.get("ports") or ()):
            return unavailable(f'no service port "{port}" found for service "{name}"')
        if not _has_endpoints(registry, target.namespace, name):
            return unavailable(f'no endpoints available for service "{name}"')
    elif target.subresource == "proxy":
        if resource.plural == "pods" and not status.get("podIP"):
            return bad_request("address not allowed")
    elif not spec.get("nodeName"):
        return bad_request(f"pod {name} does not have a host assigned")
    return unavailable("error trying to reach service: this server does not reach nodes and Pods")


def _has_endpoints(registry: Registry, namespace: str, service: str) -> bool:
    found: list[dict[str, Any]] = [
        entry.value
        for entry in registry.store.tables[_SLICES].heads_in(namespace)
        if entry.labels.get(SERVICE_NAME_LABEL) == service
    ]
    return any(
        (each.get("conditions") or {}).get("ready", True) for value in found for each in value.get("endpoints") or ()
    )
