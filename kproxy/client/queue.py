"""The work queue for threads: `kproxy.informer.WorkQueue` with a lock, a clock and waiting."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Generic

from kproxy.informer.ratelimit import ItemT, RateLimiter
from kproxy.informer.workqueue import Work, WorkQueue, WorkQueueMetrics


class BlockingWorkQueue(Generic[ItemT]):
    """See WorkQueue; `get` waits. Any number of workers may share it."""

    def __init__(self, limiter: RateLimiter[ItemT] | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._state: WorkQueue[ItemT] = WorkQueue(limiter)
        self._clock = clock
        self._changed = threading.Condition()

    @property
    def metrics(self) -> WorkQueueMetrics:
        return self._state.metrics

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

    def num_requeues(self, item: ItemT) -> int:
        with self._changed:
            return self._state.num_requeues(item)

    def get(self, timeout: float | None = None) -> Work[ItemT] | None:
        """The next item; `done` must follow. None once the queue is shut down and empty, or after `timeout` seconds."""
        with self._changed:
            until = None if timeout is None else self._clock() + timeout
            while True:
                now = self._clock()
                if (work := self._state.get(now)) is not None:
                    return work
                if self._state.is_finished or (until is not None and now >= until):
                    return None
                waits = [self._state.next_ready(now), None if until is None else until - now]
                self._changed.wait(min((wait for wait in waits if wait is not None), default=None))

    def done(self, item: ItemT) -> None:
        with self._changed:
            self._state.done(item, self._clock())
            self._changed.notify_all()

    def shut_down(self) -> None:
        """Takes nothing more in; workers get what is left, then None."""
        with self._changed:
            self._state.shut_down()
            self._changed.notify_all()

    def shut_down_with_drain(self, timeout: float | None = None) -> bool:
        """The same, and waits until all of it is done; False if that takes longer than `timeout` seconds."""
        with self._changed:
            self._state.shut_down_with_drain()
            self._changed.notify_all()
            return self._changed.wait_for(lambda: self._state.is_drained, timeout)

    def unfinished_work(self) -> float:
        with self._changed:
            return self._state.unfinished_work(self._clock())

    def longest_running(self) -> float:
        with self._changed:
            return self._state.longest_running(self._clock())

    def __len__(self) -> int:
        with self._changed:
            return len(self._state)
