"""From frames to packets: what a captured packet is, and to which flow it belongs, with scapy.

A flow keeps something that no translation changes: the sequence number of a TCP connection's first packet, the
initiation tag of an SCTP association, the bytes of a UDP datagram. By that token a packet is known again on every host,
whatever its addresses are there, also where an ICMP error quotes it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.inet6 import (
    ICMPv6DestUnreach,
    ICMPv6PacketTooBig,
    ICMPv6ParamProblem,
    ICMPv6TimeExceeded,
    IPv6,
)
from scapy.layers.l2 import Ether
from scapy.layers.sctp import SCTP, SCTPChunkInit, SCTPChunkInitAck
from scapy.layers.vxlan import VXLAN

from kproxy.cluster.journey.network import Outer
from kproxy.lab.capture.frames import Frame

THERE: Final = "there"
BACK: Final = "back"
TOKEN: Final = re.compile(rb"kproxy-[0-9a-f]{12}")
"""What UDP flows carry."""
_ERRORS_6: Final = (ICMPv6DestUnreach, ICMPv6TimeExceeded, ICMPv6PacketTooBig, ICMPv6ParamProblem)
_VXLAN_PORTS: Final = (8472, 4789)
_VXLAN_FLAGS: Final = b"\x08\0\0\0"
_UDP_HEADER: Final = 8
_ETHERNET: Final = 14
_SYN_OR_RST: Final = 0x06


@dataclass(frozen=True, slots=True, kw_only=True)
class PacketAtInterface:
    """A packet of a flow, at one interface.

    Attributes:
        direction: `there` or `back`.
        kind: `packet`, `rst`, or `icmp TYPE/CODE`.
        sport, dport: None for ICMP, and for a port that the model does not know.
        outer: the VXLAN header around it, None if there is none.
    """

    host: str
    device: str
    outgoing: bool
    direction: str
    kind: str
    src: str
    sport: int | None
    dst: str
    dport: int | None
    outer: Outer | None = None

    @property
    def position(self) -> tuple[str, str, bool, str]:
        """The interface, and the direction."""
        return self.host, self.device, self.outgoing, self.direction

    @property
    def words(self) -> str:
        if self.kind.startswith("icmp"):
            text = f"{self.kind} {self.src} -> {self.dst}"
        else:
            ends = f"{_end(self.src, self.sport)} -> {_end(self.dst, self.dport)}"
            text = f"RST {ends}" if self.kind == "rst" else ends
        return f"{text}  in {self.outer}" if self.outer is not None else text


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedPacket(PacketAtInterface):
    """A packet that was captured at `time`; `foreign` if the frame was meant for another host."""

    time: int
    foreign: bool = False


def _end(address: str, port: int | None) -> str:
    shown = f"[{address}]" if ":" in address else address
    return shown if port is None else f"{shown}:{port}"


class Read(NamedTuple):
    """A dissected frame: the packet, its protocol, the token of its flow, and its TOS octet."""

    observed: ObservedPacket
    protocol: str
    token: object
    tos: int


@dataclass(frozen=True, slots=True)
class Flow:
    """A flow to look for: its protocol, where it starts, the port it starts with, the bytes it carries, and the TOS
    octet of its packets, by which it is found: its host may give it another port before it is captured."""

    protocol: str
    host: str
    source_port: int
    data: bytes
    tos: int


def read_frames(frames: Iterable[Frame]) -> list[Read]:
    """The frames that begin or first answer some flow, dissected."""
    return [found for frame in frames if _may_begin(frame.data) for found in _dissect(frame)]


def observed_packets(reads: Sequence[Read], flow: Flow) -> list[ObservedPacket]:
    """A flow's first packet and what first answers it, wherever they were seen; repetitions left out."""
    token = _token_of(flow, reads)
    seen: dict[ObservedPacket, ObservedPacket] = {}
    for item in reads:
        if token is not None and item.protocol == flow.protocol and item.token == token:
            seen.setdefault(replace(item.observed, time=0), item.observed)
    return list(seen.values())


def _token_of(flow: Flow, reads: Sequence[Read]) -> object:
    """What the flow's packets are known by: UDP's bytes, or what the first packet from its host says."""
    if flow.protocol == "UDP":
        return flow.data
    first = [
        item
        for item in reads
        if item.protocol == flow.protocol
        and item.observed.host == flow.host
        and item.observed.outgoing
        and (item.observed.direction, item.observed.kind) == (THERE, "packet")
    ]
    return next((item.token for item in first if item.tos == flow.tos), None)


