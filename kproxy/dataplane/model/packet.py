"""A packet as iptables sees it: header fields, marks, interfaces.

Addresses are integers beside their family, as everywhere in `netfilter`. A field that is None is unknown: it has a
value that was not given, and an outcome that depends on it is INDETERMINATE. An interface that is an empty string is
absent, as the input interface of a packet that this host made. Only some of a mark's bits may be known (`mark_known`).
"""

from __future__ import annotations

import dataclasses
import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from kproxy.dataplane.model.errors import DataplaneError
from kproxy.family import join_host_port
from kproxy.netfilter.address import format_address
from kproxy.netfilter.family import Family, protocol_name
from kproxy.netfilter.field import PORT_PROTOCOLS
from kproxy.netfilter.iptables.codec import UINT32, parse_protocol

TCP: Final = 6
UDP: Final = 17
SCTP: Final = 132
ICMP: Final = 1
ICMPV6: Final = 58

SYN: Final = 0x02
ACK: Final = 0x10
ECE: Final = 0x40
CWR: Final = 0x80

ARRIVING: Final = "arriving"
LOCAL: Final = "local"
LOOPBACK: Final = "lo"

ICMP_ECHO: Final = {Family.IPV4: 8, Family.IPV6: 128}
ICMP_ERRORS: Final = {ICMP: frozenset({3, 4, 5, 11, 12}), ICMPV6: frozenset({1, 2, 3, 4})}
"""The types of ICMP messages about other packets."""


@dataclass(frozen=True, slots=True)
class Packet:
    """One packet.

    Attributes:
        src, dst: addresses as integers. A packet of origin local may leave its source to routing (None).
        protocol: the number.
        sport, dport: None where the protocol has no ports, else open.
        tcp_flags: the bits of `netfilter.matches.TCP_FLAGS`, ECE and CWR.
        in_interface, out_interface: as iptables sees them where the packet is: of a bridged packet, the bridge.
        in_port, out_port: the bridge ports (physdev); empty if it came or goes by none.
        mark, mark_known: the mark, and which of its bits are known.
        origin: `arriving` or `local` (made by this host).
        length: octets, IP header included. ttl: TTL or hop limit; open means: enough. tos: TOS or traffic class octet.
        fragment: whether it is a second or later fragment.
        uid, gid: of the sending socket, for packets of origin local. socket: whether there is one.
        bridged: of a packet that came by a bridge port, whether its frame was for another port rather than for the
            bridge itself; None: decided by whether the destination is in the bridge's own network.
    """

    family: Family
    src: int | None
    dst: int | None
    protocol: int
    sport: int | None = None
    dport: int | None = None
    icmp_type: int | None = None
    icmp_code: int | None = None
    tcp_flags: int | None = None
    in_interface: str | None = None
    out_interface: str | None = None
    in_port: str | None = None
    out_port: str | None = None
    mark: int = 0
    mark_known: int = UINT32
    origin: str = ARRIVING
    length: int | None = None
    ttl: int | None = None
    tos: int | None = None
    fragment: bool = False
    uid: int | None = None
    gid: int | None = None
    socket: bool | None = None
    bridged: bool | None = None

    @property
    def has_ports(self) -> bool:
        """Whether the protocol has ports."""
        return self.protocol in PORT_PROTOCOLS

    @property
    def is_icmp_error(self) -> bool:
        """Whether it is an ICMP message about another packet."""
        return self.icmp_type is not None and self.icmp_type in ICMP_ERRORS.get(self.protocol, frozenset())

    @property
    def source(self) -> str:
        """`IP[:PORT]` or `[IP]:PORT`; `?` for what is open."""
        return format_endpoint(self.family, self.src, self.sport)

    @property
    def destination(self) -> str:
        """As `source`."""
        return format_endpoint(self.family, self.dst, self.dport)

    def common(self, others: Iterable[Packet]) -> Packet:
        """The packet with those addresses, ports and interfaces open on which others differ from it."""
        fields = ("src", "sport", "dst", "dport", "out_interface", "in_interface")
        others = tuple(others)
        open_ = {name: None for name in fields if any(getattr(self, name) != getattr(each, name) for each in others)}
        return self.replace(**open_) if open_ else self

    def replace(self, **changes: object) -> Packet:
        """A copy with some fields changed."""
        return dataclasses.replace(self, **changes)  # type: ignore[arg-type]

    def __str__(self) -> str:
        text = f"{protocol_name(self.protocol)} {self.source} -> {self.destination}"
        if self.mark or self.mark_known != UINT32:
            text += f" mark 0x{self.mark:x}" + ("" if self.mark_known == UINT32 else f"/0x{self.mark_known:x}")
        return text


