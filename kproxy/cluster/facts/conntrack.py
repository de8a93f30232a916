"""Connection tracking entries, as `conntrack -L` prints them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import msgspec

from kproxy.family import join_host_port

_FIELD: Final = re.compile(r"(src|dst|sport|dport)=(\S+)")
_ORDER: Final = ["src", "dst", "sport", "dport"]


class Flow(msgspec.Struct, frozen=True):
    """One entry: the packet that made it, and where its answer comes from.

    Attributes:
        protocol: TCP, UDP or SCTP.
        source, source_port, destination, destination_port: of the original direction.
        reply_source, reply_source_port: of the answers: the endpoint, if the packet was sent to one.
        reply_destination, reply_destination_port: where answers go: the client, or this node if it masqueraded.
    """

    protocol: str
    source: str
    source_port: int
    destination: str
    destination_port: int
    reply_source: str
    reply_source_port: int
    reply_destination: str
    reply_destination_port: int

    @property
    def is_translated(self) -> bool:
        """Whether its destination was changed (DNAT)."""
        return (self.reply_source, self.reply_source_port) != (self.destination, self.destination_port)

    @property
    def endpoint(self) -> str:
        """Where its packets go, as `ip:port` or `[ip]:port`."""
        return join_host_port(self.reply_source, self.reply_source_port)

    def __str__(self) -> str:
        to = join_host_port(self.destination, self.destination_port)
        return f"{self.protocol} {join_host_port(self.source, self.source_port)} to {to} via {self.endpoint}"


def parse_flows(text: str, protocol: str = "", *, strict: bool = False) -> Iterator[Flow]:
    """Reads what `conntrack -L` printed; entries of protocols without ports are left out.

    Args:
        protocol: that of all entries, if it was asked for one (`-p`); else each line begins with it, after the name of
            the family in what /proc/net/nf_conntrack has.
        strict: a line that is no whole entry is an error, but for the one that conntrack prints to stderr at the end.

    Raises:
        ValueError: with the number of the line.
    """
    for number, line in enumerate(text.splitlines(), 1):
        fields = _FIELD.findall(line)
        names, values = [name for name, _ in fields], [value for _, value in fields]
        told = next((word for word in line.split(maxsplit=4)[:4] if word in _PROTOCOLS), "")
        ports = values[2:4] + values[6:]
        if names == _ORDER * 2 and all(map(str.isdecimal, ports)):
            s, d, _, _, rs, rd, _, _ = values
            sp, dp, rsp, rdp = map(int, ports)
            yield Flow(protocol or told.upper(), s, sp, d, dp, rs, rsp, rd, rdp)
        elif strict and line.strip() and not _SUMMARY.match(line) and (told or names != _ORDER[:2] * 2):
            raise ValueError(f"line {number}: what conntrack -L prints expected, not {line[:80]!r}")


_SUMMARY: Final = re.compile(r"conntrack v\S+ \(conntrack-tools\): ")
_PROTOCOLS: Final = ("tcp", "udp", "sctp", "dccp", "udplite")
