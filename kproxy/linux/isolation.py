"""What a container is of a process: mounts and a hostname of its own, with the machine's files, and volumes among them.

`isolate` is for the thread of a `Namespace`, as a rule, and for what it starts. A volume may be mounted at a path that
the machine has not. It cannot be made there, for that would be on the machine's disk. So the nearest directory that is
there is shown once more, as an empty tmpfs with everything of it bound into it, and the path is made in that; of `/`
this is a new root.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Final, NamedTuple

from kproxy.linux.errors import NamespaceError
from kproxy.linux.mounts import attach, bind, clone, make_read_only, mount_scratch, unshare

_MAX_ENTRIES: Final = 4096
_NEW_ROOT: Final = "/tmp"
_SCRATCH: Final = ("/tmp", "/var/tmp", "/dev/shm")


class Mount(NamedTuple):
    """A directory or file (`source`) that is seen at `target`, an absolute path."""

    source: str
    target: str
    read_only: bool = False


def isolate(hostname: str, files: Mapping[str, str], *, read_only: bool = False, volumes: Sequence[Mount] = ()) -> None:
    """Gives the calling thread, for good, a hostname and mounts of its own.

    Args:
        files: what is seen in place of a file of the machine, by the latter's path; one that the machine has not is
            left out.
        read_only: nothing of the machine's files can be written; /tmp, /var/tmp and /dev/shm are empty and writable.
        volumes: what is mounted besides; those that are not read-only can be written.

    Raises:
        PrivilegeError: it may not.
        NamespaceError: the kernel refused it; a volume is not there, or its place cannot be made.
    """
    unshare(hostname)
    # First: where the files and volumes lie may be hidden below.
    for target, source in files.items():
        if os.path.exists(target):
            bind(source, os.path.realpath(target))
    scratch = [each for each in _SCRATCH if os.path.isdir(each)] if read_only else []
    with contextlib.closing(_Volumes(volumes)) as mounted:
        mounted.make_places(but=scratch)
        if read_only:
            make_read_only("/")
            for directory in scratch:
                mount_scratch(directory)
        mounted.mount()


class _Volumes:
    """The volumes of one container: their sources are opened, then their places made, then they are mounted."""

    def __init__(self, mounts: Sequence[Mount]) -> None:
        self._open = contextlib.ExitStack()
        ordered = sorted(mounts, key=lambda each: PurePosixPath(each.target).parts)
        # Mounts of their own, which stay as they are when the machine's files become read-only.
        self._mounts = [(self._kept(clone(each.source)), os.path.isdir(each.source), each) for each in ordered]

    def close(self) -> None:
        self._open.close()

    def make_places(self, *, but: Sequence[str] = ()) -> None:
        """Makes the targets that are missing, except those below the directories of `but`, and below one another."""
        made: list[str] = []
        for _, is_directory, each in self._mounts:
            target = os.path.realpath(each.target)
            if not any(_is_below(target, above) for above in (*but, *made)):
                _make(target, is_directory, self._shadow)
            made.append(target)

    def mount(self) -> None:
        """Mounts them; what is still missing is made in what is mounted above it."""
        for descriptor, is_directory, each in self._mounts:
            target = os.path.realpath(each.target)
            _make(target, is_directory, _refuse)
            attach(descriptor, target)
        for _, _, each in self._mounts:
            if each.read_only:
                make_read_only(os.path.realpath(each.target))

    def _kept(self, descriptor: int) -> int:
        self._open.callback(os.close, descriptor)
        return descriptor

    def _shadow(self, directory: str) -> None:
        """Puts a tmpfs with the same things in place of a directory."""
        with os.scandir(directory) as found:
            entries = list(found)
        if len(entries) > _MAX_ENTRIES:
            raise NamespaceError(f"{directory}: more than {_MAX_ENTRIES:,} entries: nothing can be mounted in it")
        held, scratch = (self._kept(os.open(path, os.O_PATH | os.O_CLOEXEC)) for path in (directory, _NEW_ROOT))
        where = _NEW_ROOT if directory == "/" else directory
        mount_scratch(where)
        os.chmod(where, os.stat(f"/proc/self/fd/{held}").st_mode & 0o7777)
        for entry in entries:
            source, target = f"/proc/self/fd/{held}/{entry.name}", f"{where}/{entry.name}"
            if entry.is_symlink():
                os.symlink(os.readlink(source), target)
                continue
            if entry.is_dir(follow_symlinks=False):
                os.mkdir(target)
            else:
                os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o644))
            is_new_root = directory == "/" and f"/{entry.name}" == _NEW_ROOT
            bind(f"/proc/self/fd/{scratch}" if is_new_root else source, target)
        if directory == "/":
            os.chroot(where)
            os.chdir("/")


def _make(target: str, is_directory: bool, shadow: Callable[[str], None]) -> None:
    """Makes a directory or an empty file; in what is not ours, `shadow` has been asked for before."""
    if os.path.exists(target):
        if os.path.isdir(target) != is_directory:
            raise NamespaceError(f"{target}: {'a directory' if is_directory else 'a file'} cannot be mounted there")
        return
    above = os.path.dirname(target)
    while not os.path.isdir(above):
        if os.path.lexists(above):
            raise NamespaceError(f"{above}: not a directory")
        above = os.path.dirname(above)
    shadow(above)
    try:
        os.makedirs(target if is_directory else os.path.dirname(target), exist_ok=True)
        if not is_directory:
            os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o644))
    except OSError as error:
        raise NamespaceError(f"{target}: {error.strerror}") from error


def _refuse(_directory: str) -> None:
    """Below a mount of ours, or in scratch: it may be written as it is."""


def _is_below(path: str, above: str) -> bool:
    return path == above or path.startswith(f"{above.rstrip('/')}/")
