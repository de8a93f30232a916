"""Packets as bytes, and what is seen of them again.

A packet is recognised wherever it turns up by a number that it carries, its token: the sequence number of TCP, the
initiate tag of an SCTP INIT, the payload of UDP and ICMP. ICMP errors quote it.

A connection becomes RELATED to another where the kernel's helper for FTP or TFTP has read in that one where it will go.
So a client at the packet's destination asks a server at its source for data: over UDP by a TFTP read request, which the
server answers from any port to the port that asked (RFC 1350); over TCP by FTP's PORT or EPRT, which names address and
port (RFC 959, RFC 2428). See net/netfilter/nf_conntrack_tftp.c and nf_conntrack_ftp.c.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from kproxy.dataplane.model.packet import ACK, ICMP, ICMPV6, SCTP, SYN, TCP, UDP, Packet
from kproxy.linux.lazy_import import load
from kproxy.netfilter.effect import ERRORS, RESET
from kproxy.netfilter.family import Family

PROTOCOLS: Final = {Family.IPV4: (TCP, UDP, SCTP, ICMP), Family.IPV6: (TCP, UDP, SCTP, ICMPV6)}
"""What can be built and recognised."""

REPLY: Final = 1 << 31
"""What sets the token of a reply apart from that of the packet it answers."""

REJECTS: Final = MappingProxyType({**ERRORS, RESET: RESET})
"""The kinds of `Observed` by the names that REJECT has for its answers."""
REJECT_NAMES: Final = MappingProxyType({kind: name for name, kind in REJECTS.items()})

MAGIC: Final = b"kp-packet"
_TOO_LONG: Final = 15
"""A TCP header's length, in words, that a packet without options does not have."""


class Observed(NamedTuple):
    """A packet that was seen: `where` is a link, or `local`; `kind` is `packet`, `tcp-reset`, or the type and code of
    an ICMP error about it."""

    where: str
    kind: str
    src: str
    sport: int | None
    dst: str
    dport: int | None


def address_text(family: Family, value: int) -> str:
    """An address as text."""
    size, kind = (4, socket.AF_INET) if family is Family.IPV4 else (16, socket.AF_INET6)
    return socket.inet_ntop(kind, value.to_bytes(size, "big"))


def build(packet: Packet, token: int, *, ack: int = 0, malformed: bool = False, payload: bytes = b"") -> bytes:
    """The packet's bytes from the IP header on.

    `malformed`: connection tracking takes it as INVALID, and nothing else minds: a TCP or UDP length beyond the
    packet's end (tcp_error and udp_error in net/netfilter/nf_conntrack_proto_*.c). Its checksum is right, since REJECT
    does not answer where it is wrong.
    """
    inet, inet6, sctp = (load(f"scapy.layers.{name}") for name in ("inet", "inet6", "sctp"))
    src, dst = (address_text(packet.family, item or 0) for item in (packet.src, packet.dst))
    ttl = 64 if packet.ttl is None else packet.ttl
    tos = packet.tos or 0
    below: Any = (
        inet.IP(src=src, dst=dst, ttl=ttl, tos=tos, id=token & 0xFFFF)
        if packet.family is Family.IPV4
        else inet6.IPv6(src=src, dst=dst, hlim=ttl, tc=tos)
    )
    text = payload or MAGIC + struct.pack("!I", token)
    if packet.protocol == TCP:
        flags = SYN if packet.tcp_flags is None else packet.tcp_flags
        above = inet.TCP(sport=packet.sport, dport=packet.dport, seq=token, ack=ack, flags=flags) / payload
        if malformed:
            above.dataofs = _TOO_LONG
    elif packet.protocol == UDP:
        above = inet.UDP(sport=packet.sport, dport=packet.dport) / text
        if malformed:
            above.len = len(above) + 100
    elif packet.protocol == SCTP:
        above = sctp.SCTP(sport=packet.sport, dport=packet.dport, tag=0) / sctp.SCTPChunkInit(init_tag=token)
    elif packet.family is Family.IPV4:
        above = inet.ICMP(type=8, id=token & 0xFFFF, seq=token >> 16) / text
    else:
        above = inet6.ICMPv6EchoRequest(id=token & 0xFFFF, seq=token >> 16, data=text)
    return bytes(below / above)


