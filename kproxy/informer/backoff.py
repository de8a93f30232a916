"""Exponential back-off with jitter, as client-go's reflectors use it (apimachinery util/wait, backoff.go).

Time and randomness are arguments: `now` in seconds of any clock that does not go back by itself, `random` a function
that gives a float in [0, 1).
"""

from __future__ import annotations

from collections.abc import Callable

Random = Callable[[], float]


def jitter(duration: float, factor: float, random: Random) -> float:
    """Between `duration` and `duration * (1 + factor)`, evenly."""
    return duration + random() * factor * duration


class BackoffManager:
    """Delays of `initial`, then `factor` times more each, up to `cap`, each jittered; seconds.

    Starts again when it was not asked for `reset_after` seconds, or when the clock went back. The defaults are
    client-go's for reflectors: 800 ms to 30 s, factor 2, jitter 1.0, reset after 2 minutes, so at most 60 s.
    """

    def __init__(
        self,
        random: Random,
        *,
        initial: float = 0.8,
        cap: float = 30.0,
        reset_after: float = 120.0,
        factor: float = 2.0,
        jitter_factor: float = 1.0,
    ) -> None:
        self._random = random
        self._initial = initial
        self._cap = cap
        self._reset_after = reset_after
        self._factor = factor
        self._jitter = jitter_factor
        self._next = initial
        self._last: float | None = None

    @property
    def longest(self) -> float:
        """No delay is longer than this, in seconds."""
        return max(self._initial, self._cap) * (1 + self._jitter)

    def next(self, now: float) -> float:
        """The seconds to wait from `now`; each call makes the following delay longer."""
        if self._last is None or not 0 <= now - self._last <= self._reset_after:
            self._next = self._initial
        self._last = now
        delay = self._next
        self._next = min(self._next * self._factor, self._cap)
        return jitter(delay, self._jitter, self._random)
