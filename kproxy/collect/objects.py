"""The objects of a snapshot, from an API server."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Any, Final

from kproxy.client import ApiError, RestClient, TransportError
from kproxy.client.cluster import proxy_config_maps
from kproxy.client.resources import CONFIG_MAP_RESOURCE, PODS, Resource, dynamic_resource
from kproxy.cluster.snapshot.files import MemoryFiles
from kproxy.cluster.snapshot.info import Failure
from kproxy.cluster.snapshot.layout import KINDS, OBJECTS
from kproxy.collect.prune import pruned

RESOURCES: Final[Mapping[str, Resource[Any]]] = {
    "Node": dynamic_resource("", "v1", "nodes", False),
    "Service": dynamic_resource("", "v1", "services", True),
    "EndpointSlice": dynamic_resource("discovery.k8s.io", "v1", "endpointslices", True),
    "ServiceCIDR": dynamic_resource("networking.k8s.io", "v1", "servicecidrs", False),
    "Pod": PODS,
    "NetworkPolicy": dynamic_resource("networking.k8s.io", "v1", "networkpolicies", True),
    "ConfigMap": CONFIG_MAP_RESOURCE,
}
_OPTIONAL = ("ServiceCIDR", "NetworkPolicy", "ConfigMap")
"""Kinds that a cluster may not have, or not show."""


def collect_objects(
    client: RestClient, files: MemoryFiles, tell: Callable[[str], None], kinds: Iterable[str] = KINDS
) -> list[Failure]:
    """Puts one list of each kind into `files`. Of ConfigMaps only kube-proxy's is asked for.

    Args:
        tell: gets each kind and how many there are.

    Raises:
        TransportError: the server cannot be reached.
    """
    failed = []
    for kind in kinds:
        path = f"{OBJECTS}/{kind}.json"
        resource = RESOURCES[kind]
        try:
            if kind == "ConfigMap":
                items = [found for _, found in islice(proxy_config_maps(client), 1)]
                if not items:
                    continue
            else:
                items = [item.raw for item in client.list(resource).items]
        except ApiError as error:
            if not (error.code == 404 and kind in _OPTIONAL):
                failed.append(Failure(path, str(error)))
            continue
        kept = [item for item in (kept_object(kind, each) for each in items) if item is not None]
        listed = {"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": ""}, "items": kept}
        files.put(path, json.dumps(listed, indent=1, ensure_ascii=False).encode("utf-8", "surrogatepass"))
        tell(f"{kind}: {len(kept)}")
    return failed


def kept_object(kind: str, item: Mapping[str, Any]) -> dict[str, Any] | None:
    """An object of a list as a snapshot keeps it; None if it does not belong in one."""
    return pruned({"apiVersion": RESOURCES[kind].group_version, "kind": kind, **item})


def server_version(client: RestClient) -> str:
    """The API server's version, `v1.36.2`; "" if it does not say."""
    try:
        found = json.loads(client.raw("GET", "/version").data)
    except (ApiError, TransportError, ValueError):
        return ""
    return str(found.get("gitVersion") or "") if isinstance(found, dict) else ""
