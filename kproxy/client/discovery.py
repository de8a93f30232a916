"""Which resources a server has, and which of them a word means.

Discovery asks for the aggregated documents (apidiscovery.k8s.io/v2, one each for /api and /apis) and falls back to the
plain ones, group by group, for servers that have not got them. `Discovered.resolve` reads words as kubectl does:
plural, singular, short name, kind, with `.group` or `.version.group` behind it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, TypeVar

import msgspec

from kproxy.client.errors import ApiError, DiscoveryError
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


_DocumentT = TypeVar("_DocumentT")


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
    categories: tuple[str, ...] = ()
    verbs: frozenset[str] = frozenset()

    @property
    def qualified(self) -> str:
        """`plural.group`, or `plural` in core."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def display(self) -> str:
        """`kind.group` in lower case, as before the slash in `kubectl get -o name`."""
        kind = self.kind.lower()
        return f"{kind}.{self.group}" if self.group else kind

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
    categories: list[str] | None = None
    verbs: list[str] | None = None


class _AggregatedVersion(_Wire):
    version: str
    resources: list[_AggregatedResource] | None = None


class _Meta(_Wire):
    name: str = ""


class _AggregatedGroup(_Wire):
    metadata: _Meta | None = None
    versions: list[_AggregatedVersion] | None = None


class _Document(_Wire):
    """Whatever /api and /apis answer: aggregated groups, APIVersions, or an APIGroupList."""

    kind: str = ""
    items: list[_AggregatedGroup] | None = None
    versions: list[str] | None = None
    groups: list[_Group] | None = None


class _GroupVersion(_Wire):
    version: str


class _Group(_Wire):
    name: str
    versions: list[_GroupVersion] | None = None
    preferred_version: _GroupVersion | None = None


class _PlainResource(_Wire):
    name: str
    singular_name: str = ""
    namespaced: bool = False
    kind: str = ""
    verbs: list[str] | None = None
    short_names: list[str] | None = None
    categories: list[str] | None = None


class _PlainList(_Wire):
    resources: list[_PlainResource] | None = None


@dataclass(frozen=True, slots=True)
class Discovered:
    """The resources of a server: the most preferred first, core before all others."""

    resources: tuple[ApiResource, ...]

    def resolve(self, word: str) -> ApiResource:
        """The resource that a word means, as kubectl reads it. Raises DiscoveryError."""
        lower = word.lower()
        for name, version, group in _readings(lower):
            for item in self.resources:
                fits = group is None or (item.group == group and version in (None, item.version))
                if fits and name in (item.plural, item.singular, item.kind.lower()):
                    return item
        for name, version, group in _readings(lower):
            for item in self.resources:
                fits = group is None or (item.group == group and version in (None, item.version))
                if fits and name in item.short_names:
                    return item
        raise DiscoveryError(f'the server doesn\'t have a resource type "{word}"')

    def category(self, word: str) -> list[ApiResource]:
        """The resources of a category, such as `all`, each once; none if there is no such category."""
        found: dict[tuple[str, str], ApiResource] = {}
        for item in self.resources:
            if word in item.categories and "list" in item.verbs:
                found.setdefault((item.group, item.plural), item)
        return list(found.values())


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
    """Asks the server for all it has. Raises what RestClient raises; groups that do not answer are left out."""
    core = _fetch(client, "/api", _Document)
    if core.kind == "APIGroupDiscoveryList":
        named = _fetch(client, "/apis", _Document)
        found = [*_aggregated(core), *_aggregated(named)]
    else:
        found = list(_plain(client, core))
    return Discovered(tuple(found))


def decode_aggregated(data: bytes) -> list[ApiResource]:
    """The resources of an APIGroupDiscoveryList. Raises WireError."""
    return list(_aggregated(_decode(data, "the answer", _Document)))


def _aggregated(document: _Document) -> Iterator[ApiResource]:
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
                    tuple(item.categories or ()),
                    frozenset(item.verbs or ()),
                )


def _plain(client: RestClient, core: _Document) -> Iterator[ApiResource]:
    for version in core.versions or ("v1",):
        yield from _plain_version(client, "", version)
    for group in _fetch(client, "/apis", _Document).groups or ():
        preferred = group.preferred_version.version if group.preferred_version else ""
        versions = [item.version for item in group.versions or ()]
        for version in sorted(versions, key=lambda item: item != preferred):
            yield from _plain_version(client, group.name, version)


def _plain_version(client: RestClient, group: str, version: str) -> Iterator[ApiResource]:
    try:
        document = _fetch(client, f"/apis/{group}/{version}" if group else f"/api/{version}", _PlainList)
    except ApiError as error:
        # An aggregated API whose server is away (503) or that went meanwhile (404) hides only itself.
        if error.code in (404, 503):
            return
        raise
    for item in document.resources or ():
        if "/" not in item.name:
            yield ApiResource(
                group,
                version,
                item.name,
                item.singular_name or item.kind.lower(),
                item.kind,
                item.namespaced,
                tuple(item.short_names or ()),
                tuple(item.categories or ()),
                frozenset(item.verbs or ()),
            )


def _fetch(client: RestClient, path: str, kind: type[_DocumentT]) -> _DocumentT:
    return _decode(client.raw("GET", path, accept=AGGREGATED).data, path, kind)


def _decode(data: bytes, what: str, kind: type[_DocumentT]) -> _DocumentT:
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.DecodeError as error:
        raise WireError(f"{what} is no discovery document: {error}") from error
