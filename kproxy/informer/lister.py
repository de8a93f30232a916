"""Listers: reading an indexer by name, namespace and labels, as client-go's generated listers do."""

from __future__ import annotations

from typing import Generic

import msgspec

from kproxy.informer.objects import T
from kproxy.informer.selectors import Selector, everything
from kproxy.informer.store import NAMESPACE_INDEX, Indexer


class NamespaceLister(msgspec.Struct, Generic[T], frozen=True):
    """The objects of one namespace."""

    indexer: Indexer[T]
    namespace: str

    def get(self, name: str) -> T | None:
        return self.indexer.get_by_key(f"{self.namespace}/{name}" if self.namespace else name)

    def list(self, selector: Selector = everything) -> list[T]:
        items = self.indexer.by_index(NAMESPACE_INDEX, self.namespace)
        return [item for item in items if selector(item.metadata.labels)]


class Lister(msgspec.Struct, Generic[T], frozen=True):
    """All objects of an informer. The indexer must have the index `namespace`, as a SharedInformer's has."""

    indexer: Indexer[T]

    def get(self, key: str) -> T | None:
        """By `namespace/name`, or `name` for cluster-scoped objects."""
        return self.indexer.get_by_key(key)

    def list(self, selector: Selector = everything) -> list[T]:
        return [item for item in self.indexer.list() if selector(item.metadata.labels)]

    def namespaced(self, namespace: str) -> NamespaceLister[T]:
        return NamespaceLister(self.indexer, namespace)