class _Parsed(NamedTuple):
    src: str
    dst: str
    protocol: int
    body: bytes


def _ip(data: bytes) -> _Parsed | None:
    if len(data) >= 20 and data[0] >> 4 == 4:
        size = (data[0] & 15) * 4
        return _Parsed(socket.inet_ntop(socket.AF_INET, data[12:16]), socket.inet_ntop(socket.AF_INET, data[16:20]),
                       data[9], data[size:])  # fmt: skip
    if len(data) >= 40 and data[0] >> 4 == 6:
        return _Parsed(socket.inet_ntop(socket.AF_INET6, data[8:24]), socket.inet_ntop(socket.AF_INET6, data[24:40]),
                       data[6], data[40:])  # fmt: skip
    return None


def _token(body: bytes, protocol: int) -> int | None:
    """The number that a packet, whole or quoted in an ICMP error, carries."""
    offset = body.find(MAGIC)
    if offset >= 0 and len(body) >= offset + len(MAGIC) + 4:
        return int(struct.unpack_from("!I", body, offset + len(MAGIC))[0])
    if protocol == TCP and len(body) >= 8:
        return int(struct.unpack_from("!I", body, 4)[0])
    if protocol == SCTP and len(body) >= 20:
        return int(struct.unpack_from("!I", body, 16)[0])
    return None


def _recognise(where: str, parsed: _Parsed) -> tuple[int, Observed] | None:
    body, protocol = parsed.body, parsed.protocol
    ports: tuple[int | None, int | None] = (None, None)
    if protocol in (TCP, UDP, SCTP) and len(body) >= 4:
        ports = struct.unpack_from("!HH", body)
    kind = "packet"
    token: int | None
    if protocol == TCP and len(body) >= 14 and body[13] & 0x04:
        kind = "tcp-reset"
        if body[13] & 0x10:
            token = (int(struct.unpack_from("!I", body, 8)[0]) - 1) & 0xFFFFFFFF
        else:  # the answer to a reply
            token = int(struct.unpack_from("!I", body, 4)[0]) - 1 | REPLY
    elif protocol in (ICMP, ICMPV6):
        if body[0] == (0 if protocol == ICMP else 129):
            return None  # an echo reply
        if body[0] == (8 if protocol == ICMP else 128):
            token = _token(body, protocol)
        else:
            quoted = _ip(body[8:])
            if quoted is None:
                return None
            kind = f"icmp {body[0]}/{body[1]}"
            token = _token(quoted.body, quoted.protocol)
    else:
        token = _token(body, protocol)
    if token is None:
        return None
    return token, Observed(where, kind, parsed.src, ports[0], parsed.dst, ports[1])


def read_frame(link: str, frame: bytes) -> tuple[int, Observed] | None:
    """What an Ethernet frame on a link carries, with its token; None if that is no packet of ours."""
    parsed = _ip(frame[14:])
    return None if parsed is None else _recognise(link, parsed)


def open_receiver(family: Family, protocol: int) -> socket.socket:
    """A raw socket that gets what this namespace delivers to itself."""
    if family is Family.IPV4:
        return socket.socket(socket.AF_INET, socket.SOCK_RAW, protocol)
    found = socket.socket(socket.AF_INET6, socket.SOCK_RAW, protocol)
    found.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVPKTINFO, 1)
    return found


