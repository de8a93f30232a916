"""Every resource that is served right now: the built-in rows, and those of the CustomResourceDefinitions.

A CRD takes effect when its write is visible, before the client that wrote it has its answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from kproxy.apiserver.crd.definition import CRDS, CustomResourceDefinitionStrategy, warning_of
from kproxy.apiserver.crd.strategy import CustomResourceStrategy
from kproxy.apiserver.crd.structural import compile_structural
from kproxy.apiserver.errors import Json
from kproxy.apiserver.kinds.printers.table import custom_columns
from kproxy.apiserver.kinds.resources import METADATA_FIELDS, Resource, built_in
from kproxy.apiserver.kinds.stored.row import ALL_VERBS, Subresource
from kproxy.apiserver.storage.store import Event, Store, Table

_TERMINATING: Final = tuple(verb for verb in ALL_VERBS if verb != "create")
"""What may be done to the objects of a CRD that is being deleted."""


class Catalog:
    """Finds resources by group, version and plural name."""

    def __init__(self, store: Store) -> None:
        self._built_in = built_in({"CustomResourceDefinition": CustomResourceDefinitionStrategy()})
        self._custom: dict[str, tuple[int, list[Resource]]] = {}
        """The resources of each CRD, and since which revision it exists."""
        self._index: dict[tuple[str, str, str], Resource] = {}
        self.on_change: list[Callable[[], None]] = []
        self.crds: Table = store.table(CRDS)
        for entry in self.crds.entries.values():
            self._custom[entry.key] = (entry.created, custom_resources(entry.value))
        self._rebuild()
        self.crds.listeners.append(self._changed)

    def _changed(self, event: Event) -> None:
        if event.deleted:
            self._custom.pop(event.entry.key, None)
        else:
            self._custom[event.entry.key] = (event.entry.created, custom_resources(event.entry.value))
        self._rebuild()
        for call in self.on_change:
            call()

    def _rebuild(self) -> None:
        self._index = {(each.group, each.version, each.plural): each for each in self._built_in}
        for _, rows in sorted(self._custom.values(), key=lambda pair: pair[0]):
            for each in rows:
                self._index.setdefault((each.group, each.version, each.plural), each)

    def find(self, group: str, version: str, plural: str) -> Resource | None:
        """A resource, None if it is not served."""
        return self._index.get((group, version, plural))

    def builtin(self, group: str, plural: str) -> Resource:
        """A resource of the server's own, which is always served, in version v1."""
        found = self.find(group, "v1", plural)
        assert found is not None, plural
        return found

    def by_kind(self, group: str, kind: str) -> Resource | None:
        """Some version of a kind that has objects."""
        return next((r for r in self if r.group == group and r.kind == kind and r.stored), None)

    def by_storage(self, storage: str) -> Resource | None:
        """The resource that stands for a table."""
        return next((each for each in self.stored() if each.storage == storage), None)

    def has_group(self, group: str, version: str) -> bool:
        """Whether anything of a group and version is served."""
        return any(key[0] == group and key[1] == version for key in self._index)

    def __iter__(self) -> Iterator[Resource]:
        return iter(self._index.values())

    def stored(self) -> list[Resource]:
        """One resource for each table of objects."""
        found: dict[str, Resource] = {}
        for resource in self:
            if resource.stored:
                found.setdefault(resource.storage, resource)
        return list(found.values())


def custom_resources(crd: Json) -> list[Resource]:
    """The resources that a CustomResourceDefinition makes, one for each served version."""
    spec = crd["spec"]
    names = spec["names"]
    found = []
    nodes = [compile_structural(_schema_of(spec, version), root=True) for version in spec.get("versions") or ()]
    stored = [node for version, node in zip(spec.get("versions") or (), nodes, strict=True) if version.get("storage")]
    for version, node in zip(spec.get("versions") or (), nodes, strict=True):
        if not version.get("served"):
            continue
        schema = _schema_of(spec, version)
        subs = version.get("subresources") or {}
        kind = names.get("kind", "")
        subresources = []
        if "scale" in subs:
            subresources.append(Subresource("scale", "Scale", group="autoscaling", version="v1"))
        if "status" in subs:
            subresources.append(Subresource("status", kind))
        found.append(
            Resource(
                spec["group"],
                version["name"],
                kind,
                names.get("plural", ""),
                node,
                namespaced=spec.get("scope") == "Namespaced",
                singular=names.get("singular", kind.lower()),
                short_names=tuple(names.get("shortNames") or ()),
                categories=tuple(names.get("categories") or ()),
                verbs=_TERMINATING if crd["metadata"].get("deletionTimestamp") else ALL_VERBS,
                subresources=tuple(subresources),
                columns=custom_columns(version.get("additionalPrinterColumns") or ()),
                strategy=CustomResourceStrategy(schema, node, stored[0] if stored else node, "status" in subs),
                storage=f"{names.get('plural', '')}.{spec['group']}",
                list_kind=names.get("listKind") or f"{kind}List",
                custom=True,
                selectable=METADATA_FIELDS[: 2 if spec.get("scope") == "Namespaced" else 1],
                scale=subs.get("scale"),
                deprecation=warning_of(spec["group"], version, kind),
                api_versions=tuple(f"{spec['group']}/{each['name']}" for each in spec["versions"]),
            )
        )
    return found


def _schema_of(spec: Json, version: Json) -> Json:
    schema: Json = (version.get("schema") or {}).get("openAPIV3Schema") or {"type": "object"}
    return {**schema, "x-kubernetes-preserve-unknown-fields": True} if spec.get("preserveUnknownFields") else schema
