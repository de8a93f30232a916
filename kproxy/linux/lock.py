"""The xtables lock: legacy iptables takes it so that two processes do not replace a table at once.

It is a flock on /run/xtables.lock (XTABLES_LOCKFILE overrides that, for iptables and here alike). iptables-nft needs
none, since the kernel itself orders nf_tables transactions.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from kproxy.linux.errors import LockHeldError, PrivilegeError

DEFAULT_WAIT: Final = 5.0
"""Seconds to wait for the lock, as kube-proxy does."""

_POLL: Final = 0.05


def lock_path() -> str:
    """Where the lock is."""
    return os.environ.get("XTABLES_LOCKFILE") or "/run/xtables.lock"


def lock_holder(path: str | None = None) -> str:
    """Who holds the lock, in words: "process 123 (iptables)", or "" if it cannot be found out.

    /proc/locks (proc(5)) names, for every lock, the process that took it and the file by device and inode.
    """
    try:
        status = os.stat(path or lock_path())
        inode = f":{status.st_ino}"
        for line in Path("/proc/locks").read_text().splitlines():
            words = line.split()
            if "->" not in words and len(words) > 5 and words[1] == "FLOCK" and words[5].endswith(inode):
                return f"process {words[4]}{_name_of(words[4])}"
    except OSError:
        return ""
    return ""


def _name_of(pid: str) -> str:
    with contextlib.suppress(OSError):
        return f" ({Path(f'/proc/{pid}/comm').read_text().strip()})"
    return ""


def lock_held_error(seconds: float) -> LockHeldError:
    """The error to raise when the lock was not to be had in time."""
    holder = lock_holder()
    who = f"{holder} holds it" if holder else "who holds it cannot be told"
    return LockHeldError(f"the xtables lock {lock_path()} was not free within {seconds:g} s: {who}")


@contextlib.contextmanager
def xtables_lock(wait: float = DEFAULT_WAIT) -> Iterator[None]:
    """Holds the lock.

    Raises:
        LockHeldError: somebody else held it for longer than `wait` seconds.
        PrivilegeError: it may not be opened.
    """
    try:
        descriptor = os.open(lock_path(), os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise PrivilegeError(f"cannot open the xtables lock {lock_path()}: {error.strerror}") from error
    try:
        deadline = time.monotonic() + wait
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise lock_held_error(wait) from None
                time.sleep(_POLL)
        yield
    finally:
        os.close(descriptor)
