"""A packet's headers bit by bit, as far as they are known: what payload expressions read."""

from __future__ import annotations

from typing import NamedTuple

from kproxy.dataplane.concrete.nft.values import MISSING, Missing, Open
from kproxy.dataplane.model.packet import ICMP, ICMPV6, SCTP, TCP, UDP, Packet
from kproxy.netfilter.family import Family
from kproxy.netfilter.nftables.protocol import HEADERS, Layer

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
    """The IP header."""
    length = packet.length
    if packet.family is Family.IPV4:
        fragment = None if packet.fragment else 0
        return _joined(
            (4, 4), (None, 4), (packet.tos, 8), (length, 16),
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


def payload(packet: Packet, protocol: str, field: str) -> int | Open | Missing:
    """A field of a header, `ip saddr`; MISSING if the packet has no such header."""
    header = HEADERS[protocol]
    row = header.fields[field]
    if header.layer is Layer.NETWORK:
        family = {"ip": Family.IPV4, "ip6": Family.IPV6}.get(protocol)
        if family is not packet.family:
            return MISSING
    elif header.layer is Layer.TRANSPORT and header.number not in (None, packet.protocol):
        return MISSING
    return raw_payload(packet, header.layer, row.offset, row.bits, f"{protocol} {field}")


def raw_payload(packet: Packet, layer: Layer, offset: int, count: int, name: str) -> int | Open | Missing:
    """Bits of a layer, counted from its start."""
    if layer is Layer.NETWORK:
        bits = network_header(packet)
    elif layer is Layer.TRANSPORT:
        found = transport_header(packet)
        if found is None:
            return MISSING
        bits = found
    else:
        bits = Bits(0, 0, 0)
    part = bits.slice(offset, count)
    if part.known == (1 << count) - 1:
        return part.value
    return Open(_FIELDS.get(name, name), f"{name} is not known", part.value, part.known)


_WITH_PORTS = ("tcp", "udp", "sctp", "dccp", "udplite", "th")
_FIELDS = {
    "ip saddr": "src", "ip6 saddr": "src", "ip daddr": "dst", "ip6 daddr": "dst",
    **{f"{name} {field}": field for name in _WITH_PORTS for field in ("sport", "dport")},
}  # fmt: skip
"""Open fields by the name that the packet has for them: one question, however a rule asks."""
