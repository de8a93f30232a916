"""Reflector: keeps a queue equal to what a server holds, by LIST and WATCH; a state machine without I/O.

client-go's tools/cache/reflector.go. Its driver calls `next_action`, carries the action out, and reports the result:

    phase        action            what comes                                then
    LIST         ListRequest       page with continue                        LIST, next page
                                   last page                                 sink.replace, WATCH
                                   continue token expired                    LIST again whole, at once
                                   version expired or too large              LIST of the newest, at once
                                   any other failure                         LIST from the start after back-off
    WATCH_LIST   WatchRequest      events up to the bookmark that ends them  sink.replace, STREAM
                                   no answer, 429                            WATCH_LIST after back-off
                                   version expired or too large              WATCH_LIST of the newest after back-off
                                   anything else                             LIST at once, no WATCH_LIST for a while
    WATCH        WatchRequest      stream opens                              STREAM
                                   no answer, 429                            WATCH after back-off
                                   anything else, 410 too                    LIST after back-off
    STREAM       (reads)           ADDED, MODIFIED, DELETED, BOOKMARK        sink.add, update, delete; version noted
                                   an event older than what came before      LIST of the newest after back-off
                                   end after a second or more                WATCH at once
                                   earlier end, with events                  WATCH, a second after the last one began
                                   earlier end, without                      LIST after back-off
                                   silence                                   WATCH at once
                                   connection lost, 429                      WATCH after back-off
                                   garbage, 410, any other ERROR event       LIST after back-off

So every cycle contains a back-off or lasts a second: nothing here can loop without a pause. A failure never moves the
noted version forward, and nothing is taken from the sink but by an event or a full list.

Beyond client-go: versions are compared where both are numbers. An event, bookmark or list older than what was already
seen means a replayed stream, a stale replica or a restored server; the answer is a list of the newest state.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, Generic, Protocol, TypeVar

from kproxy.informer.objects import EventType, KubernetesObject, ListPage, Status, T, WatchEvent, version_number
from kproxy.informer.ratelimit import BackoffManager, Random


@dataclass(frozen=True, slots=True)
class ReflectorOptions:
    """How to list and watch. Times in seconds.

    `min_watch_timeout` is client-go's: the server is asked to end each watch after it times a random factor in [1, 2).
    `list_timeout` is how long the answer to a LIST may be silent. A watch that was silent for `idle_timeout` is begun
    again on another connection. That is no failure: kube-apiserver sends a bookmark about every minute, others may have
    nothing to say for longer. client-go asks the same connection instead, by HTTP/2's pings.
    `initial_events_timeout` is how long a streaming initial list may be silent before plain LIST is tried, for servers
    that ignore the option. `watch_list_pause` is how long WATCH_LIST is not tried again after it failed.
    """

    page_size: int = 500
    watch_list: bool = True
    min_watch_timeout: float = 300.0
    list_timeout: float = 60.0
    idle_timeout: float = 180.0
    initial_events_timeout: float = 10.0
    watch_list_pause: float = 600.0


@dataclass(frozen=True, slots=True)
class ListRequest:
    """LIST one page. `limit` 0 is no limit; `timeout`: seconds of silence after which it has failed."""

    resource_version: str
    limit: int
    continue_token: str
    timeout: float


@dataclass(frozen=True, slots=True)
class WatchRequest:
    """WATCH with bookmarks.

    `timeout_seconds` goes to the server. After `idle_timeout` seconds of silence the driver closes the stream and
    reports `stream_silent`; `total_timeout` seconds after the start it gives up whatever comes, and reports a failure.
    """

    resource_version: str
    send_initial_events: bool
    timeout_seconds: int
    idle_timeout: float
    total_timeout: float


@dataclass(frozen=True, slots=True)
class Wait:
    """Do nothing for `seconds`, then ask again; asking earlier does no harm."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Read:
    """A stream is open: report what it brings."""


