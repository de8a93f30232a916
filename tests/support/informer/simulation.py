"""One informer of Services with handlers against a faulty server, in simulated time: an hour takes milliseconds."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import ClassVar

from kproxy.api import Service
from kproxy.client.resources import SERVICES
from kproxy.informer import DeletedFinalStateUnknown, ReflectorOptions
from kproxy.informer.shared import Listener
from tests.support.fakeapi.storage import KINDS
from tests.support.informer.watcher import FaultyServer, Watcher

SERVICE = next(kind for kind in KINDS if kind.plural == "services")


@dataclass(slots=True)
class Recorder:
    """A handler that keeps its own picture, and checks that it is told of each object's life in order."""

    seen: dict[str, str] = field(default_factory=dict)
    deletes: Counter[str] = field(default_factory=Counter)
    calls: int = 0

    def on_add(self, item: Service, is_in_initial_list: bool) -> None:
        self.calls += 1
        assert item.metadata.key not in self.seen, "added twice"
        self.seen[item.metadata.key] = item.metadata.resource_version

    def on_update(self, old: Service, new: Service) -> None:
        self.calls += 1
        assert self.seen[new.metadata.key] == old.metadata.resource_version, "an update from another state"
        self.seen[new.metadata.key] = new.metadata.resource_version

    def on_delete(self, item: Service | DeletedFinalStateUnknown[Service]) -> None:
        self.calls += 1
        key = item.key if isinstance(item, DeletedFinalStateUnknown) else item.metadata.key
        del self.seen[key]
        self.deletes[key] += 1


class Raising:
    """A handler that always fails."""

    def on_add(self, item: Service, is_in_initial_list: bool) -> None:
        raise RuntimeError("add")

    def on_update(self, old: Service, new: Service) -> None:
        raise RuntimeError("update")

    def on_delete(self, item: Service | DeletedFinalStateUnknown[Service]) -> None:
        raise RuntimeError("delete")


class Simulation(FaultyServer):
    """A handler that is there from the start, one that comes late, and one that fails."""

    STREAMING: ClassVar[tuple[str, ...]] = (*FaultyServer.STREAMING, "broken")
    STREAM_FAULTS: ClassVar[tuple[str, ...]] = ("429", "end")

    def __init__(
        self, seed: int, *, faults_until: float = 300.0, rate: float = 0.35, writes_until: float = 330.0
    ) -> None:
        super().__init__(seed, faults_until, writes_until, rate)
        for _ in range(self.random.randrange(20)):
            self.write()
        options = ReflectorOptions(page_size=self.random.choice((2, 5, 500)), watch_list=self.random.random() < 0.7)
        self.watcher = Watcher(self, SERVICES, options)
        self.watchers = (self.watcher,)
        self.informer = self.watcher.informer
        self.recorder, self.late = Recorder(), Recorder()
        self.informer.add_listener(self.recorder)
        self.raising = self.informer.add_listener(Raising())
        self.late_listener: Listener[Service] | None = None
        self.late_at = self.random.uniform(0, faults_until)

    def run(self, until: float) -> None:
        """Goes on until this time, or a little later."""
        while self.now < until:
            if self.watcher.wake <= self.now:
                self.watcher.go_on()
            self._deliver()
            to = max(self.now, min(self.watcher.wake, self.now + 5.0))
            self.write_until(to)
            self.now = max(self.now, to)

    def _deliver(self) -> None:
        if self.late_listener is None and self.now >= self.late_at:
            self.late_listener = self.informer.add_listener(self.late)
        for listener in self.informer.listeners:
            while (notification := listener.next()) is not None:
                try:
                    notification.deliver(listener.handler)
                except RuntimeError:
                    assert listener is self.raising
                listener.done(notification)

    def write(self) -> None:
        self.remember()
        name = f"{self.random.choice(('a', 'b'))}/s{self.random.randrange(8)}"
        if (SERVICE.qualified, name) in self.storage.objects and self.random.random() < 0.45:
            self.storage.delete(SERVICE, name)
        else:
            namespace, _, bare = name.partition("/")
            port = self.random.randrange(1, 65536)
            body = {"metadata": {"name": bare, "namespace": namespace}, "spec": {"ports": [{"port": port}]}}
            self.storage.put(SERVICE, body)
