"""Just enough of SCTP (RFC 9260) to answer and to ask in one association, on raw sockets.

Most kernels have no SCTP without a module, while netfilter tracks and translates it all the same. Where the kernel does
have it, its sockets are used (`kernel_has_sctp`); a raw socket beside them would get every packet twice answered.

One association carries one message each way, without retransmission: the asker sends again if nothing comes.
"""

from __future__ import annotations

import secrets
import socket
import struct
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

PROTOCOL: Final = 132
DATA, INIT, INIT_ACK, SACK, HEARTBEAT, HEARTBEAT_ACK, ABORT, SHUTDOWN, SHUTDOWN_ACK = range(9)
COOKIE_ECHO, COOKIE_ACK, SHUTDOWN_COMPLETE = 10, 11, 14
_STATE_COOKIE: Final = 7
_RECVERR: Final = {socket.AF_INET: (socket.IPPROTO_IP, 11), socket.AF_INET6: (socket.IPPROTO_IPV6, 25)}
"""IP_RECVERR and IPV6_RECVERR of <linux/in.h> and <linux/in6.h>."""
_WINDOW: Final = 65536
_WHOLE: Final = 3
"""Flags of a DATA chunk that is first and last fragment."""


def _table() -> tuple[int, ...]:
    found = []
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        found.append(value)
    return tuple(found)


_CRC: Final = _table()


def crc32c(data: bytes) -> int:
    """The checksum of SCTP (Castagnoli)."""
    value = 0xFFFFFFFF
    for byte in data:
        value = value >> 8 ^ _CRC[(value ^ byte) & 0xFF]
    return value ^ 0xFFFFFFFF


class Chunk(NamedTuple):
    kind: int
    flags: int
    value: bytes


class Message(NamedTuple):
    """An SCTP packet with its chunks."""

    sport: int
    dport: int
    tag: int
    chunks: tuple[Chunk, ...]


def encode(message: Message) -> bytes:
    """The packet's bytes, from the SCTP header on."""
    body = b""
    for kind, flags, value in message.chunks:
        length = 4 + len(value)
        body += struct.pack("!BBH", kind, flags, length) + value + bytes(-length % 4)
    head = struct.pack("!HHI", message.sport, message.dport, message.tag)
    # The checksum goes over the wire with its low byte first.
    return head + struct.pack("<I", crc32c(head + bytes(4) + body)) + body


def decode(data: bytes) -> Message | None:
    """The packet in these bytes; None if they are not one."""
    if len(data) < 12:
        return None
    sport, dport, tag = struct.unpack_from("!HHI", data)
    return Message(sport, dport, tag, tuple(_chunks(data[12:])))


def _chunks(data: bytes) -> Iterator[Chunk]:
    while len(data) >= 4:
        kind, flags, length = struct.unpack_from("!BBH", data)
        if length < 4 or length > len(data):
            return
        yield Chunk(kind, flags, data[4:length])
        data = data[length + -length % 4 :]


def kernel_has_sctp() -> bool:
    """Whether the kernel has sockets for it."""
    try:
        socket.socket(socket.AF_INET, socket.SOCK_STREAM, PROTOCOL).close()
    except OSError:
        return False
    return True


def strip_header(family: socket.AddressFamily, data: bytes) -> bytes:
    """What a raw socket received, from the SCTP header on: those of IPv4 have the IP header before it."""
    return data[(data[0] & 15) * 4 :] if family == socket.AF_INET and data else data


@dataclass
class _Association:
    tag: int
    peer_tag: int
    next_tsn: int
    seen_tsn: int


