"""What commands read of a live cluster: the objects that manifests would hold, and kube-proxy's ConfigMap.

Lists are fetched in pages and handed on as they came, so that one loader (`kproxy.api.load`) reads files and API
servers alike; what a message calls a page is its URL.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from kproxy.api.kubeproxyconfig.types import CONFIG_MAPS
from kproxy.client.errors import ApiError, TransportError
from kproxy.client.resources import CONFIG_MAP_RESOURCE, ENDPOINT_SLICES, NODES, PODS, SERVICE_CIDRS, SERVICES, Resource
from kproxy.client.rest import RestClient
from kproxy.cluster.facts.kubeproxy import CONFIG_NAMESPACE, ConfigText, config_text
from kproxy.errors import KproxyError
from kproxy.informer.objects import WireError


class ClusterReadError(KproxyError):
    """An API server refused, or did not answer, what a command needs; one line that names it."""


@contextlib.contextmanager
def one_line_errors(client: RestClient) -> Iterator[None]:
    """Turns what the server refuses, and that it does not answer, into a ClusterReadError."""
    server = client.config.server
    try:
        yield
    except TransportError as error:
        raise ClusterReadError(f"cannot reach the server {server}: {error.reason}") from error
    except ApiError as error:
        text = "you must be logged in (Unauthorized)" if error.code == 401 else error.message
        raise ClusterReadError(f"the server {server} says: {_one_line(text)}") from error


def read_objects(client: RestClient, namespace: str, tell: Callable[[str], None]) -> Iterator[tuple[str, bytes]]:
    """The Services, EndpointSlices, Nodes and ServiceCIDRs of a cluster.

    Args:
        namespace: only those of it, of the objects that are in one; "" for all.
        tell: gets what could not be read and may be done without.

    Raises:
        ClusterReadError: the server refuses or does not answer. ServiceCIDRs may be missing (before Kubernetes 1.33).
    """
    with one_line_errors(client):
        for resource in (SERVICES, ENDPOINT_SLICES, NODES):
            yield from _pages(client, resource, namespace)
        try:
            yield from _pages(client, SERVICE_CIDRS, "")
        except ApiError as error:
            if error.code not in (403, 404):
                raise
            if error.code == 403:
                tell(f"ServiceCIDRs, which nftables mode heeds, are left out: {_one_line(error.message)}")


def read_pods(client: RestClient, namespace: str = "") -> Iterator[tuple[str, bytes]]:
    """The Pods, as `read_objects`."""
    with one_line_errors(client):
        yield from _pages(client, PODS, namespace)


def read_proxy_config(client: RestClient) -> ConfigText | None:
    """kube-proxy's configuration from its ConfigMap; None if there is none.

    Raises:
        ClusterReadError: it may not be read, or the server does not answer.
    """
    with one_line_errors(client):
        texts = (config_text(name, found.get("data")) for name, found in proxy_config_maps(client))
        return next(filter(None, texts), None)


def proxy_config_maps(client: RestClient) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The ConfigMaps that may have it by name, each read when it is asked for. Raises ApiError, TransportError."""
    for name in CONFIG_MAPS:
        try:
            yield name, client.get(CONFIG_MAP_RESOURCE, name, CONFIG_NAMESPACE).raw
        except ApiError as error:
            if error.code != 404:
                raise


def _pages(client: RestClient, resource: Resource[Any], namespace: str) -> list[tuple[str, bytes]]:
    """A list in pages as they came, each with its name."""
    path = resource.path(namespace)
    try:
        pages = client.pages(path, {})
    except WireError as error:
        raise ClusterReadError(f"the server {client.config.server} answers {path} with what is no list") from error
    name = f"{client.config.server}{path}"
    return [(name if len(pages) == 1 else f"{name} (page {number})", data) for number, data in enumerate(pages, 1)]


def _one_line(text: str) -> str:
    return " ".join(text.split())
