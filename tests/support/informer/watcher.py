"""Informers against a faulty server, in simulated time.

A `Watcher` carries out what one informer asks for, through the real decoders: a coroutine that says when it wants to go
on. Several share a `FaultyServer`, which has the objects and the clock. Until `faults_until` a seed makes it drop
connections, cut events in half, send garbage, duplicates and old versions, answer 410, 429, 500 and 503, hang, forget
its history, restart and serve stale lists; and it makes the clock jump. Nothing is slept through.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Generator, Iterator
from typing import Any, ClassVar, Final, Generic

from kproxy.client.resources import Resource
from kproxy.informer import ReflectorOptions, SharedInformer
from kproxy.informer.codec import LineReader, decode_status
from kproxy.informer.objects import Status, T, WireError
from kproxy.informer.reflector import ListRequest, Wait, WatchRequest
from tests.support.fakeapi.storage import KINDS, Json, Selectors, StatusError, Storage, bookmark

Steps = Generator[float, None, None]
"""Yields the simulated time at which it wants to go on."""

REASONS: Final = {"410": "Expired", "429": "TooManyRequests", "500": "InternalError", "503": "ServiceUnavailable"}
LATENCY: Final = 0.005


class DisconnectedError(Exception):
    """The connection is gone, or silent for longer than the client waits."""


class StreamEndError(Exception):
    """The server ends a watch in good order."""


class FaultyServer:
    """`now` is the true time in seconds; clocks show `now + skew`, and jump. `writes_until` is when writes end.

    `streaming` says how it takes sendInitialEvents: does it, answers 422, sends an ERROR event, or knows nothing of it.
    """

    STREAMING: ClassVar[tuple[str, ...]] = ("yes", "refused", "ignored")
    STREAM_FAULTS: ClassVar[tuple[str, ...]] = ()
    """Further faults of open watches."""

    def __init__(self, seed: int, faults_until: float, writes_until: float, rate: float, pace: float = 1.0) -> None:
        self.random = random.Random(seed)
        self.now = self.skew = 0.0
        self.faults_until, self.writes_until, self.rate, self.pace = faults_until, writes_until, rate, pace
        self.faults: Counter[str] = Counter()
        self.storage = Storage(version=self.random.choice((1, 100, 99_990)))
        self.old_states: list[tuple[int, dict[tuple[str, str], Json]]] = []
        self.server_generation = 0
        self.streaming = self.random.choice(self.STREAMING)
        self.watchers: tuple[Watcher[Any], ...] = ()
        self.next_write = 1.0

    @property
    def clock(self) -> float:
        """What clients take for the time."""
        return self.now + self.skew

    def fault(self, *kinds: str) -> str:
        """One of these faults, or "" for none."""
        if self.now >= self.faults_until or self.random.random() >= self.rate:
            return ""
        kind = self.random.choice(kinds)
        self.faults[kind] += 1
        return kind

    def disturb(self, kind: str) -> None:
        """A fault of the world at large."""
        if kind == "jump":
            self.skew += self.random.choice((-3600.0, -5.0, 30.0, 600.0, 86400.0))
        elif kind == "compact":
            self.storage.compact()
        elif kind == "restart":
            self.storage.compact()
            self.server_generation += 1
            for watcher in self.watchers:
                watcher.poke()

    def in_step(self) -> bool:
        """Whether every informer knows what the server has."""
        return all(watcher.in_step() for watcher in self.watchers)

    def write(self) -> None:
        """A change of the objects."""
        raise NotImplementedError

    def remember(self) -> None:
        """Keeps the present state for stale lists."""
        self.old_states = [*self.old_states[-5:], (self.storage.version, dict(self.storage.objects))]

    def write_until(self, to: float) -> None:
        """The writes that are due up to a time."""
        while self.next_write <= to and self.next_write < self.writes_until:
            self.now = max(self.now, self.next_write)
            self.write()
            self.next_write = self.now + self.random.expovariate(0.5 / self.pace)
            for watcher in self.watchers:
                watcher.poke()


class Watcher(Generic[T]):
    """`wake` is when it wants to go on; `poke` lets it go on at once if it waits for events. `requests` counts requests
    by minute, but for further pages."""

    def __init__(self, world: FaultyServer, resource: Resource[T], options: ReflectorOptions) -> None:
        self.world = world
        self.resource = resource
        self.kind = next(kind for kind in KINDS if kind.qualified == resource.qualified)
        self.informer: SharedInformer[T] = SharedInformer(world.random.random, options=options)
        self.wake = 0.0
        self.requests: Counter[int] = Counter()
        self._options = options
        self._idle = False
        self._steps = self._run()

    def go_on(self) -> None:
        """Goes on until it has to wait."""
        self._idle = False
        self.wake = max(next(self._steps), self.world.now + 0.001)

    def poke(self) -> None:
        """Something was written."""
        if self._idle:
            self.wake = min(self.wake, self.world.now + LATENCY)

    def in_step(self) -> bool:
        """Whether the store equals what the server has."""
        known = {item.metadata.key: item.metadata.resource_version for item in self.informer.indexer.list()}
        return known == self.world.storage.keys(self.kind)

    def _run(self) -> Steps:
        reflector = self.informer.reflector
        while True:
            match reflector.next_action(self.world.clock):
                case Wait(seconds):
                    yield self.world.now + min(max(seconds, 0.001), 5.0)
                case ListRequest() as request:
                    self.requests[int(self.world.now // 60)] += not request.continue_token
                    yield from self._asked(self._list(request))
                case WatchRequest() as request:
                    self.requests[int(self.world.now // 60)] += 1
                    yield from self._asked(self._watch(request))

    def _asked(self, steps: Steps) -> Steps:
        """Carries out a request, and reports how it failed if it did."""
        reflector = self.informer.reflector
        yield self.world.now + LATENCY
        try:
            yield from steps
        except StatusError as error:
            retry_after = self.world.random.choice((None, 1.0, 5.0)) if error.code in (429, 503) else None
            status = decode_status(json.dumps(error.body).encode(), error.code, retry_after)
            reflector.fail(status, self.world.clock)
        except DisconnectedError:
            reflector.fail(Status(0, message="connection lost"), self.world.clock)
        except StreamEndError:
            reflector.stream_closed(self.world.clock)
        except WireError as error:
            reflector.garbage(str(error), self.world.clock)

    def _fault(self, timeout: float, *more: str) -> Generator[float, None, str]:
        """A fault that answers instead of the server happens here; others are returned."""
        kind = self.world.fault(
            "refused", "hang", "jump", "compact", "restart", "410", "429", "500", "503", "403", *more
        )
        match kind:
            case "refused":
                raise DisconnectedError
            case "hang":
                yield self.world.now + timeout
                raise DisconnectedError
            case "410" | "429" | "500" | "503" | "403":
                raise StatusError(int(kind), REASONS.get(kind, "Forbidden"), f"fault {kind}")
        self.world.disturb(kind)
        return kind

    def _list(self, request: ListRequest) -> Steps:
        kind = yield from self._fault(request.timeout, "garbage", "half", "stale")
        storage = self.world.storage
        if kind == "stale" and self.world.old_states and not request.continue_token:
            version, objects = self.world.random.choice(self.world.old_states)
            page = Storage(version=version, objects=objects).page(self.kind)
        else:
            page = storage.page(
                self.kind,
                limit=request.limit,
                continue_token=request.continue_token,
                resource_version=request.resource_version,
            )
        data = json.dumps(page).encode()
        if kind == "garbage":
            data = self.world.random.choice((b"", b"[]", b"null", b"<html>", b'{"items":[{"metadata":{}}]}'))
        elif kind == "half":
            data = data[: self.world.random.randrange(len(data))]
        self.informer.reflector.take_page(self.resource.codec.decode_list(data), self.world.clock)

    def _watch(self, request: WatchRequest) -> Steps:
        yield from self._fault(request.idle_timeout)
        queue, since = self._opened(request)
        reflector, world = self.informer.reflector, self.world
        reflector.stream_opened(world.clock)
        opened = sent = world.now
        generation, mark, idle = world.server_generation, world.now + 60.0, request.idle_timeout
        reader = LineReader()
        history: list[bytes] = []
        while True:
            if generation != world.server_generation:
                raise DisconnectedError
            if not queue:
                for change in self._changes(since):
                    since = change[0]
                    queue.append(change[1])
            if not queue and world.now >= mark:
                mark, since = world.now + 60.0, world.storage.version
                queue.append(_line(bookmark(self.kind, since)))
            if queue:
                piece = queue.pop(0)
                if b"initial-events-end" in piece:
                    idle = self._options.idle_timeout
                sent = world.now
                for data in self._spoiled(piece, history, reader):
                    if data is None:
                        yield world.now + idle
                        raise DisconnectedError
                    for line in reader.feed(data):
                        if not reflector.take_event(self.resource.codec.decode_event(line), world.clock):
                            return
                continue
            if world.now - opened >= request.timeout_seconds:
                reader.close()
                reflector.stream_closed(world.clock)
                return
            self._idle = True
            yield min(sent + idle, opened + request.timeout_seconds, mark)
            if world.now - sent >= idle:
                reflector.stream_silent(world.clock)
                return

    def _opened(self, request: WatchRequest) -> tuple[list[bytes], int]:
        storage, streaming = self.world.storage, self.world.streaming
        plain = not request.send_initial_events or streaming == "ignored"
        if request.send_initial_events and streaming == "refused":
            raise StatusError(422, "Invalid", "sendInitialEvents is forbidden")
        if request.send_initial_events and streaming == "broken":
            error = StatusError(500, "InternalError", "the required storage feature RequestWatchProgress is disabled")
            return [_line({"type": "ERROR", "object": error.body})], storage.version
        if plain and request.resource_version not in ("", "0"):
            return [], int(request.resource_version)
        queue = [_line(event) for event in storage.initial(self.kind, "", Selectors())]
        if not plain:
            queue.append(_line(bookmark(self.kind, storage.version, initial_events_end=True)))
        return queue, storage.version

    def _changes(self, since: int) -> Iterator[tuple[int, bytes]]:
        try:
            for change in self.world.storage.changes(self.kind, since):
                yield change.version, _line(change.event())
        except StatusError as error:
            yield since, _line({"type": "ERROR", "object": error.body})

    def _spoiled(self, piece: bytes, history: list[bytes], reader: LineReader) -> Iterator[bytes | None]:
        """What comes of a piece; None: silence."""
        world = self.world
        cut = world.random.randrange(len(piece))
        kinds = ("dropped", "half", "garbage", "duplicate", "old", "410", "500", "hang", "jump", "compact")
        kind = world.fault(*kinds, *world.STREAM_FAULTS)
        match kind:
            case "dropped":
                raise DisconnectedError
            case "end":
                raise StreamEndError
            case "half":
                yield piece[:cut]
                reader.close()
                raise DisconnectedError
            case "hang":
                yield piece[:cut]
                yield None
            case "garbage":
                yield world.random.choice((b"\xff\xfe\n", b"{}\n", b'{"type":"ODD","object":{}}\n', piece[cut:]))
                raise DisconnectedError
            case "duplicate" if history:
                yield world.random.choice(history[-3:]) + piece
            case "old" if history:
                yield piece + history[0]
            case "410" | "429" | "500":
                status = StatusError(int(kind), REASONS[kind], f"fault {kind}")
                yield _line({"type": "ERROR", "object": status.body})
            case _:
                world.disturb(kind)
                yield piece[:cut]
                yield piece[cut:]
        history[:] = [*history[-20:], piece]


def _line(event: Json | dict[str, Any]) -> bytes:
    return json.dumps(event, separators=(",", ":")).encode() + b"\n"
