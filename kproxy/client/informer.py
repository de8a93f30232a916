"""The informers' driver: threads that carry out what a SharedInformer asks for, and call its handlers; and
SharedInformerFactory: one informer per resource and selector, shared by all that ask for it.

One thread per informer lists, watches and feeds; one thread per handler calls it. Everything decided is decided in
`kproxy.informer`; here are only the clock, the random numbers, the server and the waiting. Whatever goes wrong, in the
server's answers or in a handler, is logged and goes on.

Beside it the work queue for threads: `kproxy.informer.WorkQueue` with a lock, a clock and waiting.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Generic, cast

from kproxy.client.errors import CancelledError, SilenceError
from kproxy.client.http import Call
from kproxy.client.resources import Resource
from kproxy.client.rest import RestClient, failure_status
from kproxy.errors import KproxyError
from kproxy.informer.objects import Status, T, WatchEvent, WireError
from kproxy.informer.ratelimit import ItemT, RateLimiter
from kproxy.informer.reflector import ListRequest, Phase, ReflectorMetrics, ReflectorOptions, Stop, Wait, WatchRequest
from kproxy.informer.shared import Listener, Notification, ResourceEventHandler, SharedInformer
from kproxy.informer.store import Indexer, IndexFunc, Lister
from kproxy.informer.workqueue import Work, WorkQueue

log = logging.getLogger(__name__)

BATCH = 256
"""Notifications that a handler's thread takes at a time."""


class Registration(Generic[T]):
    """A handler's place at an informer."""

    def __init__(self, informer: Informer[T], listener: Listener[T]) -> None:
        self._informer = informer
        self._listener = listener

    @property
    def has_synced(self) -> bool:
        """Whether the handler has been called for everything of the first list."""
        return self._informer.listener_has_synced(self._listener)

    def wait_for_sync(self, timeout: float | None = None) -> bool:
        """Waits for that; False after `timeout` seconds, or if the informer stops before."""
        return self._informer.wait(lambda: self.has_synced, timeout)

    def remove(self) -> None:
        """The handler is not called again, once the call under way has returned."""
        self._informer.remove_event_handler(self._listener)


