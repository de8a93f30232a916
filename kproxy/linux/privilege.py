"""What this process may do: being root is not enough in a container, which may lack capabilities (capabilities(7))."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from kproxy.linux.errors import PrivilegeError

_CAP_NET_ADMIN: Final = 12  # <linux/capability.h>


def check_privileges() -> None:
    """Refuses what could not work, with what it takes.

    Raises:
        PrivilegeError: the process is not root, or root without CAP_NET_ADMIN.
    """
    if os.geteuid() != 0:
        raise PrivilegeError("this needs root: iptables can neither be read nor written without\nstate: unchanged")
    if not _effective() >> _CAP_NET_ADMIN & 1:
        raise PrivilegeError(
            "this process is root but lacks the capability CAP_NET_ADMIN (a container has to be given it): iptables "
            "can neither be read nor written without\nstate: unchanged"
        )


def _effective() -> int:
    """The effective capabilities as a bit mask; all of them if /proc does not tell."""
    try:
        for line in Path("/proc/thread-self/status").read_text().splitlines():
            if line.startswith("CapEff:"):
                return int(line.split()[1], 16)
    except (OSError, ValueError, IndexError):
        pass
    return -1
