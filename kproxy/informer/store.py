"""Store, Indexer and listers: the objects that are known, by key and by what index functions say of them.

client-go's thread_safe_store.go. Objects are frozen, so what is handed out needs no copy. Everything here may be
called from any thread; a lock is the only thing of the outside world that this package touches.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Generic

import msgspec

from kproxy.informer.objects import KubernetesObject, T
from kproxy.informer.selectors import Selector, everything

IndexFunc = Callable[[T], Iterable[str]]
"""Says under which values of an index an object is found; it must depend on the object alone."""

NAMESPACE_INDEX: Final = "namespace"

Keys = list[str]


def meta_namespace_index_func(item: KubernetesObject) -> tuple[str, ...]:
    """The namespace of an object, "" for cluster-scoped ones: client-go's MetaNamespaceIndexFunc."""
    return (item.metadata.namespace,)


def label_index_func(label: str) -> Callable[[KubernetesObject], tuple[str, ...]]:
    """Indexes `namespace/value` of one label, as kube-proxy's slices by `kubernetes.io/service-name`."""

    def values(item: KubernetesObject) -> tuple[str, ...]:
        value = item.metadata.labels.get(label)
        return () if value is None else (f"{item.metadata.namespace}/{value}",)

    return values


class Index:
    """One index: the keys under each value.

    Invariant: no value has an empty set; `_keys[value]` is a dict for its order, which makes answers repeatable.
    """

    __slots__ = ("_keys",)

    def __init__(self) -> None:
        self._keys: dict[str, dict[str, None]] = {}

    def move(self, key: str, old: Iterable[str], new: Iterable[str]) -> None:
        """Takes `key` from the `old` values that are not `new`, and puts it under the `new`."""
        added = tuple(new)
        for value in old:
            if value not in added and (keys := self._keys.get(value)) is not None:
                keys.pop(key, None)
                if not keys:
                    del self._keys[value]
        for value in added:
            self._keys.setdefault(value, {})[key] = None

    def keys(self, value: str) -> list[str]:
        return list(self._keys.get(value, ()))


class Store(Generic[T]):
    """Objects by `namespace/name`, or `name` of cluster-scoped ones."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._items: dict[str, T] = {}

    def add(self, item: T) -> None:
        """Puts an object, in place of the one with its key."""
        self.update(item)

    def update(self, item: T) -> None:
        """The same as `add`."""
        with self._lock:
            self._put(item.metadata.key, item)

    def delete(self, item: T) -> None:
        """Removes the object with this one's key, if there is one."""
        self.delete_key(item.metadata.key)

    def delete_key(self, key: str) -> None:
        """Removes the object with this key, if there is one."""
        with self._lock:
            if key in self._items:
                self._remove(key)

    def replace(self, items: Iterable[T]) -> None:
        """Makes these the contents, all at once."""
        fresh = {item.metadata.key: item for item in items}
        with self._lock:
            stay = {key: fresh[key] for key in self._items if key in fresh}
            self._replace(stay | fresh)

    def get(self, item: T) -> T | None:
        """The stored object with this one's key."""
        return self.get_by_key(item.metadata.key)

    def get_by_key(self, key: str) -> T | None:
        with self._lock:
            return self._items.get(key)

    def list(self) -> list[T]:
        """All objects, oldest key first."""
        with self._lock:
            return list(self._items.values())

    def list_keys(self) -> Keys:
        with self._lock:
            return list(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def _put(self, key: str, item: T) -> None:
        self._items[key] = item

    def _remove(self, key: str) -> None:
        del self._items[key]

    def _replace(self, fresh: dict[str, T]) -> None:
        self._items = fresh


class Indexer(Store[T]):
    """A Store that also finds objects by the values that index functions give them.

    Invariant: for each index, a key is under exactly the values its function gives for the stored object. Index
    functions run before anything is changed, so one that raises leaves the store as it was.
    """

    def __init__(self, indexers: Mapping[str, IndexFunc[T]] | None = None) -> None:
        super().__init__()
        self._functions: dict[str, IndexFunc[T]] = dict(indexers or {})
        self._indices: dict[str, Index] = {name: Index() for name in self._functions}

    def add_indexers(self, indexers: Mapping[str, IndexFunc[T]]) -> None:
        """Adds indexes, also over what is stored already. Raises ValueError for a name that is taken."""
        with self._lock:
            if taken := self._functions.keys() & indexers.keys():
                raise ValueError(f"indexer conflict: {', '.join(sorted(taken))}")
            indices = _indices(indexers, self._items)
            self._functions.update(indexers)
            self._indices.update(indices)

    def indexers(self) -> Mapping[str, IndexFunc[T]]:
        """The index functions by name."""
        with self._lock:
            return dict(self._functions)

    def by_index(self, name: str, value: str) -> list[T]:
        """The objects under a value of index `name`. Raises KeyError for an unknown index."""
        with self._lock:
            return [self._items[key] for key in self._indices[name].keys(value)]

    def _put(self, key: str, item: T) -> None:
        old = self._items.get(key)
        moves = [
            (self._indices[name], () if old is None else tuple(function(old)), tuple(function(item)))
            for name, function in self._functions.items()
        ]
        for index, before, after in moves:
            index.move(key, before, after)
        self._items[key] = item

    def _remove(self, key: str) -> None:
        item = self._items[key]
        moves = [(self._indices[name], tuple(function(item))) for name, function in self._functions.items()]
        for index, before in moves:
            index.move(key, before, ())
        del self._items[key]

    def _replace(self, fresh: dict[str, T]) -> None:
        self._indices = _indices(self._functions, fresh)
        self._items = fresh


def _indices(functions: Mapping[str, IndexFunc[T]], items: Mapping[str, T]) -> dict[str, Index]:
    """What the functions say of the items: an index for each."""
    indices = {name: Index() for name in functions}
    for name, function in functions.items():
        for key, item in items.items():
            indices[name].move(key, (), function(item))
    return indices


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
