"""What is found in a live cluster is read again: whoever keeps the rules lags behind a change by a moment, which is no
fault."""

from __future__ import annotations

from typing import Final

from kproxy.words import counted

AGAIN: Final = 2.0
"""Seconds until it is read again."""
TIMES: Final = 2
"""So often, as long as something is left of it."""


def in_motion(count: int) -> str:
    """The line for what was there at first only."""
    return f"{counted(count, 'change')} in motion: found at first, and gone when it was read again"
