"""When to sync: a bounded-frequency runner as a state machine with an explicit clock.

kube-proxy's BoundedFrequencyRunner (pkg/proxy/runner): a request runs at once, but not within `min_interval` of the run
before; without any request there is a run every `max_interval`; a failed run is retried. Here, in addition, partial
runs do not put off the periodic check (changes by others must be noticed in a busy cluster too), and retries back
off: each waits longer, and never less than the failed run took, so that failing never costs more than half of a CPU. A
run that only waited for the xtables lock costs nothing, and is tried again at once.

A driver asks `next_action`, carries it out, and reports with `finished`. Requests may come at any time. Times are
seconds of a clock that should not go back; if it does, nothing is put off by more than its interval.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

import msgspec

FIRST_RETRY: Final = 0.1
LONGEST_RETRY: Final = 5.0
"""Seconds. A lock or a broken iptables seldom lasts; once it works again, rules are stale for no longer than this."""


class Wait(msgspec.Struct, frozen=True):
    """Call again after `seconds`, or after the next request; None: only a request or `enable` changes anything."""

    seconds: float | None


class Run(msgspec.Struct, frozen=True):
    """Sync now; with `check`, whatever is there must be compared too."""

    check: bool


class BoundedFrequencyRunner:
    """See the module.

    Invariants: nothing runs before `enable`. Between `Run` and `finished` nothing else runs. `_requested` is set from a
    request until a run that began after it has succeeded.
    """

    def __init__(self, min_interval: float, max_interval: float, rng: Callable[[], float]) -> None:
        """Args: min_interval, max_interval: seconds. rng: floats in [0, 1), for jitter."""
        self._min = min_interval
        self._max = max_interval
        self._rng = rng
        self._enabled = False
        self._requested = False
        self._check_wanted = True
        self._running = False
        self._started = 0.0
        self._ever_started = False
        self._checked = 0.0
        self._retry_at: float | None = None
        self._retry_delay = FIRST_RETRY

    @property
    def failing(self) -> bool:
        """Whether the last run failed."""
        return self._retry_at is not None

    @property
    def requested(self) -> bool:
        """Whether something changed since the run under way began."""
        return self._requested

    def enable(self) -> None:
        """There is something to sync: the first run, a check, is due."""
        if not self._enabled:
            self._enabled = True
            self._requested = True

    def request(self) -> None:
        """Asks for a sync, since something changed."""
        self._requested = True

    def request_check(self) -> None:
        """Something may be wrong in the kernel."""
        self._requested = self._check_wanted = True

    def next_action(self, now: float) -> Run | Wait:
        """What the thread must do now: sync, or wait."""
        seconds = self.seconds_left(now)
        if seconds is None or seconds > 0:
            return Wait(seconds)
        check = self._check_wanted or now >= self._checked + self._max
        self._running = True
        self._requested = self._check_wanted = False
        self._started, self._ever_started = now, True
        return Run(check)

    def seconds_left(self, now: float) -> float | None:
        """Seconds until something is due, 0 if it is; None: only a request or `enable` changes anything."""
        if not self._enabled or self._running:
            return None
        self._mend(now)
        return max(0.0, self._due() - now)

    def finished(self, run: Run, ok: bool, now: float, *, waited: bool = False, checked: bool = True) -> None:
        """The run has ended at `now`.

        Args:
            checked: False: its check gave way to a request, and is due again with the next run.
            waited: it failed because it waited for the xtables lock in vain. That cost nothing, and the lock may be
                free any moment: so waiting goes on soon, where another failure is left alone for as long as it took.
        """
        self._running = False
        if ok:
            self._retry_at, self._retry_delay = None, FIRST_RETRY
            if run.check and checked:
                self._checked = self._started
            self._check_wanted = self._check_wanted or not checked
            return
        took = 0.0 if waited else max(0.0, now - self._started)
        wanted = FIRST_RETRY if waited else self._retry_delay
        self._retry_at = now + max(wanted, min(took, LONGEST_RETRY)) * (1 + 0.2 * self._rng())
        if not waited:
            self._retry_delay = min(2 * self._retry_delay, LONGEST_RETRY)
        self._requested = self._check_wanted = True

    def _due(self) -> float:
        if self._retry_at is not None:
            return self._retry_at
        soonest = self._started + self._min if self._ever_started else -math.inf
        if self._requested:
            return soonest
        return max(soonest, self._checked + self._max)

    def _mend(self, now: float) -> None:
        """A clock that went back must not put anything off."""
        self._started = min(self._started, now)
        self._checked = min(self._checked, now)
        if self._retry_at is not None:
            self._retry_at = min(self._retry_at, now + LONGEST_RETRY * 1.2)
