"""What payload expressions read of a packet."""

from __future__ import annotations

from kproxy.dataplane.concrete.headers import Bits, network_header, transport_header
from kproxy.dataplane.concrete.nft.values import MISSING, Missing, Open
from kproxy.dataplane.model.packet import Packet
from kproxy.netfilter.family import Family
from kproxy.netfilter.nftables.protocol import HEADERS, Layer


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
