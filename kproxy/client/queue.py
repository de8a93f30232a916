"""The work queue for threads: `kproxy.informer.WorkQueue` with a lock, a clock and waiting."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Generic

from kproxy.informer.ratelimit import ItemT, RateLimiter
from kproxy.informer.workqueue import Work, WorkQueue


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
