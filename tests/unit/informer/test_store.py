"""Store and Indexer against dicts."""

from __future__ import annotations

import threading

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from kproxy.api import Service
from kproxy.informer import Indexer, Store, label_index_func
from kproxy.informer.store import NAMESPACE_INDEX, meta_namespace_index_func
from tests.support.informer.builders import service

NAMES = st.sampled_from(["a", "b", "c", "d"])
NAMESPACES = st.sampled_from(["x", "y"])
APPS = st.sampled_from([None, "web", "db"])


def keys(indexer: Indexer[Service], index: str, value: str) -> set[str]:
    return {item.metadata.key for item in indexer.by_index(index, value)}


class IndexerModel(RuleBasedStateMachine):
    """Any calls leave the indexer equal to a dict, and each index equal to a search of it."""

    def __init__(self) -> None:
        super().__init__()
        self.model: dict[str, Service] = {}
        self.indexer: Indexer[Service] = Indexer({NAMESPACE_INDEX: meta_namespace_index_func})
        self.indexer.add_indexers({"app": label_index_func("app")})
        self.version = 0

    def make(self, name: str, namespace: str, app: str | None) -> Service:
        self.version += 1
        return service(name, self.version, namespace, {"app": app} if app else None)

    @rule(name=NAMES, namespace=NAMESPACES, app=APPS, as_update=st.booleans())
    def put(self, name: str, namespace: str, app: str | None, as_update: bool) -> None:
        item = self.make(name, namespace, app)
        (self.indexer.update if as_update else self.indexer.add)(item)
        self.model[item.metadata.key] = item

    @rule(name=NAMES, namespace=NAMESPACES)
    def delete(self, name: str, namespace: str) -> None:
        self.indexer.delete(service(name, 1, namespace))
        self.model.pop(f"{namespace}/{name}", None)

    @rule(wanted=st.lists(st.tuples(NAMES, NAMESPACES, APPS), max_size=5))
    def replace(self, wanted: list[tuple[str, str, str | None]]) -> None:
        items = [self.make(*one) for one in wanted]
        self.indexer.replace(items)
        self.model = {item.metadata.key: item for item in items}

    @rule()
    def late_index(self) -> None:
        late: Indexer[Service] = Indexer()
        late.replace(self.indexer.list())
        late.add_indexers({"app": label_index_func("app")})
        for value in ("x/web", "x/db", "y/web", "y/db"):
            assert keys(late, "app", value) == keys(self.indexer, "app", value)

    @invariant()
    def equals_the_model(self) -> None:
        assert {item.metadata.key: item for item in self.indexer.list()} == self.model
        assert set(self.indexer.list_keys()) == set(self.model)
        for namespace in ("x", "y"):
            expected = {key for key in self.model if key.startswith(f"{namespace}/")}
            assert keys(self.indexer, NAMESPACE_INDEX, namespace) == expected
            for app in ("web", "db"):
                found = {item.metadata.name for item in self.indexer.by_index("app", f"{namespace}/{app}")}
                assert found == {
                    item.metadata.name
                    for item in self.model.values()
                    if item.metadata.namespace == namespace and item.metadata.labels.get("app") == app
                }


TestIndexer = IndexerModel.TestCase


def test_objects_by_the_values_of_an_index() -> None:
    indexer: Indexer[Service] = Indexer({"namespace": meta_namespace_index_func})
    a, b, c = service("a"), service("b"), service("c", namespace="other")
    indexer.replace([a, b, c])
    assert indexer.by_index("namespace", "default") == [a, b]
    assert indexer.get(service("a", 9)) is a
    assert indexer.get_by_key("default/nosuch") is None
    with pytest.raises(KeyError):
        indexer.by_index("nosuch", "x")
    with pytest.raises(ValueError, match="indexer conflict: namespace"):
        indexer.add_indexers({"namespace": meta_namespace_index_func})


def test_an_index_function_that_raises_changes_nothing() -> None:
    def picky(item: Service) -> tuple[str, ...]:
        if item.metadata.name == "bad":
            raise RuntimeError("no index")
        return ("all",)

    indexer: Indexer[Service] = Indexer({"namespace": meta_namespace_index_func, "picky": picky})
    indexer.add(service("a"))
    with pytest.raises(RuntimeError):
        indexer.add(service("bad"))
    with pytest.raises(RuntimeError):
        indexer.replace([service("b"), service("bad")])
    assert set(indexer.list_keys()) == keys(indexer, "namespace", "default") == {"default/a"}
    assert keys(indexer, "picky", "all") == {"default/a"}


def test_new_indexes_come_all_or_none() -> None:
    def broken(item: Service) -> tuple[str, ...]:
        raise RuntimeError("no index")

    indexer: Indexer[Service] = Indexer()
    indexer.add(service("a"))
    with pytest.raises(RuntimeError):
        indexer.add_indexers({"namespace": meta_namespace_index_func, "broken": broken})
    assert not indexer.indexers()
    indexer.add_indexers({"namespace": meta_namespace_index_func})
    assert keys(indexer, "namespace", "default") == {"default/a"}


def test_replace_keeps_what_stays_in_its_place() -> None:
    store: Store[Service] = Store()
    store.replace([service("a"), service("b"), service("c")])
    store.replace([service("d"), service("c", 2), service("a")])
    assert store.list_keys() == ["default/a", "default/c", "default/d"]
    kept = store.get_by_key("default/c")
    assert kept is not None
    assert kept.metadata.resource_version == "2"


def test_threads_may_write_and_read_at_once() -> None:
    store: Store[Service] = Store()
    errors: list[Exception] = []

    def work(number: int) -> None:
        try:
            for version in range(200):
                store.add(service(f"s{number}", version))
                store.list()
                if version % 3 == 0:
                    store.delete_key(f"default/s{number}")
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert {item.metadata.resource_version for item in store.list()} == {"199"}
