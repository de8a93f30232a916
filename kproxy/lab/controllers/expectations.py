"""What a controller has done and its informer does not show yet (client-go's expectations, by uid)."""

from __future__ import annotations

import threading
import time
from typing import Final

_EXPECTED: Final = 60.0
"""Seconds after which an expectation is given up: its event was lost."""


class Expectations:
    """Uids of pods that were created or deleted and that the informer does not show so yet."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._created: dict[str, float] = {}
        self._deleted: dict[str, float] = {}

    def created(self, uid: str) -> None:
        with self._lock:
            self._created[uid] = time.monotonic()

    def deleted(self, uid: str) -> None:
        limit = time.monotonic() - _EXPECTED
        with self._lock:
            self._deleted = {other: when for other, when in self._deleted.items() if when >= limit}
            self._deleted[uid] = time.monotonic()

    def is_deleted(self, uid: str) -> bool:
        with self._lock:
            return self._deleted.get(uid, 0.0) > time.monotonic() - _EXPECTED

    def pending(self, mine: set[str], shown: set[str]) -> int:
        """How many of `mine` were created and are not `shown`."""
        limit = time.monotonic() - _EXPECTED
        with self._lock:
            for uid in [uid for uid, when in self._created.items() if when < limit or uid in shown]:
                del self._created[uid]
            return len(mine & self._created.keys())
