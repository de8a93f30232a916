"""Which resources a server has, and which of them a word means.

Discovery asks for the aggregated documents (apidiscovery.k8s.io, one each for /api and /apis), which servers have from
Kubernetes 1.27 on. `Discovered.resolve` reads words as kubectl does:
plural, singular, short name, kind, with `.group` or `.version.group` behind it.
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
    singular: str
    kind: str
    namespaced: bool
    short_names: tuple[str, ...] = ()

    @property
    def qualified(self) -> str:
        """`plural.group`, or `plural` in core."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def resource(self) -> Resource[Unstructured]:
        """The resource, for calls of RestClient."""
        return dynamic_resource(self.group, self.version, self.plural, self.namespaced)


class _Wire(msgspec.Struct, rename="camel"):
    pass


class _Kind(_Wire):
    group: str = ""
    version: str = ""
    kind: str = ""


class _AggregatedResource(_Wire):
    resource: str
    scope: str = ""
    response_kind: _Kind | None = None
    singular_resource: str = ""
    short_names: list[str] | None = None


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


@dataclass(frozen=True, slots=True)
class Discovered:
    """The resources of a server: the most preferred first, core before all others."""

    resources: tuple[ApiResource, ...]

    def resolve(self, word: str) -> ApiResource:
        """The resource that a word means, as kubectl reads it. Raises DiscoveryError."""
        readings = list(_readings(word.lower()))
        for short in (False, True):
            for name, version, group in readings:
                for item in self.resources:
                    fits = group is None or (item.group == group and version in (None, item.version))
                    names = item.short_names if short else (item.plural, item.singular, item.kind.lower())
                    if fits and name in names:
                        return item
        raise DiscoveryError(f'the server doesn\'t have a resource type "{word}"')


def _readings(word: str) -> Iterator[tuple[str, str | None, str | None]]:
    """Name, version and group that `word` may stand for: all, `name.version.group`, `name.group`."""
    yield word, None, None
    name, dot, rest = word.partition(".")
    if dot:
        version, more, group = rest.partition(".")
        if more:
            yield name, version, group
        yield name, None, rest
        yield name, rest, ""


def discover(client: RestClient) -> Discovered:
    """Asks the server for all it has; groups that do not answer are left out.

    Raises:
        DiscoveryError: it has no aggregated discovery.
        ApiError, TransportError, WireError: see RestClient.
    """
    documents = ((path, client.raw("GET", path, accept=AGGREGATED).data) for path in ("/api", "/apis"))
    return Discovered(tuple(item for path, data in documents for item in decode_discovery(data, path)))


def decode_discovery(data: bytes, path: str) -> Iterator[ApiResource]:
    """The resources of an APIGroupDiscoveryList.

    Raises:
        DiscoveryError: it is another document.
        WireError: it is none.
    """
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
                yield ApiResource(
                    name,
                    version.version,
                    item.resource,
                    item.singular_resource or kind.lower(),
                    kind,
                    item.scope == "Namespaced",
                    tuple(item.short_names or ()),
                )
