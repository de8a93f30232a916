"""Shared informers: handlers of their own, late ones; sequences that are split, repeated and relisted."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from kproxy.api import Service
from kproxy.informer import (
    DeletedFinalStateUnknown,
    Listener,
    Lister,
    SharedInformer,
    label_index_func,
    matching,
)
from tests.support.informer.builders import service


@dataclass
class Log:
    """What a handler was told, as text."""

    calls: list[str] = field(default_factory=list)

    def on_add(self, item: Service, is_in_initial_list: bool) -> None:
        self.calls.append(f"add {item.metadata.name}{' initially' if is_in_initial_list else ''}")

    def on_update(self, old: Service, new: Service) -> None:
        self.calls.append(f"update {new.metadata.name} {old.metadata.resource_version}>{new.metadata.resource_version}")

    def on_delete(self, item: Service | DeletedFinalStateUnknown[Service]) -> None:
        if isinstance(item, DeletedFinalStateUnknown):
            self.calls.append(f"delete unseen {item.key}")
        else:
            self.calls.append(f"delete {item.metadata.name}")


def informer() -> SharedInformer[Service]:
    return SharedInformer(lambda: 0.0, indexers={"app": label_index_func("app")})


def deliver(listener: Listener[Service]) -> None:
    while (notification := listener.next()) is not None:
        notification.deliver(listener.handler)
        listener.done(notification)


def test_handlers_are_called_and_the_first_list_is_marked() -> None:
    subject, log = informer(), Log()
    listener = subject.add_listener(log)
    assert not subject.listener_has_synced(listener)
    subject.replace([service("a", 1), service("b", 1)])
    assert subject.has_synced
    assert not subject.listener_has_synced(listener)
    deliver(listener)
    assert subject.listener_has_synced(listener)
    subject.add(service("c", 2))
    subject.update(service("c", 3))
    subject.delete(service("c", 4))
    subject.delete(service("c", 4))
    subject.replace([service("a", 1)])
    deliver(listener)
    assert log.calls == [
        "add a initially",
        "add b initially",
        "add c",
        "update c 2>3",
        "delete c",
        "delete unseen default/b",
    ]


def test_each_handler_has_its_own_queue() -> None:
    subject, quick, slow = informer(), Log(), Log()
    one, other = subject.add_listener(quick), subject.add_listener(slow)
    subject.replace([service("a", 1)])
    deliver(one)
    assert len(other) == 1
    assert subject.listener_has_synced(one)
    assert not subject.listener_has_synced(other)
    subject.remove_listener(other)
    subject.remove_listener(other)
    subject.update(service("a", 2))
    assert other.next() is None
    deliver(one)
    assert quick.calls == ["add a initially", "update a 1>2"]
    assert slow.calls == []
    assert not subject.listener_has_synced(other)


def test_a_relist_without_news_notifies_nobody() -> None:
    subject, log = informer(), Log()
    listener = subject.add_listener(log)
    subject.replace([service("a", 1)])
    subject.replace([service("a", 1)])
    subject.replace([service("a", 2)])
    deliver(listener)
    assert log.calls == ["add a initially", "update a 1>2"]


def test_listers_read_by_name_namespace_and_labels() -> None:
    subject = informer()
    web = {"app": "web"}
    subject.replace([service("a", labels=web), service("b"), service("a", namespace="other", labels=web)])
    lister = Lister(subject.indexer)
    assert lister.get("default/a") == service("a", labels=web)
    assert lister.get("default/z") is None
    assert [item.metadata.key for item in lister.list()] == ["default/a", "default/b", "other/a"]
    assert [item.metadata.key for item in lister.list(matching(web))] == ["default/a", "other/a"]
    default = lister.namespaced("default")
    assert default.get("b") == service("b")
    assert default.get("z") is None
    assert [item.metadata.name for item in default.list(matching(web))] == ["a"]
    assert [item.metadata.key for item in subject.indexer.by_index("app", "other/web")] == ["other/a"]


STEPS = st.lists(st.tuples(st.sampled_from(["put", "put", "delete"]), st.sampled_from("abcd")), max_size=25)
TREATMENT = st.lists(st.sampled_from(["seen", "seen", "repeated", "missed", "relist"]), min_size=25, max_size=25)


@given(STEPS, TREATMENT)
def test_any_sequence_split_repeated_missed_and_relisted_ends_alike(
    steps: list[tuple[str, str]], treatment: list[str]
) -> None:
    subject, log = informer(), Log()
    listener = subject.add_listener(log)
    server: dict[str, Service] = {}
    for version, ((step, name), how) in enumerate(zip(steps, treatment, strict=False), start=1):
        item = service(name, version)
        before = server.get(name)
        if step == "put":
            server[name] = item
        elif before is None:
            continue
        else:
            del server[name]
        for _ in range({"missed": 0, "repeated": 2}.get(how, 1)):
            if step == "delete":
                subject.delete(item)
            elif before is None:
                subject.add(item)
            else:
                subject.update(item)
        if how == "relist":
            subject.replace(list(server.values()))
    subject.replace(list(server.values()))
    deliver(listener)
    assert {item.metadata.name: item for item in subject.indexer.list()} == server
    alive: set[str] = set()
    for call in log.calls:
        verb, *rest = call.split()
        name = rest[-1].removeprefix("default/") if verb == "delete" else rest[0]
        assert (name in alive) == (verb != "add"), "adds and deletes take turns"
        (alive.discard if verb == "delete" else alive.add)(name)
    assert alive == set(server)
