"""What a container is of a process: mounts and a hostname of its own, with the machine's files.

`isolate` is for the thread of a `Namespace`, as a rule, and for what it starts: both belong to the thread that calls
unshare(2), and child processes inherit them. Mounts of the machine still come and go inside (MS_SLAVE), and nothing
that is mounted inside is seen outside.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping
from typing import Final

from kproxy.linux.namespace import check_result

_SCRATCH: Final = ("/tmp", "/var/tmp", "/dev/shm")
_CLONE_NEWNS: Final = 0x00020000  # <linux/sched.h>
_CLONE_NEWUTS: Final = 0x04000000
_MS_NOSUID_NODEV: Final = 0x2 | 0x4  # <linux/mount.h>
_MS_BIND: Final = 0x1000
_MS_REC: Final = 0x4000
_MS_SLAVE_ALL: Final = (1 << 19) | _MS_REC
_MOUNT_SETATTR: Final = 442  # the same on all architectures, since Linux 5.12
_AT_FDCWD: Final = -100
_AT_RECURSIVE: Final = 0x8000
_MOUNT_ATTR_RDONLY: Final = 0x1

_libc = ctypes.CDLL(None, use_errno=True)


class _MountAttr(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_uint64) for name in ("set", "clear", "propagation", "userns"))


def isolate(hostname: str, files: Mapping[str, str], *, read_only: bool = False) -> None:
    """Gives the calling thread, for good, a hostname and mounts of its own.

    Args:
        files: what is seen in place of a file of the machine, by the latter's path; one that the machine has not is
            left out.
        read_only: nothing of the machine's files can be written; /tmp, /var/tmp and /dev/shm are empty and writable.

    Raises:
        PrivilegeError: it may not.
        NamespaceError: the kernel refused it.
    """
    _unshare(hostname)
    # First: where the files lie may be hidden below.
    for target, source in files.items():
        if os.path.exists(target):
            _bind(source, os.path.realpath(target))
    if read_only:
        _make_read_only("/")
        for directory in filter(os.path.isdir, _SCRATCH):
            _mount_scratch(directory)


def _unshare(hostname: str) -> None:
    check_result(_libc.unshare(_CLONE_NEWNS | _CLONE_NEWUTS), "no mounts of its own")
    name = hostname.encode()[:64]
    check_result(_libc.sethostname(name, len(name)), f"hostname {hostname!r}")
    _mount("none", "/", "", _MS_SLAVE_ALL)


def _bind(source: str, target: str) -> None:
    """Shows a file or a directory, with what is mounted in it, at another path."""
    _mount(source, target, "", _MS_BIND | _MS_REC)


def _mount_scratch(directory: str) -> None:
    """An empty directory that may be written, in memory."""
    _mount("tmpfs", directory, "tmpfs", _MS_NOSUID_NODEV)


def _make_read_only(path: str) -> None:
    """Nothing below a mount can be written through it."""
    wanted = _MountAttr(_MOUNT_ATTR_RDONLY, 0, 0, 0)
    size = ctypes.c_size_t(ctypes.sizeof(wanted))
    done = _libc.syscall(_MOUNT_SETATTR, _AT_FDCWD, os.fsencode(path), _AT_RECURSIVE, ctypes.byref(wanted), size)
    check_result(done, "files cannot be made read-only (it takes Linux 5.12)")


def _mount(source: str, target: str, kind: str, flags: int) -> None:
    done = _libc.mount(os.fsencode(source), os.fsencode(target), kind.encode(), ctypes.c_ulong(flags), None)
    check_result(done, f"cannot mount {source} on {target}")
