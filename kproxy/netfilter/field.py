"""The properties of a packet, its connection and its host that rules read: one row each.

A row says what conditions call a property, how wide it is, which protocols have it, and its word in answers. A packet
yields it by an attribute of that name, or by a reader in `dataplane.concrete.fields`; the variables of that name in
`dataplane.symbolic.table` hold it for all packets at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

UINT32: Final = 0xFFFFFFFF
"""The largest number of 32 bits, as of a mark."""
PORT_PROTOCOLS: Final = frozenset({6, 17, 33, 132, 136})
"""Protocols with ports: TCP, UDP, DCCP, SCTP, UDP-Lite."""
NAMES: Final = -1
"""The width of a field that holds names."""


@dataclass(frozen=True, slots=True)
class Field:
    """A property. `bits` is its width: 0 for an address's, `NAMES` for names; `protocols` have it, empty: all."""

    name: str
    bits: int
    word: str
    protocols: frozenset[int] = frozenset()


_ICMPS: Final = frozenset({1, 58})
_ROWS: Final = (
    Field("src", 0, "the source address"),
    Field("dst", 0, "the destination address"),
    Field("protocol", 8, "the protocol"),
    Field("sport", 16, "the source port", PORT_PROTOCOLS),
    Field("dport", 16, "the destination port", PORT_PROTOCOLS),
    Field("icmp_type", 8, "the ICMP type", _ICMPS),
    Field("icmp_code", 8, "the ICMP code", _ICMPS),
    Field("tcp_flags", 8, "the TCP flags", frozenset({6})),
    Field("fragment", 1, "whether it is a fragment"),
    Field("length", 16, "the packet's length"),
    Field("ttl", 8, "the TTL"),
    Field("tos", 8, "the TOS"),
    Field("mark", 32, "the packet's mark"),
    Field("connmark", 32, "the connection's mark"),
    Field("in_interface", NAMES, "the input interface"),
    Field("out_interface", NAMES, "the output interface"),
    Field("in_port", NAMES, "the input bridge port"),
    Field("out_port", NAMES, "the output bridge port"),
    Field("bridged", 1, "whether it is bridged"),
    Field("mac", NAMES, "the sender's MAC address"),
    Field("pkttype", 8, "the packet type"),
    Field("has_socket", 1, "the sending socket"),
    Field("uid", 32, "the sender's uid"),
    Field("gid", 32, "the sender's gid"),
    Field("groups", 32, "the sender's gid"),
    Field("src_kind", 8, "whether the address is local"),
    Field("dst_kind", 8, "whether the address is local"),
    Field("src_local", 1, "whether the address is local"),
    Field("dst_local", 1, "whether the address is local"),
    Field("src_path", 1, "which way an answer would take"),
    Field("ctstate", 7, "the connection's state"),
    Field("ipvs", 1, "whether IPVS has had the packet"),
    Field("ctstatus", 10, "the connection's status"),
)
FIELDS: Final[Mapping[str, Field]] = MappingProxyType({field.name: field for field in _ROWS})
"""The rows by name. What has no row has the word that rules have for it (`meta cpu`)."""


def word_of(field: str) -> str:
    """What a field is called in an answer: `the source port`, `meta cpu`. Words after its name do not count."""
    row = FIELDS.get(field.partition(" ")[0])
    return field if row is None else row.word