class Responder:
    """The listening side: `receive` takes a packet and returns what to send back to where it came from."""

    def __init__(self, answer: Callable[[str, int, int, bytes], bytes]) -> None:
        """`answer(peer address, peer port, own port, data)` makes the reply to a message."""
        self._answer = answer
        self._known: dict[tuple[str, int, int], _Association] = {}
        self.ports: set[int] = set()

    def receive(self, peer: str, data: bytes) -> list[bytes]:
        """The packets that answer one that `peer` sent."""
        message = decode(data)
        if message is None or message.dport not in self.ports:
            return []
        key = (peer, message.sport, message.dport)
        replies: list[bytes] = []
        for chunk in message.chunks:
            replies += self._chunk(key, chunk)
        return replies

    def _chunk(self, key: tuple[str, int, int], chunk: Chunk) -> list[bytes]:
        peer, sport, dport = key

        def reply(tag: int, *chunks: Chunk) -> bytes:
            return encode(Message(dport, sport, tag, chunks))

        if chunk.kind == INIT and len(chunk.value) >= 16:
            peer_tag, _, _, _, tsn = struct.unpack_from("!IIHHI", chunk.value)
            mine = self._known.get(key)
            if mine is None or mine.peer_tag != peer_tag:
                # Sent again, it gets the same tag: another would make what comes with the first invalid to conntrack.
                mine = _Association(secrets.randbits(32) | 1, peer_tag, secrets.randbits(32), (tsn - 1) & 0xFFFFFFFF)
                self._known[key] = mine
            if len(self._known) > 10_000:
                self._known.pop(next(iter(self._known)))
            value = struct.pack("!IIHHI", mine.tag, _WINDOW, 1, 1, mine.next_tsn)
            cookie = struct.pack("!HH", _STATE_COOKIE, 8) + struct.pack("!I", mine.tag)
            return [reply(peer_tag, Chunk(INIT_ACK, 0, value + cookie))]
        mine = self._known.get(key)
        if mine is None:
            return []
        if chunk.kind == COOKIE_ECHO:
            return [reply(mine.peer_tag, Chunk(COOKIE_ACK, 0, b""))]
        if chunk.kind == DATA and len(chunk.value) >= 12:
            tsn = struct.unpack_from("!I", chunk.value)[0]
            mine.seen_tsn = tsn
            text = self._answer(peer, sport, dport, chunk.value[12:])
            data = Chunk(DATA, _WHOLE, struct.pack("!IHHI", mine.next_tsn, 0, 0, 0) + text)
            mine.next_tsn = (mine.next_tsn + 1) & 0xFFFFFFFF
            return [reply(mine.peer_tag, Chunk(SACK, 0, struct.pack("!IIHH", tsn, _WINDOW, 0, 0)), data)]
        if chunk.kind == HEARTBEAT:
            return [reply(mine.peer_tag, Chunk(HEARTBEAT_ACK, 0, chunk.value))]
        if chunk.kind == SHUTDOWN:
            return [reply(mine.peer_tag, Chunk(SHUTDOWN_ACK, 0, b""))]
        if chunk.kind in (SHUTDOWN_COMPLETE, ABORT):
            self._known.pop(key, None)
        return []


def ask(raw: socket.socket, target: tuple[str, int], source_port: int, data: bytes, timeout: float) -> bytes:
    """Opens an association over a raw socket, sends a message, and returns the one that answers it.

    Args:
        raw: SOCK_RAW of protocol 132, in the namespace to ask from.
        timeout: seconds in all.

    Raises:
        TimeoutError: nothing came.
        ConnectionRefusedError: an ICMP error came, or an ABORT.
    """
    address, port = target
    deadline = time.monotonic() + timeout
    tag, tsn = secrets.randbits(32) | 1, secrets.randbits(32)
    init = Chunk(INIT, 0, struct.pack("!IIHHI", tag, _WINDOW, 1, 1, tsn))
    raw.setsockopt(*_RECVERR[socket.AddressFamily(raw.family)], 1)
    raw.connect((address, 0))
    sent = encode(Message(source_port, port, 0, (init,)))
    raw.send(sent)
    peer_tag = 0
    while True:
        raw.settimeout(max(0.001, min(0.5, deadline - time.monotonic())))
        try:
            received = raw.recv(65535)
        except TimeoutError:
            if time.monotonic() >= deadline:
                raise
            raw.send(sent)
            continue
        except OSError:
            # A raw socket hears of every SCTP packet to its peer, also of those of others.
            if (source_port, port) in _failed(raw):
                raise
            continue
        message = decode(strip_header(socket.AddressFamily(raw.family), received))
        if message is None or message.dport != source_port or message.sport != port or message.tag != tag:
            continue
        for chunk in message.chunks:
            if chunk.kind == INIT_ACK:
                if peer_tag:
                    continue  # the answer to an INIT that was sent again (RFC 9260, 5.2.3)
                peer_tag = struct.unpack_from("!I", chunk.value)[0]
                sent = encode(Message(source_port, port, peer_tag, (Chunk(COOKIE_ECHO, 0, _cookie(chunk.value)),)))
            elif chunk.kind == COOKIE_ACK:
                payload = Chunk(DATA, _WHOLE, struct.pack("!IHHI", tsn, 0, 0, 0) + data)
                sent = encode(Message(source_port, port, peer_tag, (payload,)))
            elif chunk.kind == DATA:
                end = struct.unpack_from("!I", chunk.value)[0]
                sack = Chunk(SACK, 0, struct.pack("!IIHH", end, _WINDOW, 0, 0))
                raw.send(encode(Message(source_port, port, peer_tag, (sack, Chunk(ABORT, 0, b"")))))
                return chunk.value[12:]
            elif chunk.kind == ABORT:
                raise ConnectionRefusedError("the association was refused")
            else:
                continue
            raw.send(sent)


def _failed(raw: socket.socket) -> set[tuple[int, int]]:
    """Source and destination ports of the packets that ICMP errors were about, from the socket's error queue."""
    found: set[tuple[int, int]] = set()
    while True:
        try:
            data, _, _, _ = raw.recvmsg(2048, 512, socket.MSG_ERRQUEUE | socket.MSG_DONTWAIT)
        except OSError:
            return found
        if len(data) >= 4:
            sport, dport = struct.unpack_from("!HH", data)
            found.add((sport, dport))


def _cookie(value: bytes) -> bytes:
    offset = 16
    while offset + 4 <= len(value):
        kind, length = struct.unpack_from("!HH", value, offset)
        if kind == _STATE_COOKIE:
            return value[offset + 4 : offset + length]
        offset += max(4, length + -length % 4)
    return b""
