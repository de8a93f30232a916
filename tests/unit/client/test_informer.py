"""The informers' driver against a real server, and the work queue for threads."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping

import pytest

from kproxy.api import Service
from kproxy.client import (
    ENDPOINT_SLICES,
    NODES,
    SERVICES,
    BlockingWorkQueue,
    ClientConfig,
    Informer,
    RestClient,
    SharedInformerFactory,
)
from kproxy.informer import ReflectorOptions, ResourceEventHandlerFuncs, label_index_func
from tests.support.fakeapi.server import FakeApiServer, Handler, kind_of
from tests.support.waiting import PATIENCE, eventually

SERVICE = kind_of("services")
PLAIN = ReflectorOptions(watch_list=False)


def put(api: FakeApiServer, name: str, port: int = 80) -> None:
    api.put("services", {"metadata": {"name": name}, "spec": {"ports": [{"port": port}]}})


def versions(informer: Informer[Service]) -> dict[str, str]:
    return {item.metadata.key: item.metadata.resource_version for item in informer.indexer.list()}


def test_a_streaming_list_may_be_silent_for_long_once_it_is_complete(client: RestClient, api: FakeApiServer) -> None:
    put(api, "a")
    informer = Informer(client, SERVICES, options=ReflectorOptions(initial_events_timeout=1.5))
    informer.start()
    assert informer.wait_for_sync(PATIENCE)
    time.sleep(2.0)
    put(api, "b")
    eventually(lambda: versions(informer) == api.storage.keys(SERVICE))
    assert informer.last_failure is None, "it is still the same stream"
    assert informer.stop()


def test_a_quiet_watch_is_no_failure_and_a_dead_server_is(
    client: RestClient, api: FakeApiServer, caplog: pytest.LogCaptureFixture
) -> None:
    """client-go's reflector says nothing of a watch without events either, whatever bookmarks the server sends."""
    deaf = threading.Event()

    def never_answer(_handler: Handler) -> bool:
        deaf.wait(20)
        return True

    def watches() -> int:
        return sum("watch=true" in request for request in api.requests)

    put(api, "a")
    informer = Informer(client, SERVICES, options=ReflectorOptions(watch_list=False, idle_timeout=1.1))
    informer.start()
    assert informer.wait_for_sync(PATIENCE)
    eventually(lambda: watches() >= 3)
    put(api, "b")
    eventually(lambda: versions(informer) == api.storage.keys(SERVICE))
    assert informer.last_failure is None
    assert not [record for record in caplog.records if record.levelname in ("WARNING", "ERROR")]
    assert sum("watch=true" not in request and "/services" in request for request in api.requests) == 1, "no list again"
    api.intercept = never_answer
    eventually(lambda: informer.last_failure is not None)
    assert "no answer" in caplog.text
    api.intercept = None
    deaf.set()
    put(api, "c")
    eventually(lambda: versions(informer) == api.storage.keys(SERVICE))
    assert informer.stop()


def test_a_handler_that_blocks_or_raises_does_not_hold_others_back(client: RestClient, api: FakeApiServer) -> None:
    informer = Informer(client, SERVICES)
    release, seen = threading.Event(), []

    def block(_item: Service, _initial: bool) -> None:
        release.wait(20)

    def fail(_item: Service, _initial: bool) -> None:
        raise RuntimeError("a handler that raises")

    informer.add_event_handler(ResourceEventHandlerFuncs(add=block))
    failing = informer.add_event_handler(ResourceEventHandlerFuncs(add=fail))
    informer.add_event_handler(ResourceEventHandlerFuncs(add=lambda item, initial: seen.append(item.metadata.name)))
    for name in ("a", "b", "c"):
        put(api, name)
    informer.start()
    eventually(lambda: seen == ["a", "b", "c"])
    assert failing.wait_for_sync(PATIENCE)
    late: list[str] = []
    joined = informer.add_event_handler(
        ResourceEventHandlerFuncs(add=lambda item, initial: late.append(item.metadata.name))
    )
    assert joined.wait_for_sync(PATIENCE)
    assert late == ["a", "b", "c"]
    joined.remove()
    put(api, "d")
    eventually(lambda: seen[-1] == "d")
    assert late[-1] == "c"
    assert not joined.has_synced
    assert not informer.stop(0.3), "one is still in its handler"
    release.set()
    assert informer.stop()


