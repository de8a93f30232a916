"""A reflector and its handlers against a faulty server, in simulated time.

`Simulation` is the driver: it carries out what a SharedInformer asks for on a `Storage`, through the real decoders, and
moves the clock. Until `faults_until` a seeded `random.Random` makes the server drop connections, cut events in half,
send garbage, duplicates and old versions, answer 410, 429, 500 and 503, hang, forget its history and serve stale lists;
it makes the clock jump, and one handler raises. Nothing is slept through: an hour takes milliseconds.
"""

from __future__ import annotations

import copy
import json
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from kproxy.api import Service
from kproxy.client.resources import SERVICES
from kproxy.informer import DeletedFinalStateUnknown, ReflectorOptions, SharedInformer
from kproxy.informer.actions import ListRequest, Read, Wait, WatchRequest
from kproxy.informer.codec import LineReader, decode_status
from kproxy.informer.listener import Listener
from kproxy.informer.objects import Status, WireError
from tests.support.fakeapi.storage import KINDS, Json, Selectors, StatusError, Storage, bookmark

SERVICE = next(kind for kind in KINDS if kind.plural == "services")
STREAMING = ("yes", "refused", "broken", "ignored")
"""How a server takes sendInitialEvents: does it, answers 422, sends an ERROR event, or knows nothing of it."""

CODEC = SERVICES.codec


class DisconnectedError(Exception):
    """The connection is gone, or silent for longer than the client waits for an answer or the rest of an event."""


class SilenceError(Exception):
    """A stream was silent for longer than the client waits, between two events."""


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


@dataclass(slots=True)
class Stream:
    """A watch that is open: what the server has yet to send, and how it will end."""

    request: WatchRequest
    since: int
    opened: float
    queue: list[bytes]
    reader: LineReader = field(default_factory=LineReader)
    last_sent: float = 0.0
    next_bookmark: float = 0.0
    sent: list[bytes] = field(default_factory=list)
    hangs: bool = False


