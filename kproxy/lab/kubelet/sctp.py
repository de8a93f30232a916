"""Just enough of SCTP (RFC 9260) to answer and to ask in one association, on raw sockets, with scapy's packets.

Most kernels have no SCTP without a module, while netfilter tracks and translates it all the same. Where the kernel does
have it, its sockets are used (`kernel_has_sctp`); a raw socket beside them would get every packet twice answered.

One association carries one message each way, without retransmission: the asker sends again if nothing comes. Both sides
have the asker's tag, so the answering side remembers nothing, and an INIT that is sent again is answered alike: another
tag would make what comes with the first invalid to conntrack.
"""

from __future__ import annotations

import secrets
import socket
import struct
import time
from collections.abc import Callable, Collection
from typing import Any, Final

from scapy.layers.sctp import (
    SCTP,
    SCTPChunkAbort,
    SCTPChunkCookieAck,
    SCTPChunkCookieEcho,
    SCTPChunkData,
    SCTPChunkHeartbeatAck,
    SCTPChunkHeartbeatReq,
    SCTPChunkInit,
    SCTPChunkInitAck,
    SCTPChunkParamStateCookie,
    SCTPChunkSACK,
    SCTPChunkShutdown,
    SCTPChunkShutdownAck,
)

_RECVERR: Final = {socket.AF_INET: (socket.IPPROTO_IP, 11), socket.AF_INET6: (socket.IPPROTO_IPV6, 25)}
"""IP_RECVERR and IPV6_RECVERR of <linux/in.h> and <linux/in6.h>."""
_HEADER: Final = 12
_WINDOW: Final = 65536


def _data(tsn: int, data: bytes) -> Any:
    return SCTPChunkData(beginning=1, ending=1, tsn=tsn, data=data)


def read_packet(family: int, data: bytes) -> Any:
    """The packet that a raw socket received (those of IPv4 have the IP header before it); None if it is none."""
    packet = data[(data[0] & 15) * 4 :] if family == socket.AF_INET and data else data
    return SCTP(packet) if len(packet) >= _HEADER else None


def respond(packet: Any, ports: Collection[int], answer: Callable[[int, int, bytes], bytes]) -> bytes:
    """The listening side: what to send back to where a packet came from, if anything.

    Args:
        answer: makes the reply to a message, of the peer's port and the own one.
    """
    if packet is None or packet.dport not in ports:
        return b""
    chunk, tag = packet.payload, packet.tag
    if isinstance(chunk, SCTPChunkInit):
        tag, cookie = chunk.init_tag, SCTPChunkParamStateCookie(cookie=b"lab!")
        reply: Any = SCTPChunkInitAck(
            init_tag=tag, init_tsn=tag, params=[cookie], a_rwnd=_WINDOW, n_out_streams=1, n_in_streams=1
        )
    elif isinstance(chunk, SCTPChunkCookieEcho):
        reply = SCTPChunkCookieAck()
    elif isinstance(chunk, SCTPChunkData):
        text = answer(packet.sport, packet.dport, bytes(chunk.data or b""))
        reply = SCTPChunkSACK(cumul_tsn_ack=chunk.tsn, a_rwnd=_WINDOW) / _data(tag, text)
    elif isinstance(chunk, SCTPChunkHeartbeatReq):
        reply = SCTPChunkHeartbeatAck(params=chunk.params)
    elif isinstance(chunk, SCTPChunkShutdown):
        reply = SCTPChunkShutdownAck()
    else:
        return b""
    return bytes(SCTP(sport=packet.dport, dport=packet.sport, tag=tag) / reply)


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
    tag, peer_tag = secrets.randbits(32) | 1, 0

    def send(chunk: Any) -> bytes:
        packet = bytes(SCTP(sport=source_port, dport=port, tag=peer_tag) / chunk)
        raw.send(packet)
        return packet

    raw.setsockopt(*_RECVERR[socket.AddressFamily(raw.family)], 1)
    raw.connect((address, 0))
    sent = send(SCTPChunkInit(init_tag=tag, init_tsn=tag, a_rwnd=_WINDOW, n_out_streams=1, n_in_streams=1))
    while True:
        raw.settimeout(max(0.001, min(0.5, deadline - time.monotonic())))
        try:
            packet = read_packet(raw.family, raw.recv(65535))
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
        if packet is None or (packet.dport, packet.sport, packet.tag) != (source_port, port, tag):
            continue
        chunk = packet.payload
        # The answer to an INIT that was sent again is passed over (RFC 9260, 5.2.3).
        if isinstance(chunk, SCTPChunkInitAck) and not peer_tag:
            peer_tag = chunk.init_tag
            cookies = [each.cookie for each in chunk.params if isinstance(each, SCTPChunkParamStateCookie)]
            sent = send(SCTPChunkCookieEcho(cookie=cookies[0] if cookies else b""))
        elif isinstance(chunk, SCTPChunkCookieAck):
            sent = send(_data(tag, data))
        elif SCTPChunkData in packet:
            found = packet[SCTPChunkData]
            send(SCTPChunkSACK(cumul_tsn_ack=found.tsn, a_rwnd=_WINDOW) / SCTPChunkAbort())
            return bytes(found.data or b"")
        elif isinstance(chunk, SCTPChunkAbort):
            raise ConnectionRefusedError("the association was refused")


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