def test_an_index_function_that_raises_does_not_end_it(client: RestClient, api: FakeApiServer) -> None:
    broken = threading.Event()

    def index(item: Service) -> tuple[str, ...]:
        if broken.is_set():
            raise RuntimeError("no index")
        return ()

    informer = Informer(client, SERVICES, options=PLAIN, indexers={"broken": index})
    informer.start()
    assert informer.wait_for_sync(PATIENCE)
    eventually(lambda: api.watchers == 1)
    broken.set()
    put(api, "a")
    eventually(lambda: informer.metrics.failures == 1)
    broken.clear()
    eventually(lambda: informer.indexer.list_keys() == ["default/a"])
    assert informer.stop()


def test_stop_ends_a_call_without_an_answer_and_waits(api: FakeApiServer) -> None:
    release = threading.Event()

    def hang(handler: Handler) -> bool:
        release.wait(20)
        handler.hang_up()
        return True

    api.intercept = hang
    informer = Informer(RestClient(ClientConfig(server=api.url)), SERVICES)
    informer.start()
    eventually(lambda: len(api.requests) == 1)
    begun = time.monotonic()
    assert informer.stop()
    assert time.monotonic() - begun < 15, "and not when the server lets go, after 20 s"
    release.set()
    refused = Informer(RestClient(ClientConfig(server="http://127.0.0.1:9")), SERVICES)
    refused.start()
    eventually(lambda: refused.metrics.failures == 1)
    assert refused.stop(), "it waits for its next try"
    unstarted = Informer(RestClient(ClientConfig(server="http://127.0.0.1:9")), SERVICES)
    assert unstarted.stop()
    unstarted.start()


def test_the_factory_shares_informers(client: RestClient, api: FakeApiServer) -> None:
    put(api, "a")
    factory = SharedInformerFactory(client)
    by_app = label_index_func("app")
    services = factory.informer(SERVICES, indexers={"app": by_app})
    assert factory.informer(SERVICES, indexers={"app": by_app}) is services
    assert factory.informer(SERVICES, label_selector="a=b") is not services
    factory.informer(ENDPOINT_SLICES)
    assert factory.wait_for_cache_sync(0.0) == {"services": False, "endpointslices.discovery.k8s.io": False}
    factory.start()
    assert factory.wait_for_cache_sync(PATIENCE) == {"services": True, "endpointslices.discovery.k8s.io": True}
    assert [item.metadata.name for item in services.lister.list()] == ["a"]
    factory.informer(NODES)
    found: list[Mapping[str, bool]] = []
    waiter = threading.Thread(target=lambda: found.append(factory.wait_for_cache_sync()), daemon=True)
    waiter.start()
    waiter.join(PATIENCE)
    assert [each["nodes"] for each in found] == [False], "nobody started it, so it is not waited for"
    assert factory.shutdown()


def test_threads_are_gone_after_stop(client: RestClient, api: FakeApiServer) -> None:
    def ours() -> list[str]:
        return [thread.name for thread in threading.enumerate() if thread.name.startswith("services-")]

    informer = Informer(client, SERVICES)
    informer.add_event_handler(ResourceEventHandlerFuncs())
    informer.start()
    assert informer.wait_for_sync(PATIENCE)
    assert len(ours()) >= 2
    assert informer.stop()
    assert not ours()


def test_workers_share_a_queue_and_never_an_item() -> None:
    queue: BlockingWorkQueue[int] = BlockingWorkQueue()
    busy: set[int] = set()
    done: list[int] = []
    lock = threading.Lock()

    def work() -> None:
        while (taken := queue.get()) is not None:
            with lock:
                assert taken.item not in busy
                busy.add(taken.item)
            time.sleep(0.001)
            with lock:
                busy.discard(taken.item)
                done.append(taken.item)
            queue.forget(taken.item)
            queue.done(taken.item)

    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    for _ in range(20):
        for item in range(10):
            queue.add(item)
        time.sleep(0.001)
    queue.shut_down()
    for worker in workers:
        worker.join(PATIENCE)
        assert not worker.is_alive()
    assert set(done) == set(range(10))


def test_get_waits_for_what_comes_due() -> None:
    queue: BlockingWorkQueue[str] = BlockingWorkQueue()
    begun = time.monotonic()
    queue.add_after("later", 0.05)
    queue.add_rate_limited("sooner")
    first, second = queue.get(), queue.get()
    assert first is not None
    assert second is not None
    assert (first.item, second.item) == ("sooner", "later")
    assert time.monotonic() - begun >= 0.05
    queue.done("sooner")
    queue.done("later")
    queue.shut_down()
    assert queue.get() is None
