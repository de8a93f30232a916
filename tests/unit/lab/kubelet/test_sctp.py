"""The small SCTP: an association from its beginning to the answer."""

from __future__ import annotations

import socket
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from scapy.layers.sctp import (
    SCTP,
    SCTPChunkCookieAck,
    SCTPChunkCookieEcho,
    SCTPChunkData,
    SCTPChunkInit,
    SCTPChunkInitAck,
    SCTPChunkParamStateCookie,
    SCTPChunkSACK,
)

from kproxy.lab.kubelet.sctp import ask, read_packet, respond


@given(st.binary(max_size=60))
def test_anything_can_be_read(data: bytes) -> None:
    for family in (socket.AF_INET, socket.AF_INET6):
        respond(read_packet(family, data), range(65536), lambda _sport, _dport, text: text)


def test_an_association_from_beginning_to_answer() -> None:
    def send(tag: int, chunk: Any, port: int = 91) -> Any:
        packet = bytes(SCTP(sport=4000, dport=port, tag=tag) / chunk)
        reply = respond(
            read_packet(socket.AF_INET6, packet), {91}, lambda sport, dport, text: f"{sport} {dport} ".encode() + text
        )
        if not reply:
            return None
        found = SCTP(reply)
        assert (found.sport, found.dport, found.tag) == (91, 4000, 7)
        return found

    init = SCTPChunkInit(init_tag=7, a_rwnd=65536, n_out_streams=1, n_in_streams=1, init_tsn=9)
    first = send(0, init)
    assert bytes(send(0, init)) == bytes(first), "sent again, it is the same association"
    tag, cookie = first[SCTPChunkInitAck].init_tag, first[SCTPChunkParamStateCookie].cookie
    assert SCTPChunkCookieAck in send(tag, SCTPChunkCookieEcho(cookie=cookie))
    found = send(tag, SCTPChunkData(beginning=1, ending=1, tsn=9, data=b"hello"))
    assert found[SCTPChunkSACK].cumul_tsn_ack == 9
    assert bytes(found[SCTPChunkData].data) == b"4000 91 hello"
    assert send(0, init, port=92) is None


class _SlowWire:
    """A raw socket whose peer answers an INIT twice, as if it had been sent again, with another tag each time."""

    family = socket.AF_INET6

    def __init__(self) -> None:
        self.sent: list[Any] = []
        self._answers: list[bytes] = []

    def setsockopt(self, *_: int) -> None: ...

    def settimeout(self, _: float) -> None: ...

    def connect(self, _: tuple[str, int]) -> None: ...

    def send(self, data: bytes) -> None:
        packet = SCTP(data)
        self.sent.append(packet)
        if SCTPChunkInit in packet:
            self._tag = packet.init_tag
            for tag in (5, 6):
                self._answer(SCTPChunkInitAck(init_tag=tag, params=[SCTPChunkParamStateCookie(cookie=b"abcd")]))
        elif SCTPChunkCookieEcho in packet:
            self._answer(SCTPChunkCookieAck())
        elif SCTPChunkData in packet:
            self._answer(SCTPChunkData(beginning=1, ending=1, tsn=1, data=b"hello"))

    def _answer(self, chunk: Any) -> None:
        self._answers.append(bytes(SCTP(sport=91, dport=4000, tag=self._tag) / chunk))

    def recv(self, _: int) -> bytes:
        return self._answers.pop(0)


def test_an_answer_that_comes_late_does_not_begin_again() -> None:
    wire: Any = _SlowWire()
    assert ask(wire, ("2001:db8::1", 91), 4000, b"hi", 5.0) == b"hello"
    assert [packet.tag for packet in wire.sent] == [0, 5, 5, 5]
