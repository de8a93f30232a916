"""The packet headers that nft knows, field by field: where each field lies, how wide it is, and its data type.

One row serves the reader, the printer, JSON and the engines. `HEADERS` holds the protocols of payload expressions (`ip
saddr`), by the layer whose start the offsets count from; `EXTENSION_HEADERS` those that have to be looked for: IPv6
extension headers and TCP options. Offsets and widths are in bits, as in the headers' RFCs.

A payload expression of a protocol also wants the packet to be of that protocol: nft adds the comparison itself (`tcp
dport 22` matches no UDP packet, and `tcp dport != 22` neither). `th` has no such condition, besides a transport header.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from kproxy.netfilter.nftables.datatype import DATATYPES, DataType


class Layer(enum.Enum):
    """Where offsets of a header count from; the values are nft's names in raw expressions (`@nh,96,32`)."""

    LINK = "ll"
    NETWORK = "nh"
    TRANSPORT = "th"
    INNER = "ih"


@dataclass(frozen=True, slots=True)
class HeaderField:
    """A field of a header: `offset` and `bits` in bits, counted from the most significant bit of the header's first
    byte."""

    name: str
    offset: int
    bits: int
    type: DataType


@dataclass(frozen=True, slots=True)
class Header:
    """A protocol's header. `number` is the IP protocol (transport headers) or the ether type (network headers) that a
    packet must have, None where nothing is asked (`ether`, `th`)."""

    name: str
    layer: Layer
    number: int | None
    fields: Mapping[str, HeaderField]


def _fields(*rows: tuple[str, int, int, str] | tuple[str, int, int]) -> Mapping[str, HeaderField]:
    found = {}
    for name, offset, bits, *kind in rows:
        found[name] = HeaderField(name, offset, bits, DATATYPES[str(kind[0]) if kind else "integer"].sized(bits))
    return MappingProxyType(found)


_PORTS: Final = (("sport", 0, 16, "inet_service"), ("dport", 16, 16, "inet_service"))

_HEADERS: Final = (
    Header("ether", Layer.LINK, None, _fields(
        ("daddr", 0, 48, "ether_addr"), ("saddr", 48, 48, "ether_addr"), ("type", 96, 16, "ether_type"),
    )),
    Header("vlan", Layer.LINK, 0x8100, _fields(
        ("pcp", 112, 3), ("dei", 115, 1), ("cfi", 115, 1), ("id", 116, 12), ("type", 128, 16, "ether_type"),
    )),
    Header("arp", Layer.NETWORK, 0x0806, _fields(
        ("htype", 0, 16), ("ptype", 16, 16, "ether_type"), ("hlen", 32, 8), ("plen", 40, 8),
        ("operation", 48, 16, "arp_op"), ("saddr ether", 64, 48, "ether_addr"), ("saddr ip", 112, 32, "ipv4_addr"),
        ("daddr ether", 144, 48, "ether_addr"), ("daddr ip", 192, 32, "ipv4_addr"),
    )),
    Header("ip", Layer.NETWORK, 0x0800, _fields(
        ("version", 0, 4), ("hdrlength", 4, 4), ("dscp", 8, 6, "dscp"), ("ecn", 14, 2, "ecn"), ("length", 16, 16),
        ("id", 32, 16), ("frag-off", 48, 16), ("ttl", 64, 8), ("protocol", 72, 8, "inet_proto"), ("checksum", 80, 16),
        ("saddr", 96, 32, "ipv4_addr"), ("daddr", 128, 32, "ipv4_addr"),
    )),
    Header("ip6", Layer.NETWORK, 0x86DD, _fields(
        ("version", 0, 4), ("dscp", 4, 6, "dscp"), ("ecn", 10, 2, "ecn"), ("flowlabel", 12, 20), ("length", 32, 16),
        ("nexthdr", 48, 8, "inet_proto"), ("hoplimit", 56, 8), ("saddr", 64, 128, "ipv6_addr"),
        ("daddr", 192, 128, "ipv6_addr"),
    )),
    Header("icmp", Layer.TRANSPORT, 1, _fields(
        ("type", 0, 8, "icmp_type"), ("code", 8, 8, "icmp_code"), ("checksum", 16, 16), ("id", 32, 16),
        ("sequence", 48, 16), ("gateway", 32, 32), ("mtu", 48, 16),
    )),
    Header("icmpv6", Layer.TRANSPORT, 58, _fields(
        ("type", 0, 8, "icmpv6_type"), ("code", 8, 8, "icmpv6_code"), ("checksum", 16, 16),
        ("parameter-problem", 32, 32), ("packet-too-big", 32, 32), ("mtu", 32, 32), ("id", 32, 16),
        ("sequence", 48, 16), ("max-delay", 32, 16), ("taddr", 64, 128, "ipv6_addr"), ("daddr", 192, 128, "ipv6_addr"),
    )),
    Header("igmp", Layer.TRANSPORT, 2, _fields(
        ("type", 0, 8, "igmp_type"), ("mrt", 8, 8), ("checksum", 16, 16), ("group", 32, 32, "ipv4_addr"),
    )),
    Header("tcp", Layer.TRANSPORT, 6, _fields(
        *_PORTS, ("sequence", 32, 32), ("ackseq", 64, 32), ("doff", 96, 4), ("reserved", 100, 4),
        ("flags", 104, 8, "tcp_flag"), ("window", 112, 16), ("checksum", 128, 16), ("urgptr", 144, 16),
    )),
    Header("udp", Layer.TRANSPORT, 17, _fields(*_PORTS, ("length", 32, 16), ("checksum", 48, 16))),
    Header("udplite", Layer.TRANSPORT, 136, _fields(*_PORTS, ("csumcov", 32, 16), ("checksum", 48, 16))),
    Header("sctp", Layer.TRANSPORT, 132, _fields(*_PORTS, ("vtag", 32, 32), ("checksum", 64, 32))),
    Header("dccp", Layer.TRANSPORT, 33, _fields(*_PORTS)),
    Header("ah", Layer.TRANSPORT, 51, _fields(
        ("nexthdr", 0, 8, "inet_proto"), ("hdrlength", 8, 8), ("reserved", 16, 16), ("spi", 32, 32),
        ("sequence", 64, 32),
    )),
    Header("esp", Layer.TRANSPORT, 50, _fields(("spi", 0, 32), ("sequence", 32, 32))),
    Header("comp", Layer.TRANSPORT, 108, _fields(("nexthdr", 0, 8, "inet_proto"), ("flags", 8, 8), ("cpi", 16, 16))),
    Header("th", Layer.TRANSPORT, None, _fields(*_PORTS)),
)  # fmt: skip

