"""The calling thread's own mounts and hostname: unshare(2), sethostname(2), mount(2), open_tree(2), mount_setattr(2).

Both belong to the thread that calls unshare, and child processes inherit them. Mounts of the machine still come and go
inside (MS_SLAVE), and nothing that is mounted inside is seen outside.
"""

from __future__ import annotations

import ctypes
import errno
import os
from typing import Final

from kproxy.linux.errors import NamespaceError, PrivilegeError

_CLONE_NEWNS: Final = 0x00020000  # <linux/sched.h>
_CLONE_NEWUTS: Final = 0x04000000
_MS_NOSUID_NODEV: Final = 0x2 | 0x4  # <linux/mount.h>
_MS_BIND: Final = 0x1000
_MS_REC: Final = 0x4000
_MS_SLAVE_ALL: Final = (1 << 19) | _MS_REC
_OPEN_TREE: Final = 428
_OPEN_TREE_CLONE: Final = 0x1
_MOVE_MOUNT: Final = 429
_MOVE_MOUNT_F_EMPTY_PATH: Final = 0x4
_MOUNT_SETATTR: Final = 442  # the same on all architectures, since Linux 5.12
_AT_FDCWD: Final = -100
_AT_RECURSIVE: Final = 0x8000
_MOUNT_ATTR_RDONLY: Final = 0x1

_libc = ctypes.CDLL(None, use_errno=True)


class _MountAttr(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_uint64) for name in ("set", "clear", "propagation", "userns"))


def unshare(hostname: str) -> None:
    """Gives the calling thread, for good, a hostname and mounts of its own.

    Raises:
        PrivilegeError: it may not.
        NamespaceError: the kernel refused it, as all that follows here.
    """
    _check(_libc.unshare(_CLONE_NEWNS | _CLONE_NEWUTS), "no mounts of its own")
    name = hostname.encode()[:64]
    _check(_libc.sethostname(name, len(name)), f"hostname {hostname!r}")
    _mount("none", "/", "", _MS_SLAVE_ALL)


def bind(source: str, target: str) -> None:
    """Shows a file or a directory, with what is mounted in it, at another path."""
    _mount(source, target, "", _MS_BIND | _MS_REC)


def clone(path: str) -> int:
    """A mount of its own of a file or a directory, which is nowhere yet; its descriptor."""
    flags = _OPEN_TREE_CLONE | _AT_RECURSIVE | os.O_CLOEXEC
    descriptor: int = _libc.syscall(_OPEN_TREE, _AT_FDCWD, os.fsencode(path), flags)
    if descriptor < 0:
        _check(descriptor, path)
    return descriptor


def attach(descriptor: int, target: str) -> None:
    """Puts what `clone` gave somewhere."""
    done = _libc.syscall(_MOVE_MOUNT, descriptor, b"", _AT_FDCWD, os.fsencode(target), _MOVE_MOUNT_F_EMPTY_PATH)
    _check(done, f"cannot mount on {target}")


def mount_scratch(directory: str) -> None:
    """An empty directory that may be written, in memory."""
    _mount("tmpfs", directory, "tmpfs", _MS_NOSUID_NODEV)


def make_read_only(path: str) -> None:
    """Nothing below a mount can be written through it."""
    wanted = _MountAttr(_MOUNT_ATTR_RDONLY, 0, 0, 0)
    size = ctypes.c_size_t(ctypes.sizeof(wanted))
    done = _libc.syscall(_MOUNT_SETATTR, _AT_FDCWD, os.fsencode(path), _AT_RECURSIVE, ctypes.byref(wanted), size)
    _check(done, "files cannot be made read-only (it takes Linux 5.12)")


def _mount(source: str, target: str, kind: str, flags: int) -> None:
    done = _libc.mount(os.fsencode(source), os.fsencode(target), kind.encode(), ctypes.c_ulong(flags), None)
    _check(done, f"cannot mount {source} on {target}")


def _check(result: int, what: str) -> None:
    if result == 0:
        return
    code = ctypes.get_errno()
    if code == errno.EPERM:
        raise PrivilegeError(f"{what}: {os.strerror(code)}; it needs root with the capability CAP_SYS_ADMIN")
    raise NamespaceError(f"{what}: {os.strerror(code)}")
