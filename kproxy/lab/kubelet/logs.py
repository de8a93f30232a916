"""What the containers of a node's pods have said: the last lines of each, kept in memory."""

from __future__ import annotations

import itertools
import threading
import time
from collections import deque
from collections.abc import Iterator
from typing import Final, NamedTuple

KEPT: Final = 5000
"""Lines of one pod."""


class Line(NamedTuple):
    """A line: `number` counts a pod's lines, `time` is in seconds since 1970; `container` "" is every container's."""

    number: int
    time: float
    text: str
    container: str


class PodLogs:
    """The logs of a node's pods, by uid. Thread-safe."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._lines: dict[str, deque[Line]] = {}
        self._numbers = itertools.count(1)

    def add(self, uid: str, text: str, container: str = "") -> None:
        """A line that a container says now."""
        with self._changed:
            lines = self._lines.setdefault(uid, deque(maxlen=KEPT))
            lines.append(Line(next(self._numbers), time.time(), text, container))
            self._changed.notify_all()

    def forget(self, uid: str) -> None:
        """The pod has gone; who follows its log is told."""
        with self._changed:
            self._lines.pop(uid, None)
            self._changed.notify_all()

    def lines(self, uid: str) -> list[Line]:
        """All lines of a pod."""
        with self._changed:
            return list(self._lines.get(uid, ()))

    def wait(self, uid: str, after: int, seconds: float) -> list[Line] | None:
        """The lines after one with this number, once there are some; nothing after so many seconds, None if the pod has
        gone."""
        with self._changed:
            self._changed.wait_for(lambda: uid not in self._lines or bool(self._after(uid, after)), seconds)
            return self._after(uid, after) if uid in self._lines else None

    def _after(self, uid: str, after: int) -> list[Line]:
        newest: Iterator[Line] = reversed(self._lines.get(uid, ()))
        return list(itertools.takewhile(lambda line: line.number > after, newest))[::-1]
