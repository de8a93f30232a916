"""Work queue: fair, each item once, with delays, rate limits and a drain; a state machine with an explicit clock.

client-go's util/workqueue (queue.go, delaying_queue.go, rate_limiting_queue.go). Fair: items come out in the order they
went in. Each item once: one that is added again while it waits is there once; one that is added while it is being
processed waits until that is done, so no two workers ever have the same item. Not thread-safe, and nothing waits here:
`get` answers None, and `next_ready` says when a delayed item comes due.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from dataclasses import dataclass, field
from enum import Enum
from itertools import count
from typing import Final, Generic

import msgspec

from kproxy.informer.ratelimit import ItemT, RateLimiter, default_controller_rate_limiter

BUCKETS: Final = tuple(10.0**exponent for exponent in range(-8, 2))
"""Upper bounds in seconds: client-go's ExponentialBuckets(10e-9, 10, 10)."""


@dataclass(slots=True)
class Histogram:
    """Observations by bucket: `counts[i]` are those up to `BUCKETS[i]` and above the bound before; the last, more."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BUCKETS) + 1))
    sum: float = 0.0
    count: int = 0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(BUCKETS, value)] += 1
        self.sum += value
        self.count += 1


@dataclass(slots=True)
class WorkQueueMetrics:
    """Counters since the start; times in seconds.

    workqueue_adds_total, workqueue_retries_total, workqueue_queue_duration_seconds, workqueue_work_duration_seconds.
    Depth, unfinished work and the longest running processor are questions to the queue.
    """

    adds: int = 0
    retries: int = 0
    queue_duration: Histogram = field(default_factory=Histogram)
    work_duration: Histogram = field(default_factory=Histogram)


class _ShutDown(Enum):
    NO = "no"
    NOW = "now"
    DRAIN = "drain"


class Work(msgspec.Struct, Generic[ItemT], frozen=True):
    """An item that was taken; `done` must follow."""

    item: ItemT


class WorkQueue(Generic[ItemT]):
    """See the module.

    Invariants: `_dirty` holds the items that need processing, `_processing` those being processed. An item is in
    `_queue` exactly if it is dirty and not being processed. `_ready_at` holds the earliest time of each delayed item;
    an entry of the heap that disagrees with it is void.
    """

    def __init__(self, limiter: RateLimiter[ItemT] | None = None) -> None:
        self.metrics = WorkQueueMetrics()
        self._limiter: RateLimiter[ItemT] = limiter or default_controller_rate_limiter()
        self._queue: dict[ItemT, float] = {}
        self._dirty: set[ItemT] = set()
        self._processing: dict[ItemT, float] = {}
        self._heap: list[tuple[float, int, ItemT]] = []
        self._ready_at: dict[ItemT, float] = {}
        self._order = count()
        self._shut_down = _ShutDown.NO

    def add(self, item: ItemT, now: float) -> None:
        """Marks an item as needing processing."""
        if self.shutting_down or item in self._dirty:
            return
        self._dirty.add(item)
        self.metrics.adds += 1
        if item not in self._processing:
            self._queue[item] = now

    def add_after(self, item: ItemT, delay: float, now: float) -> None:
        """The same, `delay` seconds from now; of several delays for one item the earliest counts."""
        if self.shutting_down:
            return
        self.metrics.retries += 1
        if delay <= 0:
            self.add(item, now)
            return
        ready = now + delay
        if item not in self._ready_at or ready < self._ready_at[item]:
            self._ready_at[item] = ready
            heapq.heappush(self._heap, (ready, next(self._order), item))

    def add_rate_limited(self, item: ItemT, now: float) -> None:
        """The same, when the rate limiter allows it."""
        self.add_after(item, self._limiter.when(item, now), now)

    def forget(self, item: ItemT) -> None:
        """The rate limiter is to forget the item's failures."""
        self._limiter.forget(item)

    def num_requeues(self, item: ItemT) -> int:
        """How often the item was added rate-limited since it was forgotten."""
        return self._limiter.num_requeues(item)

    def get(self, now: float) -> Work[ItemT] | None:
        """Takes the next item to process; None if there is none now."""
        self._release(now)
        if not self._queue:
            return None
        item = next(iter(self._queue))
        self.metrics.queue_duration.observe(max(0.0, now - self._queue.pop(item)))
        self._dirty.discard(item)
        self._processing[item] = now
        return Work(item)

    def done(self, item: ItemT, now: float) -> None:
        """The item has been processed; it waits again if it was added meanwhile."""
        started = self._processing.pop(item, None)
        if started is None:
            return
        self.metrics.work_duration.observe(max(0.0, now - started))
        if item in self._dirty:
            self._queue[item] = now

    def next_ready(self, now: float) -> float | None:
        """Seconds until a delayed item comes due; None if none is delayed."""
        self._release(now)
        while self._heap and self._is_void(self._heap[0]):
            heapq.heappop(self._heap)
        return max(0.0, self._heap[0][0] - now) if self._heap else None

    def shut_down(self) -> None:
        """Takes nothing more in and drops what is delayed; what waits can still be taken."""
        self._shut_down = _ShutDown.NOW
        self._heap.clear()
        self._ready_at.clear()

    def shut_down_with_drain(self) -> None:
        """The same; `is_drained` says when all that was taken has been done, too."""
        self.shut_down()
        self._shut_down = _ShutDown.DRAIN

    @property
    def shutting_down(self) -> bool:
        return self._shut_down is not _ShutDown.NO

    @property
    def is_finished(self) -> bool:
        """Shut down, and nothing is left to take: a worker may leave.

        While draining, an item that is being processed and was added again comes back once, so workers stay.
        """
        again = any(item in self._dirty for item in self._processing)
        return self.shutting_down and not self._queue and not (self._shut_down is _ShutDown.DRAIN and again)

    @property
    def is_drained(self) -> bool:
        """Shut down, and nothing is waiting or being processed."""
        return self.shutting_down and not self._queue and not self._processing

    def __len__(self) -> int:
        """Items that wait, without those delayed or being processed: the metric `depth`."""
        return len(self._queue)

    def unfinished_work(self, now: float) -> float:
        """Seconds of work under way that `work_duration` has not counted yet."""
        return sum(max(0.0, now - started) for started in self._processing.values())

    def longest_running(self, now: float) -> float:
        """How long the oldest item under way has been processed, in seconds."""
        return max((now - started for started in self._processing.values()), default=0.0)

    def _release(self, now: float) -> None:
        while self._heap and self._heap[0][0] <= now:
            entry = heapq.heappop(self._heap)
            if not self._is_void(entry):
                del self._ready_at[entry[2]]
                self.add(entry[2], now)

    def _is_void(self, entry: tuple[float, int, ItemT]) -> bool:
        return self._ready_at.get(entry[2]) != entry[0]
