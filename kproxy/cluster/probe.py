"""Packets that clients of a Service send first; those from outside have addresses that nobody in a cluster has."""

from __future__ import annotations

import ipaddress
from typing import Final

from kproxy.dataplane import Packet
from kproxy.dataplane.model.packet import ARRIVING, SCTP, SYN, TCP, UDP
from kproxy.netfilter import Family
from kproxy.netfilter.address import parse_address
from kproxy.services.claims import ServiceAddress

OUTSIDE: Final = {
    Family.IPV4: ("198.51.100.7", "192.0.2.7", "203.0.113.7"),
    Family.IPV6: ("2001:db8:7::7", "2001:db8:8::7"),
}
"""Clients outside of the cluster (RFC 5737, RFC 3849)."""
CLIENT_PORT: Final = 40000
_SPARE: Final = 250
"""The number in a network of pods of an address that is rarely one of a Pod."""
_PROTOCOLS: Final = {"tcp": TCP, "udp": UDP, "sctp": SCTP}


def probe(
    family: Family, src: str, to: ServiceAddress, *, origin: str = ARRIVING, device: str | None = "", flags: int = SYN
) -> Packet:
    """A packet to an address and port. `device`: the interface by which it arrives, None if that is not known."""
    protocol = _PROTOCOLS[to.protocol]
    return Packet(
        family,
        parse_address(src, family),
        parse_address(to.address, family),
        protocol,
        CLIENT_PORT,
        to.port,
        tcp_flags=flags if protocol == TCP else None,
        in_interface=device,
        in_port="",
        out_port="",
        origin=origin,
    )


def spare_address(cidr: str, family: Family) -> str:
    """An address of a network of pods that rarely is one of a Pod; "" for a network of another family, or none."""
    network = ipaddress.ip_network(cidr, strict=False) if cidr else None
    if network is None or network.version != family.version:
        return ""
    return str(network[min(_SPARE, network.num_addresses - 1)])
