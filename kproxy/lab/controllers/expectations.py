"""What a controller has done and its informer does not show yet (client-go's expectations, by uid)."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection
from typing import Final

_EXPECTED: Final = 60.0
"""Seconds after which an expectation is given up: its event was lost."""


class Expectations:
    """Uids of pods that were created or deleted and that the informer does not show so yet."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._created: dict[str, dict[str, float]] = {}
        """When, by uid, by whom they were created for."""
        self._deleted: dict[str, float] = {}

    def created(self, owner: str, uid: str) -> None:
        with self._lock:
            self._created.setdefault(owner, {})[uid] = time.monotonic()

    def deleted(self, uid: str) -> None:
        with self._lock:
            self._deleted = {**_recent(self._deleted), uid: time.monotonic()}

    def is_deleted(self, uid: str) -> bool:
        with self._lock:
            return uid in _recent(self._deleted)

    def pending(self, owner: str, shown: Collection[str]) -> int:
        """How many pods of an owner were created and are not `shown`."""
        with self._lock:
            created = _recent(self._created.pop(owner, {}))
            left = {uid: when for uid, when in created.items() if uid not in shown}
            if left:
                self._created[owner] = left
            return len(left)

    def forget(self, owner: str) -> None:
        """The owner is gone."""
        with self._lock:
            self._created.pop(owner, None)


def _recent(times: dict[str, float]) -> dict[str, float]:
    limit = time.monotonic() - _EXPECTED
    return {uid: when for uid, when in times.items() if when >= limit}