class Simulation:
    """See the module.

    `now` is the simulated time in seconds; the client's clock is `now + skew`, and jumps. `requests` has the minute of
    each request but for further pages.
    """

    def __init__(
        self, seed: int, *, faults_until: float = 300.0, fault_rate: float = 0.35, writes_until: float = 330.0
    ) -> None:
        self.random = random.Random(seed)
        self.now = 0.0
        self.skew = 0.0
        self.storage = Storage(version=self.random.choice((1, 100, 99_990)))
        self.faults_until = faults_until
        self.fault_rate = fault_rate
        self.writes_until = writes_until
        self.streaming = self.random.choice(STREAMING)
        self.requests: Counter[int] = Counter()
        self.faults: Counter[str] = Counter()
        self.old_states: list[tuple[int, dict[tuple[str, str], Json]]] = []
        for _ in range(self.random.randrange(20)):
            self._write()
        options = ReflectorOptions(page_size=self.random.choice((2, 5, 500)), watch_list=self.random.random() < 0.7)
        self.informer: SharedInformer[Service] = SharedInformer(self.random.random, options=options)
        self.recorder = Recorder()
        self.late = Recorder()
        self.listener = self.informer.add_listener(self.recorder)
        self.raising = self.informer.add_listener(Raising())
        self.late_listener: Listener[Service] | None = None
        self.late_at = self.random.uniform(0, faults_until)
        self.next_write = 1.0
        self.stream: Stream | None = None

    @property
    def clock(self) -> float:
        return self.now + self.skew

    @property
    def settled(self) -> bool:
        """Whether the store equals what the server has."""
        return store_of(self.informer) == self.storage.keys(SERVICE)

    def run(self, until: float) -> None:
        """Goes on until this time, or a little later."""
        reflector = self.informer.reflector
        while self.now < until:
            self._handlers()
            match reflector.next_action(self.clock):
                case Wait(seconds):
                    self._advance(self.now + min(max(seconds, 0.001), 5.0))
                case ListRequest() as request:
                    self._list(request)
                case WatchRequest() as request:
                    self._open(request)
                case Read():
                    self._read()

    # The driver.

    def _handlers(self) -> None:
        if self.late_listener is None and self.now >= self.late_at:
            self.late_listener = self.informer.add_listener(self.late)
        for listener in self.informer.listeners:
            while (notification := listener.next()) is not None:
                try:
                    notification.deliver(listener.handler)
                except RuntimeError:
                    assert listener is self.raising
                listener.done(notification)

    def _list(self, request: ListRequest) -> None:
        if not request.continue_token:
            self.requests[int(self.now // 60)] += 1
        self._advance(self.now + 0.005)
        reflector = self.informer.reflector
        try:
            data = self._answer_list(request)
            page = CODEC.decode_list(data)
        except StatusError as error:
            reflector.fail(self._status(error), self.clock)
        except DisconnectedError:
            reflector.fail(Status(0, message="connection lost"), self.clock)
        except WireError as error:
            reflector.garbage(str(error), self.clock)
        else:
            reflector.take_page(page, self.clock)

    def _open(self, request: WatchRequest) -> None:
        self.requests[int(self.now // 60)] += 1
        self._advance(self.now + 0.005)
        reflector = self.informer.reflector
        try:
            self.stream = self._answer_watch(request)
        except StatusError as error:
            reflector.fail(self._status(error), self.clock)
        except DisconnectedError:
            reflector.fail(Status(0, message="connection lost"), self.clock)
        else:
            reflector.stream_opened(self.clock)

    def _read(self) -> None:
        stream, reflector = self.stream, self.informer.reflector
        assert stream is not None
        try:
            for data in self._next_bytes(stream):
                for line in stream.reader.feed(data):
                    if not reflector.take_event(CODEC.decode_event(line), self.clock):
                        self.stream = None
                        return
                return
            stream.reader.close()
        except DisconnectedError:
            self.stream = None
            reflector.fail(Status(0, message="connection lost"), self.clock)
        except SilenceError:
            self.stream = None
            reflector.stream_silent(self.clock)
        except WireError as error:
            self.stream = None
            reflector.garbage(str(error), self.clock)
        else:
            self.stream = None
            reflector.stream_closed(self.clock)

    def _status(self, error: StatusError) -> Status:
        retry_after = self.random.choice((None, 1.0, 5.0)) if error.code in (429, 503) else None
        return decode_status(json.dumps(error.body).encode(), error.code, retry_after)

    # The server.

    def _advance(self, to: float) -> None:
        while self.next_write <= to and self.next_write < self.writes_until:
            self.now = self.next_write
            self._write()
            self.next_write = self.now + self.random.expovariate(0.5)
        self.now = max(self.now, to)

    def _write(self) -> None:
        name = f"{self.random.choice(('a', 'b'))}/s{self.random.randrange(8)}"
        self.old_states = [*self.old_states[-5:], (self.storage.version, dict(self.storage.objects))]
        if (SERVICE.qualified, name) in self.storage.objects and self.random.random() < 0.45:
            self.storage.delete(SERVICE, name)
        else:
            namespace, _, bare = name.partition("/")
            port = self.random.randrange(1, 65536)
            body = {"metadata": {"name": bare, "namespace": namespace}, "spec": {"ports": [{"port": port}]}}
            self.storage.put(SERVICE, body)

    def _fault(self, *kinds: str) -> str:
        """One of these faults, or "" for none."""
        if self.now >= self.faults_until or self.random.random() >= self.fault_rate:
            return ""
        kind = self.random.choice(kinds)
        self.faults[kind] += 1
        return kind

    def _refuse(self, kind: str, timeout: float) -> None:
        """Carries out a fault that answers instead of the server."""
        match kind:
            case "refused" | "dropped":
                raise DisconnectedError
            case "hang":
                self._advance(self.now + timeout)
                raise DisconnectedError
            case "jump":
                self.skew += self.random.choice((-3600.0, -5.0, 30.0, 600.0, 86400.0))
            case "compact":
                self.storage.compact()
            case "410" | "429" | "500" | "503" | "403":
                reasons = {"410": "Expired", "429": "TooManyRequests", "500": "InternalError"}
                raise StatusError(int(kind), reasons.get(kind, "ServiceUnavailable"), f"fault {kind}")

    def _answer_list(self, request: ListRequest) -> bytes:
        kind = self._fault(
            "refused", "hang", "jump", "compact", "410", "429", "500", "503", "403", "garbage", "half", "stale"
        )
        self._refuse(kind, request.timeout)
        if kind == "stale" and self.old_states and not request.continue_token:
            version, objects = self.random.choice(self.old_states)
            page = Storage(version=version, objects=objects).page(SERVICE)
        else:
            page = self.storage.page(
                SERVICE,
                limit=request.limit,
                continue_token=request.continue_token,
                resource_version=request.resource_version,
            )
        data = json.dumps(page).encode()
        if kind == "garbage":
            return self.random.choice((b"", b"[]", b"null", b"<html>", b'{"items":[{"metadata":{}}]}', b'{"items":7}'))
        return data[: self.random.randrange(len(data))] if kind == "half" else data

    def _answer_watch(self, request: WatchRequest) -> Stream:
        kind = self._fault("refused", "hang", "jump", "compact", "410", "429", "500", "503", "403")
        self._refuse(kind, request.idle_timeout)
        queue: list[bytes] = []
        since = self.storage.version
        plain = not request.send_initial_events or self.streaming == "ignored"
        if request.send_initial_events and self.streaming == "refused":
            raise StatusError(422, "Invalid", "sendInitialEvents is forbidden")
        if request.send_initial_events and self.streaming == "broken":
            error = StatusError(500, "InternalError", "the required storage feature RequestWatchProgress is disabled")
            queue = [_line({"type": "ERROR", "object": error.body})]
        elif not plain or request.resource_version in ("", "0"):
            queue = [_line(event) for event in self.storage.initial(SERVICE, "", Selectors())]
            if not plain:
                queue.append(_line(bookmark(SERVICE, since, initial_events_end=True)))
        else:
            since = int(request.resource_version)
        return Stream(request, since, self.now, queue, last_sent=self.now, next_bookmark=self.now + 60)

    def _next_bytes(self, stream: Stream) -> Iterator[bytes]:
        """One piece of the stream, or none at its orderly end."""
        if not stream.queue and not stream.hangs:
            self._refill(stream)
        if stream.queue and not stream.hangs:
            if self.now - stream.opened > stream.request.total_timeout:
                raise DisconnectedError
            kind = self._fault(
                "dropped", "half", "garbage", "duplicate", "old", "410", "429", "500", "end", "hang", "jump", "compact"
            )
            piece = stream.queue.pop(0)
            yield from self._spoiled(stream, kind, piece)
            return
        if not stream.hangs and self.now - stream.opened >= stream.request.timeout_seconds:
            return
        until = min(
            stream.last_sent + stream.request.idle_timeout,
            stream.opened + stream.request.total_timeout,
            self.now + 5.0,
        )
        self._advance(max(until, self.now + 0.01))
        if self.now - stream.last_sent >= stream.request.idle_timeout:
            raise DisconnectedError if stream.reader.inside_event else SilenceError
        yield b""

    def _refill(self, stream: Stream) -> None:
        try:
            changes = self.storage.changes(SERVICE, stream.since)
        except StatusError as error:
            stream.queue.append(_line({"type": "ERROR", "object": error.body}))
            return
        for change in changes:
            stream.since = change.version
            stream.queue.append(_line(change.event()))
        if not changes and self.now >= stream.next_bookmark:
            stream.next_bookmark = self.now + 60
            stream.queue.append(_line(bookmark(SERVICE, self.storage.version)))
            stream.since = self.storage.version

    def _spoiled(self, stream: Stream, kind: str, piece: bytes) -> Iterator[bytes]:
        cut = self.random.randrange(len(piece))
        match kind:
            case "dropped":
                raise DisconnectedError
            case "end":
                return
            case "hang":
                stream.hangs = True
                piece = piece[:cut]
            case "half":
                for _ in stream.reader.feed(piece[:cut]):
                    pass
                return
            case "garbage":
                piece = self.random.choice((b"\xff\xfe\n", b"{}\n", b'{"type":"ODD","object":{}}\n', piece[cut:]))
            case "duplicate" if stream.sent:
                piece = self.random.choice(stream.sent[-3:]) + piece
            case "old" if stream.sent:
                piece = piece + stream.sent[0]
            case "410" | "429" | "500":
                error = StatusError(int(kind), {"410": "Expired"}.get(kind, ""), f"fault {kind}")
                piece = _line({"type": "ERROR", "object": error.body})
            case "jump" | "compact":
                self._refuse(kind, 0.0)
        if kind in ("", "duplicate", "jump", "compact"):
            stream.sent = [*stream.sent[-20:], piece]
        stream.last_sent = self.now
        if kind == "" and len(piece) > 1 and self.random.random() < 0.3:
            # Cut anywhere: the rest comes with the next read.
            stream.queue.insert(0, piece[cut:])
            piece = piece[:cut]
            stream.sent = []
        yield piece


def _line(event: Json) -> bytes:
    return json.dumps(copy.deepcopy(event), separators=(",", ":")).encode() + b"\n"


def store_of(informer: SharedInformer[Service]) -> dict[str, str]:
    """resourceVersion by key, as `Storage.keys`."""
    return {item.metadata.key: item.metadata.resource_version for item in informer.indexer.list()}
