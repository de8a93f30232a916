"""Which resources a server has.

Discovery asks for the aggregated documents (apidiscovery.k8s.io, one each for /api and /apis), which servers have from
Kubernetes 1.27 on.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import msgspec

from kproxy.client.errors import DiscoveryError
from kproxy.client.resources import Resource, dynamic_resource
from kproxy.client.rest import RestClient
from kproxy.informer.codec import Unstructured
from kproxy.informer.objects import WireError

AGGREGATED: Final = ",".join(
    (
        "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
        "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList",
        "application/json",
    )
)


@dataclass(frozen=True, slots=True)
class ApiResource:
    """One resource of one group version, without subresources."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool

    def resource(self) -> Resource[Unstructured]:
        """The resource, for calls of RestClient."""
        return dynamic_resource(self.group, self.version, self.plural, self.namespaced)


class _Wire(msgspec.Struct, rename="camel"):
    pass


class _Kind(_Wire):
    kind: str = ""


class _AggregatedResource(_Wire):
    resource: str
    scope: str = ""
    response_kind: _Kind | None = None


class _AggregatedVersion(_Wire):
    version: str
    resources: list[_AggregatedResource] | None = None


class _Meta(_Wire):
    name: str = ""


class _AggregatedGroup(_Wire):
    metadata: _Meta | None = None
    versions: list[_AggregatedVersion] | None = None


class _Document(_Wire):
    """An APIGroupDiscoveryList."""

    kind: str = ""
    items: list[_AggregatedGroup] | None = None


def discover(client: RestClient) -> tuple[ApiResource, ...]:
    """The resources of a server, the most preferred first, core before all others; groups that do not answer are left
    out.

    Raises:
        DiscoveryError: it has no aggregated discovery.
        ApiError, TransportError, WireError: see RestClient.
    """
    documents = ((path, client.raw("GET", path, accept=AGGREGATED).data) for path in ("/api", "/apis"))
    return tuple(item for path, data in documents for item in decode_discovery(data, path))


def decode_discovery(data: bytes, path: str) -> Iterator[ApiResource]:
    """The resources of an APIGroupDiscoveryList. Raises DiscoveryError, WireError."""
    try:
        document = msgspec.json.decode(data, type=_Document)
    except msgspec.DecodeError as error:
        raise WireError(f"{path} is no discovery document: {error}") from error
    if document.kind != "APIGroupDiscoveryList":
        raise DiscoveryError(
            "the server has no aggregated discovery, which Kubernetes has from 1.27 on: its resources are not known"
        )
    for group in document.items or ():
        name = (group.metadata or _Meta()).name
        for version in group.versions or ():
            for item in version.resources or ():
                kind = (item.response_kind or _Kind()).kind
                yield ApiResource(name, version.version, item.resource, kind, item.scope == "Namespaced")