@dataclass(frozen=True, slots=True)
class Stop:
    """`stop` was called: close what is open and leave."""


Action = ListRequest | WatchRequest | Wait | Read | Stop


SunkT = TypeVar("SunkT", bound=KubernetesObject, contravariant=True)

SHORT_WATCH: Final = 1.0
"""A watch that ends within so many seconds is not started again at once."""

LONGEST_RETRY_AFTER: Final = 300.0
"""A server's Retry-After counts up to so many seconds."""


class Phase(Enum):
    """What the reflector is about; see the table of the module."""

    LIST = "list"
    WATCH_LIST = "watch-list"
    WATCH = "watch"
    STREAM = "stream"
    STOPPED = "stopped"


class Sink(Protocol[SunkT]):
    """Where the reflector puts what it learns: a DeltaFIFO, or what stands before it."""

    def add(self, item: SunkT) -> None: ...

    def update(self, item: SunkT) -> None: ...

    def delete(self, item: SunkT) -> None: ...

    def replace(self, items: Sequence[SunkT]) -> None: ...


@dataclass(slots=True)
class ReflectorMetrics:
    """Counters since the start. `watches` counts streams that opened; `stale` events older than what was seen."""

    lists: int = 0
    pages: int = 0
    watches: int = 0
    events: int = 0
    short_watches: int = 0
    failures: int = 0
    stale: int = 0


