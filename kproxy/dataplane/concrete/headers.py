"""A packet's headers bit by bit, as far as they are known."""

from __future__ import annotations

from typing import Literal, NamedTuple

from kproxy.dataplane.model.packet import ICMP, ICMPV6, SCTP, TCP, UDP, Packet
from kproxy.netfilter.family import Family
from kproxy.netfilter.iptables.codec import UINT32

_WORDS = 5
"""The length of an IPv4 header without options, in words."""
_ICMP_PROTOCOLS = (ICMP, ICMPV6)


class Bits(NamedTuple):
    """Bits in a row, the first the most significant one; `known` says which of `value` count."""

    value: int
    known: int
    width: int

    def slice(self, offset: int, count: int) -> Bits:
        """Some of them; those beyond the end are not known."""
        missing = max(offset + count - self.width, 0)
        shift = max(self.width - offset - count, 0)
        mask = (1 << count) - 1
        value, known = self.value << missing, self.known << missing
        return Bits(value >> shift & mask, known >> shift & mask, count)

    def followed_by(self, other: Bits) -> Bits:
        """These and then the others."""
        value, known = self.value << other.width | other.value, self.known << other.width | other.known
        return Bits(value, known, self.width + other.width)


class Word(NamedTuple):
    """A number of 32 bits, of which `known` are known; the others are 0 in `value`."""

    value: int
    known: int = UINT32

    @property
    def largest(self) -> int:
        """The largest number that it can be; `value` is the smallest."""
        return self.value | ~self.known & UINT32

    def masked(self, mask: int) -> Word:
        """Its bits under a mask."""
        return Word(self.value & mask, self.known | ~mask & UINT32)

    def left(self, count: int) -> Word:
        """Shifted to the left, by 31 bits at most."""
        return Word(self.value << count & UINT32, (self.known << count | (1 << count) - 1) & UINT32)

    def right(self, count: int) -> Word:
        """Shifted to the right."""
        return Word(self.value >> count, self.known >> count | UINT32 ^ UINT32 >> count)


def _joined(*fields: tuple[int | None, int]) -> Bits:
    """Fields of so many bits each, in a row; None: not known."""
    value = known = count = 0
    for number, bits in fields:
        value = value << bits | (0 if number is None else number & (1 << bits) - 1)
        known = known << bits | (0 if number is None else (1 << bits) - 1)
        count += bits
    return Bits(value, known, count)


def network_header(packet: Packet) -> Bits:
    """The IP header; packets here have neither IPv4 options nor, but for fragments, IPv6 extension headers."""
    length = packet.length
    if packet.family is Family.IPV4:
        fragment = None if packet.fragment else 0
        return _joined(
            (4, 4), (_WORDS, 4), (packet.tos, 8), (length, 16),
            (None, 16), (0, 1), (None, 1), (fragment, 14),
            (packet.ttl, 8), (packet.protocol, 8), (None, 16),
            (packet.src, 32), (packet.dst, 32),
        )  # fmt: skip
    return _joined(
        (6, 4), (packet.tos, 8), (None, 20), (None if length is None else length - 40, 16),
        (packet.protocol, 8), (packet.ttl, 8), (packet.src, 128), (packet.dst, 128),
    )  # fmt: skip


def transport_header(packet: Packet) -> Bits | None:
    """The header after the IP header; None if the packet is a later fragment and has none."""
    if packet.fragment:
        return None
    if packet.protocol in _ICMP_PROTOCOLS:
        return _joined((packet.icmp_type, 8), (packet.icmp_code, 8))
    if packet.protocol == TCP:
        return _joined((packet.sport, 16), (packet.dport, 16), (None, 72), (packet.tcp_flags, 8))
    if packet.has_ports or packet.protocol in (UDP, SCTP):
        return _joined((packet.sport, 16), (packet.dport, 16))
    return Bits(0, 0, 0)


def packet_header(packet: Packet) -> Bits:
    """The IP header and the one after it."""
    header, transport = network_header(packet), transport_header(packet)
    return header if transport is None else header.followed_by(transport)


def word_at(header: Bits, length: int | None, offset: int, size: int = 4) -> Word | Literal[False] | None:
    """Octets of a packet as a word, from an offset in octets; False if the packet of this length (None: not known) is
    too short for them, None if that is not known."""
    if length is not None and offset + size > length:
        return False
    if length is None and (offset + size) * 8 > header.width:
        return None
    part = header.slice(offset * 8, size * 8)
    return Word(part.value & part.known, part.known | UINT32 & ~((1 << size * 8) - 1))
