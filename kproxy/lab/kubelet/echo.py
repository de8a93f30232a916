"""The echo servers of a node's pods: one thread, sockets in every pod's namespace.

Whatever comes in is answered with one line of JSON: the pod that answers, and which peer it saw.

    {"pod": "web-1", "namespace": "default", "node": "node-1", "protocol": "TCP", "peer": "10.244.1.5:40000",
     "local": "10.244.2.3:8080", "data": "hello"}

TCP answers every line, and HTTP's GET with the same in a response; UDP every datagram; SCTP every message. A server
that is being drained goes on answering; a stopped one has closed its sockets.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import select
import socket
import struct
import threading
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Final

import msgspec

from kproxy.family import join_host_port
from kproxy.linux.namespace import Namespace

log = logging.getLogger(__name__)

SCTP: Final = 132
"""The protocol's number."""
_BACKLOG: Final = 1024
_MAX_LINE: Final = 65536
_FAMILIES: Final = {4: socket.AF_INET, 6: socket.AF_INET6}
_IP_PKTINFO: Final = 8
_METHODS: Final = (b"GET ", b"HEAD ", b"POST ", b"PUT ")


class Port(msgspec.Struct, frozen=True):
    """A port to serve: `protocol` is TCP, UDP or SCTP."""

    number: int
    protocol: str = "TCP"


class Identity(msgspec.Struct, frozen=True):
    """Which pod and node answer."""

    pod: str
    namespace: str
    node: str
    log: Callable[[str, str, str, bytes], None] | None = None
    """Gets the protocol, the peer, the pod's own `address:port`, and what came."""

    def answer(self, protocol: str, peer: str, local: str, data: bytes) -> bytes:
        """The line that answers `data`."""
        if self.log is not None:
            self.log(protocol, peer, local, data)
        reply = {
            "pod": self.pod,
            "namespace": self.namespace,
            "node": self.node,
            "protocol": protocol,
            "peer": peer,
            "local": local,
            "data": data.decode(errors="replace"),
        }
        return msgspec.json.encode(reply) + b"\n"


def kernel_has_sctp() -> bool:
    """Whether the kernel has sockets for it."""
    try:
        socket.socket(socket.AF_INET, socket.SOCK_STREAM, SCTP).close()
    except OSError:
        return False
    return True


class EchoServers:
    """All of a node's servers; `run` in a thread of its own."""

    def __init__(self) -> None:
        self._poll = select.epoll()
        self._lock = threading.Lock()
        self._handlers: dict[int, Callable[[], None]] = {}
        self._sockets: dict[str, list[socket.socket]] = {}
        self._closed = False

    def start(self, key: str, netns: str, identity: Identity, ports: Iterable[Port], families: Iterable[int]) -> None:
        """Listens on all addresses of a namespace; again for the same key does nothing.

        Raises:
            OSError: a port cannot be had.
            LinuxError: the namespace cannot be entered.
        """
        with self._lock:
            if key in self._sockets:
                return
        wanted, versions = tuple(ports), tuple(families)
        with Namespace.named(netns) as inside:
            opened = inside.call(_open_all, wanted, versions)
        with self._lock:
            self._sockets[key] = [item for item, _ in opened]
        for item, protocol in opened:
            self._serve(key, item, protocol, identity, {port.number for port in wanted if port.protocol == "SCTP"})

    def stop(self, key: str) -> None:
        """Closes the sockets of a key, those of its connections too."""
        with self._lock:
            sockets = self._sockets.pop(key, [])
        for item in sockets:
            self._drop(item)

    def is_serving(self, key: str) -> bool:
        """Whether a key's sockets are open."""
        with self._lock:
            return key in self._sockets

    def run(self) -> None:
        """Serves until `close` is called by another thread."""
        while not self._closed:
            try:
                events = self._poll.poll(1.0)
            except (OSError, ValueError):
                return
            for number, _ in events:
                handler = self._handlers.get(number)
                if handler is None:
                    continue
                try:
                    handler()
                except OSError:
                    pass  # the peer has gone; the socket was dropped where that matters
                except Exception:
                    log.exception("echo server")

    def close(self) -> None:
        self._closed = True
        for key in list(self._sockets):
            self.stop(key)

    # --- one socket ---

    def _serve(self, key: str, item: socket.socket, protocol: str, identity: Identity, sctp_ports: set[int]) -> None:
        if protocol == "UDP":
            self._watch(item, lambda: _answer_datagram(item, identity))
        elif item.type == socket.SOCK_RAW:
            from kproxy.lab.kubelet import sctp as packets  # most nodes need no scapy

            self._watch(item, lambda: _answer_raw(item, packets, sctp_ports, identity))
        else:
            self._watch(item, lambda: self._accept(key, item, protocol, identity))

    def _watch(self, item: socket.socket, handler: Callable[[], None]) -> None:
        number = item.fileno()
        if number < 0:
            return
        self._handlers[number] = handler
        self._poll.register(number, select.EPOLLIN)

    def _drop(self, item: socket.socket) -> None:
        number = item.fileno()
        if number >= 0:
            self._handlers.pop(number, None)
            with contextlib.suppress(OSError, ValueError):
                self._poll.unregister(number)
        item.close()

    def _accept(self, key: str, listener: socket.socket, protocol: str, identity: Identity) -> None:
        for _ in range(64):
            try:
                connection, peer = listener.accept()
            except BlockingIOError:
                return
            connection.setblocking(False)
            with self._lock:
                if key not in self._sockets:
                    connection.close()
                    return
                self._sockets[key].append(connection)
            names = join_host_port(*peer[:2]), join_host_port(*connection.getsockname()[:2])
            read = functools.partial(self._read, key, connection, bytearray(), protocol, identity, names)
            self._watch(connection, read)

    def _read(
        self,
        key: str,
        connection: socket.socket,
        waiting: bytearray,
        protocol: str,
        identity: Identity,
        names: tuple[str, str],
    ) -> None:
        try:
            data = connection.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        waiting += data
        if not data or len(waiting) > _MAX_LINE:
            self._forget(key, connection)
            return
        if waiting.startswith(_METHODS):
            if b"\r\n\r\n" in waiting:
                body = identity.answer(protocol, *names, bytes(waiting.split(b"\r\n")[0]))
                head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: "
                head += str(len(body)).encode() + b"\r\n\r\n"
                connection.send(head + (b"" if waiting.startswith(b"HEAD ") else body))
                self._forget(key, connection)
            return
        while b"\n" in waiting:
            line, _, rest = bytes(waiting).partition(b"\n")
            waiting[:] = rest
            connection.send(identity.answer(protocol, *names, line))

    def _forget(self, key: str, connection: socket.socket) -> None:
        with self._lock:
            sockets = self._sockets.get(key)
            if sockets is not None and connection in sockets:
                sockets.remove(connection)
        self._drop(connection)