class Informer(Generic[T]):
    """Keeps an indexer equal to what the server has, and tells handlers.

    Args:
        client, resource, namespace, label_selector, field_selector: what to list and watch; "" is all.
        indexers: index functions beside the namespace index.
        options: how to list and watch.
        clock, rng: seconds of a clock that never goes back, and random floats in [0, 1); for tests.
    """

    def __init__(
        self,
        client: RestClient,
        resource: Resource[T],
        *,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        indexers: Mapping[str, IndexFunc[T]] | None = None,
        options: ReflectorOptions | None = None,
        clock: Callable[[], float] = time.monotonic,
        rng: Callable[[], float] = random.random,
    ) -> None:
        self.resource = resource
        self._client = client
        self._namespace = namespace
        self._selectors = (label_selector, field_selector)
        self._clock = clock
        self._state: SharedInformer[T] = SharedInformer(rng, indexers=indexers, options=options)
        # Guards the state, the listeners and the fields below; notified of every change of them.
        self._changed = threading.Condition()
        self._stopped = False
        self._started = False
        self._call = Call()
        self._threads: list[threading.Thread] = []

    @property
    def indexer(self) -> Indexer[T]:
        """What is known; read it from any thread, and do not write."""
        return self._state.indexer

    @property
    def lister(self) -> Lister[T]:
        return Lister(self._state.indexer)

    @property
    def has_synced(self) -> bool:
        """Whether the indexer holds everything of a first full list."""
        return self._state.has_synced

    @property
    def started(self) -> bool:
        """Whether `start` was called."""
        return self._started

    @property
    def metrics(self) -> ReflectorMetrics:
        """Counters of requests, events and failures."""
        return self._state.reflector.metrics

    @property
    def last_failure(self) -> Status | None:
        """The last thing that went wrong with the server; it stays after a success."""
        return self._state.reflector.last_failure

    @property
    def last_sync_resource_version(self) -> str:
        return self._state.reflector.last_sync_resource_version

    def add_event_handler(self, handler: ResourceEventHandler[T]) -> Registration[T]:
        """Adds a handler, at any time; what is known comes to it as adds. Its calls come from a thread of its own."""
        with self._changed:
            listener = self._state.add_listener(handler)
            self._spawn(f"{self.resource.plural}-handler", lambda: self._run_handler(listener))
            self._changed.notify_all()
        return Registration(self, listener)

    def remove_event_handler(self, listener: Listener[T]) -> None:
        """What Registration.remove does."""
        with self._changed:
            self._state.remove_listener(listener)
            self._changed.notify_all()

    def listener_has_synced(self, listener: Listener[T]) -> bool:
        """What Registration.has_synced says."""
        with self._changed:
            return self._state.listener_has_synced(listener)

    def start(self) -> None:
        """Begins to list and watch. Twice does no harm; a stopped informer does not start again."""
        with self._changed:
            if not self._started and not self._stopped:
                self._started = True
                self._spawn(f"{self.resource.plural}-reflector", self._run_reflector)

    def stop(self, timeout: float = 5.0) -> bool:
        """Ends all threads, a watch that waits included; False if one, in a handler, takes longer than `timeout`."""
        with self._changed:
            self._stopped = True
            self._state.reflector.stop()
            for listener in list(self._state.listeners):
                self._state.remove_listener(listener)
            self._call.cancel()
            self._changed.notify_all()
            threads = [thread for thread in self._threads if thread is not threading.current_thread()]
        until = time.monotonic() + timeout
        for thread in threads:
            thread.join(max(0.0, until - time.monotonic()))
        return not any(thread.is_alive() for thread in threads)

    def wait_for_sync(self, timeout: float | None = None) -> bool:
        """Waits until `has_synced`; False after `timeout` seconds, or if the informer stops before."""
        return self.wait(lambda: self._state.has_synced, timeout)

    def wait(self, reached: Callable[[], bool], timeout: float | None) -> bool:
        """Waits for a condition of this informer, which is looked at again after every change."""
        with self._changed:
            self._changed.wait_for(lambda: reached() or self._stopped, timeout)
            return reached()

    def _spawn(self, name: str, run: Callable[[], None]) -> None:
        if self._stopped:
            return
        self._threads = [thread for thread in self._threads if thread.is_alive() or thread.ident is None]
        thread = threading.Thread(target=run, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _run_reflector(self) -> None:
        reflector = self._state.reflector
        while True:
            with self._changed:
                action = reflector.next_action(self._clock())
                if isinstance(action, Stop) or self._stopped:
                    return
                if isinstance(action, Wait):
                    self._changed.wait_for(lambda: self._stopped, action.seconds)
                    continue
                self._call = call = Call()
            try:
                match action:
                    case ListRequest():
                        self._list(action, call)
                    case WatchRequest():
                        self._watch(action, call)
            except CancelledError:
                continue
            except WireError as error:
                self._failed(Status(0, message=str(error)), lost_events=True)
            except KproxyError as error:
                self._failed(failure_status(error), lost_events=False)
            except Exception as error:
                # An index function that raises: what it was called for is lost, so a list must follow.
                log.exception("%s: internal error", self.resource.qualified)
                self._failed(Status(0, message=f"internal: {error!r}"), lost_events=True)

    def _failed(self, status: Status, lost_events: bool) -> None:
        with self._changed:
            if self._stopped:
                return
            reflector = self._state.reflector
            if lost_events:
                reflector.garbage(status.message, self._clock())
            else:
                reflector.fail(status, self._clock())
            self._changed.notify_all()
        log.warning("%s: list or watch failed: %s", self.resource.qualified, status)

    def _list(self, request: ListRequest, call: Call) -> None:
        labels, fields = self._selectors
        page = self._client.list_page(
            self.resource,
            self._namespace,
            limit=request.limit,
            continue_token=request.continue_token,
            resource_version=request.resource_version,
            label_selector=labels,
            field_selector=fields,
            timeout=request.timeout,
            call=call,
        )
        with self._changed:
            self._state.reflector.take_page(page, self._clock())
            self._changed.notify_all()

    def _watch(self, request: WatchRequest, call: Call) -> None:
        labels, fields = self._selectors
        stream = self._client.watch(
            self.resource,
            self._namespace,
            resource_version=request.resource_version,
            label_selector=labels,
            field_selector=fields,
            timeout_seconds=request.timeout_seconds,
            send_initial_events=request.send_initial_events,
            idle_timeout=request.idle_timeout,
            total_timeout=request.total_timeout,
            call=call,
        )
        reflector = self._state.reflector
        with stream:
            with self._changed:
                reflector.stream_opened(self._clock())
            try:
                for batch in stream.batches():
                    if not self._take(batch):
                        return
                    if any(event.initial_events_end for event in batch):
                        # Only the initial list comes in one go; what follows are changes, and a bookmark now and then.
                        stream.set_idle_timeout(reflector.options.idle_timeout)
            except SilenceError as error:
                if reflector.phase is not Phase.STREAM:
                    raise
                log.debug("%s: the watch is quiet, it begins again: %s", self.resource.qualified, error)
                with self._changed:
                    reflector.stream_silent(self._clock())
                return
        with self._changed:
            reflector.stream_closed(self._clock())

    def _take(self, batch: list[WatchEvent[T]]) -> bool:
        """Events that came together; False: read no further."""
        with self._changed:
            now = self._clock()
            more = all(self._state.reflector.take_event(event, now) for event in batch)
            self._changed.notify_all()
        return more

    def _run_handler(self, listener: Listener[T]) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: len(listener) > 0 or listener.removed or self._stopped)
                if listener.removed or self._stopped:
                    return
                batch: list[Notification[T]] = []
                while len(batch) < BATCH and (notification := listener.next()) is not None:
                    batch.append(notification)
            for notification in batch:
                if listener.removed:
                    return
                try:
                    notification.deliver(listener.handler)
                except Exception:
                    log.exception("%s: a handler raised; it gets the next notification", self.resource.qualified)
            with self._changed:
                for notification in batch:
                    listener.done(notification)
                if listener.initial_list_handled:
                    self._changed.notify_all()


