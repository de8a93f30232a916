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
    """The file of the xtables lock."""
    return os.environ.get("XTABLES_LOCKFILE") or "/run/xtables.lock"


def lock_holder(path: str | None = None) -> str:
    """Who holds the lock, in words: "process 123 (iptables)", or "" if it cannot be found out."""
    try:
        pids = _holders(path or lock_path())
    except OSError:
        return ""
    return f"process {pids[0]}{_name_of(pids[0])}" if pids else ""


def locked_here() -> bool:
    """Whether a process in the calling thread's network namespace holds the lock, or may hold it."""
    try:
        here = os.stat("/proc/thread-self/ns/net").st_ino
        return any(os.stat(f"/proc/{pid}/ns/net").st_ino == here for pid in _holders(lock_path()))
    except OSError:
        return True


def _holders(path: str) -> list[str]:
    """The processes that hold the lock. Raises OSError.

    /proc/locks (proc(5)) names, for every lock, the process that took it and the file by device and inode.
    """
    if not os.path.exists(path):
        return []
    inode = f":{os.stat(path).st_ino}"
    lines = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
    return [
        words[4]
        for words in lines
        if "->" not in words and len(words) > 5 and words[1] == "FLOCK" and words[5].endswith(inode)
    ]


def _name_of(pid: str) -> str:
    with contextlib.suppress(OSError):
        return f" ({Path(f'/proc/{pid}/comm').read_text().strip()})"
    return ""


def lock_held_error(seconds: float) -> LockHeldError:
    """The error to raise when the lock could not be taken in time."""
    holder = lock_holder()
    who = f"{holder} holds it" if holder else "its holder is unknown"
    return LockHeldError(f"the xtables lock {lock_path()} was not free within {seconds:g} s: {who}")


@contextlib.contextmanager
def xtables_lock(wait: float = DEFAULT_WAIT) -> Iterator[None]:
    """Holds the lock.

    Raises:
        LockHeldError: another process held it for longer than `wait` seconds.
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