class Endpoint(NamedTuple):
    """An address and a port, or None for no port; as text `IP`, `IP:PORT` or `[IP]:PORT`."""

    family: Family
    address: int
    port: int | None = None

    def __str__(self) -> str:
        return format_endpoint(self.family, self.address, self.port)


def parse_endpoint(text: str) -> Endpoint:
    """Read `IP`, `IP:PORT`, or `[IP]:PORT`.

    Raises:
        DataplaneError: it is none of these.
    """
    if text.startswith("["):
        host, _, rest = text[1:].partition("]")
        colon, port = rest[:1], rest[1:]
    else:
        host, colon, port = text.partition(":") if text.count(":") == 1 else (text, "", "")
    try:
        if colon not in ("", ":") or "%" in host or ("[" in text) != ("]" in text):
            raise ValueError(text)
        address = ipaddress.ip_address(host)
    except ValueError:
        raise DataplaneError(f"IP, IP:PORT or [IP]:PORT expected, not {text!r}") from None
    if colon and not (port.isascii() and port.isdigit() and len(port) <= 5 and int(port) <= 0xFFFF):
        raise DataplaneError(f"a port from 0 to 65535 expected, not {port!r}")
    family = Family.IPV6 if address.version == 6 else Family.IPV4
    return Endpoint(family, int(address), int(port) if colon else None)


def format_endpoint(family: Family, address: int | None, port: int | None) -> str:
    """`IP`, `IP:PORT`, `[IP]:PORT`; `?` for an address that is open."""
    host = "?" if address is None else format_address(address, family)
    if port is None:
        return host
    return join_host_port(host, port)


def make_packet(
    src: str | None, dst: str, protocol: str | int = "tcp", *, new: bool = True, **fields: object
) -> Packet:
    """A packet from texts, for command lines and tests.

    `src` and `dst` are as for `parse_endpoint`; `icmp` stands for ICMPv6 in an IPv6 packet. A TCP packet that `new`
    says begins a connection is a SYN, an ICMP packet without a type an echo request; `fields` go to `Packet` as they
    are.

    Raises:
        DataplaneError: a text is wrong, or the families differ.
    """
    destination = parse_endpoint(dst)
    source = parse_endpoint(src) if src is not None else None
    if source is not None and source.family is not destination.family:
        raise DataplaneError(f"source and destination of one family expected, not {src} and {dst}")
    return packet_between(source, destination, protocol, new=new, **fields)


def packet_between(
    source: Endpoint | None, destination: Endpoint, protocol: str | int = "tcp", *, new: bool = True, **fields: object
) -> Packet:
    """A packet between endpoints of one family; everything else as for `make_packet`.

    Raises:
        DataplaneError: the protocol is unknown, or has no ports and an endpoint has one.
    """
    family, address, dport = destination
    src, sport = (None, None) if source is None else source[1:]
    try:
        number = parse_protocol(protocol) if isinstance(protocol, str) else protocol
    except ValueError as error:
        raise DataplaneError(str(error)) from error
    if number == ICMP and family is Family.IPV6:
        number = ICMPV6
    if number not in PORT_PROTOCOLS and (sport is not None or dport is not None):
        raise DataplaneError(f"an address without a port expected for protocol {protocol_name(number)}")
    if number == TCP and new:
        fields.setdefault("tcp_flags", SYN)
    if number in (ICMP, ICMPV6) and "icmp_type" not in fields:
        fields["icmp_type"], fields["icmp_code"] = ICMP_ECHO[family], 0
    if fields.get("origin") == LOCAL:
        fields.setdefault("in_interface", "")
    return Packet(family, src, address, number, sport, dport, **fields)  # type: ignore[arg-type]


def parse_ip(text: str) -> tuple[Family, int]:
    """Read an address of either family. Raises DataplaneError."""
    family, address, port = parse_endpoint(text)
    if port is not None or text.startswith("["):
        raise DataplaneError(f"an address without a port expected, not {text!r}")
    return family, address
