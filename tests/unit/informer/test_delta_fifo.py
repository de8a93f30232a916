"""DeltaFIFO: order, compression, tombstones; against a model of what its consumer must end up with."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kproxy.api import Service
from kproxy.informer import DeletedFinalStateUnknown, DeltaFIFO, Store
from kproxy.informer.delta_fifo import Delta, DeltaType
from tests.support.informer.builders import service


def drain(fifo: DeltaFIFO[Service], known: Store[Service]) -> list[tuple[str, list[str]]]:
    """Consumes all, as an informer does; returns the types by key, in order."""
    seen: list[tuple[str, list[str]]] = []

    def process(key: str, deltas: list[Delta[Service]], _initial: bool) -> None:
        seen.append((key, [str(delta.type) for delta in deltas]))
        for delta in deltas:
            if delta.type is DeltaType.DELETED:
                known.delete_key(key)
            else:
                assert not isinstance(delta.object, DeletedFinalStateUnknown)
                known.update(delta.object)

    while fifo.pop(process):
        pass
    return seen


def new() -> tuple[DeltaFIFO[Service], Store[Service]]:
    known: Store[Service] = Store()
    return DeltaFIFO(known), known


def test_only_deletions_that_follow_each_other_are_compressed() -> None:
    fifo, _ = new()
    fifo.add(service("a", 1))
    fifo.update(service("a", 2))
    fifo.update(service("a", 3))
    fifo.delete(service("a", 4))
    fifo.delete(service("a", 5))
    fifo.replace([])
    found: list[Delta[Service]] = []
    fifo.pop(lambda _key, deltas, _initial: found.extend(deltas))
    assert [str(delta.type) for delta in found] == ["Added", "Updated", "Updated", "Deleted"]
    assert found[-1].object == service("a", 5), "the delete that knows the final state stays"


def test_a_relist_leaves_tombstones_for_what_is_gone() -> None:
    fifo, known = new()
    fifo.replace([service("a", 1), service("b", 1)])
    drain(fifo, known)
    fifo.update(service("c", 2))
    fifo.replace([service("a", 3)])
    assert drain(fifo, known) == [
        ("default/c", ["Updated", "Deleted"]),
        ("default/a", ["Replaced"]),
        ("default/b", ["Deleted"]),
    ]
    fifo.replace([])
    found: list[Delta[Service]] = []
    fifo.pop(lambda _key, deltas, _initial: found.extend(deltas))
    assert found == [Delta(DeltaType.DELETED, DeletedFinalStateUnknown("default/a", service("a", 3)))]


def test_has_synced_after_the_first_list_is_popped() -> None:
    fifo, known = new()
    assert not fifo.has_synced
    fifo.replace([service("a"), service("b")])
    flags: list[bool] = []
    fifo.pop(lambda key, deltas, initial: flags.append(initial))
    assert not fifo.has_synced
    fifo.add(service("c"))
    fifo.pop(lambda key, deltas, initial: flags.append(initial))
    assert fifo.has_synced
    fifo.pop(lambda key, deltas, initial: flags.append(initial))
    assert flags == [True, True, False]
    empty, _ = new()
    empty.replace([])
    assert empty.has_synced
    assert drain(fifo, known) == []


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.sampled_from("abcd")),
        st.tuples(st.just("delete"), st.sampled_from("abcd")),
        st.tuples(st.just("unseen put"), st.sampled_from("abcd")),
        st.tuples(st.just("unseen delete"), st.sampled_from("abcd")),
        st.tuples(st.just("relist"), st.just("")),
        st.tuples(st.just("drain"), st.just("")),
    ),
    max_size=40,
)


@given(STEPS)
def test_any_mix_of_events_and_relists_ends_with_the_servers_state(steps: list[tuple[str, str]]) -> None:
    fifo, known = new()
    server: dict[str, Service] = {}
    for version, (step, name) in enumerate(steps, start=1):
        item = service(name, version)
        match step:
            case "put" | "unseen put":
                fresh = name not in server
                server[name] = item
                if step == "put":
                    (fifo.add if fresh else fifo.update)(item)
            case "delete" | "unseen delete":
                gone = server.pop(name, None)
                if gone is not None and step == "delete":
                    fifo.delete(item)
            case "relist":
                fifo.replace(list(server.values()))
            case "drain":
                drain(fifo, known)
    fifo.replace(list(server.values()))
    drain(fifo, known)
    assert {item.metadata.name: item for item in known.list()} == server
