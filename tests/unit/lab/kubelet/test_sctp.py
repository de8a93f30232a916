"""The small SCTP: what it sends, scapy understands, and its checksum is that of the RFC."""

from __future__ import annotations

import socket
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scapy.layers.sctp import SCTP, SCTPChunkInit

from kproxy.lab.kubelet.sctp import (
    COOKIE_ACK,
    COOKIE_ECHO,
    DATA,
    INIT,
    INIT_ACK,
    SACK,
    Chunk,
    Message,
    Responder,
    ask,
    crc32c,
    decode,
    encode,
)


@pytest.mark.parametrize(
    ("data", "crc"), [(bytes(32), 0x8A9136AA), (b"\xff" * 32, 0x62A8AB43), (b"123456789", 0xE3069283)]
)
def test_checksum_of_rfc_3720(data: bytes, crc: int) -> None:
    assert crc32c(data) == crc


@given(st.lists(st.builds(Chunk, st.integers(0, 255), st.integers(0, 255), st.binary(max_size=40)), max_size=4))
def test_decode_undoes_encode(chunks: list[Chunk]) -> None:
    message = Message(1, 2, 3, tuple(chunks))
    assert decode(encode(message)) == message


@given(st.binary(max_size=60))
def test_anything_can_be_decoded(data: bytes) -> None:
    decode(data)


def test_scapy_reads_what_is_sent() -> None:
    init = Chunk(INIT, 0, b"\x01\x02\x03\x04\x00\x01\x00\x00\x00\x01\x00\x01\x00\x00\x00\x09")
    packet = SCTP(encode(Message(4000, 91, 0, (init,))))
    assert (packet.sport, packet.dport) == (4000, 91)
    assert packet[SCTPChunkInit].init_tag == 0x01020304
    original = packet.chksum
    del packet.chksum
    assert SCTP(bytes(packet)).chksum == original


def test_an_association_from_beginning_to_answer() -> None:
    responder = Responder(lambda peer, sport, dport, data: f"{peer} {sport} {dport} ".encode() + data)
    responder.ports = {91}

    def send(tag: int, chunk: Chunk) -> list[Chunk]:
        replies = responder.receive("10.0.0.1", encode(Message(4000, 91, tag, (chunk,))))
        found = [decode(item) for item in replies]
        assert all(item is not None and (item.sport, item.dport, item.tag) == (91, 4000, 7) for item in found)
        return [chunk for item in found if item is not None for chunk in item.chunks]

    value = b"\x00\x00\x00\x07\x00\x01\x00\x00\x00\x01\x00\x01\x00\x00\x00\x09"
    (answer,) = send(0, Chunk(INIT, 0, value))
    assert answer.kind == INIT_ACK
    assert send(0, Chunk(INIT, 0, value)) == [answer], "sent again, it is the same association"
    tag = int.from_bytes(answer.value[:4], "big")
    assert [item.kind for item in send(tag, Chunk(COOKIE_ECHO, 0, answer.value[20:]))] == [COOKIE_ACK]
    sack, data = send(tag, Chunk(DATA, 3, b"\x00\x00\x00\x09" + bytes(8) + b"hello"))
    assert (sack.kind, sack.value[:4]) == (SACK, b"\x00\x00\x00\x09")
    assert data.value[12:] == b"10.0.0.1 4000 91 hello"
    assert responder.receive("10.0.0.1", encode(Message(4000, 92, 0, (Chunk(INIT, 0, value),)))) == []


class _SlowWire:
    """A raw socket whose peer answers an INIT twice, as if it had been sent again, with another tag each time."""

    family = socket.AF_INET6

    def __init__(self) -> None:
        self.sent: list[Message] = []
        self._answers: list[bytes] = []

    def setsockopt(self, *_: int) -> None: ...

    def settimeout(self, _: float) -> None: ...

    def connect(self, _: tuple[str, int]) -> None: ...

    def send(self, data: bytes) -> None:
        message = decode(data)
        assert message is not None
        self.sent.append(message)
        kind = message.chunks[0].kind
        if kind == INIT:
            self._tag = int.from_bytes(message.chunks[0].value[:4], "big")
            for tag in (5, 6):
                value = struct.pack("!IIHHI", tag, 1000, 1, 1, 9) + struct.pack("!HHI", 7, 8, tag)
                self._answer(Chunk(INIT_ACK, 0, value))
        elif kind == COOKIE_ECHO:
            self._answer(Chunk(COOKIE_ACK, 0, b""))
        elif kind == DATA:
            self._answer(Chunk(DATA, 3, bytes(12) + b"hello"))

    def _answer(self, chunk: Chunk) -> None:
        self._answers.append(encode(Message(91, 4000, self._tag, (chunk,))))

    def recv(self, _: int) -> bytes:
        return self._answers.pop(0)


def test_an_answer_that_comes_late_does_not_begin_again() -> None:
    wire: Any = _SlowWire()
    assert ask(wire, ("2001:db8::1", 91), 4000, b"hi", 5.0) == b"hello"
    assert [message.tag for message in wire.sent] == [0, 5, 5, 5]
