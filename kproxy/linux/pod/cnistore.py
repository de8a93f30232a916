"""Where a node keeps its attachments and leases: one JSON file, replaced whole, and locks that die with their holder.

`state.json` is written to a file beside it and renamed, so a process that is killed leaves the old state or the new
one. Nothing is synced to the disk: the namespaces that the state speaks of do not outlive the machine's kernel either.

The locks are open file description locks (fcntl(2), F_OFD_SETLK) on bytes of one file: byte 0 for the state, 1 for
iptables, and one of the others for each attachment. They hold between threads as well as between processes, leave
nothing behind, and need no files of their own. Two attachments whose bytes are the same only wait for one another. The
kernel has no wait with a time limit for them, so a process that finds one held tries again after a while; threads of
one process first take a lock of its own for the state and for iptables, which wakes the next at once.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import struct
import threading
import time
import zlib
from collections.abc import Iterator
from typing import Final, Literal

import msgspec

from kproxy.overlay.errors import CniError, Code
from kproxy.overlay.ipam import Leases, Record

WAIT: Final = 30.0
"""Seconds to wait for a lock before "try again later"."""
_STATE: Final = 0
_IPTABLES: Final = 1

_locks: Final[dict[tuple[str, int], threading.Lock]] = {}
"""Locks between the threads of this process, by directory and byte."""
_seen: Final[dict[str, tuple[bytes, Leases]]] = {}
"""What state files held when they were last read or written here, and what that means: reading a file takes a hundredth
of the time that understanding it does."""


class _Attachment(msgspec.Struct):
    """A `Record` in the file."""

    state: Literal["pending", "done"]
    ips: tuple[str, ...]
    link: str
    netns: str
    ports: tuple[tuple[str, int, str], ...]


class _File(msgspec.Struct):
    version: Literal[1]
    attachments: dict[str, _Attachment]
    last: dict[str, str]


class Store:
    """The state of one network on one node, in `directory`."""

    def __init__(self, directory: str, wait: float = WAIT) -> None:
        self.directory = directory
        self._path = os.path.join(directory, "state.json")
        self._wait = wait

    def prepare(self) -> None:
        """Makes the directory. Raises CniError."""
        try:
            os.makedirs(self.directory, mode=0o700, exist_ok=True)
        except OSError as error:
            raise _failure(f"cannot make {self.directory}", error) from error

    @contextlib.contextmanager
    def attachment(self, key: str) -> Iterator[None]:
        """Holds the lock of an attachment. Raises CniError."""
        with self._locked(2 + zlib.crc32(key.encode()), f"attachment {key}"):
            yield

    @contextlib.contextmanager
    def state(self) -> Iterator[None]:
        """Holds the lock of the state, for as long as it takes to read and write it. Raises CniError."""
        with self._alone(_STATE, "state"), self._locked(_STATE, "state"):
            yield

    @contextlib.contextmanager
    def iptables(self) -> Iterator[None]:
        """Holds the lock under which port mappings are read and written. Raises CniError."""
        with self._alone(_IPTABLES, "port mappings"), self._locked(_IPTABLES, "port mappings"):
            yield

    def load(self) -> Leases:
        """The state; empty if there is none yet. Raises CniError, STATE_CORRUPT if it cannot be understood."""
        try:
            with open(self._path, "rb") as file:
                data = file.read()
        except FileNotFoundError:
            return Leases()
        except OSError as error:
            raise _failure(f"cannot read {self._path}", error) from error
        known = _seen.get(self._path)
        if known is not None and known[0] == data:
            return known[1]
        try:
            leases = _decode(data)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise CniError(
                Code.STATE_CORRUPT,
                "the state file cannot be understood",
                f"{self._path}: {error!r}; with no pod on this node, remove {self.directory}",
            ) from error
        _seen[self._path] = (data, leases)
        return leases

    def save(self, leases: Leases) -> None:
        """Replaces the state; call it with the lock held. Raises CniError."""
        temporary = f"{self._path}.new"
        data = _encode(leases)
        try:
            with open(temporary, "wb") as file:
                file.write(data)
            os.replace(temporary, self._path)
        except OSError as error:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise _failure(f"cannot write {self._path}", error) from error
        _seen[self._path] = (data, leases)

    @contextlib.contextmanager
    def _alone(self, byte: int, what: str) -> Iterator[None]:
        lock = _locks.setdefault((self.directory, byte), threading.Lock())
        if not lock.acquire(timeout=self._wait):
            raise _busy(f"{self.directory} ({what})", self._wait)
        try:
            yield
        finally:
            lock.release()

    @contextlib.contextmanager
    def _locked(self, byte: int, what: str) -> Iterator[None]:
        path = os.path.join(self.directory, "lock")
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise _failure(f"cannot open {path}", error) from error
        try:
            self._acquire(descriptor, byte, f"{path} ({what})")
            yield
        finally:
            os.close(descriptor)

    def _acquire(self, descriptor: int, byte: int, what: str) -> None:
        request = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, byte, 1, 0)
        until = time.monotonic() + self._wait
        pause = 0.001
        while True:
            try:
                fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, request)
                return
            except OSError as error:
                if error.errno not in (errno.EAGAIN, errno.EACCES):
                    raise _failure(f"cannot lock {what}", error) from error
            if time.monotonic() > until:
                raise _busy(what, self._wait)
            time.sleep(pause)
            pause = min(pause * 1.5, 0.02)


def _busy(what: str, seconds: float) -> CniError:
    return CniError(Code.TRY_AGAIN_LATER, "a lock was not free", f"{what} for {seconds:g} s")


def _failure(what: str, error: OSError) -> CniError:
    return CniError(Code.IO_FAILURE, "input or output failed", f"{what}: {error.strerror or error}")


def _encode(leases: Leases) -> bytes:
    records = {key: msgspec.convert(record._asdict(), _Attachment) for key, record in leases.records.items()}
    return msgspec.json.encode(_File(1, records, dict(leases.last)))


def _decode(data: bytes) -> Leases:
    """Raises msgspec.MsgspecError."""
    file = msgspec.json.decode(data, type=_File)
    records = {key: Record(*msgspec.structs.astuple(each)) for key, each in file.attachments.items()}
    return Leases(records, file.last)