_Key = tuple[str, str, str, str]


class SharedInformerFactory:
    """Makes and runs informers, as client-go's; `namespace` "" is all."""

    def __init__(self, client: RestClient, *, namespace: str = "", options: ReflectorOptions | None = None) -> None:
        self._client = client
        self._namespace = namespace
        self._options = options
        self._informers: dict[_Key, Informer[Any]] = {}

    def informer(
        self,
        resource: Resource[T],
        *,
        label_selector: str = "",
        field_selector: str = "",
        indexers: Mapping[str, IndexFunc[T]] | None = None,
    ) -> Informer[T]:
        """The informer of a resource with these selectors, made at the first call; `indexers` are added to it."""
        key = (resource.group_version, resource.plural, label_selector, field_selector)
        found = cast("Informer[T] | None", self._informers.get(key))
        if found is None:
            found = Informer(
                self._client,
                resource,
                namespace=self._namespace,
                label_selector=label_selector,
                field_selector=field_selector,
                options=self._options,
            )
            self._informers[key] = found
        known = found.indexer.indexers()
        found.indexer.add_indexers({name: do for name, do in (indexers or {}).items() if known.get(name) is not do})
        return found

    def start(self) -> None:
        """Starts the informers that do not run yet."""
        for informer in self._informers.values():
            informer.start()

    def wait_for_cache_sync(
        self, timeout: float | None = None, clock: Callable[[], float] = time.monotonic
    ) -> Mapping[str, bool]:
        """Waits until all that were started have synced, at most `timeout` seconds; says which have, by resource.

        Nothing is waited for that was made since `start` was last called, as in client-go: it says False.
        """
        until = None if timeout is None else clock() + timeout
        synced: dict[str, bool] = {}
        for informer in self._informers.values():
            left = None if until is None else max(0.0, until - clock())
            done = informer.started and informer.wait_for_sync(left)
            synced[informer.resource.qualified] = done and synced.get(informer.resource.qualified, True)
        return synced

    def shutdown(self, timeout: float = 5.0) -> bool:
        """Stops all; False if a thread is still in a handler after `timeout` seconds each."""
        stopped = [informer.stop(timeout) for informer in self._informers.values()]
        return all(stopped)


class BlockingWorkQueue(Generic[ItemT]):
    """See WorkQueue; `get` waits. Any number of workers may share it."""

    def __init__(self, limiter: RateLimiter[ItemT] | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._state: WorkQueue[ItemT] = WorkQueue(limiter)
        self._clock = clock
        self._changed = threading.Condition()

    def add(self, item: ItemT) -> None:
        with self._changed:
            self._state.add(item, self._clock())
            self._changed.notify_all()

    def add_after(self, item: ItemT, delay: float) -> None:
        """Adds the item `delay` seconds from now."""
        with self._changed:
            self._state.add_after(item, delay, self._clock())
            self._changed.notify_all()

    def add_rate_limited(self, item: ItemT) -> None:
        with self._changed:
            self._state.add_rate_limited(item, self._clock())
            self._changed.notify_all()

    def forget(self, item: ItemT) -> None:
        with self._changed:
            self._state.forget(item)

    def get(self) -> Work[ItemT] | None:
        """The next item; `done` must follow. None once the queue is shut down and empty."""
        with self._changed:
            while True:
                now = self._clock()
                if (work := self._state.get(now)) is not None:
                    return work
                if self._state.is_finished:
                    return None
                self._changed.wait(self._state.next_ready(now))

    def done(self, item: ItemT) -> None:
        with self._changed:
            self._state.done(item, self._clock())
            self._changed.notify_all()

    def shut_down(self) -> None:
        """Takes nothing more in; workers get what is left, then None."""
        with self._changed:
            self._state.shut_down()
            self._changed.notify_all()
