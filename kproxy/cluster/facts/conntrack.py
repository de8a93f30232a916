"""Connection tracking entries, as `conntrack -L` prints them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import msgspec

from kproxy.family import join_host_port

_FIELD: Final = re.compile(r"(src|dst|sport|dport)=(\S+)")
_ORDER: Final = ("src", "dst", "sport", "dport")


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


def parse_flows(text: str, protocol: str = "") -> Iterator[Flow]:
    """Reads what `conntrack -L` printed; lines that are no entries with ports are left out.

    Args:
        protocol: that of all entries, if it was asked for one (`-p`); else each line begins with it, after the name of
            the family in what /proc/net/nf_conntrack has.
    """
    for line in text.splitlines():
        fields = _FIELD.findall(line)
        if len(fields) == 8 and tuple(name for name, _ in fields) == _ORDER * 2:
            (_, s), (_, d), (_, sp), (_, dp), (_, rs), (_, rd), (_, rsp), (_, rdp) = fields
            name = protocol or next((word.upper() for word in line.split(maxsplit=4) if word in _PROTOCOLS), "")
            yield Flow(name, s, int(sp), d, int(dp), rs, int(rsp), rd, int(rdp))


def first_odd_line(text: str) -> tuple[int, str] | None:
    """The first line that is no whole entry, with its number from 1; None if all are. Entries of protocols without
    ports count, and the line that conntrack itself prints to stderr at the end."""
    lines = enumerate(text.splitlines(), 1)
    return next(((number, line) for number, line in lines if line.strip() and not _is_entry(line)), None)


def _is_entry(line: str) -> bool:
    fields = _FIELD.findall(line)
    with_ports = any(word in _PROTOCOLS for word in line.split(maxsplit=4)[:4])
    expected = _ORDER * 2 if with_ports else _ORDER[:2] * 2
    numbers = all(value.isdecimal() for name, value in fields if name in _ORDER[2:])
    return (numbers and tuple(name for name, _ in fields) == expected) or _SUMMARY.match(line) is not None


_SUMMARY: Final = re.compile(r"conntrack v\S+ \(conntrack-tools\): ")
_PROTOCOLS: Final = ("tcp", "udp", "sctp", "dccp", "udplite")
