"""Waiting until no packet is on its way any more through rules that have been replaced.

A packet may have been sent to an endpoint by the old rules and not have its connection tracking entry yet when
the new rules are in and the table is read: the entry would be missed. The kernel handles a packet from its first hook
to its last within one RCU read-side critical section, so an RCU grace period is exactly the wait that is needed, and
membarrier(2)'s MEMBARRIER_CMD_GLOBAL waits for one (the kernel's kernel/sched/membarrier.c calls synchronize_rcu). That
takes some ten milliseconds.
"""

from __future__ import annotations

import ctypes
import platform
import time
from typing import Final

_COMMAND_GLOBAL: Final = 1
_NUMBERS: Final = {"x86_64": 324, "aarch64": 283, "riscv64": 283, "ppc64le": 365, "s390x": 356}
_ENOUGH: Final = 0.05
"""Seconds to wait where the kernel does not offer it: longer than a processor stays in one packet, unless a hypervisor
takes it away."""

_libc = ctypes.CDLL(None, use_errno=True)


def wait_for_packets() -> bool:
    """Returns when every packet that was being handled by the kernel has been; False if that had to be guessed."""
    number = _NUMBERS.get(platform.machine())
    if number is not None and _libc.syscall(number, _COMMAND_GLOBAL, 0, 0) == 0:
        return True
    time.sleep(_ENOUGH)
    return False
