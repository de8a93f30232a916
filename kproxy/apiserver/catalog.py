"""Every resource that is served right now: the built-in rows, and those of the CustomResourceDefinitions.

A CRD takes effect when its write is visible, before the client that wrote it has its answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from kproxy.apiserver.columns import custom_columns
from kproxy.apiserver.resources import ALL_VERBS, Resource, Subresource, built_in
from kproxy.apiserver.status import Json
from kproxy.apiserver.store import Event, Store, Table
from kproxy.apiserver.strategy import path_fields
from kproxy.apiserver.structural import CustomResourceStrategy, compile_structural

CRDS = "customresourcedefinitions.apiextensions.k8s.io"


class Catalog:
    """Finds resources by group, version and plural name."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._built_in = built_in()
        self._custom: dict[str, list[Resource]] = {}
        self._index: dict[tuple[str, str, str], Resource] = {}
        self.on_change: list[Callable[[], None]] = []
        self.crds: Table = store.table(CRDS)
        for entry in self.crds.entries.values():
            self._custom[entry.key] = custom_resources(entry.value)
        self._rebuild()
        self.crds.listeners.append(self._changed)

    def _changed(self, event: Event) -> None:
        if event.deleted:
            self._custom.pop(event.entry.key, None)
        else:
            self._custom[event.entry.key] = custom_resources(event.entry.value)
        self._rebuild()
        for call in self.on_change:
            call()

    def _rebuild(self) -> None:
        self._index = {(each.group, each.version, each.plural): each for each in self._built_in}
        for rows in self._custom.values():
            for each in rows:
                self._index.setdefault((each.group, each.version, each.plural), each)
                table = self._store.tables.get(each.storage)
                if table is not None:
                    table.fields_of = each.fields_of

    def find(self, group: str, version: str, plural: str) -> Resource | None:
        """A resource, None if it is not served."""
        return self._index.get((group, version, plural))

    def by_kind(self, group: str, kind: str) -> Resource | None:
        """Some version of a kind that has objects."""
        return next((r for r in self if r.group == group and r.kind == kind and r.stored), None)

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
    for version in spec.get("versions") or ():
        if not version.get("served"):
            continue
        schema: Json = (version.get("schema") or {}).get("openAPIV3Schema") or {"type": "object"}
        if spec.get("preserveUnknownFields"):
            schema = {**schema, "x-kubernetes-preserve-unknown-fields": True}
        subs = version.get("subresources") or {}
        kind = names.get("kind", "")
        subresources = []
        if "scale" in subs:
            subresources.append(Subresource("scale", "Scale", group="autoscaling", version="v1"))
        if "status" in subs:
            subresources.append(Subresource("status", kind))
        node = compile_structural(schema, root=True)
        fields = tuple(each.get("jsonPath", "").lstrip(".") for each in version.get("selectableFields") or ())
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
                verbs=ALL_VERBS,
                subresources=tuple(subresources),
                columns=custom_columns(version.get("additionalPrinterColumns") or ()),
                strategy=CustomResourceStrategy(schema, node, "status" in subs),
                storage=f"{names.get('plural', '')}.{spec['group']}",
                list_kind=names.get("listKind") or f"{kind}List",
                custom=True,
                fields_of=path_fields(fields),
                selectable=("metadata.name", "metadata.namespace", *fields),
                has_status="status" in subs,
                scale=subs.get("scale"),
            )
        )
    return found
