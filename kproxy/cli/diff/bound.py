"""How much time and memory a comparison may take."""

from __future__ import annotations

import os
import resource
import time
from pathlib import Path
from typing import Final

from kproxy.dataplane.model.errors import BoundReachedError

MEMORY: Final = 4096
"""MiB that the process may take, if the machine and the limits of the process have so much and a quarter to spare."""
_MIB: Final = 1 << 20
_OWN: Final = Path("/proc/self/statm")
_GROUP: Final = Path("/sys/fs/cgroup/memory.max")


class Bound:
    """Counts from when it is made. `memory` is in MiB; None for three quarters of what there is, `MEMORY` at most."""

    def __init__(self, seconds: float, memory: int | None) -> None:
        self._seconds = seconds
        self._end = time.monotonic() + seconds
        self._memory = memory or min(MEMORY, _present() * 3 // 4)

    def check(self) -> None:
        """Looks at the clock and at what the process takes.

        Raises:
            BoundReachedError: one of them is at its bound.
        """
        if time.monotonic() > self._end:
            raise BoundReachedError(f"{self._seconds:g} seconds are over (--timeout)")
        if _taken() > self._memory:
            raise BoundReachedError(f"it takes more than {self._memory:,} MiB of memory (--memory)")


def _taken() -> int:
    """MiB that the process has now."""
    return int(_OWN.read_text("ascii").split()[1]) * resource.getpagesize() // _MIB if _OWN.exists() else 0


def _present() -> int:
    """MiB that the process can have: of the machine, of its control group, of its own limit."""
    found = [os.sysconf("SC_PHYS_PAGES") * resource.getpagesize(), resource.getrlimit(resource.RLIMIT_AS)[0]]
    if _GROUP.exists() and (text := _GROUP.read_text("ascii").strip()).isdigit():
        found.append(int(text))
    return min(each for each in found if each != resource.RLIM_INFINITY) // _MIB
