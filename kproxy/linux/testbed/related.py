"""How a packet's connection becomes RELATED to another: what comes before it.

The kernel expects a connection where its helper for FTP or TFTP has read in another one where it will go. So a client
at the packet's destination asks a server at its source for data: over UDP by a TFTP read request, which the server
answers from any port to the port that asked (RFC 1350); over TCP by FTP's PORT or EPRT, which names address and port
(RFC 959, RFC 2428). See net/netfilter/nf_conntrack_tftp.c and nf_conntrack_ftp.c.
"""

from __future__ import annotations

from typing import Final

from kproxy.dataplane.model.packet import ACK, SYN, TCP, UDP, Packet
from kproxy.linux.testbed.wire import address_text, build
from kproxy.netfilter.family import Family

PROTOCOLS: Final = (TCP, UDP)
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