def _open_all(ports: tuple[Port, ...], families: tuple[int, ...]) -> list[tuple[socket.socket, str]]:
    opened: list[tuple[socket.socket, str]] = []
    raw = not kernel_has_sctp()
    try:
        for family in families:
            for port in ports:
                if port.protocol == "SCTP" and raw:
                    continue
                opened.append((_open(_FAMILIES[family], port), port.protocol))
            if raw and any(port.protocol == "SCTP" for port in ports):
                item = socket.socket(_FAMILIES[family], socket.SOCK_RAW, SCTP)
                item.setblocking(False)
                opened.append((item, "SCTP"))
    except OSError:
        for item, _ in opened:
            item.close()
        raise
    return opened


def _open(family: socket.AddressFamily, port: Port) -> socket.socket:
    kind = socket.SOCK_DGRAM if port.protocol == "UDP" else socket.SOCK_STREAM
    item = socket.socket(family, kind, SCTP if port.protocol == "SCTP" else 0)
    try:
        item.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            item.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        if port.protocol == "UDP":
            # A host has several addresses: the answer must come from the one that was asked.
            if family == socket.AF_INET:
                item.setsockopt(socket.IPPROTO_IP, _IP_PKTINFO, 1)
            else:
                item.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVPKTINFO, 1)
        item.bind(("::" if family == socket.AF_INET6 else "", port.number))
        if port.protocol != "UDP":
            item.listen(_BACKLOG)
        item.setblocking(False)
    except OSError:
        item.close()
        raise
    return item


def _answer_datagram(item: socket.socket, identity: Identity) -> None:
    for _ in range(64):
        try:
            data, ancillary, _, peer = item.recvmsg(65535, 256)
        except BlockingIOError:
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
        with contextlib.suppress(OSError):
            item.sendmsg([identity.answer("UDP", join_host_port(*peer[:2]), local, data)], control, 0, peer)


def _answer_raw(item: socket.socket, packets: ModuleType, ports: set[int], identity: Identity) -> None:
    for _ in range(64):
        try:
            data, (peer, *_rest) = item.recvfrom(65535)
        except BlockingIOError:
            return

        def answer(sport: int, dport: int, text: bytes, peer: str = peer) -> bytes:
            local = join_host_port(item.getsockname()[0], dport)
            return identity.answer("SCTP", join_host_port(peer, sport), local, text)

        reply = packets.respond(packets.read_packet(item.family, data), ports, answer)
        if reply:
            with contextlib.suppress(OSError):
                item.sendto(reply, (peer, 0))