def read_delivered(family: Family, protocol: int, found: socket.socket) -> tuple[int, Observed] | None:
    """The next packet of a socket of `open_receiver`, with its token; None if it is none of ours.

    Raises:
        BlockingIOError: there is none, and the socket does not block.
    """
    if family is Family.IPV4:
        parsed = _ip(found.recv(65535))
        return None if parsed is None else _recognise("local", parsed)
    data, ancillary, _, source = found.recvmsg(65535, 256)
    target = next((item[:16] for _, kind, item in ancillary if kind == socket.IPV6_PKTINFO), bytes(16))
    return _recognise(
        "local", _Parsed(source[0].partition("%")[0], socket.inet_ntop(socket.AF_INET6, target), protocol, data)
    )


def open_sender(family: Family) -> socket.socket:
    """A raw socket that sends packets with their IP headers."""
    if family is Family.IPV4:
        return socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
    found = socket.socket(socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_RAW)
    found.setsockopt(socket.IPPROTO_IPV6, 36, 1)  # IPV6_HDRINCL
    return found


def what_counts(seen: Sequence[Observed]) -> Observed | None:
    """Of everything seen of one packet, the one thing that tells its fate: a packet that the host delivered to itself
    is answered by the host, too."""
    packets = [item for item in seen if item.kind == "packet"]
    return packets[0] if packets else seen[0] if seen else None


HELPED: Final = (TCP, UDP)
"""What connections there are helpers for here."""

_FTP: Final = 21
_TFTP: Final = 69
_PUSH: Final = 0x08
_CLIENT_PORT: Final = 40021
_READ_REQUEST: Final = b"\0\1file\0octet\0"


def helper_rules(family: Family, table: str) -> str:
    """Rules for nft that have both helpers look on. The host itself stays out of it: a RST of its own would end the
    connection that the helper reads."""
    kind = "ip" if family is Family.IPV4 else "ip6"
    helpers = "".join(
        f'ct helper {name} {{ type "{name}" protocol {protocol}; l3proto {kind}; }}; '
        for name, protocol in (("ftp", "tcp"), ("tftp", "udp"))
    )
    chains = "".join(
        f"chain helped-{hook} {{ type filter hook {hook} priority -199; "
        f'tcp dport {_FTP} ct helper set "ftp"; udp dport {_TFTP} ct helper set "tftp"; }}; '
        for hook in ("prerouting", "output")
    )
    resets = f"tcp flags & rst == rst tcp sport {_FTP} drop; tcp flags & rst == rst tcp dport {_FTP} drop; "
    quiet = f"chain quiet {{ type filter hook output priority -400; {resets}}};"
    return f"table inet {table} {{ {helpers}{chains}{quiet} }}\n"


def packets_before(packet: Packet) -> list[bytes]:
    """The packets, all arriving, after which the kernel expects this one."""
    asks = packet.replace(src=packet.dst, dst=packet.src, mark=0, ttl=None, tos=None)
    if packet.protocol == UDP:
        return [build(asks.replace(sport=packet.dport, dport=_TFTP), 0, payload=_READ_REQUEST)]
    asks = asks.replace(sport=_CLIENT_PORT, dport=_FTP)
    answers = asks.replace(src=packet.src, dst=packet.dst, sport=_FTP, dport=_CLIENT_PORT)
    address, port = address_text(packet.family, packet.dst or 0), packet.dport or 0
    if packet.family is Family.IPV4:
        command = f"PORT {address.replace('.', ',')},{port >> 8},{port & 255}\r\n"
    else:
        command = f"EPRT |2|{address}|{port}|\r\n"
    before = b"NOOP\r\n"  # the helper reads a line whose beginning it has seen
    data = asks.replace(tcp_flags=ACK | _PUSH)
    return [
        build(asks.replace(tcp_flags=SYN), 1000),
        build(answers.replace(tcp_flags=SYN | ACK), 2000, ack=1001),
        build(data, 1001, ack=2001, payload=before),
        build(data, 1001 + len(before), ack=2001, payload=command.encode()),
    ]
