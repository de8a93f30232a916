"""The servers of a node's pods: one event loop in a thread of its own, sockets in every pod's namespace.

What answers is a pod's program (`echo`, `dns`). A server that is being drained goes on answering; a stopped one
has closed its sockets, and those of its connections.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from asyncio import StreamReader, StreamWriter
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import Future
from functools import partial
from importlib import import_module
from typing import Any, Final, Protocol

import msgspec

from kproxy.family import join_host_port
from kproxy.linux.namespace import Namespace

SCTP: Final = 132
"""The protocol's number."""
_PACKETS: Final = "kproxy.lab.kubelet.sctp"
"""Most nodes need no scapy."""
_BACKLOG: Final = 1024
_FAMILIES: Final = {4: socket.AF_INET, 6: socket.AF_INET6}
_IP_PKTINFO: Final = 8
_AT_ONCE: Final = 64
"""Datagrams of one socket that are answered before others have their turn."""
Answer = Callable[[bytes], bytes]


class Port(msgspec.Struct, frozen=True):
    """A port to serve: `protocol` is TCP, UDP or SCTP."""

    number: int
    protocol: str = "TCP"


class Program(Protocol):
    """What answers at a pod's ports. All is called in the event loop."""

    @property
    def prepared(self) -> bool:
        """Whether it can answer."""

    async def prepare(self) -> None:
        """Returns once it can; what comes before that waits."""

    def answer(self, protocol: str, peer: str, local: str, data: bytes) -> bytes:
        """The reply to a message; none if it is not to be answered. `peer` and `local` are `IP:PORT`."""

    async def converse(self, reader: StreamReader, writer: StreamWriter, answer: Answer) -> None:
        """Serves one connection, to whose messages `answer` replies. May raise OSError, EOFError and ValueError."""


class _Served:
    """What is open of a pod."""

    def __init__(self, program: Program, ports: tuple[Port, ...], sockets: list[tuple[socket.socket, str]]) -> None:
        self.program = program
        self.ports = ports
        self.sockets = sockets
        self.listeners: list[asyncio.Server] = []
        self.connections: set[StreamWriter] = set()
        self.serves = False
        self.closed = False


class PodServers:
    """All of a node's servers. `changed` is called with a key whose program could not answer at once, when it can."""

    def __init__(self, changed: Callable[[str], None] = lambda _key: None) -> None:
        self.loop = asyncio.new_event_loop()
        self._changed = changed
        self._served: dict[str, _Served] = {}

    def run(self) -> None:
        """Serves until `close` is called by another thread."""
        self.loop.run_forever()
        self.loop.close()

    def close(self) -> None:
        for key in list(self._served):
            self.stop(key)
        self.loop.call_soon_threadsafe(self.loop.stop)

    def start(self, key: str, netns: str, program: Program, ports: Iterable[Port], families: Iterable[int]) -> None:
        """Listens on all addresses of a namespace; again for the same key does nothing.

        Raises:
            OSError: a port cannot be had.
            LinuxError: the namespace cannot be entered.
        """
        if key in self._served:
            return
        wanted = tuple(ports)
        with Namespace.named(netns) as inside:
            opened = inside.call(_open_all, wanted, tuple(families))
        if any(item.type == socket.SOCK_RAW for item, _ in opened):
            import_module(_PACKETS)  # it takes its time: not in the event loop
        served = self._served[key] = _Served(program, wanted, opened)
        prepared = program.prepared
        beginning = self._call(self._serve(served))
        if prepared:
            beginning.result()
        else:
            beginning.add_done_callback(lambda _done: self._changed(key))

    def stop(self, key: str) -> None:
        """Closes the sockets of a key, those of its connections too."""
        served = self._served.pop(key, None)
        if served is not None:
            self._call(self._close(served)).result()

    def listens(self, key: str) -> bool:
        """Whether a key's sockets are open."""
        return key in self._served

    def is_serving(self, key: str) -> bool:
        """Whether what comes to a key's sockets is answered."""
        served = self._served.get(key)
        return served is not None and served.serves

    def _call(self, work: Coroutine[Any, Any, None]) -> Future[None]:
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    # --- in the event loop ---

    async def _serve(self, served: _Served) -> None:
        await served.program.prepare()
        if served.closed:
            return
        for item, protocol in served.sockets:
            if item.type == socket.SOCK_STREAM:
                accept = partial(_accept, served, protocol)
                served.listeners.append(await asyncio.start_server(accept, sock=item, backlog=_BACKLOG))
            else:
                read = _answer_raw if item.type == socket.SOCK_RAW else _answer_datagrams
                self.loop.add_reader(item, read, item, served)
        served.serves = True

    async def _close(self, served: _Served) -> None:
        served.closed = True
        for listener in served.listeners:
            listener.close()
        for connection in served.connections:
            connection.transport.abort()
        for item, _ in served.sockets:
            if item.fileno() >= 0:
                self.loop.remove_reader(item)
                item.close()
        await asyncio.sleep(0)  # what was aborted closes its socket in the loop's next turn


