"""Capturing frames in many namespaces at once.

One AF_PACKET socket per namespace hears all of its interfaces, in both directions. The kernel stamps each frame. What
leaves an interface and what comes in by it are told apart by the packet type (packet(7)).
"""

from __future__ import annotations

import select
import socket
import struct
import threading
import time
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Final, NamedTuple

from kproxy.linux.namespace import Namespace

_ALL: Final = 0x0003
_OTHERHOST: Final = 3
_OUTGOING: Final = 4
_SO_RCVBUFFORCE: Final = 33
_SO_TIMESTAMPNS: Final = 35
_BUFFER: Final = 1 << 25
_SNAP: Final = 65535


class Frame(NamedTuple):
    """A captured frame. `time` is in nanoseconds since 1970; `foreign` says that it came in and was meant for another
    host: flooded by a bridge, or on its way through one."""

    time: int
    host: str
    device: str
    outgoing: bool
    data: bytes
    foreign: bool = False


class Capture:
    """Listens from `__enter__` on, in the background; `frames` are what has come so far, in the order of their
    times."""

    def __init__(self, hosts: Mapping[str, str]) -> None:
        """`hosts`: namespaces by name of the host."""
        self._hosts = dict(hosts)
        self._sockets: dict[int, tuple[str, socket.socket]] = {}
        self._poll = select.epoll()
        self._frames: list[Frame] = []
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Capture:
        try:
            for host, netns in self._hosts.items():
                with Namespace.named(netns) as inside:
                    self._add(host, inside.call(_open))
        except BaseException:
            self._close()
            raise
        self._thread = threading.Thread(target=self._run, name="capture", daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Takes what has come, and stops listening."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        self._close()

    def _add(self, host: str, item: socket.socket) -> None:
        self._sockets[item.fileno()] = (host, item)
        self._poll.register(item.fileno(), select.EPOLLIN)

    def _close(self) -> None:
        for _, item in self._sockets.values():
            item.close()
        self._sockets.clear()
        if not self._poll.closed:
            self._poll.close()

    def _run(self) -> None:
        while True:
            stopping = self._stopped.is_set()
            events = self._poll.poll(0.02)
            for number, _ in events:
                self._read(*self._sockets[number])
            if stopping and not events:
                return

    def _read(self, host: str, item: socket.socket) -> None:
        found = []
        for _ in range(512):
            try:
                data, ancillary, _, address = item.recvmsg(_SNAP, 128)
            except BlockingIOError:
                break
            except OSError:
                continue  # an interface went away; others go on
            moment = time.time_ns()
            for level, kind, value in ancillary:
                if (level, kind) == (socket.SOL_SOCKET, _SO_TIMESTAMPNS):
                    seconds, rest = struct.unpack("ll", value[:16])
                    moment = seconds * 1_000_000_000 + rest
            found.append(Frame(moment, host, address[0], address[2] == _OUTGOING, data, address[2] == _OTHERHOST))
        with self._lock:
            self._frames += found

    @property
    def frames(self) -> list[Frame]:
        """The frames captured so far."""
        with self._lock:
            return sorted(self._frames, key=lambda frame: frame.time)

    def settle(self, quiet: float = 0.03, longest: float = 1.0) -> None:
        """Waits until nothing has come for `quiet` seconds, at most `longest`."""
        deadline, count = time.monotonic() + longest, -1
        while time.monotonic() < deadline:
            with self._lock:
                now = len(self._frames)
            if now == count:
                return
            count = now
            time.sleep(quiet)


def _open() -> socket.socket:
    item = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ALL))
    item.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _BUFFER)
    item.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
    item.setblocking(False)
    return item


def pcapng(frames: Iterable[Frame]) -> bytes:
    """The frames as a pcapng file, an interface `HOST:DEVICE` for each; times in nanoseconds."""
    blocks = [_block(0x0A0D0D0A, struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1))]
    interfaces: dict[tuple[str, str], int] = {}
    for frame in frames:
        interface = (frame.host, frame.device)
        if interface not in interfaces:
            interfaces[interface] = len(interfaces)
            name = _option(2, f"{frame.host}:{frame.device}".encode()) + _option(9, b"\x09") + _option(0, b"")
            blocks.append(_block(1, struct.pack("<HHI", 1, 0, _SNAP) + name))
        head = struct.pack(
            "<IIIII", interfaces[interface], frame.time >> 32, frame.time & 0xFFFFFFFF, len(frame.data), len(frame.data)
        )
        # epb_flags: 1 is inbound, 2 outbound.
        flags = _option(2, struct.pack("<I", 2 if frame.outgoing else 1)) + _option(0, b"")
        blocks.append(_block(6, head + frame.data + bytes(-len(frame.data) % 4) + flags))
    return b"".join(blocks)


def _block(kind: int, body: bytes) -> bytes:
    length = 12 + len(body)
    return struct.pack("<II", kind, length) + body + struct.pack("<I", length)


def _option(code: int, value: bytes) -> bytes:
    return struct.pack("<HH", code, len(value)) + value + bytes(-len(value) % 4)