class Reflector(Generic[T]):
    """See the module.

    Invariants: `_pages` and `_continue` are about the list under way and empty outside LIST. `_initial` is the
    streaming list under way, and None outside it. `last_sync_resource_version` is a version from which a watch misses
    nothing that the sink has not got.
    """

    def __init__(self, sink: Sink[T], random: Random, options: ReflectorOptions | None = None) -> None:
        self.options = options or ReflectorOptions()
        self.metrics = ReflectorMetrics()
        self.last_sync_resource_version = ""
        self.last_failure: Status | None = None
        self._sink = sink
        self._random = random
        self._backoff = BackoffManager(random)
        self._phase = Phase.WATCH_LIST if self.options.watch_list else Phase.LIST
        self._want_newest = False
        self._paginated = False
        self._pages: list[T] = []
        self._list_version = ""
        self._continue = ""
        self._whole = False
        self._initial: dict[str, T] | None = None
        self._watch_list_from: float | None = None if self.options.watch_list else float("inf")
        self._waiting_since = 0.0
        self._wait = 0.0
        self._began = 0.0
        self._stream_events = 0

    @property
    def phase(self) -> Phase:
        return self._phase

    def stop(self) -> None:
        """Ends it: from now on every action is Stop and reports are ignored."""
        self._phase = Phase.STOPPED

    def next_action(self, now: float) -> Action:
        """What to do at `now`. The same until something is reported or time passes."""
        if self._phase is Phase.STOPPED:
            return Stop()
        if self._phase is Phase.STREAM or self._initial is not None:
            return Read()
        if self._wait:
            # A clock that goes back would make the wait longer than was meant; then it begins anew.
            if now < self._waiting_since:
                self._waiting_since = now
            if (left := self._waiting_since + self._wait - now) > 0:
                return Wait(left)
            self._wait = 0.0
        if self._phase is Phase.LIST:
            return self._list_request()
        return self._watch_request(now)

    def take_page(self, page: ListPage[T], now: float) -> None:
        """The answer to a ListRequest."""
        if self._phase is not Phase.LIST:
            return
        self.metrics.pages += 1
        if not page.resource_version or (page.continue_token and page.continue_token == self._continue):
            self._list_failed(Status(0, message="the list has no resourceVersion, or its pages do not end"), now)
            return
        if not self._continue:
            self._list_version = page.resource_version
        if page.continue_token:
            if self._requested_version() == "0":
                self._paginated = True  # served from storage: it keeps to limits
            self._pages.extend(page.items)
            self._continue = page.continue_token
            return
        items = [*self._pages, *page.items]
        self._pages = []
        version = self._list_version
        if self._is_stale(version) and not self._want_newest:
            self.metrics.stale += 1
            self._restart_list()
            self._want_newest = True
            self._back_off(now)
            return
        self._synced(items, version)
        self._phase = Phase.WATCH

    def stream_opened(self, now: float) -> None:
        """The server accepted a WatchRequest."""
        if self._phase is Phase.WATCH_LIST:
            self._initial = {}
        elif self._phase is Phase.WATCH:
            self._phase = Phase.STREAM
        else:
            return
        self.metrics.watches += 1
        self._stream_events = 0

    def take_event(self, event: WatchEvent[T], now: float) -> bool:
        """One event of the open stream. False: the driver is to close the stream and read no further."""
        if self._initial is None and self._phase is not Phase.STREAM:
            return False
        self._stream_events += 1
        self.metrics.events += 1
        if event.type is EventType.ERROR:
            self.fail(event.status or Status(0, message="an ERROR event without a status"), now)
            return False
        if self._initial is not None:
            return self._take_initial(event, self._initial, now)
        if self._is_stale(event.resource_version):
            self.metrics.stale += 1
            self._want_newest = True
            message = f"version {event.resource_version} came after {self.last_sync_resource_version}"
            self._relist(Status(0, message=message), now)
            return False
        if event.object is not None:
            self._deliver(event.type, event.object)
        if event.resource_version:
            self.last_sync_resource_version = event.resource_version
        return True

    def stream_closed(self, now: float) -> None:
        """The server ended the stream in an orderly way."""
        if self._initial is not None:
            self._fall_back(Status(0, message="the streaming list ended before its last bookmark"), now)
        elif self._phase is Phase.STREAM:
            lasted = now - self._began
            self._phase = Phase.WATCH
            if 0 <= lasted < SHORT_WATCH:
                self.metrics.short_watches += 1
                if self._stream_events:
                    self._wait_for(SHORT_WATCH - lasted, now)
                else:
                    self._relist(Status(0, message="the watch ended at once, without an event"), now)

    def stream_silent(self, now: float) -> None:
        """Nothing came for the request's `idle_timeout`, and not inside an event; the driver has closed the stream.

        Whether the server is still there is seen when the watch begins again, from the version that was noted last: if
        it is not, that fails. A streaming list has no reason to be silent, so there it is a failure.
        """
        if self._phase is Phase.STREAM:
            self.stream_closed(now)
        else:
            self.fail(Status(0, message="timed out: no answer"), now)

    def fail(self, status: Status, now: float) -> None:
        """A request or the open stream failed: an error answer, an ERROR event, a lost or silent connection."""
        if self._initial is not None or self._phase is Phase.WATCH_LIST:
            self._watch_list_failed(status, now)
        elif self._phase is Phase.LIST:
            self._list_failed(status, now)
        elif self._phase is Phase.WATCH or self._phase is Phase.STREAM:
            if status.code == 0 or status.is_too_many_requests:
                self._phase = Phase.WATCH
                self._note(status)
                self._back_off(now, status)
            else:
                self._relist(status, now)

    def garbage(self, message: str, now: float) -> None:
        """What came could not be decoded: events may have been lost, so a list must follow."""
        status = Status(0, message=message)
        if self._initial is None and self._phase is Phase.STREAM:
            self._relist(status, now)
        else:
            self.fail(status, now)

    def _list_request(self) -> ListRequest:
        version = self._requested_version()
        limit = self.options.page_size
        if self._whole or (version not in ("", "0") and not self._paginated):
            limit = 0  # answered from the watch cache, which does no paging
        if self._continue:
            version = ""  # the token says it
        if not self._continue:
            self.metrics.lists += 1
        return ListRequest(version, limit, self._continue, self.options.list_timeout)

    def _requested_version(self) -> str:
        """The newest from storage if versions were refused; else anything not older than what is known."""
        if self._want_newest:
            return ""
        return self.last_sync_resource_version or "0"

    def _watch_request(self, now: float) -> WatchRequest:
        self._began = now
        timeout = int(self.options.min_watch_timeout * (1.0 + self._random()))
        initial = self._phase is Phase.WATCH_LIST
        version = self.last_sync_resource_version
        if initial and self._want_newest:
            version = ""
        idle = self.options.initial_events_timeout if initial else self.options.idle_timeout
        return WatchRequest(version, initial, timeout, idle, timeout + 30.0)

    def _take_initial(self, event: WatchEvent[T], initial: dict[str, T], now: float) -> bool:
        if event.object is not None:
            if event.type is EventType.DELETED:
                initial.pop(event.object.metadata.key, None)
            else:
                initial[event.object.metadata.key] = event.object
        elif event.initial_events_end and event.resource_version:
            self._initial = None
            if self._is_stale(event.resource_version) and not self._want_newest:
                self.metrics.stale += 1
                self._want_newest = True
                self._back_off(now)
                return False
            self._synced(list(initial.values()), event.resource_version)
            self._phase = Phase.STREAM
        return True

    def _deliver(self, kind: EventType, item: T) -> None:
        if kind is EventType.ADDED:
            self._sink.add(item)
        elif kind is EventType.MODIFIED:
            self._sink.update(item)
        elif kind is EventType.DELETED:
            self._sink.delete(item)

    def _synced(self, items: list[T], version: str) -> None:
        self._sink.replace(items)
        self.last_sync_resource_version = version
        self._want_newest = False
        self._restart_list()

    def _list_failed(self, status: Status, now: float) -> None:
        self._note(status)
        continued = self._continue and not self._whole
        newest = self._want_newest
        self._restart_list()
        if status.is_expired and continued:
            self._whole = True
        elif (status.is_expired or status.is_too_large_resource_version) and not newest:
            self._want_newest = True
        else:
            self._back_off(now, status)
            self._phase = self._first_phase(now)

    def _watch_list_failed(self, status: Status, now: float) -> None:
        opened = self._initial is not None
        self._initial = None
        self._phase = Phase.WATCH_LIST
        if status.is_too_many_requests or (status.code == 0 and not opened):
            self._note(status)
            self._back_off(now, status)
        elif (status.is_expired or status.is_too_large_resource_version) and not self._want_newest:
            self._note(status)
            self._want_newest = True
            self._back_off(now, status)
        else:
            self._fall_back(status, now)

    def _fall_back(self, status: Status, now: float) -> None:
        """Plain LIST instead of a streaming list, now and for a while; for good if the server refuses the option."""
        self._note(status)
        self._initial = None
        self._watch_list_from = float("inf") if status.is_refused_request else now + self.options.watch_list_pause
        self._phase = Phase.LIST

    def _relist(self, status: Status, now: float) -> None:
        self._note(status)
        self._phase = self._first_phase(now)
        self._restart_list()
        self._back_off(now, status)

    def _first_phase(self, now: float) -> Phase:
        paused = self._watch_list_from is not None and now < self._watch_list_from
        return Phase.LIST if paused else Phase.WATCH_LIST

    def _restart_list(self) -> None:
        self._pages = []
        self._continue = ""
        self._list_version = ""
        self._whole = False

    def _is_stale(self, version: str) -> bool:
        seen, given = version_number(self.last_sync_resource_version), version_number(version)
        return seen is not None and given is not None and given < seen

    def _note(self, status: Status) -> None:
        self.metrics.failures += 1
        self.last_failure = status

    def _back_off(self, now: float, status: Status | None = None) -> None:
        delay = self._backoff.next(now)
        if status is not None and status.retry_after is not None:
            delay = max(delay, min(status.retry_after, LONGEST_RETRY_AFTER))
        self._wait_for(delay, now)

    def _wait_for(self, seconds: float, now: float) -> None:
        self._waiting_since = now
        self._wait = seconds