def _may_begin(data: bytes) -> bool:
    """Whether a frame may matter: anything but the middle of a TCP connection. Cheap, since most frames do not."""
    head = _transport(data, _ETHERNET)
    if head is None:
        return False
    protocol, offset = head
    if protocol == 17 and _is_vxlan(
        int.from_bytes(data[offset + 2 : offset + 4], "big"), data[offset + 8 : offset + 16]
    ):
        inner = _transport(data, offset + 8 + 8 + _ETHERNET)
        if inner is None:
            return False
        protocol, offset = inner
    return protocol != 6 or (len(data) > offset + 13 and bool(data[offset + 13] & _SYN_OR_RST))


def _is_vxlan(port: int, body: bytes) -> bool:
    """Whether a datagram is one by its port and its header (RFC 7348): a node may masquerade with these ports too."""
    return port in _VXLAN_PORTS and len(body) >= 8 and body[:4] == _VXLAN_FLAGS


def _transport(data: bytes, offset: int) -> tuple[int, int] | None:
    """Protocol and offset of the transport header of the IP packet at an offset."""
    if len(data) < offset + 20:
        return None
    kind = data[offset - 2 : offset]
    if kind == b"\x08\x00":
        return data[offset + 9], offset + (data[offset] & 15) * 4
    if kind == b"\x86\xdd" and len(data) >= offset + 40:
        return data[offset + 6], offset + 40
    return None


def _dissect(frame: Frame) -> Iterator[Read]:
    packet, outer = _ip(Ether(frame.data)), None
    if packet is not None and isinstance(packet.payload, UDP) and _is_vxlan(packet[UDP].dport, _body(packet[UDP])):
        wrapped = VXLAN(_body(packet[UDP]))
        outer = Outer("vxlan", packet.src, packet.dst, frame.device, wrapped.vni, packet[UDP].dport)
        packet = _ip(Ether(bytes(wrapped.payload)))
    if packet is None:
        return
    found = _recognise(packet)
    if found is None:
        return
    protocol, token, direction, kind, above = found
    sport, dport = (above.sport, above.dport) if above is not None else (None, None)
    observed = ObservedPacket(
        time=frame.time, host=frame.host, device=frame.device, outgoing=frame.outgoing, foreign=frame.foreign,
        direction=direction, kind=kind, src=packet.src, sport=sport, dst=packet.dst, dport=dport, outer=outer,
    )  # fmt: skip
    yield Read(observed, protocol, token, int(packet.tos if isinstance(packet, IP) else packet.tc))


def _ip(frame: Any) -> Any:
    return next((frame[layer] for layer in (IP, IPv6) if layer in frame), None)


def _recognise(packet: Any) -> tuple[str, object, str, str, Any] | None:
    """Protocol, token, direction, kind and transport header of a packet that begins or first answers a flow."""
    quoted = _quoted(packet)
    if quoted is not None:
        kind, inner = quoted
        found = _recognise(inner)
        # An error about the packet goes back, one about the answer goes there.
        return None if found is None else (found[0], found[1], BACK if found[2] == THERE else THERE, kind, None)
    head = packet.payload  # not what lies deeper: an ICMPv6 redirect, say, holds a whole packet too
    if isinstance(head, TCP):
        return _tcp(head)
    if isinstance(head, SCTP):
        if SCTPChunkInit in packet:
            return "SCTP", int(packet[SCTPChunkInit].init_tag), THERE, "packet", head
        return ("SCTP", int(head.tag), BACK, "packet", head) if SCTPChunkInitAck in packet else None
    if isinstance(head, UDP):
        body = _body(head)
        token = TOKEN.search(body)
        if token is not None:
            return "UDP", token[0], BACK if body.startswith(b'{"pod"') else THERE, "packet", head
    return None


def _body(head: Any) -> bytes:
    """A datagram's bytes, whatever scapy makes of them by their ports, which masquerading chooses by chance."""
    return bytes(head.original[_UDP_HEADER:])


def _tcp(head: Any) -> tuple[str, object, str, str, Any] | None:
    flags = str(head.flags)
    if "R" in flags:
        return "TCP", (int(head.ack) - 1) % (1 << 32), BACK, "rst", head
    if "S" not in flags:
        return None
    if "A" in flags:
        return "TCP", (int(head.ack) - 1) % (1 << 32), BACK, "packet", head
    return "TCP", int(head.seq), THERE, "packet", head


def _quoted(packet: Any) -> tuple[str, Any] | None:
    """The packet that an ICMP error quotes, and what the error is."""
    if ICMP in packet and packet[ICMP].type in (3, 11):
        error = packet[ICMP]
        inner = bytes(error.payload)
        return (f"icmp {error.type}/{error.code}", IP(inner)) if len(inner) >= 28 else None
    for layer in _ERRORS_6:
        if layer in packet:
            error = packet[layer]
            inner = bytes(error.payload)
            return (f"icmp {error.type}/{error.code}", IPv6(inner)) if len(inner) >= 48 else None
    return None
