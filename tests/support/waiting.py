"""Waiting for what must happen: never for a time, and long enough for a busy machine."""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE = 60.0
"""Seconds after which what must happen is taken not to happen. Only a failing test waits so long."""


def eventually(
    reached: Callable[[], object], seconds: float = PATIENCE, what: Callable[[], object] = lambda: ""
) -> None:
    """Returns once `reached` is true; fails with what `what` says after `seconds`."""
    until = time.monotonic() + seconds
    while not reached():
        assert time.monotonic() < until, f"it never came: {what()}"
        time.sleep(0.02)