async def _accept(served: _Served, protocol: str, reader: StreamReader, writer: StreamWriter) -> None:
    if served.closed:
        writer.transport.abort()
        return
    served.connections.add(writer)
    peer, local = (join_host_port(*writer.get_extra_info(name)[:2]) for name in ("peername", "sockname"))
    # The peer may go, and send more than there is room for.
    with contextlib.suppress(OSError, EOFError, ValueError):
        await served.program.converse(reader, writer, partial(served.program.answer, protocol, peer, local))
    served.connections.discard(writer)
    writer.close()


def _answer_datagrams(item: socket.socket, served: _Served) -> None:
    for _ in range(_AT_ONCE):
        try:
            data, ancillary, _, peer = item.recvmsg(65535, 256)
        except OSError:
            return
        own, control = "", []
        for level, kind, value in ancillary:
            if level == socket.IPPROTO_IP and kind == _IP_PKTINFO:
                _, _, target = struct.unpack("=I4s4s", value[:12])
                own = socket.inet_ntop(socket.AF_INET, target)
                control = [(level, kind, struct.pack("=I4s4s", 0, target, bytes(4)))]
            elif level == socket.IPPROTO_IPV6 and kind == socket.IPV6_PKTINFO:
                own = socket.inet_ntop(socket.AF_INET6, value[:16])
                control = [(level, kind, value[:16] + struct.pack("=I", 0))]
        local = join_host_port(own, item.getsockname()[1])
        if reply := served.program.answer("UDP", join_host_port(*peer[:2]), local, data):
            with contextlib.suppress(OSError):
                item.sendmsg([reply], control, 0, peer)


def _answer_raw(item: socket.socket, served: _Served) -> None:
    packets = import_module(_PACKETS)
    ports = {port.number for port in served.ports if port.protocol == "SCTP"}
    for _ in range(_AT_ONCE):
        try:
            data, (peer, *_rest) = item.recvfrom(65535)
        except OSError:
            return

        def answer(sport: int, dport: int, text: bytes, peer: str = peer) -> bytes:
            local = join_host_port(item.getsockname()[0], dport)
            return served.program.answer("SCTP", join_host_port(peer, sport), local, text)

        reply = packets.respond(packets.read_packet(item.family, data), ports, answer)
        if reply:
            with contextlib.suppress(OSError):
                item.sendto(reply, (peer, 0))


# --- sockets ---


def kernel_has_sctp() -> bool:
    """Whether the kernel has sockets for it."""
    try:
        socket.socket(socket.AF_INET, socket.SOCK_STREAM, SCTP).close()
    except OSError:
        return False
    return True


def _open_all(ports: tuple[Port, ...], families: tuple[int, ...]) -> list[tuple[socket.socket, str]]:
    """The sockets of all ports, with their protocols; one raw socket for SCTP if the kernel has none."""
    raw = not kernel_has_sctp() and any(port.protocol == "SCTP" for port in ports)
    with contextlib.ExitStack() as opened:
        found = []
        for family in (_FAMILIES[version] for version in families):
            own = [port for port in ports if not (raw and port.protocol == "SCTP")]
            found += [(opened.enter_context(_open(family, port)), port.protocol) for port in own]
            if raw:
                item = opened.enter_context(socket.socket(family, socket.SOCK_RAW, SCTP))
                item.setblocking(False)
                found.append((item, "SCTP"))
        opened.pop_all()
    return found


def _open(family: socket.AddressFamily, port: Port) -> socket.socket:
    kind = socket.SOCK_DGRAM if port.protocol == "UDP" else socket.SOCK_STREAM
    with contextlib.ExitStack() as opened:
        item = opened.enter_context(socket.socket(family, kind, SCTP if port.protocol == "SCTP" else 0))
        item.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            item.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        if port.protocol == "UDP":
            # A host has several addresses: the answer must come from the one that was asked.
            if family == socket.AF_INET:
                item.setsockopt(socket.IPPROTO_IP, _IP_PKTINFO, 1)
            else:
                item.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVPKTINFO, 1)
        item.bind(("", port.number))
        if port.protocol != "UDP":
            item.listen(_BACKLOG)
        item.setblocking(False)
        opened.pop_all()
    return item
