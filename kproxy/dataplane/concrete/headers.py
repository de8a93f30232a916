"""A packet's headers bit by bit, as far as they are known."""

from __future__ import annotations

from typing import NamedTuple

from kproxy.dataplane.model.packet import ICMP, ICMPV6, SCTP, TCP, UDP, Packet
from kproxy.netfilter.family import Family

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
