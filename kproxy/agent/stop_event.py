"""An event that a signal handler may set.

A handler runs in the main thread, between any two of its instructions. `threading.Event` has a lock that `wait` holds
for moments; a handler that comes in such a moment and calls `set` waits for that lock for ever. `put` of a SimpleQueue
may be called there, as Python's documentation says.
"""

from __future__ import annotations

import contextlib
import queue


class StopEvent:
    """As `threading.Event`, for one thread that waits: once set, it stays so."""

    def __init__(self) -> None:
        self._set = False
        self._woken: queue.SimpleQueue[None] = queue.SimpleQueue()

    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        self._set = True
        self._woken.put(None)

    def wait(self, seconds: float) -> bool:
        """Until it is set, so many seconds at most; whether it is."""
        if not self._set:
            with contextlib.suppress(queue.Empty):
                self._woken.get(timeout=seconds)
        return self._set