HEADERS: Final[Mapping[str, Header]] = MappingProxyType({header.name: header for header in _HEADERS})
"""The headers of payload expressions by nft's name. `arp saddr ip` is the field `saddr ip` of `arp`."""


_NEXT: Final = (("nexthdr", 0, 8, "inet_proto"), ("hdrlength", 8, 8))
_KIND: Final = (("kind", 0, 8), ("length", 8, 8))

EXTENSION_HEADERS: Final[Mapping[tuple[str, str], Mapping[str, HeaderField]]] = MappingProxyType({
    ("ip6", "hbh"): _fields(*_NEXT),
    ("ip6", "rt"): _fields(*_NEXT, ("type", 16, 8), ("seg-left", 24, 8)),
    ("ip6", "frag"): _fields(
        ("nexthdr", 0, 8, "inet_proto"), ("reserved", 8, 8), ("frag-off", 16, 13), ("reserved2", 29, 2),
        ("more-fragments", 31, 1), ("id", 32, 32),
    ),
    ("ip6", "dst"): _fields(*_NEXT),
    ("tcp option", "eol"): _fields(*_KIND[:1]),
    ("tcp option", "nop"): _fields(*_KIND[:1]),
    ("tcp option", "maxseg"): _fields(*_KIND, ("size", 16, 16)),
    ("tcp option", "window"): _fields(*_KIND, ("count", 16, 8)),
    ("tcp option", "sack-perm"): _fields(*_KIND),
    ("tcp option", "sack"): _fields(*_KIND, ("left", 16, 32), ("right", 48, 32)),
    ("tcp option", "timestamp"): _fields(*_KIND, ("tsval", 16, 32), ("tsecr", 48, 32)),
    ("tcp option", "fastopen"): _fields(*_KIND),
    ("tcp option", "md5sig"): _fields(*_KIND),
    ("tcp option", "mptcp"): _fields(*_KIND, ("subtype", 16, 4)),
})  # fmt: skip
"""The fields of IPv6 extension headers and TCP options, which the kernel looks for in the packet, by kind and name."""
