"""Legacy tables: the lock under which they are written, which there are, and a fingerprint of them.

Legacy iptables takes the xtables lock so that two processes do not replace a table at once: a flock on
/run/xtables.lock (XTABLES_LOCKFILE overrides that, for iptables and here alike). iptables-nft needs none, since the
kernel itself orders nf_tables transactions.

The fingerprint is equal as long as nobody writes rules. The kernel counts no generations for legacy tables, but hands
out a table as a whole (IPT_SO_GET_ENTRIES, <linux/netfilter_ipv4/ip_tables.h>), for a fraction of what iptables-save
takes to print it. The counters of packets, which are in every entry, are left out.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import hashlib
import os
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from kproxy.linux.errors import LinuxError, LockHeldError, PrivilegeError
from kproxy.linux.namespace import Namespace
from kproxy.services.names import IPFamily

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


_GET_INFO, _GET_ENTRIES = 64, 65
_NAME: Final = 32
_INFO: Final = 84  # struct ipt_getinfo, struct ip6t_getinfo: at the end the size of the entries
_HEAD: Final = 40  # struct ipt_get_entries: the name, the size, padding
_LAYOUT: Final = {
    IPFamily.IPV4: (socket.AF_INET, socket.IPPROTO_IP, 90, 96),
    IPFamily.IPV6: (socket.AF_INET6, socket.IPPROTO_IPV6, 142, 152),
}
"""Where struct ipt_entry and struct ip6t_entry have `next_offset` and `counters`."""

_libc = ctypes.CDLL(None, use_errno=True)


def legacy_tables(family: IPFamily) -> list[str]:
    """The legacy tables that exist in the calling thread's namespace.

    Reading a legacy table through iptables makes it; this only looks.
    """
    name = "ip6_tables_names" if family.is_ipv6 else "ip_tables_names"
    try:
        return Path(f"/proc/thread-self/net/{name}").read_text().split()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise PrivilegeError(f"cannot read which legacy tables there are: {error.strerror}; it needs root") from error


def legacy_fingerprint(namespace: Namespace, family: IPFamily) -> bytes | None:
    """The fingerprint of a family's tables now; None if the kernel does not tell. No table is made."""
    try:
        return namespace.call(_fingerprint, family)
    except (OSError, LinuxError):
        return None


def _fingerprint(family: IPFamily) -> bytes:
    kind, level, next_offset, counters = _LAYOUT[family]
    digest = hashlib.sha1(usedforsecurity=False)
    with socket.socket(kind, socket.SOCK_DGRAM) as asked:
        for table in sorted(legacy_tables(family)):
            info = _ask(asked, level, _GET_INFO, table, _INFO, 0)
            (size,) = struct.unpack_from("=I", info, _INFO - 4)
            entries = _ask(asked, level, _GET_ENTRIES, table, _HEAD + size, size)
            at = _HEAD
            while at < len(entries):
                entries[at + counters : at + counters + 16] = bytes(16)
                at += struct.unpack_from("=H", entries, at + next_offset)[0] or len(entries)
            digest.update(info)
            digest.update(entries)
    return digest.digest()


def _ask(asked: socket.socket, level: int, option: int, table: str, length: int, size: int) -> bytearray:
    """getsockopt with a request in the buffer, which Python's own does not take. Raises OSError."""
    buffer = bytearray(struct.pack(f"={_NAME}sI", table.encode(), size).ljust(length, b"\0"))
    where = (ctypes.c_char * length).from_buffer(buffer)
    count = ctypes.c_uint32(length)
    if _libc.getsockopt(asked.fileno(), level, option, where, ctypes.byref(count)):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return buffer
